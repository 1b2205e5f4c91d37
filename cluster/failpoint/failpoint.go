package failpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// armed is the point at which the process is to end, nil for none.
var armed atomic.Pointer[trap]

// trap is a point, and how often it may still be passed.
type trap struct {
	name  string
	count int64
	left  atomic.Int64
}

// Arm makes the process end at a point: "append-synced:3" when it comes to that
// point for the third time, "append-synced" at the first.
func Arm(spec string) error {
	name, number, counted := strings.Cut(spec, ":")
	if !slices.Contains(All(), name) {
		return fmt.Errorf("no point is called %q; there are: %s", name, strings.Join(All(), ", "))
	}
	t := &trap{name: name, count: 1}
	if counted {
		var err error
		if t.count, err = strconv.ParseInt(number, 10, 64); err != nil || t.count < 1 {
			return fmt.Errorf("%q is no number of times from 1 on", number)
		}
	}
	t.left.Store(t.count)
	armed.Store(t)
	return nil
}

// Hit is what stands at a point. It costs one atomic load while nothing is armed.
func Hit(name string) {
	if t := armed.Load(); t != nil {
		t.pass(name, nothing)
	}
}

// HitAfter is Hit for a point in the middle of something: if the process ends
// here, it does last before.
func HitAfter(name string, last func()) {
	if t := armed.Load(); t != nil {
		t.pass(name, last)
	}
}

// HitIf is Hit for a point that the process comes to only if so, which is not
// asked while nothing is armed.
func HitIf(so func() bool, name string) {
	if t := armed.Load(); t != nil && so() {
		t.pass(name, nothing)
	}
}

func nothing() {}

func (t *trap) pass(name string, last func()) {
	if t.name == name && t.left.Add(-1) == 0 {
		last()
		t.spring()
	}
}

// Line is what a process prints to stderr just before it ends at a point that it
// came to for the count-th time.
func Line(name string, count int64) string {
	return fmt.Sprintf("holdfast: killing itself at %s:%d", name, count)
}

// spring ends the process as kill -9 does: nothing that is deferred runs. It does
// not return. Other goroutines go on until the kernel has stopped them, for some
// microseconds.
func (t *trap) spring() {
	// Past all buffers and locks. If it cannot be written, nobody is told, and the
	// process ends all the same.
	_, _ = syscall.Write(2, []byte(Line(t.name, t.count)+"\n"))
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGKILL); err != nil {
		panic(fmt.Sprintf("failpoint: kill: %v", err))
	}
	select {}
}
