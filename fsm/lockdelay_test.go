package fsm_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// TestLockDelay_Features: below FeatureDelay, the setting lock-delay has no
// effect. It takes effect when the feature version is raised.
func TestLockDelay_Features(t *testing.T) {
	o := newOperated(t, "c", fsm.FeatureHistory)
	o.args([]byte(fsm.SetSettingsCommand), []byte(fsm.SettingDelay), []byte("* 5000"))
	o.want("set k a nx px 60000", "+OK")
	o.want("lock break k", ":1")
	o.want("setnx k b", ":1")
	o.want("pexpire k 60000", ":1")
	o.want(fmt.Sprintf("%s 1 %d", fsm.FeaturesCommand, fsm.FeatureDelay), ":1")
	o.want("lock break k", ":1")
	o.want("setnx k b", ":0")
	o.lease += 5e9
	o.want("setnx k b", ":1")
}

// TestLockDelay_Restored: a backup contains the delays. In a cluster that
// restores the backup, each delay lasts for the time that was left of it in the
// backup.
func TestLockDelay_Restored(t *testing.T) {
	src := newOperated(t, "lost", fsm.MaxFeatures)
	src.args([]byte(fsm.SetSettingsCommand), []byte(fsm.SettingDelay), []byte("* 5000"))
	src.want("lock acquire k a px 60000", ":")
	src.want("lock break k", ":1")
	src.lease += 1e9
	src.want("setnx k b", ":0")
	for _, ahead := range []int64{0, 1000e9} {
		o := newOperated(t, "c", fsm.MaxFeatures)
		o.lease += ahead
		o.want("set other v", "+OK")
		o.want("del other", ":1")
		o.stage("r", src.backup())
		o.want(applyStaged+"1 0 0", "+OK")
		begun := o.m.Clock().Lease
		o.want("setnx k b", ":0")
		if next := o.m.NextDeadline(); next != begun+4e9 {
			t.Errorf("the delay ends at %d, want %d", next, begun+4e9)
		}
		o.lease = begun + 4e9
		o.want("setnx k b", ":1")
	}
}

// TestLockDelay_Expiring: no client gets an expired lock before an entry removes
// the lock and begins its delay. Here, the first entry after the deadline does not
// remove the lock, because the entry already removes as many keys as one entry
// may.
func TestLockDelay_Expiring(t *testing.T) {
	o := newOperated(t, "c", fsm.MaxFeatures)
	o.args([]byte(fsm.SetSettingsCommand), []byte(fsm.SettingDelay), []byte("k 5000"))
	for i := range fsm.ExpiryWork/fsm.ExpiryKeyWork + 10 {
		o.do(fmt.Sprintf("set other%d v px 1000", i))
	}
	o.want("lock acquire k a px 2000", ":")
	o.lease += 2e9
	o.want("setnx k b", ":0") // the entry removes other keys
	if n := o.m.Len(); n < 2 {
		t.Fatalf("%d keys are left, want more: the entry has removed all expired keys", n)
	}
	o.want("lock acquire k b px 2000", "$-1")
	o.lease += 4e9
	o.want("lock acquire k b px 2000", "$-1")
	o.lease += 1e9
	o.want("lock acquire k b px 2000", ":")
}

// TestLockDelay_ExpensivePatterns: comparing the patterns of the setting with the
// keys that expire counts toward the work of an entry.
func TestLockDelay_ExpensivePatterns(t *testing.T) {
	o := newOperated(t, "c", fsm.MaxFeatures)
	o.args([]byte(fsm.SetSettingsCommand), []byte(fsm.SettingDelay), []byte(strings.Repeat("*aab 5000 ", 20)))
	const locks = 400
	name := strings.Repeat("a", 2000)
	for i := range locks {
		o.want(fmt.Sprintf("set %s%d o nx px 1000", name, i), "+OK")
	}
	o.lease += 2e9
	o.want("set other v", "+OK")
	gone := locks + 1 - o.m.Len()
	if most := fsm.ExpiryWork / 5000; gone < 1 || gone > most {
		t.Errorf("one entry has removed %d keys, want 1 to %d", gone, most)
	}
}
