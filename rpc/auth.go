package rpc

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
)

// MinSecret is the minimum length of Config.Secret in bytes. Any host that
// connects to the port receives a value computed from the secret and can try
// secrets against it offline, so the secret must be too long to guess.
const MinSecret = 32

const (
	authVersion   = 1
	nonceSize     = 32
	proofSize     = sha256.Size
	offerSize     = 1 + 1 + nonceSize // version, flags, nonce
	challengeSize = nonceSize + proofSize

	flagOptional = 1 << 0 // the dialer also accepts nodes without a secret

	// statusChallenge is the status of an answer that is neither a welcome nor
	// a refusal. It shares its numbers with Reason.
	statusChallenge = 7
)

// Distinct labels ensure that a value computed for one purpose is of no use for
// another. They are part of the protocol, with their spelling.
const (
	labelProof    = "holdfast peer 1 proof"
	labelDialer   = "holdfast peer 1 dialler"
	labelAcceptor = "holdfast peer 1 acceptor"
)

// authenticator proves to another node that this node has the cluster's secret,
// and checks the other node's proof. It is nil on a node without a secret.
type authenticator struct {
	secret   []byte
	proofKey []byte
	optional bool
}

func newAuthenticator(cfg *Config) (*authenticator, error) {
	if len(cfg.Secret) == 0 {
		return nil, nil
	}
	key, err := hkdf.Key(sha256.New, cfg.Secret, nil, labelProof, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("rpc config: derive key from secret: %w", err)
	}
	return &authenticator{cfg.Secret, key, cfg.SecretOptional}, nil
}

// offer is the field that a dialer with a secret appends to its hello.
type offer struct {
	made     bool
	optional bool
}

// newOffer returns the field of the prelude, with a new nonce. It returns nil
// without a secret.
func (a *authenticator) newOffer() []byte {
	if a == nil {
		return nil
	}
	field := binary.AppendUvarint(nil, offerSize)
	field = append(field, authVersion, 0)
	if a.optional {
		field[len(field)-1] = flagOptional
	}
	return append(field, newNonce()...)
}

// parseOffer parses the bytes of a prelude after the hello. It does not decode
// the nonce, because proofs cover the whole prelude.
func parseOffer(rest []byte) offer {
	size, n := binary.Uvarint(rest)
	if n <= 0 || size < offerSize || size > uint64(len(rest)-n) || rest[n] != authVersion {
		return offer{}
	}
	return offer{made: true, optional: rest[n+1]&flagOptional != 0}
}

func newNonce() []byte {
	nonce := make([]byte, nonceSize)
	rand.Read(nonce) // crypto/rand documents that Read never fails
	return nonce
}

// proof returns a value that only a node with the secret can compute, and that
// is valid only for this connection: the prelude contains the dialer's nonce,
// the names of both nodes, the cluster and the service, and nonce is the
// acceptor's.
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
// messages of the challenge, or nil if the two nodes do not authenticate.
func (m *Mux) challenge(c *conn, hello Hello, prelude, rest []byte) (transcript []byte, err error) {
	mismatch := func(format string) error {
		return m.refuse(c, ReasonSecret, "cluster secret does not match: "+
			fmt.Sprintf(format, hello.NodeID, m.self(hello.Service, hello.NodeID).NodeID))
	}
	offered := parseOffer(rest)
	switch {
	case m.auth == nil && offered.made && !offered.optional:
		return nil, mismatch("node %q has one, node %q has none")
	case m.auth == nil, !offered.made && m.auth.optional:
		return nil, nil
	case !offered.made:
		return nil, mismatch("node %q has none, node %q has one")
	}
	nonce := newNonce()
	transcript = append(transcript, magic...)
	transcript = append(transcript, layout, statusChallenge, 0, 0)
	from := len(transcript)
	transcript = append(transcript, nonce...)
	transcript = append(transcript, m.auth.proof(labelAcceptor, prelude, nonce)...)
	if transcript, err = sealBody(transcript, from); err != nil {
		return nil, err
	}
	if _, err := c.Write(transcript); err != nil {
		return nil, fmt.Errorf("send challenge: %w", err)
	}
	var proof [proofSize]byte
	if _, err := io.ReadFull(c, proof[:]); err != nil {
		return nil, fmt.Errorf("read answer to challenge: %w", err)
	}
	if !hmac.Equal(proof[:], m.auth.proof(labelDialer, prelude, nonce)) {
		return nil, mismatch("nodes %q and %q have different ones")
	}
	return append(transcript, proof[:]...), nil
}

// prove is the dialer's half of the authentication. It checks the acceptor's
// proof, and sends and returns its own.
func (m *Mux) prove(c *conn, prelude, challenge []byte) (proof []byte, err error) {
	switch {
	case m.auth == nil:
		return nil, fmt.Errorf("%w: challenge without an offer to authenticate", ErrBadHello)
	case len(challenge) < challengeSize:
		return nil, fmt.Errorf("%w: challenge of %d bytes", ErrBadHello, len(challenge))
	}
	nonce, theirs := challenge[:nonceSize], challenge[nonceSize:challengeSize]
	proof = make([]byte, proofSize)
	matches := hmac.Equal(theirs, m.auth.proof(labelAcceptor, prelude, nonce))
	if matches {
		proof = m.auth.proof(labelDialer, prelude, nonce)
	}
	// A proof of zeros tells the acceptor that the secrets differ, so that the
	// acceptor can log it. It reveals nothing about the secret.
	if _, err := c.Write(proof); err != nil && matches {
		return nil, fmt.Errorf("answer challenge: %w", err)
	}
	if !matches {
		return nil, fmt.Errorf("%w: the acceptor has a different one", ErrSecret)
	}
	return proof, nil
}
