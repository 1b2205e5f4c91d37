// Package rpc is how two nodes talk: one peer port per node, and on it raft's own connections and framed streams.
//
// A Mux owns the port. Every connection, accepted or dialled, begins with a handshake in which both sides say who they are
// (Hello). After it the connection is either handed to raft as a stream of bytes (ServiceRaft, through Mux.RaftLayer) or becomes a
// Stream, which carries frames in both directions. The package knows nothing about what the frames mean.
//
// # Handshake
//
// All integers are big endian. The dialler speaks first:
//
//	magic  4 bytes  F7 'H' 'F' 'P'
//	layout u8       1; how the body is laid out
//	length u16      bytes of body, at most 4096
//	body            service u8 | proto u8 | boot uvarint | cluster | node | instance | to
//
// The last four are texts: a uvarint with the number of bytes, then UTF-8 without control characters. Bytes behind the last known
// field are skipped, so that a later version can append fields without changing the layout. The acceptor answers:
//
//	magic  4 bytes  F7 'H' 'F' 'P'
//	layout u8       1
//	status u8       0: welcome; else the Reason why the dialler is refused
//	length u16      bytes of body, at most 4096
//	body            status 0: the acceptor's own Hello, laid out as above; else a text for people, UTF-8
//
// Magic, layout and length keep their places in every later layout, so an old node can always read a new node's prelude to its end
// and refuse it in words. No text protocol and no TLS record begins with F7: a stray HTTP, Redis or TLS client is recognised by its
// first byte, logged, and closed. The acceptor refuses, in this order, what it cannot decode, whom Config.Authorize rejects, a
// dialler that looks for another node (Hello.To), and a service that nobody serves (yet). Neither side sends anything more until the
// answer has arrived.
//
// # Authentication
//
// With Config.Secret the dialler appends a field to its hello (uvarint length, then version u8 = 1, flags u8, nonce of 32 bytes), and the
// acceptor answers it first with a challenge:
//
//	magic  4 bytes  F7 'H' 'F' 'P'
//	layout u8       1
//	status u8       7
//	length u16
//	body            nonce of 32 bytes | proof of 32 bytes
//
// The dialler checks the proof and sends its own, 32 bytes without a frame, and only then does the acceptor consider who is asking. A
// proof is HMAC-SHA256 over the sender's role, the SHA-256 of the dialler's prelude (both nodes' ids, the cluster, the service and the
// dialler's nonce) and the acceptor's nonce; its key is derived from the secret by HKDF. The secret itself never travels. Both records'
// keys are derived by HKDF from the secret and from all that was said, so that nobody in between can change, leave out, repeat or move
// what is sent afterwards. It is not encrypted: a Listener and Dialer with TLS do that, and this handshake runs inside them.
//
// Where only one of the two nodes has a secret, or the secrets differ, both sides refuse and log it. A node of an older version does not
// read the offer; the dialler then misses the challenge. Without a secret everything on the wire is as in versions that had none.
//
// # Frames
//
//	length  u32  bytes of payload, at most Config.MaxFrame
//	type    u8   the caller's; all 256 values are free
//	payload
//
// A frame over the limit, or one that the connection's end cuts short, ends the stream. There are no pings and no flow control beyond
// TCP's: what needs them has them one layer up.
//
// # Records
//
// After the handshake both directions travel in records of up to 16 KiB, raft's bytes as well as frames (seal.go). Without a secret each
// has a CRC32C over all that came before it, the handshake included; with one, an AES-GMAC tag. A changed byte ends the connection.
//
// A stream has an outbox and one goroutine that empties it. Whatever was sent while the previous write was under way goes out as one
// write (at most 1 MiB a piece), so a busy stream pays for few system calls and an idle one has no delay.
//
// # Duties of the caller
//
//   - Keep one goroutine in Recv for as long as the stream is in use: only a read notices that the other side has hung up.
//   - Do not let a goroutine that must call Recv wait in Send for ever: when both sides fill both directions, each waits for the other
//     to read, until Config.WriteTimeout ends the stream.
//   - A host that vanishes without a word is noticed by TCP keepalive (11 s on an idle connection) or by WriteTimeout (once the
//     kernel's send buffer is full). Between the two lies the resending of little data, which TCP alone gives up after many minutes:
//     whoever waits for an answer needs a timeout of its own.
//   - Return from a handler when its stream ends (Recv fails, Done is closed): Mux.Close waits for handlers. A handler must not call
//     Mux.Close.
//   - Without Config.Secret, or with SecretOptional, identity is claimed and not proven. With it a node proves that it belongs to the
//     cluster, not which of its nodes it is.
//   - Set Config.RaftPeer and Config.Verify. Raft dials addresses, not nodes, and its requests do not name the node they are meant for:
//     when two nodes swap addresses, or one comes back with an empty disk under its old name, a leader would count answers of the
//     wrong log.
package rpc
