package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-kv/holdfast/lock/listing"
	"github.com/holdfast-kv/holdfast/timeline"
)

// LockHistory is the answer of /api/v1/lock/history.
type LockHistory struct {
	// History contains the fields of the reply to LOCK HISTORY.
	History listing.Lock `json:"history"`
	// Failovers are the changes of leader in the period that the drawing shows,
	// oldest first. Changes that no node remembers are missing.
	Failovers []Failover `json:"failovers"`
	// Drawing is the time line as SVG.
	Drawing string `json:"drawing"`
	// Hidden is the number of owners that are not drawn.
	Hidden int `json:"hidden"`
}

// Failover is a change of the leader.
type Failover struct {
	// From is the time at which a node noticed the loss of the old leader (Before).
	// To is the time at which a node noticed the next leader (Leader). From equals
	// To if no node noticed the loss. Both are in milliseconds since 1970.
	From   int64  `json:"from_ms"`
	To     int64  `json:"to_ms"`
	Before string `json:"before,omitempty"`
	Leader string `json:"leader"`
	Term   uint64 `json:"term"`
}

// windows are the values of the parameter window. Without it, the time line begins
// with the oldest of the last recentGrants grants.
var windows = map[string]time.Duration{
	"": 0, "15m": 15 * time.Minute, "1h": time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour,
}

const (
	recentGrants = 40
	windowGrants = 1000 // the maximum COUNT of LOCK HISTORY
	leastSpan    = 2 * time.Second
)

// lockHistory answers /api/v1/lock/history.
func (d *Dashboard) lockHistory(r *http.Request) (any, error) {
	key, err := keyOf(r)
	if err != nil {
		return nil, err
	}
	window, known := windows[r.FormValue("window")]
	if !known {
		return nil, badRequest("window is not 15m, 1h, 24h or 7d")
	}
	width, err := number(r, "width", 1000, 4000)
	if err != nil {
		return nil, err
	}
	zone, err := zoneOf(r)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	args := []any{"LOCK", "HISTORY", key, "COUNT", recentGrants}
	if window > 0 {
		args = []any{"LOCK", "HISTORY", key, "FROM", now.Add(-window).UnixMilli(), "COUNT", windowGrants}
	}
	answer := LockHistory{Failovers: []Failover{}}
	var info listing.Lock
	if err = d.read(r, func(ctx context.Context, c *connection) error {
		return c.inDatabase(ctx, r, func(ctx context.Context, conn *redis.Conn) error {
			reply, err := conn.Do(ctx, args...).Result()
			if err != nil {
				return err
			}
			if answer.History, err = listing.Describe(reply); err != nil {
				return err
			}
			// If the user lacks the permission for LOCK INFO, the answer does not
			// contain the clients that wait.
			if d.cfg.Permits(cmp.Or(c.user, "default"), "LOCK", "INFO", key) {
				info, err = listing.Info(ctx, conn, key)
			}
			return err
		})
	}); err != nil {
		return nil, err
	}
	grants, _ := answer.History["grants"].([]listing.Lock)
	for _, g := range grants {
		markBinary(g)
	}
	markBinary(answer.History)
	l := lockLine{now: now, from: now.Add(-window), zone: zone, width: max(width, 320)}
	if window == 0 {
		l.from = begin(grants, info.Waiters(), now)
	}
	var events []Event
	gather(d, withoutNode(r), "events", func() EventList { return d.ownEvents(0) }, func(part EventList) {
		events = append(events, part.Events...)
	})
	for _, f := range failovers(events) {
		if f.To >= l.from.UnixMilli() {
			answer.Failovers = append(answer.Failovers, f)
		}
	}
	gaps, _ := answer.History["gaps"].([]listing.Lock)
	l.draw(grants, info.Waiters(), gaps, answer.Failovers)
	answer.Hidden = l.hidden
	answer.Drawing, err = l.svg()
	return answer, err
}

// withoutNode returns a copy of r without the parameter node, so that gather asks
// all nodes.
func withoutNode(r *http.Request) *http.Request {
	c := r.Clone(r.Context())
	c.Form.Del("node")
	return c
}

// zoneOf returns the time zone of the parameter offset: minutes east of UTC.
func zoneOf(r *http.Request) (*time.Location, error) {
	text := cmp.Or(r.FormValue("offset"), "0")
	minutes, err := strconv.Atoi(text)
	if err != nil || minutes < -24*60 || minutes > 24*60 {
		return nil, badRequest("offset is not a number of minutes")
	}
	return time.FixedZone("", minutes*60), nil
}

