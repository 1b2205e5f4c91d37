package fsm_test

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
)

// TestShared_Features: below FeatureShared, nodes refuse the options SHARED and
// LIMIT, and the owner in LOCK TOKEN. If an older program has logged a call
// with one of them, the call gets the reply of the older program.
func TestShared_Features(t *testing.T) {
	o := newOperated(t, "c", fsm.FeatureLocks)
	for _, c := range []struct{ line, before, reply string }{
		{"lock acquire k a px 1000 shared", "-ERR syntax error\r\n", ":"},
		{"lock acquire k a px 1000 shared wait x", "-ERR syntax error\r\n", "-ERR WAIT"},
		{"lock acquire k b shared px 1000 wait 0", "-ERR syntax error\r\n", ":"},
		{"lock acquire s a px 1000 limit 2 meta m", "-ERR syntax error\r\n", ":"},
		{"_lock acquire s a px 1000 limit 2 client a b", "-ERR syntax error\r\n", ":"},
		{"lock token k c", "-ERR wrong number of arguments for 'lock|token' command\r\n", "$-1"},
	} {
		args := bytes.Fields([]byte(c.line))
		var g fsm.Group
		g.Reset(2, 1)
		g.Command(o.m.Table().Find(args[0]), 0, args)
		if want := fsm.FeatureShared; g.Feature != want && !strings.Contains(c.line, "wait x") {
			t.Errorf("%s needs feature version %d, want %d", c.line, g.Feature, want)
		}
		if err := o.m.Table().CheckAt(fsm.FeatureLocks, g.Bytes(), false); err != nil {
			t.Errorf("Check of %s, logged by an older program: %v", c.line, err)
		}
		if got := o.do(c.line); got != c.before {
			t.Errorf("%s at feature version %d: %q, want %q", c.line, fsm.FeatureLocks, got, c.before)
		}
		defer o.want(c.line, c.reply)
	}
	for line, needs := range map[string]int{
		"lock acquire shared limit px 1000 meta limit": 0, "lock acquire k a px 1000": 0, "lock token k": 0,
		"lock acquire k a px shared": 0, "lock acquire k limit shared px 1000": fsm.FeatureShared,
	} {
		args := bytes.Fields([]byte(line))
		if got := o.m.Table().Find(args[0]).Needs(args); got != max(needs, fsm.FeatureLocks) {
			t.Errorf("%s needs feature version %d, want %d", line, got, max(needs, fsm.FeatureLocks))
		}
	}
	o.want("lock acquire x a px 1000", ":")
	for _, line := range []string{"lock help", "lock info x", "lock list"} {
		if got := strings.ToLower(o.do(line)); strings.Contains(got, "mode") || strings.Contains(got, "shared") {
			t.Errorf("%s at feature version %d: %q, want no mention of the new options", line, fsm.FeatureLocks, got)
		}
	}
	o.want("del x", ":1")
	o.want(fmt.Sprintf("%s 1 %d", fsm.FeaturesCommand, fsm.FeatureShared), ":1")
}

// TestShared_Restore: the holders of a lock in a backup keep their tokens and the
// remaining times of their leases. During the quarantine, no holder is added.
func TestShared_Restore(t *testing.T) {
	for _, lease := range []int64{1e9, 90e9} { // lease clock of the restored cluster
		src := newOperated(t, "lost", fsm.MaxFeatures)
		src.lease = 30e9
		src.want("lock acquire rw r1 px 20000 shared", ":1048577")
		src.want("lock acquire rw r2 px 90000 meta m shared", ":1048578")
		src.want("lock acquire sem a px 5000 limit 3", ":1048579")
		o := newOperated(t, "c", fsm.MaxFeatures)
		o.lease = lease
		o.stage("r", src.backup())
		o.want(applyStaged+"1 60000000000 0", "+OK")
		if err := fsm.Broken(o.m); err != nil {
			t.Fatal(err)
		}
		restored := restore(t, snapshotOf(t, o.m))
		if !bytes.Equal(snapshotOf(t, restored), snapshotOf(t, o.m)) {
			t.Error("a machine that was restored from a snapshot differs from the original")
		}
		o.lease = max(lease, 30e9)
		o.want("lock token rw r1", ":1048577")
		o.want("pttl rw", ":90000")
		o.want("lock check sem 1048579", ":1")
		for _, line := range []string{
			"lock acquire rw r3 px 1000 shared", "lock acquire free r3 px 1000 shared",
			"lock acquire sem r3 px 1000 limit 3", "lock acquire free r3 px 1000 limit 1",
			"lock acquire rw w px 1000 wait 0", "lock acquire rw r3 px 1000 shared wait 0",
		} {
			o.want(line, "-QUARANTINE")
		}
		o.want("lock acquire rw r1 px 1000 shared", ":1048577")
		o.want("lock renew sem a px 9000", ":1048579")
		o.want("lock release sem a", ":1")
		o.lease += 20e9
		o.want("lock token rw r1", "$-1")
		o.want("lock token rw r2", ":1048578")
		o.lease += 50e9
		o.want("lock acquire rw r3 px 1000 shared", ":")
		o.lease += 20e9
		o.want("exists rw", ":0")
	}
}

