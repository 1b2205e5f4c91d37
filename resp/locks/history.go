// Package locks reads the arguments of LOCK HISTORY and builds its reply.
package locks

import (
	"math"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/history"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// defaultCount is the maximum number of grants in the reply to a LOCK HISTORY
// without COUNT.
const defaultCount = 100

const (
	msgFrom  = "ERR FROM is not a time: use RFC 3339 (2026-11-26T14:03:07Z) or milliseconds since 1970"
	msgTo    = "ERR TO is not a time: use RFC 3339 (2026-11-26T14:03:07Z) or milliseconds since 1970"
	msgOrder = "ERR FROM is later than TO"
	msgCount = "ERR COUNT is not an integer from 1 to 1000"
)

// ParseHistory parses LOCK HISTORY. args begins with the two words of the
// command. If the arguments are wrong, fail is the error reply; otherwise, fail
// is null.
func ParseHistory(db int, args [][]byte) (q history.Query, fail fsm.Reply) {
	q = history.Query{DB: db, Key: string(args[2]), To: math.MaxInt64, Count: defaultCount}
	var from, to, count bool
	for i := 3; i < len(args); i += 2 {
		if i+1 == len(args) {
			return q, fsm.Error(fsm.MsgSyntax)
		}
		var ok bool
		switch word, value := args[i], args[i+1]; {
		case fsm.IsWord(word, "FROM") && !from:
			if q.From, ok = parseTime(value, 0); !ok {
				return q, fsm.Error(msgFrom)
			}
			from = true
		case fsm.IsWord(word, "TO") && !to:
			if q.To, ok = parseTime(value, 999); !ok {
				return q, fsm.Error(msgTo)
			}
			to = true
		case fsm.IsWord(word, "COUNT") && !count:
			n, ok := number.ParseInt(value)
			if !ok || n < 1 || n > history.MaxCount {
				return q, fsm.Error(msgCount)
			}
			q.Count, count = int(n), true
		default:
			return q, fsm.Error(fsm.MsgSyntax)
		}
	}
	if q.From > q.To {
		return q, fsm.Error(msgOrder)
	}
	return q, fsm.Null
}

// maxMillis bounds a time in milliseconds, so that JavaScript can represent it.
const maxMillis = 1 << 53

// parseTime parses a time and returns it in microseconds since 1970. If the
// argument is a number of milliseconds, parseTime adds rest to the result. With
// a rest of 999, the result is the last microsecond of that millisecond.
func parseTime(arg []byte, rest int64) (us int64, ok bool) {
	if n, ok := number.ParseInt(arg); ok {
		return n*1000 + rest, n >= 0 && n < maxMillis/1000*1000
	}
	t, err := time.Parse(time.RFC3339Nano, string(arg))
	return t.UnixMicro(), err == nil
}

// History returns the reply to LOCK HISTORY.
func History(key string, a history.Answer) fsm.Reply {
	grants := make([]fsm.Reply, 0, len(a.Grants))
	for i := range a.Grants {
		grants = append(grants, grant(&a.Grants[i]))
	}
	gaps := make([]fsm.Reply, 0, len(a.Gaps))
	for _, g := range a.Gaps {
		gaps = append(gaps, fsm.Map([]fsm.Reply{
			fsm.Bulk("from-ms"), millis(g.From), fsm.Bulk("to-ms"), millis(g.To),
		}))
	}
	return fsm.Map([]fsm.Reply{
		fsm.Bulk("key"), fsm.Bulk(key), fsm.Bulk("since-ms"), millis(a.Since), fsm.Bulk("until-ms"), millis(a.Until),
		fsm.Bulk("grants"), fsm.Array(grants), fsm.Bulk("gaps"), fsm.Array(gaps),
	})
}

// millis converts a time in microseconds to a reply in milliseconds. For 0, the
// reply is null.
func millis(us int64) fsm.Reply {
	if us == 0 {
		return fsm.Null
	}
	return fsm.Int(us / 1e3)
}

func grant(g *history.Grant) fsm.Reply {
	mode, waited, held := fsm.Null, fsm.Null, fsm.Null
	switch {
	case !g.Known && g.How != history.StillHeld:
	case g.Limit > 0:
		mode = fsm.Bulk("limit")
	case g.Shared:
		mode = fsm.Bulk("shared")
	default:
		mode = fsm.Bulk("exclusive")
	}
	if g.Known {
		waited = fsm.Int(g.Waited / 1e6)
	}
	if g.Held >= 0 {
		held = fsm.Int(g.Held / 1e6)
	}
	fields := []fsm.Reply{
		fsm.Bulk("token"), fsm.Int(int64(g.Token)), fsm.Bulk("owner"), fsm.Bulk(g.Owner), fsm.Bulk("mode"), mode,
	}
	if g.Limit > 0 {
		fields = append(fields, fsm.Bulk("limit"), fsm.Int(int64(g.Limit)))
	}
	return fsm.Map(append(fields,
		fsm.Bulk("node"), fsm.Bulk(nodeOf(g.Node)), fsm.Bulk("client-id"), fsm.Int(int64(g.ID)),
		fsm.Bulk("addr"), fsm.Bulk(g.Addr), fsm.Bulk("name"), fsm.Bulk(g.Name), fsm.Bulk("meta"), fsm.Bulk(g.Meta),
		fsm.Bulk("acquired-ms"), millis(g.Acquired), fsm.Bulk("waited-ms"), waited,
		fsm.Bulk("ended-ms"), millis(g.Ended), fsm.Bulk("held-ms"), held, fsm.Bulk("how"), fsm.Bulk(g.How),
		fsm.Bulk("ended-by-node"), fsm.Bulk(nodeOf(g.EndedBy.Node)),
		fsm.Bulk("ended-by-client-id"), fsm.Int(int64(g.EndedBy.ID)),
		fsm.Bulk("renewals"), fsm.Int(int64(g.Renewals)),
	))
}

// nodeOf returns the node's id, which is the part before the @ in the name of
// the node's session. The rest of that name identifies the data directory.
func nodeOf(session string) string {
	id, _, _ := strings.Cut(session, "@")
	return id
}