// at returns a time of a grant, and whether it is known.
func at(l listing.Lock, name string) (time.Time, bool) {
	ms, ok := l[name].(int64)
	return time.UnixMilli(ms), ok
}

// begin returns the beginning of a time line that shows all grants and waits, with
// some space before the first of them.
func begin(grants, waiters []listing.Lock, now time.Time) time.Time {
	first := now.Add(-leastSpan)
	for _, g := range grants {
		if t, ok := at(g, "acquired-ms"); ok {
			t = t.Add(-time.Duration(g.Int("waited-ms")) * time.Millisecond)
			first = earlier(first, t)
		} else if t, ok := at(g, "ended-ms"); ok {
			first = earlier(first, t)
		}
	}
	for _, w := range waiters {
		first = earlier(first, now.Add(-time.Duration(w.Int("waited-ms"))*time.Millisecond))
	}
	return first.Add(-now.Sub(first) / 30)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// failovers returns the changes of the leader that nodes have noticed, oldest first.
func failovers(events []Event) []Failover {
	events = slices.DeleteFunc(slices.Clone(events), func(ev Event) bool { return ev.Kind != KindCluster })
	slices.SortStableFunc(events, func(a, b Event) int { return a.Time.Compare(b.Time) })
	var all []Failover
	leader, term, lost := "", uint64(0), time.Time{}
	for _, ev := range events {
		if name := ev.Fields["lost"]; name != "" && name == leader && lost.IsZero() {
			lost = ev.Time
		}
		next, err := strconv.ParseUint(ev.Fields["term"], 10, 64)
		if err != nil || next <= term {
			continue
		}
		f := Failover{To: ev.Time.UnixMilli(), Before: leader, Leader: ev.Fields["leader"], Term: next}
		if f.From = f.To; !lost.IsZero() {
			f.From = lost.UnixMilli()
		}
		if leader != "" {
			all = append(all, f)
		}
		leader, term, lost = f.Leader, next, time.Time{}
	}
	return all
}

// lockLine is the time line of a lock. It has a row for each of up to maxOwners
// owners, in which grants are bars and waiting is a thin line. Bands show
// failovers and times without a history.
type lockLine struct {
	now, from time.Time
	zone      *time.Location
	scale     timeline.Scale
	rows      map[string]int // position of the row of each owner
	hidden    int

	width, Height, Begin, End int
	Bands                     []timeline.Band
	Rows                      []timeline.Row
	Boxes                     []timeline.Box
	Ticks                     []timeline.Tick
}

const (
	ownerWidth   = 116 // pixels for the names of owners
	ownerLetters = 15
	maxOwners    = 24
	tickWidth    = 90 // smallest distance between ticks
)

// Width and Tall return the width of the drawing, and the height of the rows.
func (l *lockLine) Width() int { return l.width }
func (l *lockLine) Tall() int  { return l.End - l.Begin }

// x returns the position of a time.
func (l *lockLine) x(t time.Time) float64 { return l.scale.X(t.Sub(l.from)) }

// draw computes the drawing. grants begins with the newest grant.
func (l *lockLine) draw(grants, waiters, gaps []listing.Lock, changes []Failover) {
	span := max(l.now.Sub(l.from), time.Second)
	l.scale = timeline.Scale{Left: ownerWidth, Width: float64(l.width - ownerWidth - 16), To: span}
	for _, g := range gaps {
		from, _ := at(g, "from-ms") // if it is not known, the gap begins before the drawing
		if to, ok := at(g, "to-ms"); ok && to.After(l.from) {
			l.band(from, to, "no history", "gap", "this node has no history for this time; another node may have it")
		}
	}
	for _, f := range changes {
		l.band(time.UnixMilli(f.From), time.UnixMilli(f.To), f.Leader+" leads", "failover",
			fmt.Sprintf("%s leads in term %d, after %s", f.Leader, f.Term, f.Before))
	}
	l.Begin = timeline.PlaceBands(l.Bands, float64(l.width))
	l.rows, l.End = make(map[string]int), l.Begin
	for _, w := range waiters {
		l.row(w.Text("owner"))
	}
	for _, g := range grants {
		l.row(g.Text("owner"))
	}
	l.hidden = max(0, len(l.rows)-maxOwners)
	for i := range grants {
		l.grant(grants[i])
	}
	for _, w := range waiters {
		since := l.now.Add(-time.Duration(w.Int("waited-ms")) * time.Millisecond)
		l.waiting(w.Text("owner"), since, l.now, "waits")
	}
	step := timeline.Step(span, max(1, int(l.scale.Width)/tickWidth))
	layout := "15:04"
	switch {
	case step < time.Minute:
		layout = "15:04:05"
	case span > 48*time.Hour:
		layout = "Jan 2 15:04"
	}
	// Each tick is a whole number of steps after midnight in the time zone.
	begun := l.from.In(l.zone)
	midnight := time.Date(begun.Year(), begun.Month(), begun.Day(), 0, 0, 0, 0, l.zone)
	for t := midnight; !t.After(l.now); t = t.Add(step) {
		if x := l.x(t); t.After(l.from) && x < float64(l.width-30) {
			l.Ticks = append(l.Ticks, timeline.Tick{X: x, Label: t.Format(layout)})
		}
	}
	l.Height = l.End + 24
}

// band adds a band for the time between two moments.
func (l *lockLine) band(from, to time.Time, label, class, tooltip string) {
	x := l.x(from)
	l.Bands = append(l.Bands, timeline.Band{
		X: x, W: max(2, l.x(to)-x), Label: shown(label), Class: class,
		Tooltip: shown(tooltip) + ", " + l.clock(from) + " to " + l.clock(to),
	})
}

// row adds a row for an owner, unless the owner has a row already. Once
// maxOwners owners have rows, further owners get none.
func (l *lockLine) row(owner string) {
	if _, ok := l.rows[owner]; ok {
		return
	}
	if len(l.rows) >= maxOwners {
		l.rows[owner] = -1
		return
	}
	l.rows[owner] = l.End
	label := []rune(shown(owner))
	if len(label) > ownerLetters {
		label = append(label[:ownerLetters-1], '…')
	}
	l.Rows = append(l.Rows, timeline.Row{Y: l.End, Label: string(label)})
	l.End += timeline.RowHeight
}

// clock returns a time of day with milliseconds.
func (l *lockLine) clock(t time.Time) string {
	if t.UnixMilli() <= 0 {
		return "an unknown time"
	}
	return t.In(l.zone).Format("2006-01-02 15:04:05.000")
}

// grant adds the bar of a grant, and the line for the time that the owner
// waited before it.
func (l *lockLine) grant(g listing.Lock) {
	owner, how := g.Text("owner"), g.Text("how")
	y := l.rows[owner]
	from, known := at(g, "acquired-ms")
	to, ended := at(g, "ended-ms")
	if !ended {
		to = l.now
	}
	if !known {
		from = l.from
	}
	if y < 0 || to.Before(l.from) {
		return
	}
	if waited := time.Duration(g.Int("waited-ms")) * time.Millisecond; waited > 0 {
		l.waiting(owner, from.Add(-waited), from, "waited")
	}
	x := l.x(from)
	b := timeline.Box{X: x, W: max(2, l.x(to)-x), Y: y + 2, H: timeline.RowHeight - 4, Class: "grant " + how}
	b.Color = (y - l.Begin) / timeline.RowHeight % 8
	begun := l.clock(from)
	if !known {
		b.Class += " unknown"
		begun = "an unknown time"
	}
	b.Tooltip = fmt.Sprintf("%s held the lock with token %d from %s to %s: %s", shown(owner), g.Int("token"),
		begun, l.clock(to), how)
	l.Boxes = append(l.Boxes, b)
}

// waiting adds the line of a client that waits.
func (l *lockLine) waiting(owner string, from, to time.Time, word string) {
	y := l.rows[owner]
	if y < 0 || to.Before(l.from) {
		return
	}
	x := l.x(from)
	l.Boxes = append(l.Boxes, timeline.Box{
		X: x, W: max(2, l.x(to)-x), Y: y + timeline.RowHeight/2 - 1, H: 3, Class: "waiting",
		Color:   (y - l.Begin) / timeline.RowHeight % 8,
		Tooltip: fmt.Sprintf("%s %s for %v", shown(owner), word, to.Sub(from).Round(time.Millisecond)),
	})
}

// lineTemplate is the SVG of a lockLine. It escapes all texts.
var lineTemplate = template.Must(timeline.Templates().New("line").Parse(
	`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{.Width}} {{.Height}}" width="{{.Width}}" ` +
		`height="{{.Height}}" role="img" aria-label="Time line of the lock. The table below has the same grants.">` +
		`{{template "timeline-rules" .}}{{template "timeline-bands" .}}{{template "timeline-rows" .Rows}}` +
		`{{template "timeline-boxes" .Boxes}}</svg>`))

// svg returns the drawing.
func (l *lockLine) svg() (string, error) {
	var b bytes.Buffer
	err := lineTemplate.Execute(&b, l)
	return b.String(), err
}
