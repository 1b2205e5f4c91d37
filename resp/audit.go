package resp

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/wire"
)

// auditLog writes lines about administrative commands and failed logins to
// Config.Audit.
type auditLog struct {
	log  hclog.Logger // nil for none
	node string
	// logins and refused limit the lines about failed logins and about refused
	// commands, because clients can cause any number of them.
	logins, refused auditBucket
}

// auditBurst is how many lines about one kind of failure may be written at once.
// After that, one line per second may be written.
const auditBurst = 20

// auditBucket is a token bucket for lines. It is safe for concurrent use.
type auditBucket struct {
	mu         sync.Mutex
	used       float64   // number of used tokens at the time in the field at
	at         time.Time // time at which used was last computed
	suppressed int       // number of lines suppressed since the last written line
}

// allow reports whether a line may be written now, and how many lines have been
// suppressed since the last written one.
func (b *auditBucket) allow(now time.Time) (suppressed int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = max(b.used-now.Sub(b.at).Seconds(), 0)
	b.at = now
	if b.used > auditBurst-1 {
		b.suppressed++
		return 0, false
	}
	b.used++
	suppressed, b.suppressed = b.suppressed, 0
	return suppressed, true
}

// notAudited are the commands with the flag Admin whose calls do not appear in the
// audit log, because they change neither data nor settings, or always fail.
var notAudited = []string{
	"acl|dryrun", "acl|getuser", "acl|list", "acl|load", "acl|save", "acl|users",
	"client|list", "client|no-evict", "client|unblock",
	"cluster|count-failure-reports", "cluster|replicas", "cluster|slaves",
	"config|get",
	"latency|doctor", "latency|graph", "latency|histogram", "latency|history", "latency|latest",
	"module|list", "pfdebug", "pfselftest",
	"sentinel|ckquorum", "sentinel|config", "sentinel|get-master-addr-by-name", "sentinel|info-cache",
	"sentinel|is-master-down-by-addr", "sentinel|master", "sentinel|masters", "sentinel|myid",
	"sentinel|pending-scripts", "sentinel|replicas", "sentinel|sentinels", "sentinel|slaves",
	"slowlog|get", "slowlog|len",
	"sync", "psync",
}

// alsoAudited are the commands without the flag Admin whose calls appear in the
// audit log, because they change the data, locks, scripts or functions of many
// clients, or end a script.
var alsoAudited = []string{
	"flushall", "flushdb", "swapdb", "lock|break",
	"script|flush", "script|kill",
	"function|delete", "function|flush", "function|kill", "function|load", "function|restore",
}

// isAudited reports whether calls of a command appear in the audit log. name is
// the full name of the command.
func isAudited(name string, flags fsm.Flags) bool {
	return flags&fsm.Admin != 0 && !slices.Contains(notAudited, name) || slices.Contains(alsoAudited, name)
}

// setAudited computes r.audited from the names and the flags of the command and
// its subcommands.
func (r *row) setAudited() {
	r.audited = isAudited(r.fullName(), r.cmd.Flags)
	for i := range r.cmd.Sub {
		s := &r.cmd.Sub[i]
		r.audited = r.audited || r.data && isAudited(r.cmd.Name+"|"+s.Name, s.Flags)
	}
}

// audits reports whether a call appears in the audit log.
func (r *row) audits(args [][]byte) bool {
	if !r.audited {
		return false
	}
	second := ""
	if len(args) > 1 {
		second = strings.ToLower(string(args[1]))
	}
	switch name := r.fullName(); {
	case r.data && r.cmd.Sub != nil:
		return slices.Contains(alsoAudited, name+"|"+second)
	case name == "holdfast":
		return second != "status"
	case name == "acl|log":
		return len(args) > 2 && strings.EqualFold(string(args[2]), "reset")
	}
	return true
}

// auditWords is the maximum number of words of a command that the audit log
// prints, including the command's name. auditBytes is the maximum number of
// bytes of a word that it prints. If a command is longer, the line says how
// much is missing.
const (
	auditWords = 16
	auditBytes = 128
)

// auditText returns a command as the audit log prints it, without passwords and
// without code.
func (r *row) auditText(args [][]byte) string {
	shown, words := slices.Clone(args), auditWords
	switch name := r.fullName(); name {
	case "acl|setuser": // the slow log hides all arguments of this command, as in Redis
		for i := 3; i < len(args); i++ {
			shown[i] = auditRule(args[i])
		}
	case "holdfast", "sentinel|set", "module|load", "module|loadex":
		words = 4 // the later arguments may be data or passwords
	case "function":
		for i := 2; i < len(args); i++ {
			if len(args[i]) > 32 { // code, or a dump of code
				shown[i] = []byte("(" + strconv.Itoa(len(args[i])) + " bytes)")
			}
		}
	default:
		shown = r.redacted(args)
	}
	var b []byte
	for i, arg := range shown {
		if i > 0 {
			b = append(b, ' ')
		}
		if i == words {
			b = append(b, "... ("+strconv.Itoa(len(shown)-i)+" more arguments)"...)
			break
		}
		if word := clipped(arg, auditBytes); plainWord(word) {
			b = append(b, word...)
		} else {
			b = appendRepr(b, word)
		}
	}
	return string(b)
}

// ruleWords are the rules of ACL SETUSER that begin with a letter.
var ruleWords = []string{
	"on", "off", "nopass", "resetpass", "reset", "allcommands", "nocommands", "allkeys", "resetkeys", "allchannels",
	"resetchannels", "clearselectors", "skip-sanitize-payload", "sanitize-payload",
}

