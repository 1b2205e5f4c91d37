package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/timeline"
	"github.com/holdfast-kv/holdfast/verify/attack"
)

// mostSlices is the maximum number of slices of time in the curves of a chart.
// panelHeight is the height of a panel, in pixels.
const (
	mostSlices  = 250
	panelHeight = 64
)

// panel is the part of a chart that shows one quantity over time.
type panel struct {
	Y, H   int
	Label  string
	Lines  []line
	Curves []curve
}

// line is a labeled value of the vertical axis of a panel.
type line struct {
	Y     float64
	Label string
}

// curve is a line through the values of all slices. It has a gap where a slice
// has no value.
type curve struct {
	Class string // class in the style sheet
	Path  string
}

// slice is a short interval of a history with the commands that ended in it.
type slice struct {
	Took     []time.Duration // sorted
	Commands int
	Failed   int
}

// column is the rectangle of a time slice, as high as all panels together.
type column struct {
	X, W    float64
	Failed  bool
	Tooltip string
}

// sliced divides a history into slices of equal length.
func sliced(samples []attack.Sample, duration time.Duration) (all []slice, step time.Duration) {
	step = 50 * time.Millisecond
	for duration/step >= mostSlices {
		step *= 2
	}
	all = make([]slice, duration/step+1)
	for _, s := range samples {
		i := int(s.At / step)
		if i < 0 || i >= len(all) {
			continue // the answer arrived after the end of the history
		}
		all[i].Commands += s.Commands
		all[i].Took = append(all[i].Took, s.Took)
		if s.Failed {
			all[i].Failed++
		}
	}
	for i := range all {
		slices.Sort(all[i].Took)
	}
	return all, step
}

// percentile returns the smallest time within which a share of the samples was
// answered. ok is false if the slice has no samples.
func (s slice) percentile(share float64) (took time.Duration, ok bool) {
	if len(s.Took) == 0 {
		return 0, false
	}
	return s.Took[max(int(math.Ceil(share*float64(len(s.Took))))-1, 0)], true
}

// panels adds the commands per second and the latency to the chart, below the
// rows.
func (c *chart) panels(ep *attack.EpisodeReport, x func(time.Duration) float64) {
	if len(ep.Samples) == 0 {
		return
	}
	all, step := sliced(ep.Samples, ep.Duration)
	// The history ends before the last slice does, so the commands per second
	// of that slice would be too few. Leave it out.
	whole := all[:len(all)-1]
	if len(whole) == 0 {
		return
	}
	speed := panel{Y: c.Bottom + 24, H: panelHeight, Label: "commands per second"}
	speed.speed(whole, step, x)
	latency := panel{Y: speed.Y + speed.H + 24, H: panelHeight, Label: "latency"}
	latency.latency(whole, step, x)
	c.Panels = []panel{speed, latency}
	c.End = latency.Y + latency.H
	for i, s := range whole {
		from, to := x(time.Duration(i)*step), x(time.Duration(i+1)*step)
		median, _ := s.percentile(0.5)
		slow, _ := s.percentile(0.99)
		col := column{X: from, W: to - from, Failed: s.Failed > 0, Tooltip: fmt.Sprintf(
			"%.2f s: %.0f commands/s, median latency %s, 99th percentile %s", (time.Duration(i) * step).Seconds(),
			float64(s.Commands)/step.Seconds(), short(median), short(slow))}
		if s.Failed > 0 {
			col.Tooltip += fmt.Sprintf(", %d failed", s.Failed)
		}
		c.Columns = append(c.Columns, col)
	}
}