// TestShared_ExpiryLimit: if an entry cannot remove all keys whose deadline has
// passed, holders whose leases have ended no longer count as holders.
func TestShared_ExpiryLimit(t *testing.T) {
	f := newFeed(t)
	f.raise(fsm.MaxFeatures)
	before := f.m.Token()
	f.do("LOCK ACQUIRE rw r1 PX 1001 SHARED", "LOCK ACQUIRE rw r2 PX 60000 SHARED",
		"LOCK ACQUIRE sem a PX 1001 LIMIT 2", "LOCK ACQUIRE sem b PX 60000 LIMIT 2",
		"LOCK ACQUIRE gone a PX 1001 LIMIT 2", "LOCK ACQUIRE over a PX 1001 SHARED", "LOCK ACQUIRE over b PX 60000 SHARED")
	const keys = 2 * fsm.ExpiryWork / fsm.ExpiryKeyWork
	f.expiring(numbered(keys, "")...)
	f.stamp += 2_000_000_000
	got := f.do("LOCK TOKEN rw r1", "LOCK TOKEN rw r2", "LOCK TOKEN rw", "LOCK RENEW rw r1 PX 1000", "LOCK RELEASE rw r1",
		"LOCK ACQUIRE rw w PX 1000", "EXISTS rw gone", "TYPE gone", "PTTL rw", "LOCK ACQUIRE rw r3 PX 60000 SHARED",
		"LOCK ACQUIRE sem c PX 60000 LIMIT 2", "LOCK ACQUIRE sem d PX 60000 LIMIT 2", fmt.Sprint("LOCK BREAK sem ", before+3),
		"LOCK ACQUIRE gone x PX 60000", "SET over x", "LOCK TOKEN over")
	want := "$-1\r\n:%[5]d\r\n:%[5]d\r\n$-1\r\n:0\r\n$-1\r\n:1\r\n+none\r\n:58000\r\n:%[1]d\r\n:%[2]d\r\n$-1\r\n:0\r\n:%[3]d\r\n+OK\r\n:%[4]d\r\n"
	first := before + 1 + 7 + keys // the next token after those of the locks and the keys
	if want = fmt.Sprintf(want, first, first+1, first+2, first+3, before+2); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if f.m.Len() < keys/4 {
		t.Fatalf("%d keys are left, too few: the entry has already removed the expired holders", f.m.Len())
	}
	if err := fsm.Broken(f.m); err != nil {
		t.Error(err)
	}
}

