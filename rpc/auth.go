package rpc

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// MinSecret is the minimum length of Config.Secret in bytes. Any host that can
// connect to the port can obtain a value computed from the secret, and can then
// try secrets against this value offline. So the secret must be too long to
// guess.
const MinSecret = 32

const (
	authVersion   = 1
	nonceSize     = 32
	proofSize     = sha256.Size
	hintSize      = 16
	offerSize     = 1 + 1 + nonceSize // version, flags, nonce; then a hint for each secret of the dialer
	challengeSize = nonceSize + proofSize

	flagOptional = 1 << 0 // the dialer also accepts nodes without a secret

	// statusChallenge is the status of an answer that is neither a welcome nor
	// a refusal. No Reason may have the same number.
	statusChallenge = 7
)

// Each label names the purpose of a derived value, so that a value computed for
// one purpose is of no use for another. The exact spelling of the labels is
// part of the protocol.
const (
	labelProof    = "holdfast peer 1 proof"
	labelHint     = "holdfast peer 1 hint"
	labelDialer   = "holdfast peer 1 dialler"
	labelAcceptor = "holdfast peer 1 acceptor"
)

// keyring contains the secrets that a node accepts, the current one first. It
// is immutable. A node without a secret has a nil keyring.
type keyring struct {
	keys     []*authenticator
	optional bool
}

// authenticator contains one secret. With it, a node proves to another node
// that it has this secret, and checks the other node's proof.
type authenticator struct {
	secret   []byte
	proofKey []byte
}

// newKeyring returns the keyring of a node with these secrets. Without a
// secret, it returns nil.
func newKeyring(secret, previous []byte, optional bool) (*keyring, error) {
	switch {
	case len(secret) == 0 && len(previous) > 0:
		return nil, errors.New("rpc config: PreviousSecret without Secret")
	case len(secret) == 0:
		return nil, nil
	}
	ring := &keyring{optional: optional}
	for _, s := range [][]byte{secret, previous} {
		if len(s) == 0 {
			continue
		}
		if len(s) < MinSecret {
			return nil, fmt.Errorf("rpc config: a secret has %d bytes, fewer than %d", len(s), MinSecret)
		}
		key, err := hkdf.Key(sha256.New, s, nil, labelProof, sha256.Size)
		if err != nil {
			return nil, fmt.Errorf("rpc config: derive key from secret: %w", err)
		}
		ring.keys = append(ring.keys, &authenticator{s, key})
	}
	return ring, nil
}

// errReplaced ends connections whose secret SetSecrets has removed.
var errReplaced = errors.New("rpc: the secret of the connection was replaced")

// has reports whether a secret is in the keyring.
func (k *keyring) has(a *authenticator) bool {
	return k != nil && slices.ContainsFunc(k.keys, func(b *authenticator) bool {
		return hmac.Equal(a.secret, b.secret)
	})
}

// SetSecrets replaces Config.Secret and Config.PreviousSecret. It closes the
// connections that were authenticated with neither of the new secrets; the
// nodes that dialed them dial again. SetSecrets fails if the node was started
// without a secret.
func (m *Mux) SetSecrets(secret, previous []byte) error {
	old := m.ring.Load()
	if old == nil {
		return errors.New("rpc: the node was started without a secret")
	}
	ring, err := newKeyring(secret, previous, old.optional)
	switch {
	case err != nil:
		return err
	case ring == nil:
		return errors.New("rpc: the new secret is empty")
	}
	stale := make(map[*conn]*Stream)
	m.mu.Lock()
	m.ring.Store(ring)
	for c := range m.conns {
		if c.key != nil && !ring.has(c.key) {
			stale[c] = c.stream
		}
	}
	m.mu.Unlock()
	for c, stream := range stale {
		if stream == nil {
			c.drop()
		} else if err := stream.close(errReplaced); err != nil {
			m.log.Debug("cannot close stream", "remote", c.RemoteAddr(), "error", err)
		}
	}
	return nil
}

// offer is the field that a dialer with a secret appends to its hello.
type offer struct {
	made     bool
	optional bool
	nonce    []byte
	hints    []byte // one hint of hintSize bytes for each secret; older versions send none
}

// newOffer returns the field that a dialer appends to its hello, with a new
// nonce. It returns nil if the node has no secret.
func (k *keyring) newOffer() []byte {
	if k == nil {
		return nil
	}
	field := binary.AppendUvarint(nil, uint64(offerSize+len(k.keys)*hintSize))
	field = append(field, authVersion, 0)
	if k.optional {
		field[len(field)-1] = flagOptional
	}
	nonce := newNonce()
	field = append(field, nonce...)
	for _, a := range k.keys {
		field = append(field, a.hint(nonce)...)
	}
	return field
}

// parseOffer parses the bytes of a prelude after the hello.
func parseOffer(rest []byte) offer {
	size, n := binary.Uvarint(rest)
	if n <= 0 || size < offerSize || size > uint64(len(rest)-n) || rest[n] != authVersion {
		return offer{}
	}
	field := rest[n : n+int(size)]
	return offer{
		made: true, optional: field[1]&flagOptional != 0, nonce: field[2:offerSize], hints: field[offerSize:],
	}
}

