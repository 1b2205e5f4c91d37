package serve

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"
)

// auditOptions holds the flag about the audit log.
type auditOptions struct{ to string }

func (o *auditOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.to, "audit-log", "-",
		"file for the audit log of administrative commands and failed logins; - for the node's log, empty for none")
}

// auditFile is the file of the audit log, opened for appending. It can be opened
// again after another program has renamed it. It is safe for concurrent use.
type auditFile struct {
	path string

	mu   sync.Mutex
	file *os.File
}

// reopen opens the file again. If that fails, it keeps the file that is open.
func (a *auditFile) reopen() error {
	if a == nil {
		return nil
	}
	f, err := os.OpenFile(a.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("--audit-log: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.file
	a.file = f
	if old != nil {
		return old.Close()
	}
	return nil
}

// Write implements io.Writer.
func (a *auditFile) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, err := a.file.Write(p)
	if err != nil {
		// hclog drops the error, and a lost line must not go unnoticed.
		_, werr := fmt.Fprintf(os.Stderr, "holdfast: cannot write audit log: %v: %s", err, p)
		err = errors.Join(err, werr)
	}
	return n, err
}

func (a *auditFile) close() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.file.Close()
}

// open returns the logger of the audit log, or nil if there is no audit log. It
// also returns the file of the audit log, or nil if the lines go to the node's
// log. The logger writes every line, regardless of --log-level.
func (o *auditOptions) open(log *nodeLog) (hclog.Logger, *auditFile, error) {
	switch o.to {
	case "":
		return nil, nil, nil
	case "-":
		return log.audit, nil, nil
	}
	f := &auditFile{path: o.to}
	if err := f.reopen(); err != nil {
		return nil, nil, err
	}
	return log.logger(hclog.LoggerOptions{Name: "audit", Level: hclog.Info, Output: f}), f, nil
}
