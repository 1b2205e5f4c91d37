package fsm_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

// operated executes each command on a machine in an entry of its own.
type operated struct {
	t     *testing.T
	m     *fsm.Machine
	index uint64
	seq   uint64
	lease int64
	known uint64 // hash index that the leader puts into entries
	last  *fsm.Result
}

func newOperated(t *testing.T, clusterID string, features int) *operated {
	o := &operated{t: t, m: fsm.New(command.NewTable())}
	o.apply(fsm.AppendTermStart(nil, fsm.Header{Term: 1, Wall: 1}, fsm.TermStart{NodeID: "n", ClusterID: clusterID, Features: features}))
	return o
}

func (o *operated) apply(entry []byte) {
	o.t.Helper()
	o.index++
	res, err := o.m.Apply(o.index, 1, entry)
	if err != nil {
		o.t.Fatal(err)
	}
	o.last = res
}

// args executes a command and returns its reply.
func (o *operated) args(args ...[]byte) string {
	o.t.Helper()
	var g fsm.Group
	g.Reset(2, 1)
	g.Command(o.m.Table().Find(args[0]), 0, args)
	var b fsm.BatchBuilder
	o.seq++
	b.Add(fsm.SessionID{NodeID: "n", Boot: 1}, 0, o.seq, g.Bytes())
	o.apply(b.Encode(fsm.Header{Term: 1, Stamp: o.lease, Wall: 1_700_000_000_000_000 + o.lease/1e3, HashIndex: o.known}))
	return string(o.last.Groups[0].Reply)
}

func (o *operated) do(line string) string {
	o.t.Helper()
	return o.args(bytes.Fields([]byte(line))...)
}

func (o *operated) want(line, reply string) {
	o.t.Helper()
	if got := o.do(line); !strings.HasPrefix(got, reply) {
		o.t.Errorf("%s: %q, want %q", line, got, reply)
	}
}

// backup returns the content of a backup of the machine.
func (o *operated) backup() []byte {
	o.t.Helper()
	clone := o.m.Clone()
	clone.ForBackup()
	var b bytes.Buffer
	if err := clone.WriteSnapshot(&b, fsm.Sessions{}); err != nil {
		o.t.Fatal(err)
	}
	return b.Bytes()
}

// stage sends a backup in parts to the staging area of the machine.
func (o *operated) stage(id string, data []byte) {
	o.t.Helper()
	word := func(n int) []byte { return []byte(strconv.Itoa(n)) }
	o.want(fsm.RestoreCommand+" begin "+id+" "+strconv.Itoa(len(data))+" "+strconv.Itoa(fsm.MaxFeatures), "+OK")
	for at := 0; at < len(data); at += 100 {
		part := data[at:min(at+100, len(data))]
		for range 2 { // sending a part again does no harm
			if got := o.args([]byte(fsm.RestoreCommand), []byte("data"), []byte(id), word(at), part); got != "+OK\r\n" {
				o.t.Fatalf("part at offset %d: %q, want OK", at, got)
			}
		}
	}
}

func (o *operated) token(key string) (token uint64) {
	o.m.InspectKeys(func(k fsm.SnapshotKey) {
		if k.Key == key {
			token = k.Token
		}
	})
	return token
}

const applyStaged = fsm.RestoreCommand + " apply r "