// hint returns a value by which another node with the same secret recognizes
// the secret. The hint proves nothing, because any host that has seen it can
// send it again.
func (a *authenticator) hint(nonce []byte) []byte {
	mac := hmac.New(sha256.New, a.proofKey)
	mac.Write([]byte(labelHint))
	mac.Write(nonce)
	return mac.Sum(nil)[:hintSize]
}

// chosen returns the secret with which the acceptor answers an offer: the first
// of the acceptor's secrets that the dialer has too, or else the acceptor's
// current secret.
func (k *keyring) chosen(o offer) *authenticator {
	for _, a := range k.keys {
		hint := a.hint(o.nonce)
		for theirs := range slices.Chunk(o.hints, hintSize) {
			if hmac.Equal(theirs, hint) {
				return a
			}
		}
	}
	return k.keys[0]
}

func newNonce() []byte {
	nonce := make([]byte, nonceSize)
	rand.Read(nonce) // crypto/rand documents that Read never fails
	return nonce
}

// proof returns a value that only a node with the secret can compute. The value
// is valid only for this connection, because the prelude contains the dialer's
// nonce, the names of both nodes, the cluster and the service. The parameter
// nonce is the acceptor's nonce.
func (a *authenticator) proof(label string, prelude, nonce []byte) []byte {
	sum := sha256.Sum256(prelude)
	mac := hmac.New(sha256.New, a.proofKey)
	mac.Write([]byte(label))
	mac.Write(sum[:])
	mac.Write(nonce)
	return mac.Sum(nil)
}

// keys returns the keys of both directions of a connection. transcript is
// everything that both sides have sent in the handshake. It contains both
// nonces, so no two connections have the same keys, even if a third party
// replays the messages of one connection on another.
func (a *authenticator) keys(transcript []byte) (dialer, acceptor cipher.AEAD, err error) {
	salt := sha256.Sum256(transcript)
	if dialer, err = a.key(salt[:], labelDialer); err == nil {
		acceptor, err = a.key(salt[:], labelAcceptor)
	}
	return dialer, acceptor, err
}

func (a *authenticator) key(salt []byte, label string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, a.secret, salt, label, 32)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	return cipher.NewGCM(block)
}

// challenge is the acceptor's half of the authentication. It returns the
// messages of the challenge and the secret that both nodes have, or nil if the
// two nodes do not authenticate.
func (m *Mux) challenge(c *conn, hello Hello, prelude, rest []byte) (transcript []byte, a *authenticator, err error) {
	mismatch := func(format string) error {
		return m.refuse(c, ReasonSecret, "cluster secret does not match: "+
			fmt.Sprintf(format, hello.NodeID, m.self(hello.Service, hello.NodeID).NodeID))
	}
	offered, ring := parseOffer(rest), m.ring.Load()
	switch {
	case ring == nil && offered.made && !offered.optional:
		return nil, nil, mismatch("node %q has one, node %q has none")
	case ring == nil, !offered.made && ring.optional:
		return nil, nil, nil
	case !offered.made:
		return nil, nil, mismatch("node %q has none, node %q has one")
	}
	a = ring.chosen(offered)
	nonce := newNonce()
	transcript = append(transcript, magic...)
	transcript = append(transcript, layout, statusChallenge, 0, 0)
	from := len(transcript)
	transcript = append(transcript, nonce...)
	transcript = append(transcript, a.proof(labelAcceptor, prelude, nonce)...)
	if transcript, err = sealBody(transcript, from); err != nil {
		return nil, nil, err
	}
	if _, err := c.Write(transcript); err != nil {
		return nil, nil, fmt.Errorf("send challenge: %w", err)
	}
	var proof [proofSize]byte
	if _, err := io.ReadFull(c, proof[:]); err != nil {
		return nil, nil, fmt.Errorf("read answer to challenge: %w", err)
	}
	if !hmac.Equal(proof[:], a.proof(labelDialer, prelude, nonce)) {
		return nil, nil, mismatch("nodes %q and %q have different ones")
	}
	return append(transcript, proof[:]...), a, nil
}

// prove is the dialer's half of the authentication. It checks the acceptor's
// proof, and sends the dialer's proof. It returns the dialer's proof and the
// secret that both nodes have.
func (k *keyring) prove(c *conn, prelude, challenge []byte) (proof []byte, a *authenticator, err error) {
	switch {
	case k == nil:
		return nil, nil, fmt.Errorf("%w: the acceptor sent a challenge, but this node did not offer to authenticate",
			ErrBadHello)
	case len(challenge) < challengeSize:
		return nil, nil, fmt.Errorf("%w: challenge of %d bytes", ErrBadHello, len(challenge))
	}
	nonce, theirs := challenge[:nonceSize], challenge[nonceSize:challengeSize]
	proof = make([]byte, proofSize)
	i := slices.IndexFunc(k.keys, func(a *authenticator) bool {
		return hmac.Equal(theirs, a.proof(labelAcceptor, prelude, nonce))
	})
	matches := i >= 0
	if matches {
		a = k.keys[i]
		proof = a.proof(labelDialer, prelude, nonce)
	}
	// A proof of zeros tells the acceptor that the secrets differ, so that the
	// acceptor can log this reason. The zeros reveal nothing about the secret.
	if _, err := c.Write(proof); err != nil && matches {
		return nil, nil, fmt.Errorf("answer challenge: %w", err)
	}
	if !matches {
		return nil, nil, fmt.Errorf("%w: the acceptor has a different one", ErrSecret)
	}
	return proof, a, nil
}
