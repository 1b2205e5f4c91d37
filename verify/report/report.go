package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/timeline"
	"github.com/holdfast-kv/holdfast/verify/attack"
	"github.com/holdfast-kv/holdfast/verify/checker"
)

//go:embed page.html
var pageText string

var page = template.Must(timeline.Templates().New("page").Funcs(template.FuncMap{
	"seconds": func(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) },
	"number":  number,
	"join":    strings.Join,
}).Parse(pageText))

// Write writes the page of a report. failure is the reason why no verdict about
// the cluster is possible, or "" if one is possible.
func Write(w io.Writer, r *attack.Report, version, failure string) error {
	v := view{Report: r, Version: version, Failure: failure}
	for i := range r.Episodes {
		ep := &r.Episodes[i]
		if ep.Plan.Control != "" {
			v.Controls = append(v.Controls, ep)
			continue
		}
		v.Drawn = append(v.Drawn, drawn{EpisodeReport: ep, Chart: draw(ep), Refused: countErrors(ep.Errors)})
	}
	for _, c := range r.Classes {
		if c.Used() {
			v.Used = append(v.Used, c)
		} else {
			v.Unused = append(v.Unused, c.Class)
		}
	}
	v.lead()
	return page.Execute(w, v)
}

// lead moves one episode to the front: the first one with a violation or, if
// there is none, the one with the most changes of leader.
func (v *view) lead() {
	best := 0
	for i, d := range v.Drawn {
		if len(d.EpisodeReport.Violations) > 0 {
			best = i
			break
		}
		if d.Failovers > v.Drawn[best].Failovers {
			best = i
		}
	}
	if best > 0 {
		first := v.Drawn[best]
		v.Drawn = slices.Insert(slices.Delete(v.Drawn, best, best+1), 0, first)
	}
}

// view is the data of the page.
type view struct {
	*attack.Report
	Version  string
	Failure  string
	Drawn    []drawn
	Controls []*attack.EpisodeReport
	Used     []attack.ClassTally // classes of faults that were injected, or that the run could not inject
	Unused   []string            // the other classes of faults
}

// Verdict returns the word at the top of the page.
func (v view) Verdict() string {
	switch {
	case v.Report.Violations > 0:
		return "violated"
	case v.Failure != "" || !v.Passed():
		return "not decided"
	}
	return "held"
}

type drawn struct {
	*attack.EpisodeReport
	Chart   *chart
	Refused []count // errors that clients got
}

type count struct {
	What string
	N    int
}

// countErrors lists the errors that clients got, most frequent first.
func countErrors(errors map[string]int) []count {
	var all []count
	for what, n := range errors {
		all = append(all, count{what, n})
	}
	sort.Slice(all, func(i, j int) bool {
		return all[i].N > all[j].N || all[i].N == all[j].N && all[i].What < all[j].What
	})
	return all
}

