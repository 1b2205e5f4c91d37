package fsm_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// TestWatch_Swapdb: SWAPDB changes the version of a key, whether the key is in one
// of the two databases, in both or in neither. A second SWAPDB that reverts the
// first changes the version again.
func TestWatch_Swapdb(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup []string
	}{
		{"in neither database", []string{"GET k"}},
		{"in the first", []string{"SET k mine"}},
		{"in the second", []string{"SET k theirs", "MOVE k 1"}},
		{"in both", []string{"SET k theirs", "MOVE k 1", "SET k mine"}},
		{"in neither after a DEL", []string{"SET k v", "DEL k"}},
	} {
		f := newFeed(t)
		f.raise(fsm.FeatureMend)
		f.do(c.setup...)
		other := f.watchIn(2, "k")
		seen := map[string]bool{f.watchIn(0, "k"): true}
		for _, line := range []string{"SWAPDB 0 1", "SWAPDB 1 0", "SWAPDB 0 1", "SWAPDB 0 1"} {
			f.do(line)
			version := f.watchIn(0, "k")
			if seen[version] {
				t.Errorf("key %s: version %q again after %s", c.name, version, line)
			}
			seen[version] = true
			if again := f.watchIn(0, "k"); again != version {
				t.Errorf("key %s: version %q, then %q", c.name, version, again)
			}
		}
		version := f.watchIn(0, "k")
		f.do("SWAPDB 0 0", "SWAPDB 3 4")
		if got := f.watchIn(0, "k"); got != version {
			t.Errorf("key %s: exchanges of other databases change %q to %q", c.name, version, got)
		}
		if got := f.watchIn(2, "k"); got != other {
			t.Errorf("version of a key of another database: %q, was %q", got, other)
		}
		whole := snapshotOf(t, f.m)
		f.m = restore(t, whole)
		if !bytes.Equal(snapshotOf(t, f.m), whole) {
			t.Error("a restored machine differs from the original")
		}
		if got := f.watchIn(0, "k"); got != version {
			t.Errorf("key %s: version %q after a restore, was %q", c.name, got, version)
		}
	}
}

// TestWatch_FlushMany: a flush of more than FewFlushed keys does not visit them
// one by one. It changes the version of a key of the database, whether the key was
// present or absent. A flush of an empty database changes no version.
func TestWatch_FlushMany(t *testing.T) {
	for _, flush := range []string{"FLUSHALL", "FLUSHDB"} {
		f := newFeed(t)
		f.raise(fsm.MaxFeatures)
		for from := 0; from <= fsm.FewFlushed; from += 500 {
			words := []string{"MSET"}
			for i := range 500 {
				words = append(words, "key"+strconv.Itoa(from+i), "v")
			}
			f.do(strings.Join(words, " "))
		}
		present, absent, other := f.watchIn(0, "key7"), f.watchIn(0, "absent"), f.watchIn(2, "key7")
		f.do(flush)
		for key, before := range map[string]string{"key7": present, "absent": absent} {
			if got := f.watchIn(0, key); got == before {
				t.Errorf("%s: the version of %s is %q before and after", flush, key, got)
			}
		}
		if got := f.watchIn(2, "key7"); got != other {
			t.Errorf("%s: version of a key of another database: %q, was %q", flush, got, other)
		}
		f.do("SET key7 v")
		version := f.watchIn(0, "key7")
		f.do("DEL key7", flush)
		gone := f.watchIn(0, "key7")
		if gone == version {
			t.Errorf("%s: the version of a removed key is %q, as before", flush, gone)
		}
		f.do(flush)
		if got := f.watchIn(0, "key7"); got != gone {
			t.Errorf("%s of an empty database changes a version from %q to %q", flush, gone, got)
		}
		whole := snapshotOf(t, f.m)
		if f.m = restore(t, whole); !bytes.Equal(snapshotOf(t, f.m), whole) {
			t.Error("a restored machine differs from the original")
		}
	}
}

