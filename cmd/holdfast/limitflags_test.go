package main

import (
	"testing"

	"github.com/holdfast-kv/holdfast/resp"
)

// TestLimitFlags checks that numbers and durations are parsed as the flags
// parse them, and that every flag in timeLimits exists.
func TestLimitFlags(t *testing.T) {
	cmd := serveCommand()
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
