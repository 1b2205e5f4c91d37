package serve

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// TestNodeLog_SetLevel checks that the loggers of the parts of a node follow a
// change of the level, and that the audit log does not.
func TestNodeLog_SetLevel(t *testing.T) {
	log, err := newNodeLog("error", "text")
	if err != nil {
		t.Fatal(err)
	}
	part := log.main.Named("part")
	if part.IsDebug() || !log.audit.IsInfo() {
		t.Error("--log-level error: a part logs at level debug, or the audit log is off")
	}
	log.setLevel(hclog.Debug)
	if !part.IsDebug() || !log.scripts.IsDebug() || !log.audit.IsInfo() || log.audit.IsDebug() {
		t.Error("the level of a part, of scripts or of the audit log is wrong after a change to debug")
	}
}

// TestNodeLog_SetFormat checks that a logger and the loggers that were made
// from it follow a change of the format and keep their fields. The level of the
// logger and its limit of repeated lines must hold in both formats.
func TestNodeLog_SetFormat(t *testing.T) {
	var out bytes.Buffer
	n := &nodeLog{}
	log := n.logger(hclog.LoggerOptions{
		Name: "holdfast", Level: hclog.Info, Output: &out,
		Exclude: func(_ hclog.Level, message string, _ ...any) bool { return message == "again" },
	})
	part := log.Named("part").With("peer", "n2")
	write := func() string {
		out.Reset()
		part.Debug("detail")
		part.Warn("again")
		part.Warn("cut off", "after", 3)
		return out.String()
	}
	const text = "[WARN]  holdfast.part: cut off: peer=n2 after=3\n"
	if got := write(); !strings.HasSuffix(got, text) || strings.Count(got, "\n") != 1 {
		t.Errorf("as text: %q", got)
	}
	n.setFormat("json")
	if got := write(); !strings.HasPrefix(got, "{") || strings.Count(got, "\n") != 1 ||
		!strings.Contains(got, `"@message":"cut off"`) || !strings.Contains(got, `"@module":"holdfast.part"`) ||
		!strings.Contains(got, `"peer":"n2"`) {
		t.Errorf("as JSON: %q", got)
	}
	n.setFormat("text")
	log.SetLevel(hclog.Debug)
	if got := write(); !strings.HasSuffix(got, text) || strings.Count(got, "\n") != 2 {
		t.Errorf("as text again, at level debug: %q", got)
	}
}