// TestWatch_SwapdbBefore: below FeatureMend, SWAPDB changes no version, as in
// the first programs, and snapshots contain no record of the exchange.
func TestWatch_SwapdbBefore(t *testing.T) {
	for features := range fsm.FeatureMend {
		f := newFeed(t)
		f.raise(features)
		f.do("SET k theirs", "MOVE k 1", "SET p mine")
		k, p, size := f.watchIn(0, "k"), f.watchIn(0, "p"), len(snapshotOf(t, f.m))
		f.do("SWAPDB 0 1")
		f.do("SWAPDB 0 1")
		if got := f.watchIn(0, "k"); got != k {
			t.Errorf("at feature version %d: version of the absent key %q, was %q", features, got, k)
		}
		if got := f.watchIn(0, "p"); got != p {
			t.Errorf("at feature version %d: version of the present key %q, was %q", features, got, p)
		}
		if got := len(snapshotOf(t, f.m)); got > size+40 { // two more replies
			t.Errorf("at feature version %d: snapshot of %d bytes, was %d", features, got, size)
		}
	}
}

// watchIn returns the version of a key of a database.
func (f *feed) watchIn(db int, key string) string {
	f.t.Helper()
	f.group.Reset(2, 1)
	cmd := f.m.Table().Find([]byte(fsm.VersionCommand))
	f.group.Command(cmd, db, [][]byte{[]byte(fsm.VersionCommand), []byte(key)})
	out, _, err := f.m.Read(nil, fsm.ReadRequest{Body: f.group.Bytes()})
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(string(out), ":"))
}

// watchKeys and watchLines are the keys and the commands of TestWatch_Random.
var (
	watchKeys  = []string{"a", "b", "c"}
	watchLines = []string{
		"SET $ 1", "SET $ 2", "SET $ 1 PX 300", "SET $ 1 XX", "SET $ 2 NX", "GETDEL $", "DEL $", "UNLINK $ $", "APPEND $ x", "INCR $", "PEXPIRE $ 200", "PEXPIRE $ 0", "PERSIST $",
		"RENAME $ $", "RENAMENX $ $", "COPY $ $", "COPY $ $ REPLACE", "COPY $ $ DB 1 REPLACE", "MOVE $ 1", "MOVE $ 0",
		"SWAPDB 0 1", "SWAPDB 0 1", "SWAPDB 1 2", "SWAPDB 1 1", "FLUSHDB", "FLUSHDB ASYNC", "FLUSHALL ASYNC",
		"RPUSH $ e", "LPOP $", "LMOVE $ $ LEFT RIGHT", "SADD $ m", "SPOP $", "SMOVE $ $ m", "HSET $ f v", "HDEL $ f", "ZADD $ 1 m", "ZPOPMIN $", "ZUNIONSTORE $ 2 $ $", "SORT $ STORE $", "SINTERSTORE $ $ $", "BITOP NOT $ $",
		"XADD $ * f v", "XTRIM $ MAXLEN 0", "XGROUP CREATE $ g 0 MKSTREAM", "MSET $ 1 $ 2", "PFADD $ e", "BLPOP $ 0", "BLMOVE $ $ LEFT LEFT 0", "GEOADD $ 1 1 m", "DELIFEQ $ 1", "SET $ 1", "GET $",
	}
)

// watched is a watched key, and the first change of its value since WATCH.
type watched struct {
	db       int
	key      string
	version  uint64
	value    string // at WATCH
	touched  string // the first command that changed the value, "" for none
	deadline int    // number of entries until EXEC
}

// TestWatch_Random: no transaction commits if a watched key had another value
// at any time since WATCH. The model is a second machine that executes every
// command in an entry of its own, so the values between the commands of one
// entry are known.
func TestWatch_Random(t *testing.T) {
	t.Parallel()
	committed, failed := 0, 0
	for seed := range uint64(60) {
		w := &watchTest{t: t, rng: rand.New(rand.NewPCG(seed, 4)), seed: seed, feed: newFeed(t), model: newFeed(t)}
		w.feed.raise(fsm.FeatureMend)
		w.model.raise(fsm.FeatureMend)
		for range 150 {
			w.step()
		}
		committed, failed = committed+w.committed, failed+w.failed
	}
	if committed < 300 || failed < 300 {
		t.Errorf("%d transactions have committed and %d have not, want at least 300 of each", committed, failed)
	}
}

