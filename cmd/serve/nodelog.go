package serve

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// nodeLog contains the loggers of a node.
type nodeLog struct {
	main    hclog.Logger // suppresses lines that repeat
	scripts hclog.Logger // logger of scripts, which have their own limit
	audit   hclog.Logger // writes every line, regardless of the level
	json    atomic.Bool  // whether all loggers write JSON instead of text
}

// newNodeLog returns the loggers of a node. They write to standard error.
func newNodeLog(level, format string) (*nodeLog, error) {
	l, err := logLevel(level)
	if err != nil {
		return nil, err
	}
	if err := checkFormat(format); err != nil {
		return nil, err
	}
	n := &nodeLog{}
	n.setFormat(format)
	o := hclog.LoggerOptions{Name: "holdfast", Level: l, Output: os.Stderr}
	var every hclog.Logger
	n.main, every = n.limitedLogger(o, time.Now)
	n.scripts = every.Named("lua")
	o.Name, o.Level = "holdfast.audit", hclog.Info
	n.audit = n.logger(o)
	return n, nil
}

// limitedLogger returns a logger that suppresses lines that repeat, and a logger
// that writes every line. The loggers must not share a mutex, because hclog calls
// Exclude with the mutex held, and Exclude reports suppressed lines to the other
// logger. hclog writes each line with one call of Write, so lines do not mix.
func (n *nodeLog) limitedLogger(o hclog.LoggerOptions, now func() time.Time) (log, every hclog.Logger) {
	every = n.logger(o)
	limit := newLineLimit(now, func(message string, suppressed int) {
		every.Warn("suppressed repeated log lines", "message", message, "lines", suppressed)
	})
	o.Exclude = limit.suppress
	return n.logger(o), every
}

// logger returns a logger whose format setFormat changes. hclog cannot change the
// format of a logger. So the logger itself writes nothing, and passes its lines to
// a formatter.
func (n *nodeLog) logger(o hclog.LoggerOptions) hclog.Logger {
	silent := o
	silent.Exclude = func(hclog.Level, string, ...any) bool { return true }
	log := hclog.NewInterceptLogger(&silent)
	o.Level = hclog.Trace
	f := &formatter{log: log, json: &n.json}
	f.asText = hclog.NewSinkAdapter(&o)
	o.JSONFormat = true
	f.asJSON = hclog.NewSinkAdapter(&o)
	log.RegisterSink(f)
	return log
}

// formatter writes the lines of a logger in the current format. It implements
// hclog.SinkAdapter.
type formatter struct {
	log            hclog.Logger // its level is the lowest level of the lines to write
	json           *atomic.Bool
	asText, asJSON hclog.SinkAdapter
}

// Accept implements hclog.SinkAdapter.
func (f *formatter) Accept(name string, level hclog.Level, msg string, args ...any) {
	switch {
	case level < f.log.GetLevel():
	case f.json.Load():
		f.asJSON.Accept(name, level, msg, args...)
	default:
		f.asText.Accept(name, level, msg, args...)
	}
}

func checkFormat(format string) error {
	if format != "text" && format != "json" {
		return fmt.Errorf("--log-format is %q, not text or json", format)
	}
	return nil
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

// setFormat changes the format of all loggers.
func (n *nodeLog) setFormat(format string) { n.json.Store(format == "json") }
