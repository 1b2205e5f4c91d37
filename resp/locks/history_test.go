package locks

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/cluster/history"
	"github.com/holdfast-kv/holdfast/fsm"
)

func TestParseHistory(t *testing.T) {
	const from, to = 0, math.MaxInt64
	for _, c := range []struct {
		line string
		want history.Query
		fail string
	}{
		{"k", history.Query{DB: 2, Key: "k", From: from, To: to, Count: 100}, ""},
		{"k count 7 from 5 TO 6", history.Query{DB: 2, Key: "k", From: 5000, To: 6999, Count: 7}, ""},
		{"k from 2026-11-26T14:03:07Z", history.Query{DB: 2, Key: "k", From: 1795701787_000000, To: to, Count: 100}, ""},
		{"k to 2026-11-26T14:03:07.25+01:00", history.Query{DB: 2, Key: "k", From: from, To: 1795698187_250000, Count: 100}, ""},
		{"k from", history.Query{}, fsm.MsgSyntax},
		{"k from 1 from 2", history.Query{}, fsm.MsgSyntax},
		{"k since 1", history.Query{}, fsm.MsgSyntax},
		{"k from -1", history.Query{}, msgFrom},
		{"k from 14:03:07", history.Query{}, msgFrom},
		{"k from 9223372036854775807", history.Query{}, msgFrom},
		{"k to x", history.Query{}, msgTo},
		{"k from 6 to 5", history.Query{}, msgOrder},
		{"k count 0", history.Query{}, msgCount},
		{"k count 1001", history.Query{}, msgCount},
		{"k count x", history.Query{}, msgCount},
	} {
		q, fail := ParseHistory(2, bytes.Fields([]byte("LOCK HISTORY "+c.line)))
		if fail.IsError() != (c.fail != "") || fail.IsError() && fail.Text() != c.fail {
			t.Errorf("%s: %q, want %q", c.line, fail.Text(), c.fail)
		}
		if c.fail == "" && q != c.want {
			t.Errorf("%s: %+v, want %+v", c.line, q, c.want)
		}
	}
}

func TestHistory(t *testing.T) {
	client := fsm.LockClient{Node: "n1@dir", ID: 4, Addr: "1.2.3.4:5", Name: "job"}
	reply := History("k", history.Answer{
		Grants: []history.Grant{
			{Token: 9, Owner: "a", Known: true, LockClient: client, Acquired: 5_000_000, How: history.StillHeld, Held: 3e9},
			{Token: 8, Owner: "b", Known: true, Shared: true, Limit: 2, Acquired: 1_000_000, Waited: 7e6, Ended: 2_000_000,
				How: fsm.LockBroken, Held: 1e9, EndedBy: client, Renewals: 3},
			{Token: 7, Owner: "c", Ended: 1_500_000, How: fsm.LockExpired, Held: -1},
		},
		Gaps:  []history.Gap{{To: 900_000}},
		Since: 500_000, Until: 8_000_000,
	})
	for proto, want := range map[int]string{
		2: "*10 key k since-ms 500 until-ms 8000 grants *3 " +
			"*32 token 9 owner a mode exclusive node n1 client-id 4 addr 1.2.3.4:5 name job meta  acquired-ms 5000 waited-ms 0 " +
			"ended-ms null held-ms 3000 how held ended-by-node  ended-by-client-id 0 renewals 0 " +
			"*34 token 8 owner b mode limit limit 2 node  client-id 0 addr  name  meta  acquired-ms 1000 waited-ms 7 " +
			"ended-ms 2000 held-ms 1000 how broken ended-by-node n1 ended-by-client-id 4 renewals 3 " +
			"*32 token 7 owner c mode null node  client-id 0 addr  name  meta  acquired-ms null waited-ms null " +
			"ended-ms 1500 held-ms null how expired ended-by-node  ended-by-client-id 0 renewals 0 " +
			"gaps *1 *4 from-ms null to-ms 900",
		3: "%5 key k",
	} {
		var words []string
		for _, line := range strings.Split(strings.TrimSuffix(string(reply.Append(nil, proto)), "\r\n"), "\r\n") {
			switch {
			case line == "$-1" || line == "_":
				words = append(words, "null")
			case line != "" && strings.ContainsAny(line[:1], "$"):
			default:
				words = append(words, strings.TrimPrefix(line, ":"))
			}
		}
		if got := strings.Join(words, " "); !strings.HasPrefix(got, want) {
			t.Errorf("RESP%d: %s\nwant %s", proto, got, want)
		}
	}
}
