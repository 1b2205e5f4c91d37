// Package lockdelay contains the delays of locks. While the delay of a lost lock
// lasts, no client gets the lock, so that the former owner can notice the loss.
package lockdelay

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tidwall/btree"

	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

// MaxMillis is the longest delay, in milliseconds.
const MaxMillis = 3_600_000

// Rule gives the delay of the keys that match a pattern.
type Rule struct {
	Pattern string
	Delay   int64 // nanoseconds, 0 for none
}

var errPairs = errors.New("it must be pairs of a pattern and a number of milliseconds, such as \"lock:* 15000\"")

// Parse parses a list of rules: patterns and milliseconds, separated by spaces.
func Parse(text string) ([]Rule, error) {
	words := strings.Fields(text)
	if len(words)%2 != 0 {
		return nil, errPairs
	}
	rules := make([]Rule, 0, len(words)/2)
	for ; len(words) > 0; words = words[2:] {
		ms, err := strconv.ParseInt(words[1], 10, 64)
		switch {
		case err != nil:
			return nil, errPairs
		case ms < 0 || ms > MaxMillis:
			return nil, fmt.Errorf("a delay must be from 0 to %d milliseconds", MaxMillis)
		}
		rules = append(rules, Rule{words[0], ms * 1e6})
	}
	return rules, nil
}

// Delay is the delay of a lock.
type Delay struct {
	Key   string
	Until int64 // lease clock at the end of the delay
}

// Set contains the delays of all databases. The zero value is empty.
type Set struct {
	// keys and ends contain the same delays. The trees of a database without
	// delays are nil.
	keys [keyspace.Databases]*btree.BTreeG[Delay] // by key
	ends [keyspace.Databases]*btree.BTreeG[Delay] // by end and key
	n    int
	text int // bytes of the keys
}

// delayBytes is the approximate memory of a delay in both trees, without its key.
const delayBytes = 100

// Bytes returns the approximate memory of the delays.
func (s *Set) Bytes() int64 { return int64(s.n*delayBytes + s.text) }

func byKey(a, b Delay) bool { return a.Key < b.Key }

func byEnd(a, b Delay) bool {
	return cmp.Or(cmp.Compare(a.Until, b.Until), strings.Compare(a.Key, b.Key)) < 0
}

// Clone returns an independent copy. It takes O(1).
func (s *Set) Clone() Set {
	n := *s
	for db := range s.keys {
		if s.keys[db] != nil {
			n.keys[db], n.ends[db] = s.keys[db].IsoCopy(), s.ends[db].IsoCopy()
		}
	}
	return n
}

// Len returns the number of delays.
func (s *Set) Len() int { return s.n }

// Until returns the end of the delay of a key on the lease clock, or 0 if the
// key has no delay.
func (s *Set) Until(db int, key string) int64 {
	if s.keys[db] == nil {
		return 0
	}
	d, _ := s.keys[db].Get(Delay{Key: key})
	return d.Until
}

// Put adds a delay. It replaces the delay of the key, if there is one.
func (s *Set) Put(db int, d Delay) {
	if s.keys[db] == nil {
		options := btree.Options{NoLocks: true}
		s.keys[db], s.ends[db] = btree.NewBTreeGOptions(byKey, options), btree.NewBTreeGOptions(byEnd, options)
	}
	if old, had := s.keys[db].Set(d); had {
		s.ends[db].Delete(old)
		s.n--
		s.text -= len(old.Key)
	}
	s.ends[db].Set(d)
	s.n++
	s.text += len(d.Key)
}

// First returns the delay that ends first, and its database. ok is false if
// there is none.
func (s *Set) First() (db int, first Delay, ok bool) {
	if s.n == 0 {
		return 0, first, false
	}
	for i, t := range s.ends {
		if t == nil {
			continue
		}
		if d, found := t.Min(); found && (!ok || d.Until < first.Until) {
			db, first, ok = i, d, true
		}
	}
	return db, first, ok
}

// Remove removes a delay, which the set must contain.
func (s *Set) Remove(db int, d Delay) {
	s.keys[db].Delete(d)
	s.ends[db].Delete(d)
	s.n--
	s.text -= len(d.Key)
	if s.keys[db].Len() == 0 {
		s.keys[db], s.ends[db] = nil, nil
	}
}

// Drop removes the delays of a database.
func (s *Set) Drop(db int) {
	if s.keys[db] != nil {
		s.n -= s.keys[db].Len()
		s.keys[db].Scan(func(d Delay) bool {
			s.text -= len(d.Key)
			return true
		})
		s.keys[db], s.ends[db] = nil, nil
	}
}

// Swap exchanges the delays of two databases.
func (s *Set) Swap(a, b int) {
	s.keys[a], s.keys[b] = s.keys[b], s.keys[a]
	s.ends[a], s.ends[b] = s.ends[b], s.ends[a]
}

// Scan calls f for the delays, in the order of the databases and keys, until f
// returns false.
func (s *Set) Scan(f func(db int, d Delay) bool) {
	for db, t := range s.keys {
		if t == nil {
			continue
		}
		done := false
		t.Scan(func(d Delay) bool {
			done = !f(db, d)
			return !done
		})
		if done {
			return
		}
	}
}

// Check returns an error if keys and ends do not contain the same delays, or if
// n or text is wrong.
func (s *Set) Check() error {
	n, text := 0, 0
	var err error
	s.Scan(func(db int, d Delay) bool {
		n++
		text += len(d.Key)
		if _, found := s.ends[db].Get(d); !found {
			err = fmt.Errorf("delay of %q in db %d until %d is missing from the delays sorted by their ends",
				d.Key, db, d.Until)
		}
		return err == nil
	})
	if err == nil && (n != s.n || text != s.text) {
		err = fmt.Errorf("there are %d delays with keys of %d bytes, the set counts %d and %d", n, text, s.n, s.text)
	}
	for _, t := range s.ends {
		if t != nil {
			n -= t.Len()
		}
	}
	if err == nil && n != 0 {
		err = errors.New("the orders of the delays have different sizes")
	}
	return err
}
