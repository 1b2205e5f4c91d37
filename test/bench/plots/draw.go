package main

import (
	"bytes"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/holdfast-kv/holdfast/test/bench/record"
)

// figure is an image of plots side by side, with one legend.
type figure struct {
	panels []*plot.Plot
	legend plot.Legend
}

const (
	panelWidth  = 3.7 * vg.Inch
	panelHeight = 3 * vg.Inch
	legendWidth = 2 * vg.Inch
)

// Color-blind readers can distinguish these colors (Okabe and Ito). The
// background is white, so that the plots are also legible on a dark page.
var (
	holdfastColor = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	redisColor    = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	followerColor = color.RGBA{0x00, 0x9e, 0x73, 0xff}
	gridColor     = color.Gray{0xdd}
)

var dashed = []vg.Length{vg.Points(5), vg.Points(3)}

// line is one line of a panel.
type line struct {
	color  color.Color
	dashes []vg.Length
	value  func(p record.Point) (record.Figure, bool)
}

// maxLabels is the number of points at which an axis begins to label only some
// of them.
const maxLabels = 7

// newPanel returns an empty plot for an axis.
func (a axis) newPanel(s *record.Sweep, title, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, a.title, y
	for _, style := range []*draw.TextStyle{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle,
		&p.X.Tick.Label, &p.Y.Tick.Label} {
		style.Font.Variant = "Sans"
	}
	p.Title.TextStyle.Font.Size, p.Title.Padding = vg.Points(11), vg.Points(6)
	p.X.Label.TextStyle.Font.Size, p.Y.Label.TextStyle.Font.Size = vg.Points(10), vg.Points(10)
	var ticks []plot.Tick
	low, high := math.Inf(1), math.Inf(-1)
	every := 1 + len(s.Points)/maxLabels
	for i, point := range s.Points {
		at := a.position(point.At)
		t := plot.Tick{Value: at}
		if i%every == 0 {
			t.Label = a.label(point.At)
		}
		ticks = append(ticks, t)
		low, high = min(low, at), max(high, at)
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	margin := 0.06 * (high - low)
	if margin == 0 { // there is only one point
		margin = 0.5
	}
	p.X.Min, p.X.Max = low-margin, high+margin
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = gridColor, gridColor
	p.Add(grid)
	return p
}

// position returns the position of a point on the X axis. A logarithmic axis is
// a linear scale of the logarithms of the values, because the library reserves
// too much space for the labels of its logarithmic scales.
func (a axis) position(at int64) float64 {
	if a.log {
		return math.Log10(float64(at))
	}
	return float64(at)
}

// logarithm returns the logarithms of the values of a figure, for a logarithmic
// Y axis.
func logarithm(f record.Figure) record.Figure {
	return record.Figure{Median: math.Log10(f.Median), Low: math.Log10(f.Low), High: math.Log10(f.High)}
}

// add adds a line with its spread to a panel. It returns the parts that
// represent the line in a legend, or nil if no point has the value.
func (l line) add(a axis, p *plot.Plot, s *record.Sweep) ([]plot.Thumbnailer, error) {
	points := struct {
		plotter.XYs
		plotter.YErrors
	}{}
	for _, point := range s.Points {
		f, ok := l.value(point)
		if !ok {
			continue
		}
		points.XYs = append(points.XYs, plotter.XY{X: a.position(point.At), Y: f.Median})
		points.YErrors = append(points.YErrors, struct{ Low, High float64 }{f.Median - f.Low, f.High - f.Median})
	}
	if len(points.XYs) == 0 {
		return nil, nil
	}
	drawn, dots, err := plotter.NewLinePoints(points.XYs)
	if err != nil {
		return nil, err
	}
	bars, err := plotter.NewYErrorBars(points)
	if err != nil {
		return nil, err
	}
	drawn.Color, drawn.Width, drawn.Dashes = l.color, vg.Points(1.6), l.dashes
	dots.Color, dots.Shape, dots.Radius = l.color, draw.CircleGlyph{}, vg.Points(2.2)
	bars.Color = l.color
	// Add would replace the limits of the X axis, which newPanel has set.
	low, high := p.X.Min, p.X.Max
	p.Add(drawn, dots, bars)
	p.X.Min, p.X.Max = low, high
	return []plot.Thumbnailer{drawn, dots}, nil
}

// newLegend returns an empty legend.
func newLegend() plot.Legend {
	l := plot.NewLegend()
	l.Top, l.Left = true, true
	l.TextStyle.Font.Variant, l.TextStyle.Font.Size = "Sans", vg.Points(10)
	l.Padding = vg.Points(3)
	return l
}

// speed returns the figure with the rates and their ratios.
func (a axis) speed(s *record.Sweep) (*figure, error) {
	rates := a.newPanel(s, "Rate", "commands per second")
	ratios := a.newPanel(s, "Rate of Holdfast, as a ratio to Redis", "ratio to Redis")
	f := &figure{panels: []*plot.Plot{rates, ratios}, legend: newLegend()}
	for _, system := range []struct {
		name, system string
		color        color.Color
	}{{"Holdfast", record.Leader, holdfastColor}, {"Redis", record.Redis, redisColor}} {
		for i, load := range a.loads {
			l := line{color: system.color, value: func(p record.Point) (record.Figure, bool) {
				samples := p.Samples(load+record.Rate, system.system)
				if len(samples) == 0 {
					return record.Figure{}, false
				}
				return logarithm(record.FigureOf(samples)), true
			}}
			if i > 0 {
				l.dashes = dashed
			}
			shown, err := l.add(a, rates, s)
			if err != nil {
				return nil, err
			}
			if shown != nil {
				// The name of the load is on a separate line, so that the
				// legend stays narrow.
				f.legend.Add(system.name+":\n"+load, shown...)
			}
			if system.system == record.Redis {
				continue
			}
			l.value = func(p record.Point) (record.Figure, bool) {
				what := load + record.Rate
				return record.RatioOf(p.Samples(what, record.Leader), p.Samples(what, record.Redis))
			}
			if _, err := l.add(a, ratios, s); err != nil {
				return nil, err
			}
		}
	}
	even := plotter.NewFunction(func(float64) float64 { return 1 })
	even.Color = redisColor
	even.XMin, even.XMax = ratios.X.Min, ratios.X.Max
	ratios.Add(even)
	ratios.Y.Min, ratios.Y.Max = 0, max(1.1, ratios.Y.Max*1.05)
	logarithmic(rates)
	return f, nil
}

// bytes returns the figure with the resident memory and the time to load.
func (a axis) bytes(s *record.Sweep) (*figure, error) {
	memory := a.newPanel(s, "Resident memory of a process", "MB")
	loading := a.newPanel(s, "Time to load the keys", "seconds")
	f := &figure{panels: []*plot.Plot{memory, loading}, legend: newLegend()}
	scaled := func(what, system string, unit float64) func(p record.Point) (record.Figure, bool) {
		return func(p record.Point) (record.Figure, bool) {
			samples := p.Samples(what, system)
			if len(samples) == 0 {
				return record.Figure{}, false
			}
			f := record.FigureOf(samples)
			return logarithm(record.Figure{Median: f.Median / unit, Low: f.Low / unit, High: f.High / unit}), true
		}
	}
	for _, system := range []struct {
		name, system string
		color        color.Color
		dashes       []vg.Length
	}{
		{"Holdfast:\nleader", record.Leader, holdfastColor, nil},
		{"Holdfast:\nfollowers", record.Follower, followerColor, dashed},
		{"Redis", record.Redis, redisColor, nil},
	} {
		l := line{color: system.color, dashes: system.dashes, value: scaled(record.Resident, system.system, 1e6)}
		shown, err := l.add(a, memory, s)
		if err != nil {
			return nil, err
		}
		if shown != nil {
			f.legend.Add(system.name, shown...)
		}
		l.value = scaled(record.Loading, system.system, 1)
		if _, err := l.add(a, loading, s); err != nil {
			return nil, err
		}
	}
	logarithmic(memory)
	logarithmic(loading)
	return f, nil
}

// logarithmic sets the limits and the labels of the Y axis of a panel whose
// lines are logarithms. The axis begins and ends at a power of ten.
func logarithmic(p *plot.Plot) {
	if p.Y.Min > p.Y.Max {
		return // nothing was measured
	}
	low, high := math.Floor(p.Y.Min), math.Ceil(p.Y.Max)
	high = max(high, low+1)
	p.Y.Min, p.Y.Max = low, high
	var ticks []plot.Tick
	for e := low; e <= high; e++ {
		for digit := 1.0; digit < 10 && (e < high || digit == 1); digit++ {
			t := plot.Tick{Value: e + math.Log10(digit)}
			if digit == 1 {
				t.Label = strconv.FormatFloat(math.Pow(10, e), 'g', 3, 64)
				if e >= 0 {
					t.Label = thousands(int64(math.Round(math.Pow(10, e))))
				}
			}
			ticks = append(ticks, t)
		}
	}
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
}

// svg returns the figure as an SVG image.
func (f *figure) svg() ([]byte, error) {
	width := vg.Length(len(f.panels))*panelWidth + legendWidth
	canvas := vgsvg.New(width, panelHeight)
	all := draw.New(canvas)
	all.FillPolygon(color.White, []vg.Point{{}, {X: width}, {X: width, Y: panelHeight}, {Y: panelHeight}})
	left := draw.Crop(all, vg.Points(6), -legendWidth, vg.Points(6), -vg.Points(6))
	tiles := draw.Tiles{Rows: 1, Cols: len(f.panels), PadX: vg.Points(16)}
	for i, p := range f.panels {
		p.Draw(tiles.At(left, i, 0))
	}
	f.legend.Draw(draw.Crop(all, width-legendWidth+vg.Points(10), 0, 0, -vg.Points(30)))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	// A browser that does not have the font must not use a font with serifs.
	return bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")), nil
}
