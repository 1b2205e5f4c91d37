package sim

import (
	"bytes"
	"os"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// book keeps what the nodes log, for a history that fails. Levels below
// warnings cost more time than the rest of a history, so they are kept only
// when HOLDFAST_SIM_LOG=debug asks for them.
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

// tail returns the last lines.
func (b *book) tail(lines int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := strings.Split(strings.TrimSpace(b.buf.String()), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
