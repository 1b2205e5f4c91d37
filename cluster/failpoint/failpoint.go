package failpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// armed is the failpoint at which the process ends, nil for none.
var armed atomic.Pointer[armedPoint]

// armedPoint is an armed failpoint. The process ends when it reaches the failpoint
// for the count-th time. left is how many times it still has to reach the
// failpoint.
type armedPoint struct {
	name  string
	count int64
	left  atomic.Int64
}

// Arm makes the process end at the failpoint that spec names. With
// "append-synced:3", the process ends when it reaches that failpoint for the
// third time. With "append-synced", it ends the first time.
func Arm(spec string) error {
	name, number, counted := strings.Cut(spec, ":")
	if !slices.Contains(All(), name) {
		return fmt.Errorf("unknown failpoint %q; known failpoints: %s", name, strings.Join(All(), ", "))
	}
	t := &armedPoint{name: name, count: 1}
	if counted {
		var err error
		if t.count, err = strconv.ParseInt(number, 10, 64); err != nil || t.count < 1 {
			return fmt.Errorf("invalid count %q: must be a number of at least 1", number)
		}
	}
	t.left.Store(t.count)
	armed.Store(t)
	return nil
}

// Hit marks a failpoint. If the failpoint is armed, the process ends there when
// it has reached the failpoint as often as Arm has specified. While no
// failpoint is armed, Hit costs one atomic load.
func Hit(name string) {
	if t := armed.Load(); t != nil {
		t.pass(name, nothing)
	}
}

// HitAfter is like Hit, for a failpoint in the middle of an operation. It calls
// last just before the process ends.
func HitAfter(name string, last func()) {
	if t := armed.Load(); t != nil {
		t.pass(name, last)
	}
}

// HitIf is like Hit, but does nothing if applies returns false. While no
// failpoint is armed, it does not call applies.
func HitIf(applies func() bool, name string) {
	if t := armed.Load(); t != nil && applies() {
		t.pass(name, nothing)
	}
}

func nothing() {}

func (t *armedPoint) pass(name string, last func()) {
	if t.name == name && t.left.Add(-1) == 0 {
		last()
		t.kill()
	}
}

// Line returns the line that a process prints to stderr just before it ends at
// a failpoint that it has reached count times.
func Line(name string, count int64) string {
	return fmt.Sprintf("holdfast: killing itself at %s:%d", name, count)
}

// kill ends the process as kill -9 does: deferred functions do not run. It
// does not return. Other goroutines continue for some microseconds, until the
// kernel has stopped them.
func (t *armedPoint) kill() {
	// Write directly, past all buffers and locks. If the write fails, the
	// process ends nevertheless.
	_, _ = syscall.Write(2, []byte(Line(t.name, t.count)+"\n"))
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGKILL); err != nil {
		panic(fmt.Sprintf("failpoint: kill: %v", err))
	}
	select {}
}
