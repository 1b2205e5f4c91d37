package backup

import (
	"errors"
	"fmt"
	"io"
	"sort"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// maxLocks is the maximum number of locks that a Content lists.
const maxLocks = 1000

// Content summarizes the data in a backup or in a data directory.
type Content struct {
	fsm.SnapshotHead
	Keys  int            `json:"keys"`
	Types map[string]int `json:"keys_by_type"`
	// WithTTL is the number of keys with a time to live. LongestTTL is the
	// longest remaining time to live of these keys, in nanoseconds.
	WithTTL    int   `json:"keys_with_ttl"`
	LongestTTL int64 `json:"longest_ttl"`
	// Locks lists the keys of the types lock, string and hash that have a time
	// to live. Lock libraries use such strings and hashes as locks. If there
	// are more than maxLocks such keys, it contains the keys with the longest
	// time to live.
	Locks []Lock `json:"locks"`
}

// Lock is a key that may be a lock.
type Lock struct {
	DB    int     `json:"db"`
	Key   string  `json:"key"`
	Type  string  `json:"type"`
	Token uint64  `json:"token"`
	TTL   float64 `json:"ttl_seconds"`
}

// Add adds a key to the summary.
func (c *Content) Add(k fsm.SnapshotKey) {
	if c.Types == nil {
		c.Types = make(map[string]int)
	}
	c.Keys++
	c.Types[k.Type]++
	if k.TTL == 0 {
		return
	}
	c.WithTTL++
	c.LongestTTL = max(c.LongestTTL, k.TTL)
	if k.Type != "string" && k.Type != "hash" && k.Type != "lock" {
		return
	}
	c.Locks = append(c.Locks, Lock{k.DB, k.Key, k.Type, k.Token, time.Duration(k.TTL).Seconds()})
	if len(c.Locks) >= 2*maxLocks {
		c.Sort()
	}
}

// Sort sorts the locks by their time to live, the longest first, and drops the
// locks beyond maxLocks.
func (c *Content) Sort() {
	sort.SliceStable(c.Locks, func(i, j int) bool { return c.Locks[i].TTL > c.Locks[j].TTL })
	c.Locks = c.Locks[:min(len(c.Locks), maxLocks)]
}

// Check reads a snapshot completely and describes it. It returns an error if
// the snapshot is damaged.
func Check(r io.Reader, table *fsm.Table) (Content, error) {
	var c Content
	head, err := fsm.InspectSnapshot(r, table, c.Add)
	c.SnapshotHead = head
	c.Sort()
	return c, err
}

// CheckFile reads the rest of a backup file completely, and describes its content.
func CheckFile(r *Reader, table *fsm.Table) (Content, error) {
	c, err := Check(r, table)
	if damaged := (*DamagedError)(nil); errors.As(err, &damaged) {
		return c, damaged
	}
	if errors.Is(err, fsm.ErrVersion) {
		return c, fmt.Errorf("a newer program wrote this backup, use that program: %w", err)
	}
	if err != nil {
		return c, &DamagedError{r.offset, err.Error()}
	}
	switch t := r.Trailer(); {
	case c.Keys != t.Keys:
		return c, &DamagedError{r.offset, fmt.Sprintf("it contains %d keys instead of %d", c.Keys, t.Keys)}
	case c.SnapshotHead != r.header.SnapshotHead:
		return c, &DamagedError{r.offset, "the header does not describe the data"}
	}
	return c, nil
}