type watchTest struct {
	t                 *testing.T
	rng               *rand.Rand
	seed              uint64
	feed              *feed
	model             *feed
	watches           []*watched
	committed, failed int
}

// step watches a key, or runs an entry with some commands and then the
// transactions that are due.
func (w *watchTest) step() {
	if len(w.watches) < 6 && w.rng.IntN(2) == 0 {
		k := &watched{db: w.rng.IntN(2), key: watchKeys[w.rng.IntN(len(watchKeys))], deadline: w.rng.IntN(6)}
		if _, err := fmt.Sscan(w.feed.watchIn(k.db, k.key), &k.version); err != nil {
			w.t.Fatal(err)
		}
		k.value = w.model.value(k.db, k.key)
		w.watches = append(w.watches, k)
		return
	}
	if w.rng.IntN(3) == 0 { // some of the keys expire
		w.feed.stamp += w.rng.Int64N(200e6)
		w.model.stamp = w.feed.stamp
		w.model.do("TIME")
		w.look("time")
		w.feed.do("TIME")
	}
	origin := w.rng.Uint64N(3)
	w.feed.group.Reset(2, origin)
	for range 1 + w.rng.IntN(3) {
		w.command(origin)
	}
	w.feed.send()
	for _, key := range watchKeys {
		if got, want := w.feed.value(0, key), w.model.value(0, key); got != want {
			w.t.Fatalf("seed %d: %q is %q, and %q if each command has an entry of its own", w.seed, key, got, want)
		}
	}
	w.due()
}

// command adds a random command to the entry, and executes it on the model.
func (w *watchTest) command(origin uint64) {
	words := strings.Fields(watchLines[w.rng.IntN(len(watchLines))])
	args := make([][]byte, len(words))
	for i, word := range words {
		if word == "$" {
			word = watchKeys[w.rng.IntN(len(watchKeys))]
		}
		args[i] = []byte(word)
	}
	db := w.rng.IntN(2)
	cmd := w.feed.m.Table().Find(args[0])
	w.feed.group.Command(cmd, db, args)
	w.model.group.Reset(2, origin)
	w.model.group.Command(cmd, db, args)
	w.model.send()
	w.look(fmt.Sprintf("%q in database %d", args, db))
}

// value returns the value of a key as a client sees it.
func (f *feed) value(db int, key string) string {
	f.t.Helper()
	var g fsm.Group
	g.Reset(2, 1)
	for _, name := range []string{"type", "dump", "pexpiretime"} {
		g.Command(f.m.Table().Find([]byte(name)), db, [][]byte{[]byte(name), []byte(key)})
	}
	out, _, err := f.m.Read(nil, fsm.ReadRequest{Body: g.Bytes()})
	if err != nil {
		f.t.Fatal(err)
	}
	return string(out)
}

// look sets touched to the parameter what for each watched key whose value differs
// from the value at WATCH, unless touched is already set.
func (w *watchTest) look(what string) {
	for _, k := range w.watches {
		if k.touched == "" && w.model.value(k.db, k.key) != k.value {
			k.touched = what
		}
	}
}

// due counts an entry for each watch. When the deadline of a watch has come, it
// runs a transaction with the watch and drops the watch.
func (w *watchTest) due() {
	var rest []*watched
	for _, k := range w.watches {
		if k.deadline--; k.deadline >= 0 {
			rest = append(rest, k)
			continue
		}
		ping := w.feed.m.Table().Find([]byte("time"))
		w.feed.group.Reset(2, 9)
		w.feed.group.Transaction([]fsm.Watch{{DB: k.db, Key: k.key, Version: k.version}}, []fsm.Queued{{Cmd: ping, Args: [][]byte{[]byte("time")}}})
		switch reply := w.feed.send(); {
		case reply == "*-1\r\n":
			w.failed++
		case k.touched != "":
			w.t.Errorf("seed %d: transaction commits although %q of database %d had another value after %s", w.seed, k.key, k.db, k.touched)
			w.committed++
		default:
			w.committed++
		}
	}
	w.watches = rest
}
