package replay

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// Shadow applies entries to a state machine like that of a node, and runs the
// same changes on a real redis-server. Both must have the same keys and values
// after every entry.
type Shadow struct {
	redis  *Redis
	m      *fsm.Machine
	t      translator
	chains map[uint64]uint64 // hash chain of the state machine, by log index

	Commands int // number of commands run on the redis-server
	Compared int // number of keys compared
	Equal    int // number of keys with the same DUMP on both servers
	bad      []checker.Violation
	err      error // error of the redis-server, or of a read of the state machine
	index    uint64
	restored bool // true if the entry has replaced the data with that of a backup
}

// maxShadowViolations is how many violations end the replay. After one
// difference, later differences are expected.
const maxShadowViolations = 10

// NewShadow empties the redis-server and copies the keys of m to it.
func NewShadow(redis *Redis, m *fsm.Machine) (*Shadow, error) {
	s := &Shadow{redis: redis, m: m, t: translator{table: m.Table(), script: m.ScriptText},
		chains: make(map[uint64]uint64)}
	s.t.kind = s.kind
	return s, s.copyKeys()
}

// copyKeys empties the redis-server and copies the keys of the state machine to
// it.
func (s *Shadow) copyKeys() error {
	for _, cmd := range [][]string{{"FLUSHALL"}, {"SCRIPT", "FLUSH"}} {
		if _, err := s.redis.must(0, cmd...); err != nil {
			return err
		}
	}
	for db := range fsm.Databases {
		keys, err := s.keys(db)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if s.kind(db, key) == lockKind {
				if _, err := s.redis.must(db, lockPlaceholder(key)...); err != nil {
					return err
				}
				continue
			}
			payload, known, err := s.dump(db, key)
			if err != nil {
				return err
			}
			if !known {
				continue
			}
			if v, err := s.redis.do(db, "RESTORE", key, "0", payload); err != nil {
				return err
			} else if v.Err != "" {
				s.say(key, "the redis-server refuses the DUMP of the state machine: %s", v.Err)
			}
		}
	}
	return nil
}

// Machine returns the state machine.
func (s *Shadow) Machine() *fsm.Machine { return s.m }

func (s *Shadow) say(key, format string, args ...any) {
	s.bad = append(s.bad, checker.Violation{Check: "log on a real Redis", Key: key,
		Text: fmt.Sprintf("log index %d: ", s.index) + fmt.Sprintf(format, args...)})
}

// Violations returns the violations found so far, and the error that ended the
// replay, or nil if there was none.
func (s *Shadow) Violations() ([]checker.Violation, error) { return s.bad, s.err }

// done reports whether the replay must stop.
func (s *Shadow) done() bool { return s.err != nil || len(s.bad) >= maxShadowViolations }

// Apply applies an entry to the state machine and to the redis-server.
func (s *Shadow) Apply(e Entry) error {
	s.index = e.Index
	if !e.Command {
		s.m.Advance(e.Index)
		return nil
	}
	s.m.Trace(&fsm.Trace{
		Ran: func(db int, args [][]byte, reply fsm.Reply, proto int) {
			s.t.wall, s.t.db = s.m.Clock().Wall/1000, db
			if string(args[0]) == fsm.RestoreCommand && string(args[1]) == "apply" && !reply.IsError() {
				s.restored = true
			}
			s.run(db, s.t.ran(args, reply, proto))
		},
		Served: func(db int, args [][]byte, reply fsm.Reply) {
			s.t.db = db
			s.run(db, s.t.served(texts(args), reply))
		},
		Expired:  func(db int, key string) { s.run(db, []redisCommand{{args: []string{"DEL", key}}}) },
		PassedOn: func(db int, key string) { s.run(db, s.t.lockEnded(db, key)) },
	})
	defer s.m.Trace(nil)
	res, err := s.m.Apply(e.Index, e.Term, e.Data)
	if err != nil {
		return err
	}
	if hash, known := s.chains[res.HashIndex]; known && hash != res.Hash {
		s.say("", "the state of the nodes at log index %d has hash %#x, but after the replay it has %#x", res.HashIndex,
			res.Hash, hash)
	}
	index, hash := s.m.Hash()
	s.chains[index] = hash
	if s.restored {
		s.restored = false
		return s.copyKeys()
	}
	return nil
}