// TestRestore: a restore replaces the data in one entry. The keys keep the
// remaining times to live that they had in the backup, tokens rise, waits end,
// and WATCH notices the change. The lease clock never goes back, whichever of
// the two clusters has the later lease clock.
func TestRestore(t *testing.T) {
	for _, tc := range []struct {
		name           string
		source, target int64 // lease clocks
		sets           int   // SETs that the target executes, to use up tokens
	}{
		{"backup is later", 5e12, 1e9, 1},
		{"cluster is later", 1e9, 5e12, 1},
		{"same", 1e9, 1e9, 50},
	} {
		t.Run(tc.name, func(t *testing.T) {
			src := newOperated(t, "lost", fsm.MaxFeatures)
			src.lease = tc.source
			src.want("set lock owner nx px 60000", "+OK")
			src.want("set forever x", "+OK")
			src.want("xadd s 1-1 a b", "$3")
			src.want("xgroup create s g 0", "+OK")
			src.want("xreadgroup group g c streams s >", "*1")
			data := src.backup()

			dst := newOperated(t, "running", fsm.MaxFeatures)
			dst.lease = tc.target
			for range tc.sets {
				dst.want("set other 1", "+OK")
			}
			dst.want("blpop q 0", "@")
			before := dst.m.Token()
			versions := []string{dst.do(fsm.VersionCommand + " other"), dst.do(fsm.VersionCommand + " lock"), dst.do(fsm.VersionCommand + " absent")}
			dst.stage("r", data)
			dst.want(applyStaged+"7 30000000000 0", "-ERR the cluster is not empty")
			dst.want("get other", "$1")

			// A snapshot that is taken during the restore contains the staging
			// area.
			image := snapshotOf(t, dst.m)
			if dst.m = restore(t, image); !bytes.Equal(snapshotOf(t, dst.m), image) {
				t.Fatal("a restored machine differs from the original")
			}
			if _, err := fsm.CheckSnapshot(bytes.NewReader(image), command.NewTable()); err != nil {
				t.Fatal(err)
			}
			dst.want(applyStaged+"7 30000000000 1", "+OK")
			if !dst.last.Restored || len(dst.last.Woken) != 1 || dst.last.Woken[0].Reply() != nil {
				t.Errorf("result %+v, want Restored, and one wait that ended without a reply", dst.last)
			}
			if got, want := dst.m.Clock().Lease, max(tc.source, tc.target); got != want {
				t.Errorf("lease clock %d, want %d", got, want)
			}
			if dst.m.ClusterID() != "running" {
				t.Errorf("cluster id %q, want running", dst.m.ClusterID())
			}
			image = snapshotOf(t, dst.m)
			if dst.m = restore(t, image); !bytes.Equal(snapshotOf(t, dst.m), image) {
				t.Fatal("a restored machine differs from the original after the restore")
			}

			// The leader built this entry before it knew the restored clock.
			dst.want("get lock", "$5\r\nowner")
			if dst.last.Backwards || dst.m.Stats().Backwards != 0 {
				t.Error("an entry in flight counts as stamped behind the lease clock")
			}
			dst.lease, dst.known = dst.m.Clock().Lease, dst.index
			dst.want("pttl lock", ":60000")
			dst.want("exists other", ":0")
			dst.want("xpending s g", "*4\r\n:1")
			after := []string{dst.do(fsm.VersionCommand + " other"), dst.do(fsm.VersionCommand + " lock"), dst.do(fsm.VersionCommand + " absent")}
			for i := range after {
				if after[i] == versions[i] {
					t.Errorf("version %d is %q before and after the restore", i, after[i])
				}
			}
			dst.want("set new 1", "+OK")
			lost := src.m.Token() + 1<<20 // more tokens than the lost cluster can have given in the meantime
			if got := dst.token("new"); got <= max(lost, before) || got > fsm.MaxToken {
				t.Errorf("token %d, want more than %d and %d", got, lost, before)
			}
			dst.want("set lock2 x nx px 5", "-QUARANTINE no lock is granted until 20")
			dst.lease += 30e9
			dst.want("set lock2 x nx px 5", "+OK")
			if !dst.last.QuarantineEnded || dst.m.Quarantine() != 0 {
				t.Error("the end of the quarantine is not reported")
			}
			dst.want("get lock", "$5\r\nowner")
			dst.lease += 30e9
			dst.want("get lock", "$-1")
		})
	}
}

// TestRestore_epoch: if a backup is restored twice, and the wall clock is later
// at the second restore, the two clusters have different token epochs. If the
// wall clock went back, the new epoch is still above the epoch of the backup. A
// restore with an epoch that is too high changes nothing.
func TestRestore_epoch(t *testing.T) {
	src := newOperated(t, "lost", fsm.MaxFeatures)
	src.want("set k v", "+OK")
	data := src.backup()
	tokenAfter := func(data []byte, epoch string) (*operated, uint64) {
		o := newOperated(t, "new", fsm.MaxFeatures)
		o.stage("r", data)
		o.want(applyStaged+epoch+" 0 0", "+OK")
		o.want("set k "+epoch, "+OK")
		return o, o.token("k")
	}
	first, a := tokenAfter(data, "1000")
	_, b := tokenAfter(data, "1001")
	_, c := tokenAfter(first.backup(), "0")
	if a>>21 != 1000 || b>>21 != 1001 || c>>21 != 1001 {
		t.Errorf("epochs %d, %d, %d, want 1000, 1001, 1001", a>>21, b>>21, c>>21)
	}
	o := newOperated(t, "new", fsm.MaxFeatures)
	o.stage("r", data)
	o.want(applyStaged+"4294967296 0 0", "-ERR token epoch")
	o.want("exists k", ":0")
}

