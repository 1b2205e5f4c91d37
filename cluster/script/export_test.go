package script

import "github.com/holdfast-kv/holdfast/fsm"

// RunMetered is RunScript, and says what the script cost and why it was cut off.
func (r *Runner) RunMetered(call fsm.ScriptCall) (fsm.Reply, Usage, error) { return r.run(call) }

// FlagsOf returns what a script's first line says.
func FlagsOf(src []byte) (Flags, error) {
	c, err := compile(src)
	if err != nil {
		return Flags{}, err
	}
	return c.flags, nil
}

// Cached is how many scripts are kept compiled.
func (r *Runner) Cached() int { return r.order.Len() }
