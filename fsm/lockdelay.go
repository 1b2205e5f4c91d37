package fsm

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/glob"
	"github.com/holdfast-kv/holdfast/fsm/lockdelay"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// This file applies the delays of locks. Package lockdelay parses the rules and
// stores the delays.

// delayOf returns the delay of a lock with a key, in nanoseconds. The first
// pattern of the setting lock-delay that matches the key determines it. Comparing
// a key with all patterns may take at most maxPatternSteps steps. A key that needs
// more steps has no delay.
func (c *Ctx) delayOf(key string) int64 {
	if c.m.features < FeatureDelay || len(c.m.settings) == 0 {
		return 0
	}
	rules, err := lockdelay.Parse(c.m.Setting(SettingDelay))
	if err != nil {
		return 0 // the node that accepted the setting has checked it
	}
	steps := maxPatternSteps
	defer func() { c.delaySteps += maxPatternSteps - steps }()
	for _, r := range rules {
		g := glob.NewMatcher(r.Pattern, steps, c.Charge)
		found := g.Match(key)
		steps = g.Left()
		if found {
			return r.Delay
		}
	}
	return 0
}

// CheckLockDelay returns an error if text is not a value of the setting lock-delay.
func CheckLockDelay(text string) error {
	if len(text) > maxSettingValue {
		return fmt.Errorf("it is longer than %d bytes", maxSettingValue)
	}
	_, err := lockdelay.Parse(text)
	return err
}

// lost begins the delay of a lock of the current database after one of its grants has
// expired or was broken. It does nothing if the grant ended in another way: for
// example, an owner that has released the lock needs no time to notice a loss.
func (c *Ctx) lost(key, how string) {
	if how != LockExpired && how != LockBroken {
		return
	}
	d := &c.m.locks.delays
	if delay := c.delayOf(key); delay > 0 {
		c.Charge(2 * StepsPut)
		d.Put(c.db, lockdelay.Delay{Key: key, Until: max(c.now+delay, d.Until(c.db, key))})
	}
}

// DelayLeft returns the nanoseconds until the delay of a lock of the current database
// ends, or 0 if the lock has no delay. No client gets the lock before the delay ends.
func (c *Ctx) DelayLeft(key []byte) int64 {
	d := &c.m.locks.delays
	if !c.mayDelay() {
		return 0
	}
	until := d.Until(c.db, codec.View(key))
	if until > c.m.clock.Lease && until <= c.now {
		c.expiryPending = true // only in a read: the next entry may give the lock to a waiter
	}
	left := max(until-c.now, 0)
	if o := c.m.dbs[c.db].Get(key); o != nil && o.Deadline != 0 && o.Due() <= c.now && IsLock(o) {
		// A later entry removes the expired lock and begins the delay.
		if o.Due() > c.m.clock.Lease {
			c.expiryPending = true
		}
		left = max(left, c.delayOf(o.Key))
	}
	return left
}

// Delayed reports whether a lock of the current database has a delay.
func (c *Ctx) Delayed(key []byte) bool { return c.DelayLeft(key) > 0 }

// DelayError returns the error for a command that would take a lock during its
// delay. It is for commands that have no other reply to say that the client did not
// get the lock. It returns None if the lock has no delay.
func (c *Ctx) DelayError(key []byte) Reply {
	left := c.DelayLeft(key)
	if left == 0 {
		return None
	}
	return Error(fmt.Sprintf("LOCKDELAY no client gets this lock for another %d ms, because its last owner has lost it",
		(left+1e6-1)/1e6))
}

// ReservedError returns the error of SET with both NX and GET if the command would
// take a free lock although another client waits for it. The command has no other
// reply for this case, because its null reply says that the key was absent and that
// the client got the lock. ReservedError returns None if no other client has to get
// the lock first.
func (c *Ctx) ReservedError(key []byte) Reply {
	if c.m.features < FeatureDelay || c.atomic || !c.LockWanted(key) {
		return None
	}
	return Error("LOCKDELAY a client that waits for this lock gets it first")
}