// run runs commands on the redis-server and compares the replies. If the entry
// has replaced all data, run does nothing: Apply copies the keys at the end of
// the entry.
func (s *Shadow) run(db int, cmds []redisCommand) {
	if s.restored {
		return
	}
	for i := 0; i < len(cmds) && !s.done(); i++ {
		n := i
		for cmds[n].together && n+1 < len(cmds) {
			n++
		}
		if n == i {
			s.one(db, cmds[i])
			continue
		}
		if s.do(db, "MULTI"); s.err == nil {
			for ; i <= n; i++ {
				s.do(db, cmds[i].args...)
				s.Commands++
			}
			i--
			if v := s.do(db, "EXEC"); s.err == nil {
				for j, e := range v.Elems {
					if e.Err != "" {
						s.say("", "the redis-server answers %q with %s", cmds[i-len(v.Elems)+1+j].args, e.Err)
					}
				}
			}
		}
	}
}

func (s *Shadow) do(db int, args ...string) respwire.Value {
	if s.err != nil {
		return respwire.Value{}
	}
	var v respwire.Value
	v, s.err = s.redis.do(db, args...)
	return v
}

func (s *Shadow) one(db int, c redisCommand) {
	s.Commands++
	v := s.do(db, c.args...)
	if s.err == nil && !c.agrees(v) {
		want := fmt.Sprintf("%.200q", c.reply)
		switch {
		case c.fails:
			want = "an error"
		case c.reply == nil:
			want = "no error"
		}
		s.say("", "%.300q in database %d: the redis-server answers %.200q, and the state machine %s", c.args, db,
			v.Raw, want)
	}
}

// read runs a read on the state machine.
func (s *Shadow) read(db int, args ...string) ([]byte, error) {
	raw := respwire.Args(args...)
	var g fsm.Group
	g.Reset(2, 0)
	g.Command(s.m.Table().Find(raw[0]), db, raw)
	b, _, err := s.m.Read(nil, fsm.ReadRequest{Body: g.Bytes()})
	return b, err
}

// kind returns the type of a key of the state machine. An error ends the replay.
func (s *Shadow) kind(db int, key string) string {
	b, err := s.read(db, "type", key)
	if err == nil {
		var v respwire.Value
		if v, _, err = respwire.Parse(b); err == nil {
			return v.Text
		}
	}
	s.err = errors.Join(s.err, err)
	return ""
}

func (s *Shadow) keys(db int) ([]string, error) {
	b, err := s.read(db, "keys", "*")
	if err != nil {
		return nil, err
	}
	v, _, err := respwire.Parse(b)
	return v.Texts(), err
}

func (s *Shadow) dump(db int, key string) (payload string, known bool, err error) {
	b, err := s.read(db, "dump", key)
	if err != nil {
		return "", false, err
	}
	v, _, err := respwire.Parse(b)
	return v.Text, !v.Null, err
}

// scratchKey is the key under which the redis-server restores a DUMP of the
// state machine. No history has such a key.
const scratchKey = "\x00replay\x00scratch"

// Compare compares all keys. Two values are equal if their DUMP is equal. If
// their DUMP differs, the redis-server restores the DUMP of the state machine.
// The values are then equal if Redis.content returns the same text for both.
func (s *Shadow) Compare() error {
	for db := 0; db < fsm.Databases && !s.done(); db++ {
		ours, err := s.keys(db)
		if err != nil {
			return err
		}
		theirs, err := s.redis.must(db, "KEYS", "*")
		if err != nil {
			return err
		}
		surplus := make(map[string]bool)
		for _, key := range theirs.Texts() {
			surplus[key] = true
		}
		for _, key := range ours {
			delete(surplus, key)
			if err := s.compareKey(db, key); err != nil {
				return err
			}
			if s.done() {
				return s.err
			}
		}
		for key := range surplus {
			s.say(key, "database %d: only the redis-server has the key", db)
		}
	}
	return s.err
}

