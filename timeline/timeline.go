// Package timeline draws events over time as SVG: bands across the drawing,
// boxes in its rows, and a scale with vertical lines. The report of "holdfast
// verify" and the dashboard use it. The elements of a drawing have CSS classes;
// the page that shows the drawing defines their style. The package is not a
// supported API.
package timeline

import (
	_ "embed"
	"html/template"
	"slices"
	"time"
)

// These are sizes in pixels.
const (
	RowHeight  = 16
	bandHeight = 14
	letter     = 7 // width of a letter of a label
)

//go:embed svg.html
var svg string

// Templates returns the templates "timeline-rules" (for a value with Ticks, Begin
// and End), "timeline-bands" (for a value with Bands, Begin and Tall),
// "timeline-rows" (for rows) and "timeline-boxes" (for boxes).
func Templates() *template.Template { return template.Must(template.New("timeline").Parse(svg)) }

// Scale maps times to horizontal positions. It maps a time outside of its range
// to the nearer edge.
type Scale struct {
	Left, Width float64 // pixels
	From, To    time.Duration
}

// X returns the horizontal position of a time, in pixels.
func (s Scale) X(at time.Duration) float64 {
	at = min(max(at, s.From), s.To)
	return s.Left + s.Width*float64(at-s.From)/float64(s.To-s.From)
}

// Row is a row with a label.
type Row struct {
	Y     int
	Label string
}

// Box is a rectangle in a row.
type Box struct {
	X, W    float64
	Y, H    int
	Class   string
	Color   int
	Label   string // text inside the box
	LabelX  float64
	Tooltip string
}

// Band is a rectangle across all rows, with a label above them.
type Band struct {
	X, W    float64
	Y       int // position of the label
	LabelX  float64
	Label   string
	Class   string
	Tooltip string
}

// Tick is a line of the scale.
type Tick struct {
	X     float64
	Label string
}

// PlaceBands places the labels of bands in several lines, so that the labels do
// not overlap. It returns the height of these lines with their margins. The
// parameter width is the width of the drawing in pixels.
func PlaceBands(all []Band, width float64) (height int) {
	var free []float64 // end of the last label in each line
	for i := range all {
		b := &all[i]
		room := float64(letter * len(b.Label))
		// A label near the right edge starts farther left, so that it stays
		// readable.
		b.LabelX = max(0, min(b.X+3, width-room))
		line := 0
		for line < len(free) && free[line] > min(b.X, b.LabelX) {
			line++
		}
		if line == len(free) {
			free = append(free, 0)
		}
		free[line] = max(b.X+b.W, b.LabelX+room) + 4
		b.Y = 4 + line*bandHeight
	}
	return 10 + len(free)*bandHeight
}

// steps are the distances between ticks that Step prefers.
var steps = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// Step returns the distance between the ticks of a time line of length span. The
// distance is at least a second. The parameter most is the maximum number of
// such distances that fit into span.
func Step(span time.Duration, most int) time.Duration {
	i := slices.IndexFunc(steps, func(s time.Duration) bool { return span/s <= time.Duration(most) })
	if i >= 0 {
		return steps[i]
	}
	day := 24 * time.Hour
	return (span/time.Duration(most) + day) / day * day
}
