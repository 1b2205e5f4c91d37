package failpoint_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
)

// victim is the environment variable that makes the test program kill itself.
const victim = "FAILPOINT_VICTIM"

func TestMain(m *testing.M) {
	if spec := os.Getenv(victim); spec != "" {
		if err := failpoint.Arm(spec); err != nil {
			panic(err)
		}
		defer fmt.Println("deferred")
		for i := range 5 {
			failpoint.Hit(failpoint.VoteWritten)
			failpoint.HitAfter(failpoint.AppendTorn, func() { fmt.Println("half") })
			fmt.Println("passed", i+1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestHit_KillsAtTheCount(t *testing.T) {
	for _, tt := range []struct{ spec, out, line string }{
		{"append-torn:3", "passed 1\npassed 2\nhalf\n", "holdfast: killing itself at append-torn:3\n"},
		{"vote-written", "", "holdfast: killing itself at vote-written:1\n"},
	} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), victim+"="+tt.spec)
		var errOut strings.Builder
		cmd.Stderr = &errOut
		out, err := cmd.Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("%s: %v, want an end by SIGKILL", tt.spec, err)
		}
		if string(out) != tt.out || errOut.String() != tt.line {
			t.Errorf("%s: printed %q and %q, want %q and %q", tt.spec, out, errOut.String(), tt.out, tt.line)
		}
	}
}

func TestHit_PassesOtherPoints(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victim+"="+failpoint.JoinNoted)
	if out, err := cmd.Output(); err != nil || !strings.HasSuffix(string(out), "passed 5\n") {
		t.Errorf("armed at a failpoint that is not reached: error %v, output %q, want success and 5 lines", err, out)
	}
}

func TestArm_Refuses(t *testing.T) {
	for spec, want := range map[string]string{
		"":                 "known failpoints: append-torn, append-written",
		"append":           `unknown failpoint "append"`,
		"append-synced:":   `invalid count ""`,
		"append-synced:0":  `invalid count "0"`,
		"append-synced:-1": `invalid count "-1"`,
		"append-synced:x":  `invalid count "x"`,
	} {
		if err := failpoint.Arm(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Arm(%q) = %v, want an error with %q", spec, err, want)
		}
	}
}

func TestAll_NamesEachOnce(t *testing.T) {
	all := failpoint.All()
	slices.Sort(all)
	if n := len(all); n != len(slices.Compact(all)) {
		t.Errorf("a failpoint is listed twice: %v", all)
	}
}

func BenchmarkHit_Unarmed(b *testing.B) {
	for b.Loop() {
		failpoint.Hit(failpoint.AppendSynced)
	}
}
