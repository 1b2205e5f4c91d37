package script

import "github.com/holdfast-kv/holdfast/fsm"

// RunMetered is like RunScript. It also returns the usage of the run, and the
// Abort if the run was aborted.
func (r *Runner) RunMetered(call fsm.ScriptCall) (fsm.Reply, Usage, error) { return r.run(call) }

// FlagsOf returns the flags that a script declares in its first line.
func FlagsOf(src []byte) (Flags, error) {
	c, err := compile(src)
	if err != nil {
		return Flags{}, err
	}
	return c.flags, nil
}

// Cached returns the number of compiled scripts in the cache.
func (r *Runner) Cached() int { return r.order.Len() }
