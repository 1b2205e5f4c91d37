package serve

import (
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
