package testutil

import (
	"fmt"
	"os"
	"testing"

	"github.com/holdfast-kv/holdfast/verify/process"
)

// MainWithProgram is the TestMain of packages that test the released program.
// It builds the program, stores its path in program, runs the tests, and ends
// the process.
func MainWithProgram(m *testing.M, program *string) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "holdfast-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if *program, err = process.Build(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}