// TestShared_Many: MaxHolders owners share a lock, and LOCK ACQUIRE of a further
// owner returns null. A snapshot with this lock can be read.
func TestShared_Many(t *testing.T) {
	f := newFeed(t)
	f.raise(fsm.MaxFeatures)
	before := f.m.Token()
	name := func(i int) string { return fmt.Sprintf("%s%05d", strings.Repeat("x", 100), i) }
	for i := 0; i < keyspace.MaxHolders; i += 500 {
		f.group.Reset(2, 1)
		for j := i; j < i+500; j++ {
			f.add("LOCK", "ACQUIRE", "rw", name(j), "PX", fmt.Sprint(1000+j%7*1000), "SHARED")
		}
		f.send()
	}
	if got := f.do("LOCK ACQUIRE rw other PX 1000 SHARED", "LOCK ACQUIRE rw "+name(7)+" PX 1000 SHARED"); got != fmt.Sprintf("$-1\r\n:%d\r\n", before+8) {
		t.Errorf("a further owner, and an owner again: %q, want null and the token of the owner", got)
	}
	if got := f.do("LOCK ACQUIRE rw " + strings.Repeat("o", 1025) + " PX 1000 SHARED"); !strings.HasPrefix(got, "-ERR the owner") {
		t.Errorf("long owner: %q, want an error", got)
	}
	whole := snapshotOf(t, f.m)
	if again := snapshotOf(t, restore(t, whole)); !bytes.Equal(again, whole) {
		t.Error("the restored machine differs from the original")
	}
	var found []fsm.SnapshotKey
	if _, err := fsm.InspectSnapshot(bytes.NewReader(whole), command.NewTable(), func(k fsm.SnapshotKey) { found = append(found, k) }); err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || found[0].Type != "lock" || found[0].TTL != 7e9 {
		t.Errorf("InspectSnapshot visited %+v, want one lock with 7 s to live", found)
	}
	info := f.do("LOCK INFO rw")
	if n := strings.Count(info, "renewals"); n != keyspace.MaxHolders {
		t.Errorf("LOCK INFO describes %d owners, want MaxHolders", n)
	}
	f.stamp += 3_500_000_000
	f.do("LOCK TOKEN rw")
	if err := fsm.Broken(f.m); err != nil {
		t.Error(err)
	}
	held := regexp.MustCompile(`held-ms`)
	if n := len(held.FindAllString(f.do("LOCK INFO rw"), -1)); n < keyspace.MaxHolders/2 || n > keyspace.MaxHolders*5/7 {
		t.Errorf("%d owners are left, want at least half and at most five sevenths", n)
	}
	f.do("DEL rw")
	if err := fsm.Broken(f.m); err != nil {
		t.Error(err)
	}
}

// TestShared_Snapshot: a snapshot with a lock that several owners hold is
// refused if its feature version is below FeatureShared.
func TestShared_Snapshot(t *testing.T) {
	f := newFeed(t)
	f.raise(fsm.FeatureShared)
	f.do("LOCK ACQUIRE rw r1 PX 1000 SHARED")
	whole := snapshotOf(t, f.m)
	at := bytes.Index(whole, []byte{'V', fsm.FeatureShared})
	if at < 0 {
		t.Fatal("no feature version in the snapshot")
	}
	whole[at+1] = fsm.FeatureLocks
	if _, err := fsm.ReadSnapshot(bytes.NewReader(resealBlocks(whole)), command.NewTable()); !errors.Is(err, fsm.ErrFormat) {
		t.Errorf("read at feature version %d: %v, want ErrFormat", fsm.FeatureLocks, err)
	}
}

// TestShared_Events checks the messages on the channel of a shared lock and its
// keyspace notifications.
func TestShared_Events(t *testing.T) {
	o := newOperated(t, "c", fsm.MaxFeatures)
	o.m.Want(fsm.Kinds(fsm.EventPublish, fsm.EventKeyspace))
	o.want("_setsetting notify-keyspace-events KEAn", "+OK")
	for _, c := range []struct{ line, want string }{
		{"LOCK ACQUIRE k a PX 1000 SHARED", "new, granted 1048577, lock"},
		{"LOCK ACQUIRE k b PX 5000 SHARED", "granted 1048578, lock"},
		{"LOCK ACQUIRE k c PX 5000 SHARED", "granted 1048579, lock"},
		{"LOCK RENEW k b PX 6000", "expire"},
		{"LOCK RELEASE k c", "released 1048579, unlock"},
		{"LOCK ACQUIRE k d PX 5000 SHARED", "granted 1048580, lock"},
		{"LOCK BREAK k 1048580", "broken 1048580, unlock"},
		{"", "expired 1048577, unlock"},
		{"LOCK RELEASE k b", "released 1048578, del"},
		{"LOCK ACQUIRE k b PX 5000 LIMIT 5", "new, granted 1048581, lock"},
		{"LOCK ACQUIRE k c PX 5000 LIMIT 5", "granted 1048582, lock"},
		{"SET k x", "overwritten 1048581, overwritten 1048582, set"},
	} {
		if c.line == "" {
			o.lease += 1e9
			c.line = "GET nothing"
		}
		o.do(c.line)
		var events []string
		for _, e := range o.last.Events {
			events = append(events, strings.TrimSpace(e.Name+" "+string(e.Payload)))
		}
		if got := strings.Join(events, ", "); got != c.want {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
}
