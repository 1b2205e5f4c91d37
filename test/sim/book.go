package sim

import (
	"os"

	"github.com/hashicorp/go-hclog"

	"github.com/holdfast-kv/holdfast/test/testutil"
)

// book keeps the log lines of the nodes, to be shown when a history fails.
// Logging takes more time than the rest of a history, so the book keeps log
// lines only if the environment variable HOLDFAST_SIM_LOG names a level, such
// as debug.
type book struct{ testutil.Log }

func (b *book) level() hclog.Level {
	if text := os.Getenv("HOLDFAST_SIM_LOG"); text != "" {
		return hclog.LevelFromString(text)
	}
	return hclog.Off
}
