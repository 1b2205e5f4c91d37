package dashboard

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/lock/listing"
)

// TestFailovers checks that the events of several nodes about the same election
// become one failover, and that a late event does not begin another one.
func TestFailovers(t *testing.T) {
	at := func(ms int, fields ...string) Event {
		ev := Event{Kind: KindCluster, Time: time.UnixMilli(int64(ms)), Fields: make(map[string]string)}
		for i := 0; i < len(fields); i += 2 {
			ev.Fields[fields[i]] = fields[i+1]
		}
		return ev
	}
	got := failovers([]Event{
		at(100, "leader", "n1", "term", "2"), at(120, "leader", "n1", "term", "2"),
		at(500, "lost", "n1"), at(510, "lost", "n1"), at(600, "leader", "n2", "term", "3"),
		at(900, "lost", "n1"), at(620, "leader", "n2", "term", "3"),
		at(2000, "leader", "n3", "term", "4"),
		{Kind: KindAudit, Fields: map[string]string{"term": "9"}},
	})
	want := []Failover{
		{From: 500, To: 600, Before: "n1", Leader: "n2", Term: 3},
		{From: 2000, To: 2000, Before: "n2", Leader: "n3", Term: 4},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("failovers %v, want %v", got, want)
	}
}

// TestLockLine checks the drawing of grants, clients that wait, gaps and failovers,
// and that the drawing escapes the names of owners.
func TestLockLine(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	evil := "</title><script>x</script>\x00\u202e\uffff&"
	grant := func(owner, how string, from, to, waited int64) listing.Lock {
		g := listing.Lock{"owner": owner, "how": how, "token": int64(7), "acquired-ms": from, "waited-ms": waited}
		if to > 0 {
			g["ended-ms"] = to
		}
		return g
	}
	unknown := listing.Lock{"owner": "b", "how": "expired", "ended-ms": int64(910_000)}
	grants := []listing.Lock{grant(evil, "held", 980_000, 0, 20_000), grant("b", "released", 930_000, 980_000, 0), unknown}
	waiters := []listing.Lock{{"owner": "c", "waited-ms": int64(5000)}}
	l := lockLine{now: now, from: begin(grants, waiters, now), zone: time.UTC, width: 800}
	l.draw(grants, waiters, []listing.Lock{{"from-ms": nil, "to-ms": int64(909_000)}},
		[]Failover{{From: 940_000, To: 941_000, Leader: evil, Term: 3}})
	if len(l.Rows) != 3 || l.Rows[0].Label != "c" || len(l.Bands) != 2 || len(l.Ticks) < 2 {
		t.Errorf("rows %v, bands %v, ticks %v", l.Rows, l.Bands, l.Ticks)
	}
	classes := ""
	for _, b := range l.Boxes {
		classes += b.Class + ", "
		if b.X < ownerWidth-0.1 || b.X+b.W > 800 {
			t.Errorf("a box is outside of the drawing: %+v", b)
		}
	}
	if want := "waiting, grant held, grant released, grant expired unknown, waiting, "; classes != want {
		t.Errorf("boxes %s, want %s", classes, want)
	}
	svg, err := l.svg()
	if err != nil || strings.Contains(svg, "<script") {
		t.Fatalf("drawing: %v %s", err, svg)
	}
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
	}
}

// TestLockLine_ManyOwners checks that the drawing has a bounded height.
func TestLockLine_ManyOwners(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	var grants []listing.Lock
	for i := range int64(100) {
		grants = append(grants, listing.Lock{"owner": fmt.Sprint("o", i), "how": "expired", "acquired-ms": 900_000 - i,
			"ended-ms": 900_010 - i})
	}
	l := lockLine{now: now, from: begin(grants, nil, now), zone: time.UTC, width: 800}
	l.draw(grants, nil, nil, nil)
	if len(l.Rows) != maxOwners || l.hidden != 100-maxOwners || len(l.Boxes) != maxOwners {
		t.Errorf("%d rows, %d boxes, %d owners are hidden", len(l.Rows), len(l.Boxes), l.hidden)
	}
}
