package storage

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
)

// format is the version of the data directory that this release writes.
const format = 1

// Identity describes the owner of a data directory.
type Identity struct {
	NodeID    string // Config.NodeID at the creation of the directory
	Instance  string // 128 random bits in hex, fixed at the creation of the directory
	ClusterID string // set once by SetClusterID, empty before
	Joins     bool   // the node joined an existing cluster: see SetClusterID
	// JoinIndex and JoinTerm are set by SetJoined. They are 0 for a node that
	// was a member when the cluster was formed.
	JoinIndex uint64
	JoinTerm  uint64
	Boot      uint64 // number of successful Opens of this directory, from 1
	Format    int    // version of the layout of the directory
}

// nodeFile is the content of node.json.
type nodeFile struct {
	Format   int    `json:"format"`
	NodeID   string `json:"node"`
	Instance string `json:"instance"`
	Cluster  string `json:"cluster"`
	Joins    bool   `json:"joins,omitempty"`
	JoinedAt uint64 `json:"joined_at,omitempty"`
	JoinedIn uint64 `json:"joined_in,omitempty"`
	Boot     uint64 `json:"boot"`
	LogKind  string `json:"log"`

	// Mark is the entry mark of this directory in hex. See trailer.go.
	Mark string `json:"mark"`

	// Ready is set when all files have been created. Before that, no file can
	// contain anything that was acknowledged.
	Ready bool `json:"ready"`

	// CRC is the CRC-32C checksum of this file with CRC empty.
	CRC string `json:"crc32c"`
}

func newNodeFile(cfg Config) (nodeFile, error) {
	var b [16 + 8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nodeFile{}, fmt.Errorf("make instance id: %w", err)
	}
	return nodeFile{
		Format:   format,
		NodeID:   cfg.NodeID,
		Instance: hex.EncodeToString(b[:16]),
		LogKind:  cfg.LogKind,
		Mark:     hex.EncodeToString(b[16:]),
	}, nil
}

func nodePath(dir string) string { return filepath.Join(dir, "node.json") }

// encode returns the content of node.json. loadNode accepts no other content
// for the same values.
func (n nodeFile) encode() ([]byte, error) {
	n.CRC = ""
	body, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		return nil, err
	}
	n.CRC = fmt.Sprintf("%08x", crc32.Checksum(body, castagnoli))
	body, err = json.MarshalIndent(n, "", "  ")
	return append(body, '\n'), err
}

// save writes node.json durably.
func (n nodeFile) save(dir string) error {
	b, err := n.encode()
	if err == nil {
		err = replaceFile(nodePath(dir), b)
	}
	if err != nil {
		return fmt.Errorf("save identity: %w", err)
	}
	return nil
}

func (n nodeFile) identity() Identity {
	return Identity{
		NodeID:    n.NodeID,
		Instance:  n.Instance,
		ClusterID: n.Cluster,
		Joins:     n.Joins,
		JoinIndex: n.JoinedAt,
		JoinTerm:  n.JoinedIn,
		Boot:      n.Boot,
		Format:    n.Format,
	}
}

// mark returns the entry mark in binary.
func (n nodeFile) mark() (m mark, err error) {
	b, err := hex.DecodeString(n.Mark)
	if err != nil || len(b) != len(m) {
		return m, fmt.Errorf("entry mark %q is not %d bytes of hex", n.Mark, len(m))
	}
	copy(m[:], b)
	return m, nil
}

// loadNode reads node.json. found is false for a directory that was never used.
func loadNode(dir string, bad corrupter) (n nodeFile, found bool, err error) {
	path := nodePath(dir)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		for _, name := range []string{"stable.db", "acked", "wal", "log.db", "snapshots"} {
			used, err := exists(filepath.Join(dir, name))
			if err != nil {
				return n, false, fmt.Errorf("look for %s: %w", name, err)
			}
			if used {
				return n, false, bad.file(path, "it is missing, but the directory holds %s", name)
			}
		}
		return n, false, nil
	}
	if err != nil {
		return n, false, fmt.Errorf("read identity: %w", err)
	}
	if err := json.Unmarshal(b, &n); err != nil {
		return n, false, bad.file(path, "it does not decode (%v)", err)
	}
	if n.Format > format {
		return n, false, fmt.Errorf("%w: %s has format %d, this release knows %d", ErrFormat, dir, n.Format, format)
	}
	// Compare with the bytes that save would write. This detects a change
	// anywhere in the file, not only in the values.
	want, err := n.encode()
	if err != nil {
		return n, false, fmt.Errorf("encode identity: %w", err)
	}
	if !bytes.Equal(b, want) {
		return n, false, bad.file(path, "its checksum does not match")
	}
	return n, true, nil
}

// NewClusterID returns a random id for a cluster that is being formed.
func NewClusterID() string {
	var b [8]byte
	rand.Read(b[:]) // never fails: see crypto/rand
	return hex.EncodeToString(b[:])
}
