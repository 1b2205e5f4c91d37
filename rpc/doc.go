// Package rpc implements the protocol between two nodes. Each node has one peer
// port, which carries raft's own connections and framed streams.
//
// The package is a part of the holdfast program. It is not a supported API, and
// may change in any commit.
//
// A Mux owns the port. Every connection, accepted or dialed, begins with a
// handshake in which both sides identify themselves (Hello). After the
// handshake, the Mux either passes the connection to raft as a stream of bytes
// (ServiceRaft, through Mux.RaftLayer), or makes it a Stream, which carries
// frames in both directions. The package does not interpret the frames.
//
// # Handshake
//
// All integers of a fixed size are big endian. The dialer speaks first:
//
//	magic  4 bytes  F7 'H' 'F' 'P'
//	layout u8       1; the layout of the body
//	length u16      bytes of body, at most 4096
//	body            service u8 | proto u8 | boot uvarint | cluster | node | instance | to
//
// The last four are texts: a uvarint with the number of bytes, then UTF-8
// without control characters. Bytes after the last known field are skipped, so
// that a later version can append fields without changing the layout. The
// acceptor answers:
//
//	magic  4 bytes  F7 'H' 'F' 'P'
//	layout u8       1
//	status u8       0: welcome; 7: challenge (see below); else the Reason of the refusal
//	length u16      bytes of body, at most 4096
//	body            status 0: the acceptor's own Hello, laid out as above; 7: see below; else an error text, UTF-8
//
// Magic, layout and length keep their positions in every later layout. So an
// old node can always read a new node's prelude to its end, and refuse it with
// a text. No text protocol and no TLS record begins with F7, so the acceptor
// recognizes an HTTP, Redis or TLS client by its first byte, logs it, and
// closes the connection. (A Redis client first receives Config.ClientHint.) The
// acceptor refuses, in this order: a hello that it cannot decode, a dialer
// without the secret (see below), a dialer that Config.Authorize rejects, a
// dialer that expects another node (Hello.To), and a service without a handler.
// Apart from its proof (see below), the dialer sends nothing more until the
// answer has arrived.
//
// # Authentication
//
// With Config.Secret the dialer appends a field to its hello (uvarint length,
// then version u8 = 1, flags u8, nonce of 32 bytes, and a hint of 16 bytes for
// each of its secrets), and the acceptor first answers with a challenge:
//
//	magic  4 bytes  F7 'H' 'F' 'P'
//	layout u8       1
//	status u8       7
//	length u16
//	body            nonce of 32 bytes | proof of 32 bytes
//
// The dialer checks the proof and sends its own proof, 32 bytes without a
// frame. Only then does the acceptor continue the handshake. A proof is
// HMAC-SHA256 over the sender's role, the SHA-256 of the dialer's prelude (the
// ids of both nodes, the cluster, the service and the dialer's nonce), and the
// acceptor's nonce. The key of the HMAC is derived from the secret by HKDF. The
// secret itself is never sent. The keys of the records in both directions are
// derived by HKDF from the secret and from all messages of the handshake. So if
// a third party on the network path changes, omits, repeats or moves a record,
// the receiver ends the connection. The data is not encrypted: use a Listener
// and Dialer with TLS for that; this handshake then runs inside TLS.
//
// While an operator replaces the secret, a node has two secrets
// (Config.PreviousSecret). The hints are HMACs of the dialer's nonce, one for
// each secret of the dialer. The acceptor uses the first of its own secrets
// that matches a hint, or its current secret if none matches. The proof shows
// the dialer which secret the acceptor has chosen.
//
// If only one of the two nodes has a secret, or the secrets differ, both sides
// refuse the connection and log the reason. (With Config.SecretOptional, a node
// also accepts a node without a secret.) A node of an older version ignores the
// dialer's field and sends no challenge, so the dialer refuses it. Without a
// secret the protocol is the same as in versions without authentication.
//
// # Frames
//
//	length  u32  bytes of payload, at most Config.MaxFrame
//	type    u8   chosen by the caller; all 256 values are free
//	payload
//
// A received frame over the limit ends the stream, and so does a frame that the
// end of the connection truncates. There are no pings, and no flow control
// beyond that of TCP: callers that need them implement them.
//
// # Records
//
// After the handshake both directions consist of records of up to 16 KiB, for
// raft's bytes as well as for frames (seal.go). Without a secret, each record
// has a CRC32C over the handshake and over all payloads of its direction up to
// and including its own. With a secret, it has an AES-GMAC tag. A changed byte
// ends the connection.
//
// A stream has an outbox and one goroutine that writes the outbox to the
// connection. All frames that were sent during the previous write go out
// together, in writes of at most 1 MiB. So a busy stream needs few system calls,
// and an idle stream adds no delay.
//
// # Duties of the caller
//
//   - Keep one goroutine in Recv while the stream is in use: only a read
//     detects that the other side has closed the connection.
//   - Do not let a goroutine that must call Recv wait in Send without limit. If
//     both sides fill both directions, each waits for the other to read, until
//     Config.WriteTimeout ends the stream.
//   - Give every wait for an answer a timeout of its own. A vanished host is
//     detected by TCP keepalive (11 s on an idle connection) or by WriteTimeout
//     (once the kernel's send buffer is full). If the connection is not idle and
//     the buffer is not full, TCP resends the data, and gives up only after many
//     minutes.
//   - Return from a handler when its stream ends (Recv fails, Done is closed):
//     Mux.Close waits for handlers. A handler must not call Mux.Close.
//   - Remember that without Config.Secret, or with SecretOptional, an identity
//     is only claimed. With a secret a node proves that it belongs to the
//     cluster, but not which of its nodes it is.
//   - Set Config.RaftPeer and Config.Verify. Raft dials addresses, not nodes,
//     and its requests do not name the node that they are for. Without these
//     checks, if two nodes swapped addresses, or a node came back with an empty
//     disk under its old name, a leader would count answers about the wrong log.
package rpc
