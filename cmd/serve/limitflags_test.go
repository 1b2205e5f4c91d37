package serve

import (
	"strconv"
	"testing"

	"github.com/spf13/pflag"

	"github.com/holdfast-kv/holdfast/resp"
)

// TestLimitFlags checks that limitFlags returns numbers, and durations in seconds,
// and that every flag in timeLimits exists.
func TestLimitFlags(t *testing.T) {
	cmd := Command()
	if err := cmd.ParseFlags([]string{"--max-subscriptions", "7", "--login-timeout", "1500ms"}); err != nil {
		t.Fatal(err)
	}
	got := limitFlags(cmd.Flags())
	for name, want := range map[string]resp.LimitFlag{
		"max-subscriptions": {Value: "7", Number: 7},
		"login-timeout":     {Value: "1.5s", Number: 1.5},
		"max-clients":       {Value: "10000", Number: 10000},
	} {
		if got[name] != want {
			t.Errorf("%s is %+v, want %+v", name, got[name], want)
		}
	}
	for _, name := range timeLimits {
		if _, ok := got[name]; !ok {
			t.Errorf("there is no flag %s", name)
		}
	}
}

// TestLimitsInForce checks that limitsInForce reports the value of a flag that is
// set, and otherwise the limit that applies on this machine.
func TestLimitsInForce(t *testing.T) {
	for _, tt := range []struct {
		args          []string
		memory, reads func(n float64) bool
	}{
		{nil, func(n float64) bool { return n >= 256<<20 }, func(n float64) bool { return n >= 1 }},
		{[]string{"--max-client-memory", "7mb", "--max-slow-reads", "3"},
			func(n float64) bool { return n == 7<<20 }, func(n float64) bool { return n == 3 }},
	} {
		o := newOptions()
		flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		o.flags(flags)
		if err := flags.Parse(tt.args); err != nil {
			t.Fatal(err)
		}
		o.limitFlags = limitFlags(flags)
		got := o.limitsInForce()
		for name, ok := range map[string]func(float64) bool{"max-client-memory": tt.memory, "max-slow-reads": tt.reads} {
			if f := got[name]; !ok(f.Number) || f.Value != strconv.FormatFloat(f.Number, 'f', -1, 64) {
				t.Errorf("%v: %s is %+v", tt.args, name, f)
			}
		}
		if got["max-clients"].Number != 10000 {
			t.Errorf("%v: max-clients is %+v", tt.args, got["max-clients"])
		}
	}
}
