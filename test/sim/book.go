package sim

import (
	"bytes"
	"os"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// book keeps the log lines of the nodes, to be shown when a history fails.
// Logging takes more time than the rest of a history, so the book keeps log
// lines only if the environment variable HOLDFAST_SIM_LOG names a level, such
// as debug.
type book struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *book) level() hclog.Level {
	if text := os.Getenv("HOLDFAST_SIM_LOG"); text != "" {
		return hclog.LevelFromString(text)
	}
	return hclog.Off
}

// Write implements io.Writer.
func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// tail returns the last lines of the book.
func (b *book) tail(lines int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := strings.Split(strings.TrimSpace(b.buf.String()), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