// TestRestore_refused: a restore that is incomplete, damaged, replaced by
// another restore, dropped or idle changes nothing.
func TestRestore_refused(t *testing.T) {
	src := newOperated(t, "lost", fsm.MaxFeatures)
	src.want("set k v", "+OK")
	data := src.backup()
	o := newOperated(t, "c", fsm.MaxFeatures)
	o.want(applyStaged+"1 0 0", "-ERR this restore is not in progress")
	o.want(fsm.RestoreCommand+" begin r 1000 99", "-ERR the backup needs feature version 99")
	o.want(fsm.RestoreCommand+" begin r 1000 5", "+OK")
	o.want(fsm.RestoreCommand+" data r 5 abc", "-ERR a part of the restore is missing")
	o.want(fsm.RestoreCommand+" data r 0 abc", "+OK")
	o.want(applyStaged+"1 0 0", "-ERR a part of the restore is missing")
	bad := bytes.Clone(data)
	bad[len(bad)/2] ^= 1
	o.stage("r", bad)
	o.want(applyStaged+"1 0 0", "-ERR the backup cannot be read")
	o.stage("other", data)
	o.want(applyStaged+"1 0 0", "-ERR this restore is not in progress")
	o.stage("r", data)
	o.want(fsm.RestoreCommand+" drop r", "+OK")
	o.want(applyStaged+"1 0 0", "-ERR this restore is not in progress")
	o.stage("r", data)
	if o.m.NextDeadline() == 0 {
		t.Error("NextDeadline is 0, so no clock entry will drop the idle staging area")
	}
	o.lease += 600e9
	o.want(applyStaged+"1 0 0", "-ERR this restore is not in progress")
	o.want("exists k", ":0")
	if o.m.NextDeadline() != 0 {
		t.Error("the staging area still exists")
	}
}

// TestQuarantine: during a quarantine, commands that grant a lock fail, and other
// commands run.
func TestQuarantine(t *testing.T) {
	src := newOperated(t, "lost", fsm.MaxFeatures)
	src.want("set held o px 60000", "+OK")
	o := newOperated(t, "c", fsm.MaxFeatures)
	o.stage("r", src.backup())
	o.want(applyStaged+"1 60000000000 0", "+OK")
	if o.m.Quarantine() != o.lease+60e9 || o.m.NextDeadline() != o.m.Quarantine() {
		t.Errorf("quarantine until %d, next deadline %d, want both 60 s from now", o.m.Quarantine(), o.m.NextDeadline())
	}
	const until = "-QUARANTINE no lock is granted until 2023-11-14T22:14:20Z (for another 60 s)"
	for _, c := range []struct{ line, reply string }{
		{"set l o nx px 5", until},
		{"set l o nx get", until},
		{"setnx l o", until},
		{"msetnx l o m o", until},
		{"msetex 2 l o m o nx px 5", until},
		{"getset held o", until},
		{"hsetnx l f o", until},
		{"set held x nx px 5", "$-1"},
		{"msetex 1 held x nx px 5", ":0"},
		{"msetex 1 plain v px 50000", ":1"},
		{"setnx held x", ":0"},
		{"set held o ifeq o px 60000", "+OK"},
		{"pexpire held 60000", ":1"},
		{"set plain v", "+OK"},
		{"incr n", ":1"},
		{"get held", "$1"},
		{"del held", ":1"},
		{"setnx held x", until},
	} {
		o.want(c.line, c.reply)
	}
	laravel := "return redis.call('exists',KEYS[1])<1 and redis.call('setex',KEYS[1],ARGV[2],ARGV[1])"
	native := func(reply string) {
		t.Helper()
		got := o.args([]byte("eval"), []byte(laravel), []byte("1"), []byte("lv"), []byte("me"), []byte("100"))
		if !strings.HasPrefix(got, reply) {
			t.Errorf("native script: %q, want %q", got, reply)
		}
	}
	native(until)
	o.lease += 60e9
	native("+OK")
	o.want("setnx held x", ":1")
}

// TestTokens_upgrade: below FeatureOperate, tokens are log positions. The first
// token after the upgrade is higher than all earlier tokens.
func TestTokens_upgrade(t *testing.T) {
	o := newOperated(t, "c", fsm.FeatureBudget)
	o.want("set k v", "+OK")
	before := o.token("k")
	if before != o.index<<20|1 {
		t.Errorf("token %d is not the log position of the value", before)
	}
	o.want(fsm.RestoreCommand+" begin r 1000 5", "-ERR '_restore' needs feature version 5")
	o.want(fsm.FeaturesCommand+" 1 5", ":1")
	o.want("set k v", "+OK")
	if after := o.token("k"); after <= before || after > fsm.MaxToken {
		t.Errorf("token %d after token %d, want a higher one up to MaxToken", after, before)
	}
}