func (s *Shadow) compareKey(db int, key string) error {
	s.Compared++
	if s.kind(db, key) == lockKind {
		theirs, err := s.redis.must(db, "EXISTS", key)
		if err == nil && theirs.Int == 0 {
			s.say(key, "database %d: only the state machine has the lock", db)
		}
		return err
	}
	ours, known, err := s.dump(db, key)
	if err != nil || !known {
		return errors.Join(err, s.unknown(known, key))
	}
	theirs, err := s.redis.must(db, "DUMP", key)
	switch {
	case err != nil:
		return err
	case theirs.Null:
		s.say(key, "database %d: only the state machine has the key", db)
		return nil
	case theirs.Text == ours:
		s.Equal++
		return nil
	}
	if v, err := s.redis.do(db, "RESTORE", scratchKey, "0", ours, "REPLACE"); err != nil {
		return err
	} else if v.Err != "" {
		s.say(key, "database %d: the redis-server refuses the DUMP of the state machine: %s", db, v.Err)
		return nil
	}
	a, err := s.redis.content(db, scratchKey)
	if err != nil {
		return err
	}
	if _, err := s.redis.must(db, "DEL", scratchKey); err != nil {
		return err
	}
	b, err := s.redis.content(db, key)
	if err != nil {
		return err
	}
	if a != b {
		at := 0
		for at < min(len(a), len(b)) && a[at] == b[at] {
			at++
		}
		from := max(at-60, 0)
		s.say(key, "database %d: the state machine has %.300q, the redis-server %.300q (from byte %d of the content)",
			db, a[from:], b[from:], from)
	}
	return nil
}

// unknown returns an error if DUMP returned null for a key that KEYS has
// listed. known is true if DUMP returned a value.
func (s *Shadow) unknown(known bool, key string) error {
	if known {
		return nil
	}
	return fmt.Errorf("DUMP returned null for the key %q, which KEYS had listed", key)
}

// RedisResult is the result of CheckRedis.
type RedisResult struct {
	Entries, Commands int
	Compared, Equal   int // number of compared keys, and of those with the same DUMP
	Violations        []checker.Violation
}

// OnRedis starts a redis-server and calls CheckRedis with it. The error is
// ErrNoRedis if redis-server is not installed and RequireRedis returns false.
func OnRedis(log Log, rng *rand.Rand) (res RedisResult, err error) {
	redis, err := StartRedis()
	if errors.Is(err, ErrNoRedis) && RequireRedis() {
		return res, fmt.Errorf("HOLDFAST_REQUIRE_REDIS is set: %v", err)
	}
	if err != nil {
		return res, err
	}
	res, err = CheckRedis(log, redis, rng)
	return res, errors.Join(err, redis.Close())
}

// comparisons limits the number of random indices at which CheckRedis compares.
const comparisons = 8

// CheckRedis replays a committed log on a redis-server. If the beginning of the
// log is gone, it starts from the snapshot. It compares all keys at random log
// indices and at the end. An error means that the check failed, and says
// nothing about the log.
func CheckRedis(log Log, redis *Redis, rng *rand.Rand) (res RedisResult, err error) {
	m := fsm.New(command.NewTable())
	if log.Base != nil {
		if m, err = fsm.ReadSnapshot(bytes.NewReader(log.Base), command.NewTable()); err != nil {
			return res, fmt.Errorf("snapshot of %s: %w", log.Node, err)
		}
		m.Advance(log.BaseIndex)
	}
	s, err := NewShadow(redis, m)
	if err != nil {
		return res, err
	}
	entries := log.Entries
	for len(entries) > 0 && entries[0].Index <= log.BaseIndex {
		entries = entries[1:]
	}
	if len(entries) > 0 && entries[0].Index != log.BaseIndex+1 {
		return res, fmt.Errorf("the log of %s begins at %d, which does not follow its oldest snapshot at %d", log.Node,
			entries[0].Index, log.BaseIndex)
	}
	at := make(map[int]bool)
	for range min(comparisons, len(entries)/4) {
		at[rng.IntN(len(entries))] = true
	}
	for i, e := range entries {
		if s.done() {
			break
		}
		if err := s.Apply(e); err != nil {
			return res, fmt.Errorf("entry %d: %w", e.Index, err)
		}
		res.Entries++
		if at[i] || i == len(entries)-1 {
			if err := s.Compare(); err != nil {
				return res, err
			}
		}
	}
	res.Commands, res.Compared, res.Equal = s.Commands, s.Compared, s.Equal
	res.Violations, err = s.Violations()
	return res, err
}

// RequireRedis reports whether a test must fail if redis-server is not
// installed.
func RequireRedis() bool { return os.Getenv("HOLDFAST_REQUIRE_REDIS") == "1" }
