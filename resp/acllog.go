package resp

import (
	"slices"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/fsm"
)

// aclLog contains the commands and logins that this node has refused recently.
// ACL LOG prints it. It is safe for concurrent use.
type aclLog struct {
	mu      sync.Mutex
	max     int         // maximum number of entries: acllog-max-len
	entries []*aclEntry // newest first
}

type aclEntry struct {
	count                         int
	reason, context, object, user string
	client                        string
	at                            time.Time // time of the latest denial that the entry counts
}

// These values are the ones of Redis. aclLogMax is the default of
// acllog-max-len. A denial is counted with an older entry of the same kind only
// if that entry is at most aclLogGroup old and among the aclLogScan newest
// entries.
const (
	aclLogMax   = 128
	aclLogGroup = time.Minute
	aclLogScan  = 10
)

var aclReasons = map[acl.Reason]string{acl.DeniedCommand: "command", acl.DeniedKey: "key", acl.DeniedChannel: "channel"}

// denied adds a command that was refused.
func (l *aclLog) denied(c *conn, v acl.Verdict, context string) {
	l.note(c, entryOf(v, context, c.info.user))
}

func entryOf(v acl.Verdict, context, user string) aclEntry {
	object := v.Object
	if v.Reason == acl.DeniedCommand {
		object = v.Command.Full
	}
	return aclEntry{reason: aclReasons[v.Reason], context: context, object: object, user: user}
}

// script adds a command that a script was refused. The client of the script may
// be connected to another node, so only its user is known.
func (l *aclLog) script(user string, v acl.Verdict) {
	e := entryOf(v, "lua", user)
	e.client = "user=" + user
	l.add(e)
}

// note adds an entry about a connection.
func (l *aclLog) note(c *conn, e aclEntry) {
	line := c.line(time.Now())
	e.client = line[:len(line)-1]
	l.add(e)
}

// add adds an entry, or counts it with an existing entry of the same kind.
func (l *aclLog) add(e aclEntry) {
	e.count, e.at = 1, time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, old := range l.entries[:min(aclLogScan, len(l.entries))] {
		same := old.reason == e.reason && old.context == e.context && old.object == e.object && old.user == e.user
		if same && e.at.Sub(old.at) <= aclLogGroup {
			e.count += old.count
			l.entries = slices.Delete(l.entries, i, i+1)
			break
		}
	}
	l.entries = slices.Insert(l.entries, 0, &e)
	l.trim()
}

func (l *aclLog) trim() {
	if len(l.entries) > l.max {
		clear(l.entries[l.max:])
		l.entries = l.entries[:l.max]
	}
}

func (l *aclLog) reset() {
	l.mu.Lock()
	l.entries = nil
	l.mu.Unlock()
}

func (l *aclLog) limit() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.max
}

func (l *aclLog) setLimit(n int) {
	l.mu.Lock()
	l.max = n
	l.trim()
	l.mu.Unlock()
}

// reply returns the n newest entries, as ACL LOG prints them.
func (l *aclLog) reply(n int64, now time.Time) fsm.Reply {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []fsm.Reply{}
	for _, e := range l.entries[:max(0, min(n, int64(len(l.entries))))] {
		out = append(out, fsm.Map([]fsm.Reply{
			fsm.Bulk("count"), fsm.Int(int64(e.count)),
			fsm.Bulk("reason"), fsm.Bulk(e.reason),
			fsm.Bulk("context"), fsm.Bulk(e.context),
			fsm.Bulk("object"), fsm.Bulk(e.object),
			fsm.Bulk("username"), fsm.Bulk(e.user),
			fsm.Bulk("age-seconds"), fsm.Double(float64(now.Sub(e.at).Milliseconds()) / 1000),
			fsm.Bulk("client-info"), fsm.Bulk(e.client),
		}))
	}
	return fsm.Array(out)
}