// auditRule returns a rule of ACL SETUSER as the audit log prints it. It hides
// passwords, and every argument that may be a mistyped password: an argument
// that does not begin like a rule, or that contains a character with which a
// password rule begins.
func auditRule(rule []byte) []byte {
	switch {
	case len(rule) == 0:
		return rule
	case strings.IndexByte("><#!", rule[0]) >= 0:
		return append(rule[:1:1], "(redacted)"...)
	case slices.Contains(ruleWords, strings.ToLower(string(rule))):
		return rule
	case strings.IndexByte("+-~%&@()", rule[0]) >= 0 && !bytes.ContainsAny(rule, "><#!"):
		return rule
	}
	return []byte("(redacted)")
}

// plainWord reports whether a word needs no quotes.
func plainWord(word []byte) bool {
	for _, ch := range word {
		if ch <= ' ' || ch > '~' || ch == '"' || ch == '\\' {
			return false
		}
	}
	return len(word) > 0
}

// auditReply logs an administrative command that was run. reply is its encoded
// reply, or empty if there is none.
func (c *conn) auditReply(r *row, args [][]byte, reply []byte) {
	result := "ok"
	if len(reply) > 0 && (reply[0] == '-' || reply[0] == '!') {
		line, _, _ := strings.Cut(string(reply[1:]), "\r\n")
		result = r.auditError(line)
	}
	c.audit(r, args, result)
}

// isPiece reports whether a call transfers one piece of a backup. A large
// backup has thousands of pieces, so the audit log contains only the commands
// before and after the pieces, and the pieces that failed.
func isPiece(r *row, args [][]byte) bool {
	return r.fullName() == "holdfast" && len(args) > 2 &&
		(strings.EqualFold(string(args[1]), "backup") && strings.EqualFold(string(args[2]), "read") ||
			strings.EqualFold(string(args[1]), "restore") && strings.EqualFold(string(args[2]), "data"))
}

// auditGroup logs the administrative command on data that was the only command of a
// group. out is the reply to the group.
func (c *conn) auditGroup(out []byte, err error) {
	if err != nil {
		out = fsm.Error(errorText(err)).Append(nil, c.proto)
	}
	c.auditReply(c.batch.rows[0], c.batch.audited, out)
}

// auditError returns the text of an error reply for the audit log. Of an error
// of ACL SETUSER, it keeps only the code, because the rest quotes rules, which
// may contain passwords.
func (r *row) auditError(text string) string {
	if r.fullName() == "acl|setuser" {
		text, _, _ = strings.Cut(text, " ")
	}
	return "error: " + string(clipped([]byte(text), auditBytes))
}

// audit logs an administrative command.
func (c *conn) audit(r *row, args [][]byte, result string) {
	a := &c.srv.audit
	if a.log == nil || result == "ok" && isPiece(r, args) {
		return
	}
	a.log.Info("administrative command", "node", a.node, "user", c.info.user, "addr", c.net.RemoteAddr().String(),
		"client", c.id, "command", r.auditText(args), "result", result)
}

// auditRefused logs an administrative command that was refused before it ran,
// for example for lack of rights.
func (c *conn) auditRefused(r *row, args [][]byte, text string) {
	if r == nil || c.srv.audit.log == nil || !r.audits(args) {
		return
	}
	if left, ok := c.srv.audit.refused.allow(time.Now()); ok {
		user := c.info.user
		if c.needsAuth() {
			user = "(none)"
		}
		c.srv.audit.log.Warn("administrative command refused", "node", c.srv.audit.node, "user", user,
			"addr", c.net.RemoteAddr().String(), "client", c.id, "command", r.auditText(args),
			"result", r.auditError(text), "suppressed", left)
	}
}

// auditLogin logs a failed login. known says whether a user with that name
// exists. If no such user exists, the name is not logged: a client may have
// confused the arguments of AUTH, so the name may be a password.
func (c *conn) auditLogin(name string, known bool, result string) {
	a := &c.srv.audit
	if a.log == nil {
		return
	}
	if !known {
		name = "(unknown)"
	}
	if left, ok := a.logins.allow(time.Now()); ok {
		a.log.Warn("login failed", "node", a.node, "user", name, "addr", c.net.RemoteAddr().String(), "client", c.id,
			"result", result, "suppressed", left)
	}
}

// auditTransaction logs the administrative commands of a transaction that are
// commands on data. out is the reply to EXEC, which contains the replies of these
// commands. If EXEC failed, err is set instead. The transaction's connection
// commands are logged when they run.
func (c *conn) auditTransaction(m *multi, out []byte, err error) {
	if c.srv.audit.log == nil {
		return
	}
	var rest []byte
	if len(out) > 0 && out[0] == '*' {
		head, _, _ := wire.Head(out)
		rest = out[head:]
	}
	for i := range m.cmds {
		q := &m.cmds[i]
		if !q.row.data || q.refused != "" {
			continue
		}
		n := wire.Len(rest)
		switch {
		case !q.row.audits(q.args):
		case err != nil:
			c.audit(q.row, q.args, q.row.auditError(errorText(err)))
		case n == 0:
			c.audit(q.row, q.args, "not executed: the transaction was discarded")
		default:
			c.auditReply(q.row, q.args, rest[:n])
		}
		rest = rest[n:]
	}
}