// delayedCall returns the error for a script's write command that would take a
// lock during its delay. It returns None if there is no such lock, or if the reply
// of the command itself can say that the command has not taken the lock.
func (c *Ctx) delayedCall(cmd *Command, args [][]byte) Reply {
	if !c.mayDelay() || !c.createsLock(cmd) || ifAbsent(cmd, args) {
		return None
	}
	for _, i := range cmd.KeyPositions(args) {
		if c.Lookup(args[i]) == nil {
			if fail := c.DelayError(args[i]); fail.IsError() {
				return fail
			}
		}
	}
	return None
}

// mayDelay reports whether a lock may have a delay.
func (c *Ctx) mayDelay() bool { return c.m.locks.delays.Len() > 0 || len(c.m.settings) > 0 }

// ifAbsent reports whether the reply of a command of createsLock can say that the
// command has not taken the lock.
func ifAbsent(cmd *Command, args [][]byte) bool {
	switch cmd.Name {
	case "setnx", "msetnx", "hsetnx":
		return true
	case "set":
		return hasNX(args[min(3, len(args)):])
	case "msetex":
		n, ok := number.ParseInt(args[1])
		return ok && n > 0 && n <= int64(len(args)-2)/2 && hasNX(args[2+2*n:])
	}
	return false
}

// hasNX reports whether NX is among the options of a command.
func hasNX(options [][]byte) bool {
	return slices.ContainsFunc(options, func(arg []byte) bool { return IsWord(arg, "NX") })
}

// delayedScript is like delayedCall, for a native script.
func (c *Ctx) delayedScript(sha string, keys [][]byte) Reply {
	if !c.mayDelay() || !lockScripts[sha] || setsIfAbsent[sha] {
		return None
	}
	for _, key := range keys {
		if c.Lookup(key) == nil {
			if fail := c.DelayError(key); fail.IsError() {
				return fail
			}
		}
	}
	return None
}

// setsIfAbsent are the scripts of lockScripts that take a lock with SET NX.
var setsIfAbsent = map[string]bool{
	"fa3d1aaa7e4145457755016a3d5daf72fa7a11bf": true, // rueidislock
	"3875d208d9e377969d2022550302cc83ad17b584": true, // rueidislock
}

// delaysPerEntry bounds the delays that one entry ends.
const delaysPerEntry = 5000

// endDelays removes delays whose end has been reached, up to delaysPerEntry. The
// first waiters then get the locks.
func (c *Ctx) endDelays() {
	for range delaysPerEntry {
		db, d, ok := c.m.locks.delays.First()
		if !ok || d.Until > c.now {
			return
		}
		c.Charge(2 * StepsPut)
		c.m.locks.delays.Remove(db, d)
		c.ready(lockQueue(db, d.Key))
	}
}

// delays writes the delays of locks into a snapshot.
func (w *snapshotWriter) delays(l *locks) {
	l.delays.Scan(func(db int, d lockdelay.Delay) bool {
		w.b = binary.AppendVarint(codec.AppendString(append(w.b, recordDelay, byte(db)), d.Key), d.Until)
		w.cut()
		return w.err == nil
	})
}

// delay reads the delay of a lock.
func (l *snapshotLoader) delay(d *codec.Decoder) error {
	db := int(d.Byte())
	n := lockdelay.Delay{Key: string(d.Bytes()), Until: d.Varint()}
	if d.Err != nil {
		return fmt.Errorf("delay of a lock: %w", d.Err)
	}
	delays := &l.m.locks.delays
	if db >= Databases || l.m.features < FeatureDelay || n.Until <= 0 || delays.Until(db, n.Key) != 0 {
		return fmt.Errorf("delay of lock %q in db %d: %w", n.Key, db, ErrFormat)
	}
	if l.rebase != nil {
		n.Until, _ = l.rebase.end(n.Until, 0, l.m.clock)
	}
	delays.Put(db, n)
	return nil
}
