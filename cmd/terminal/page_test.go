package terminal_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-kv/holdfast/cmd/terminal"
)

func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer stop()
		var out strings.Builder
		n := 0
		err := terminal.Repeat(ctx, &out, time.Second, func(w io.Writer) error {
			n++
			_, err := fmt.Fprintf(w, "page %d\n", n)
			return err
		})
		if err != nil || out.String() != "page 1\npage 2\npage 3\n" {
			t.Errorf("Repeat returned %v and printed %q, want nil and three pages", err, &out)
		}
		failure := errors.New("no page")
		if err := terminal.Repeat(t.Context(), &out, time.Second, func(io.Writer) error { return failure }); err != failure {
			t.Errorf("Repeat returned %v, want the error of the page", err)
		}
		if err := terminal.Repeat(ctx, &out, time.Second, func(io.Writer) error { return failure }); err != nil {
			t.Errorf("Repeat returned %v after the context had ended, want nil", err)
		}
	})
}

func TestCheckInterval(t *testing.T) {
	if err := terminal.CheckInterval(99 * time.Millisecond); err == nil ||
		err.Error() != "--interval is 99ms, must be at least 100ms" {
		t.Errorf("interval of 99 ms: error is %v, want the minimum", err)
	}
	if err := terminal.CheckInterval(100 * time.Millisecond); err != nil {
		t.Error(err)
	}
}