// speed draws the commands per second as steps.
func (p *panel) speed(all []slice, step time.Duration, x func(time.Duration) float64) {
	top := 1.0
	for _, s := range all {
		top = max(top, float64(s.Commands)/step.Seconds())
	}
	top = roundUp(top)
	y := func(v float64) float64 { return float64(p.Y+p.H) - float64(p.H)*v/top }
	p.Lines = []line{{y(top), number(int(top))}, {y(top / 2), number(int(top / 2))}, {y(0), "0"}}
	var b strings.Builder
	fmt.Fprintf(&b, "M%.1f %.1f", x(0), y(0))
	for i, s := range all {
		v := y(float64(s.Commands) / step.Seconds())
		fmt.Fprintf(&b, "L%.1f %.1fL%.1f %.1f", x(time.Duration(i)*step), v, x(time.Duration(i+1)*step), v)
	}
	fmt.Fprintf(&b, "L%.1f %.1fZ", x(time.Duration(len(all))*step), y(0))
	p.Curves = []curve{{"speed", b.String()}}
}

// latency draws the median and the 99th percentile of the latency on a
// logarithmic scale, because the two can differ by orders of magnitude.
func (p *panel) latency(all []slice, step time.Duration, x func(time.Duration) float64) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, s := range all {
		if median, ok := s.percentile(0.5); ok {
			slow, _ := s.percentile(0.99)
			low, high = min(low, math.Log10(max(median.Seconds(), 1e-6))), max(high, math.Log10(slow.Seconds()))
		}
	}
	if math.IsInf(low, 1) {
		return
	}
	low, high = math.Floor(low), max(math.Ceil(high), math.Floor(low)+1)
	y := func(d time.Duration) float64 {
		return float64(p.Y+p.H) - float64(p.H)*(math.Log10(max(d.Seconds(), 1e-6))-low)/(high-low)
	}
	for e := low; e <= high; e++ {
		d := time.Duration(math.Round(math.Pow(10, e+9)))
		p.Lines = append(p.Lines, line{y(d), short(d)})
	}
	for _, kind := range []struct {
		class string
		share float64
	}{{"slow", 0.99}, {"median", 0.5}} {
		var b strings.Builder
		gap := true
		for i, s := range all {
			d, ok := s.percentile(kind.share)
			if !ok {
				gap = true
				continue
			}
			move := "L"
			if gap {
				move = "M"
			}
			gap = false
			fmt.Fprintf(&b, "%s%.1f %.1f", move, x(time.Duration(i)*step+step/2), y(d))
		}
		p.Curves = append(p.Curves, curve{kind.class, b.String()})
	}
}

// roundUp returns the smallest of 1, 2, 4, 6, 8, 10, 20, … that is at least v.
func roundUp(v float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, lead := range []float64{1, 2, 4, 6, 8} {
		if v <= lead*unit {
			return lead * unit
		}
	}
	return 10 * unit
}

// short prints a duration with at most three significant digits.
func short(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.3g µs", d.Seconds()*1e6)
}

// leaders draws the lane that shows which node led.
func (c *chart) leaders(ep *attack.EpisodeReport, x func(time.Duration) float64) {
	colors := make(map[string]int)
	for _, l := range ep.Leaderships {
		n, known := colors[l.Node]
		if !known {
			n = len(colors)
			colors[l.Node] = n
		}
		b := timeline.Box{X: x(l.From), Y: c.Top + 2, H: rowHeight - 5, Class: "leads", Color: n % 8,
			Tooltip: fmt.Sprintf("%s led term %d, seen from %.2f s to %.2f s", l.Node, l.Term,
				l.From.Seconds(), l.To.Seconds())}
		b.W = max(x(l.To)-b.X, 2)
		if float64(7*len(l.Node)) < b.W {
			b.Label, b.LabelX = l.Node, b.X+4
		}
		c.Leaders = append(c.Leaders, b)
	}
	if len(c.Leaders) > 0 {
		c.Rows = append(c.Rows, timeline.Row{Y: c.Top, Label: "leader"})
		c.Top += rowHeight + 4
	}
}

// Below returns the height of the panels.
func (c *chart) Below() int { return c.End - c.Panels[0].Y }

// FailedY returns the top of the marks for failed commands.
func (c *chart) FailedY() int { return c.Panels[0].Y + c.Panels[0].H - 4 }

// Right returns the right edge of the plot.
func (c *chart) Right() float64 { return c.Left + c.Plot }