// number returns the digits of n in groups of three.
func number(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

// Sizes of a chart, in pixels. mostRows is the maximum number of rows.
const (
	left, right = 90, 20
	width       = 1120
	rowHeight   = timeline.RowHeight
	mostRows    = 24
	mostTicks   = 14
)

// chart is a timeline with a lane for the leader, a row for each of at most
// mostRows locks, a band for each fault, a mark for each violation, and panels
// with the commands per second and the latency.
type chart struct {
	Width, Height int
	Left, Plot    float64
	Begin, End    int // edges of the bands
	Top, Bottom   int // edges of the rows
	Leaders       []timeline.Box
	Panels        []panel
	Columns       []column
	Rows          []timeline.Row
	Holds         []timeline.Box
	Bands         []timeline.Band
	Marks         []mark
	Ticks         []timeline.Tick
	Hidden        int // number of locks without a row
}

type mark struct {
	X, W    float64
	Y, H    int
	Wide    bool // the violation lasted so long that its mark is drawn as a frame
	Tooltip string
}

// draw computes the chart of an episode. It returns nil if the episode has no
// duration.
func draw(ep *attack.EpisodeReport) *chart {
	if ep.Duration <= 0 {
		return nil
	}
	c := &chart{Width: width, Left: left, Plot: width - left - right}
	x := timeline.Scale{Left: left, Width: c.Plot, To: ep.Duration}.X
	c.bands(ep, x)
	c.Begin = c.Top
	c.leaders(ep, x)
	at := c.rows(ep)
	c.End = c.Bottom
	c.panels(ep, x)
	for i := range ep.Holds {
		if y, ok := at[ep.Holds[i].Lock]; ok {
			c.hold(&ep.Holds[i], y, x, ep.Duration)
		}
	}
	c.Height = c.End + 30
	for _, v := range ep.Violations {
		m := mark{X: x(v.From) - 1, Y: c.Top - 2, H: c.Bottom - c.Top + 4, Tooltip: v.String()}
		m.W = max(x(v.To)-m.X, 3)
		if y, ok := at[v.Key]; ok {
			m.Y, m.H = y-1, rowHeight
		}
		m.Wide = m.W > 200
		c.Marks = append(c.Marks, m)
	}
	step := timeline.Step(ep.Duration, mostTicks)
	for t := time.Duration(0); t <= ep.Duration; t += step {
		c.Ticks = append(c.Ticks, timeline.Tick{X: x(t), Label: fmt.Sprintf("%g s", t.Seconds())})
	}
	return c
}

// bands places the faults above the rows.
func (c *chart) bands(ep *attack.EpisodeReport, x func(time.Duration) float64) {
	for _, ev := range ep.Events {
		b := timeline.Band{X: x(ev.From), W: max(x(ev.To)-x(ev.From), 2), Label: ev.Class, Class: "fault"}
		if ev.Seen == "" {
			b.Class = "fault unseen"
		}
		b.Tooltip = fmt.Sprintf("%s, %.2f s to %.2f s: %s%s", ev.Class, ev.From.Seconds(), ev.To.Seconds(),
			ev.Seen, ev.NotRun)
		c.Bands = append(c.Bands, b)
	}
	c.Top = timeline.PlaceBands(c.Bands, width)
}

// rows gives rows to at most mostRows of the locks that have grants: first to those
// with violations, then to those with the most grants. It returns the vertical
// position of each row, by lock.
func (c *chart) rows(ep *attack.EpisodeReport) map[string]int {
	grants := make(map[string]int)
	for i := range ep.Holds {
		grants[ep.Holds[i].Lock]++
	}
	for _, v := range ep.Violations {
		if grants[v.Key] > 0 {
			grants[v.Key] += 1 << 20
		}
	}
	locks := make([]string, 0, len(grants))
	for lock := range grants {
		locks = append(locks, lock)
	}
	sort.Slice(locks, func(i, j int) bool {
		return grants[locks[i]] > grants[locks[j]] || grants[locks[i]] == grants[locks[j]] && locks[i] < locks[j]
	})
	c.Hidden = max(len(locks)-mostRows, 0)
	locks = locks[:min(len(locks), mostRows)]
	sort.Strings(locks)
	at := make(map[string]int)
	for i, lock := range locks {
		y := c.Top + i*rowHeight
		label := lock
		if j := strings.Index(lock, "lock:"); j >= 0 {
			label = "lock " + lock[j+len("lock:"):]
		}
		c.Rows = append(c.Rows, timeline.Row{Y: y, Label: label})
		at[lock] = y
	}
	c.Bottom = c.Top + len(locks)*rowHeight
	return at
}

// hold draws a grant as a box. The box begins when the owner learned of the
// grant, or when it sent its command if the outcome is unknown. The box ends
// when the owner released the lock or could no longer rely on the lock.
func (c *chart) hold(h *checker.Hold, y int, x func(time.Duration) float64, end time.Duration) {
	b := timeline.Box{Y: y + 2, H: rowHeight - 5, Class: "expired", Color: h.Client % 8}
	from, to := h.Granted, h.Call+h.TTL
	for _, r := range h.Renewals {
		if r.Outcome == checker.Done && r.Mine {
			to = r.Call + h.TTL
		}
	}
	how := "left to expire"
	switch {
	case h.Granted == checker.Forever:
		b.Class, how, from, to = "unknown", "unknown whether it was granted", h.Call, min(h.Call+h.TTL, end)
	case h.Release != nil:
		b.Class, how, to = "released", "released", min(to, h.Release.Call)
	}
	b.X = x(from)
	b.W = max(x(to)-b.X, 1.5)
	b.Tooltip = fmt.Sprintf("client %d owned %s from %.3f s to %.3f s, %s", h.Client, h.Lock,
		from.Seconds(), to.Seconds(), how)
	if h.Fence != 0 {
		b.Tooltip += fmt.Sprintf(", fencing token %d", h.Fence)
	}
	c.Holds = append(c.Holds, b)
}

// Tall returns the height of the lane, the rows and the panels.
func (c *chart) Tall() int { return c.End - c.Begin }
