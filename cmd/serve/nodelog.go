package serve

import (
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
)

// nodeLog contains the loggers of a node.
type nodeLog struct {
	main    hclog.Logger // suppresses lines that repeat
	scripts hclog.Logger // logger of scripts, which have their own limit
	audit   hclog.Logger // writes every line, regardless of the level
	format  string
}

// newNodeLog returns the loggers of a node. They write to standard error.
func newNodeLog(level, format string) (*nodeLog, error) {
	l, err := logLevel(level)
	if err != nil {
		return nil, err
	}
	if format != "text" && format != "json" {
		return nil, fmt.Errorf("--log-format is %q, not text or json", format)
	}
	o := hclog.LoggerOptions{Name: "holdfast", Level: l, JSONFormat: format == "json", Output: os.Stderr}
	log, every := limitedLogger(o, time.Now)
	o.Name, o.Level = "holdfast.audit", hclog.Info
	return &nodeLog{main: log, scripts: every.Named("lua"), audit: hclog.New(&o), format: format}, nil
}

// limitedLogger returns a logger that suppresses lines that repeat, and one that
// writes every line. The loggers must not share a mutex, because hclog calls
// Exclude with the mutex held, and Exclude reports suppressed lines to the other
// logger. hclog writes each line with one call of Write, so lines do not mix.
func limitedLogger(o hclog.LoggerOptions, now func() time.Time) (log, every hclog.Logger) {
	every = hclog.New(&o)
	limit := newLineLimit(now, func(message string, suppressed int) {
		every.Warn("suppressed repeated log lines", "message", message, "lines", suppressed)
	})
	o.Exclude = limit.suppress
	return hclog.New(&o), every
}

func logLevel(text string) (hclog.Level, error) {
	l := hclog.LevelFromString(text)
	if l == hclog.NoLevel {
		return l, fmt.Errorf("--log-level is %q, not trace, debug, info, warn or error", text)
	}
	return l, nil
}

// setLevel changes the level of all loggers except that of the audit log.
func (n *nodeLog) setLevel(l hclog.Level) {
	n.main.SetLevel(l)
	n.scripts.SetLevel(l)
}
