package main

import (
	"context"
	"errors"
	"io"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/cmd/terminal"
)

// TestVariables_OfOthers checks that the program does not report variables that
// other programs set: Kubernetes sets some for a service named holdfast.
func TestVariables_OfOthers(t *testing.T) {
	version := func() error { return run(context.Background(), []string{"version"}, io.Discard, io.Discard) }
	for _, name := range []string{
		"HOLDFAST_SERVICE_HOST", "HOLDFAST_SERVICE_PORT_CLIENTS", "HOLDFAST_PORT", "HOLDFAST_PORT_6379_TCP",
		"HOLDFAST_PORT_6379_TCP_ADDR", "HOLDFAST_HEADLESS_SERVICE_HOST", "HOLDFAST_HEADLESS_PORT_7379_TCP_PROTO",
		"HOLDFAST_BIND", "HOLDFAST_SENTINEL_PORT_N1", "HOLDFAST_REQUIRE_REDIS", "HOLDFAST_DATA_DIR",
	} {
		t.Setenv(name, "1")
	}
	if err := version(); err != nil {
		t.Error(err)
	}
	t.Setenv("HOLDFAST_PEERADDR", "x")
	if err := version(); err == nil || !strings.Contains(err.Error(), "did you mean HOLDFAST_PEER_ADDR?") {
		t.Errorf("a mistyped variable: %v", err)
	}
}

func TestBuiltVersion(t *testing.T) {
	info := func(version string) *debug.BuildInfo { return &debug.BuildInfo{Main: debug.Module{Version: version}} }
	for _, tt := range []struct {
		info *debug.BuildInfo
		ok   bool
		want string
	}{
		{nil, false, "dev"},
		{info(""), true, "dev"},
		{info("(devel)"), true, "dev"},
		{info("v1.2.3"), true, "v1.2.3"},
		{info("v0.0.0-20261126080000-0123456789ab+dirty"), true, "v0.0.0-20261126080000-0123456789ab+dirty"},
	} {
		if got := builtVersion(tt.info, tt.ok); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.info, got, tt.want)
		}
	}
}

// TestArguments checks that an error about the number of arguments shows the
// usage of the command.
func TestArguments(t *testing.T) {
	err := run(context.Background(), []string{"member", "remove"}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "received 0: usage: holdfast member remove NODE") {
		t.Error(err)
	}
}

// TestCommands_Mistyped checks that every command with subcommands refuses a
// mistyped subcommand and suggests the most similar one.
func TestCommands_Mistyped(t *testing.T) {
	for _, tt := range []struct{ typed, want string }{
		{"stauts", `unknown command "stauts" for "holdfast"; did you mean "status"?`},
		{"member lst", `unknown command "lst" for "holdfast member"; did you mean "list"?`},
		{"member rem n2", `did you mean "remove"?`},
		{"member delete n2", `did you mean "remove"?`},
		{"config chekc f", `did you mean "check"?`},
		{"locks histroy", `did you mean "history"?`},
		{"debug bundel", `unknown command "bundel" for "holdfast debug"; did you mean "bundle"?`},
		{"dev strat n1", `did you mean "start"?`},
		{"completion bsh", `did you mean "bash"?`},
		{"status --json --watch", "--json and --watch exclude each other: set only one of them"},
		{"help membr", `unknown command "membr" for "holdfast"; did you mean "member"?`},
		{"help member lst", `unknown command "lst" for "holdfast member"; did you mean "list"?`},
		{"member frobnicate", `unknown command "frobnicate" for "holdfast member" (see "holdfast member --help")`},
		{"commandz", `unknown command "commandz" for "holdfast" (see "holdfast --help")`}, // commands is hidden
		{"member list all", `"all": usage: holdfast member list [flags] (see "holdfast member list --help")`},
		{"dev up", `unexpected argument "up": put flags for the nodes after --`},
	} {
		err := run(context.Background(), strings.Fields(tt.typed), io.Discard, io.Discard)
		if err == nil || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.typed, err, tt.want)
		}
	}
}

// TestHelp checks that the program prints help for commands and their
// subcommands.
func TestHelp(t *testing.T) {
	for typed, want := range map[string]string{
		"": "Available Commands:", "help": "Available Commands:", "help member": "List or change the members",
		"help member list": "List the members of the cluster: role", "debug": "Available Commands:",
		"completion bash": "bash completion",
	} {
		var out strings.Builder
		err := run(context.Background(), strings.Fields(typed), &out, io.Discard)
		if err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%q: %v, %s", typed, err, out.String())
		}
	}
}

// TestVerify_WrongFlags checks that verify ends with the exit code 2 for no
// verdict if its flags are wrong. A script would take the code 1 for a
// violation.
func TestVerify_WrongFlags(t *testing.T) {
	for _, tt := range []struct{ typed, env, want string }{
		{"verify --duration soon", "", "--duration"},
		{"verify --local --faults meteorite --epsiodes 1", "", "unknown flag --epsiodes"},
		{"verify --local --addrs 127.0.0.1:1", "", "--addrs and --local exclude each other"},
		{"verify now", "", `unexpected argument "now"`},
		{"verify", "soon", "HOLDFAST_DURATION"},
		{"verify --addrs nonsense", "", "--addrs"},
	} {
		t.Run(tt.typed, func(t *testing.T) {
			if tt.env != "" {
				t.Setenv("HOLDFAST_DURATION", tt.env)
			}
			var errOut strings.Builder
			err := run(t.Context(), strings.Fields(tt.typed), io.Discard, &errOut)
			var code terminal.ExitCode
			if !errors.As(err, &code) || code != 2 {
				t.Errorf("error %v, want the exit code 2", err)
			}
			if text := errOut.String(); !strings.HasPrefix(text, "holdfast: no verdict: ") ||
				!strings.Contains(text, tt.want) {
				t.Errorf("printed %q, want no verdict and %q", text, tt.want)
			}
		})
	}
}
