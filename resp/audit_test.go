package resp_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/holdfast-kv/holdfast/resp"
)

// auditLines collects the lines of an audit log.
type auditLines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (a *auditLines) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.buf.Write(p)
}

// take returns the lines that were written since the last call.
func (a *auditLines) take(t *testing.T) (lines []map[string]any) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	d := json.NewDecoder(&a.buf)
	for d.More() {
		var line map[string]any
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	a.buf.Reset()
	return lines
}

// TestAudit checks the commands and the results in the audit log, and that it
// contains no password.
func TestAudit(t *testing.T) {
	var log auditLines
	s := serve(t, newFake(t), func(c *resp.Config) {
		c.NodeID = "n1"
		c.Audit = hclog.New(&hclog.LoggerOptions{Name: "audit", Output: &log, JSONFormat: true})
	})
	c := dial(t, s)
	for _, tt := range []struct{ cmd, audited, result string }{
		{"SET k canary", "", ""},
		{"CONFIG GET *", "", ""},
		{"ACL SETUSER app on >canary #" + strings.Repeat("a", 64) + " ~app:* +get",
			"ACL SETUSER app on >(redacted) #(redacted) ~app:* +get", "ok"},
		{"ACL SETUSER app on canary +get ~k>canary", "ACL SETUSER app on (redacted) +get (redacted)", "error: ERR"},
		{"ACL SETUSER app !canary", "ACL SETUSER app !(redacted)", "error: ERR"},
		{"ACL LOG", "", ""},
		{"ACL LOG RESET", "ACL LOG RESET", "ok"},
		{"acl deluser nobody", "acl deluser nobody", "ok"},
		{"CONFIG SET requirepass canary slowlog-max-len 7", "CONFIG SET requirepass (redacted) slowlog-max-len 7", "ok"},
		{"CONFIG SET nothing 1", "CONFIG SET nothing 1", "error: ERR Unknown option or number of arguments"},
		{"FLUSHALL", "FLUSHALL", "ok"},
		{"FLUSHDB WRONG", "FLUSHDB WRONG", "error: ERR syntax error"},
		{"SCRIPT EXISTS x", "", ""},
		{"SCRIPT FLUSH", "SCRIPT FLUSH", "ok"},
		{"HOLDFAST STATUS", "", ""},
		{"HOLDFAST REMOVE n2 FORCE canary more", "HOLDFAST REMOVE n2 FORCE ... (2 more arguments)", "ok"},
		{"HOLDFAST BACKUP BEGIN", "HOLDFAST BACKUP BEGIN", "ok"},
		{"HOLDFAST BACKUP READ 1 1048576", "", ""},
		{"HOLDFAST RESTORE DATA id 0 canary", "", ""},
		{"HOLDFAST RESTORE APPLY id 1 2 3", "HOLDFAST RESTORE APPLY id ... (3 more arguments)", "ok"},
		{"CLIENT KILL ID 12345", "CLIENT KILL ID 12345", "ok"},
		{"CONFIG SET a", "CONFIG SET a", "error: ERR wrong number of arguments"},
	} {
		c.do(tt.cmd)
		lines := log.take(t)
		if tt.audited == "" {
			if len(lines) > 0 {
				t.Errorf("%s: the audit log has %v, want no line", tt.cmd, lines)
			}
			continue
		}
		if len(lines) != 1 {
			t.Errorf("%s: the audit log has %d lines, want 1: %v", tt.cmd, len(lines), lines)
			continue
		}
		l := lines[0]
		if l["command"] != tt.audited || !strings.HasPrefix(l["result"].(string), tt.result) || l["node"] != "n1" ||
			l["user"] != "default" || !strings.HasPrefix(l["addr"].(string), "127.0.0.1:") || l["@timestamp"] == "" ||
			strings.Contains(l["result"].(string), "canary") {
			t.Errorf("%s: the audit log has %v, want the command %q and the result %q", tt.cmd, l, tt.audited, tt.result)
		}
	}
	c.do("MULTI")
	c.do("FLUSHALL")
	c.do("GET k")
	c.do("CONFIG SET slowlog-max-len 8")
	c.do("EXEC")
	if lines := log.take(t); len(lines) != 2 || lines[0]["command"] != "FLUSHALL" || lines[0]["result"] != "ok" {
		t.Errorf("transaction: the audit log has %v, want FLUSHALL with the result ok as the first of 2 lines", lines)
	}

	b := dial(t, s)
	b.do("FLUSHALL")
	b.do("AUTH canary wrong")
	for range 3 {
		b.do("AUTH default canary2")
	}
	lines := log.take(t)
	if len(lines) != 5 || lines[0]["user"] != "(none)" || lines[1]["@message"] != "login failed" ||
		lines[1]["user"] != "(unknown)" {
		t.Errorf("the audit log has %v, want 1 refused command and 4 failed logins", lines)
	}
	for _, l := range lines {
		if text, err := json.Marshal(l); err != nil || bytes.Contains(text, []byte("canary")) {
			t.Errorf("the audit log contains a password: %v", l)
		}
	}
	for range 60 {
		b = dial(t, s)
		b.do("FLUSHALL")
	}
	if lines := log.take(t); len(lines) < 10 || len(lines) > 30 {
		t.Errorf("60 refused commands made %d lines, want 10 to 30", len(lines))
	}
}
