package terminal

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// minInterval is the shortest time between two pages.
const minInterval = 100 * time.Millisecond

// CheckInterval returns an error if the value of --interval is too short for
// Repeat.
func CheckInterval(every time.Duration) error {
	if every < minInterval {
		return fmt.Errorf("--interval is %v, must be at least %v", every, minInterval)
	}
	return nil
}

// Repeat prints a page repeatedly until ctx ends. On a terminal, each page replaces
// the previous one. If page fails, Repeat returns the error, or nil if ctx has
// ended.
func Repeat(ctx context.Context, out io.Writer, every time.Duration, page func(io.Writer) error) error {
	const clearScreen = "\x1b[H\x1b[2J"
	file, ok := out.(*os.File)
	onTerminal := ok && term.IsTerminal(int(file.Fd()))
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		var text strings.Builder
		if onTerminal {
			text.WriteString(clearScreen)
		}
		err := page(&text)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := io.WriteString(out, text.String()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// PrintJSON prints a value as indented JSON.
func PrintJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
