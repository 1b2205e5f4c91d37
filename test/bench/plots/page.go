package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/test/bench/record"
)

// axis describes the table and the plots of a sweep.
type axis struct {
	name   string
	title  string // heading of the column and label of the axis
	label  func(at int64) string
	log    bool // whether the axis is logarithmic
	loads  []string
	memory bool // whether the sweep measured memory too
}

var axes = []axis{
	{name: "keys", title: "keys", label: powerOfTen, log: true, loads: []string{"SET NX PX and DEL", "GET"},
		memory: true},
	{name: "values", title: "size of the value", label: binarySize, log: true, loads: bothLoads},
	{name: "clients", title: "clients", label: thousands, log: true, loads: bothLoads},
	{name: "nodes", title: "nodes", label: thousands, loads: bothLoads},
	{name: "threads", title: "GOMAXPROCS of a node", label: thousands, loads: bothLoads},
}

var bothLoads = []string{"SET NX PX", "GET"}

// thousands formats a number with commas.
func thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// binarySize formats a number of bytes.
func binarySize(n int64) string {
	if n >= 1<<10 {
		return strconv.FormatInt(n>>10, 10) + " KiB"
	}
	return strconv.FormatInt(n, 10) + " B"
}

// powerOfTen formats a power of ten with an exponent.
func powerOfTen(n int64) string {
	exponent := len(strconv.FormatInt(n, 10)) - 1
	text := "10"
	for _, digit := range strconv.Itoa(exponent) {
		text += string([]rune("⁰¹²³⁴⁵⁶⁷⁸⁹")[digit-'0'])
	}
	return text
}

// perKeyFrom is the smallest number of keys for which the table shows the
// memory per key. With fewer keys, the memory of the keys is small compared
// with the other memory of the process.
const perKeyFrom = 100_000

// table returns the table of a sweep.
func (a axis) table(s *record.Sweep) string {
	var b strings.Builder
	head := []string{a.title}
	for _, load := range a.loads {
		head = append(head, load+", rate", load+", p99")
	}
	if a.memory {
		head = append(head, "time to load", "Redis, bytes per key", "leader", "followers")
	}
	tableHead(&b, head)
	for _, p := range s.Points {
		cells := []string{a.label(p.At)}
		if p.Missing != "" {
			cells = append(cells, "not measured: "+oneLine(p.Missing))
			tableRow(&b, cells, len(head))
			continue
		}
		for _, load := range a.loads {
			cells = append(cells, ratioCell(p, load+record.Rate), ratioCell(p, load+record.P99))
		}
		if a.memory {
			cells = append(cells, ratioCell(p, record.Loading))
			for _, system := range []string{record.Redis, record.Leader, record.Follower} {
				cells = append(cells, perKeyCell(p, system))
			}
		}
		tableRow(&b, cells, len(head))
	}
	return b.String()
}

// ratioCell returns the cell with the ratio of the leader to Redis, and with
// the spread of the ratio if there were several repetitions.
func ratioCell(p record.Point, what string) string {
	f, ok := record.RatioOf(p.Samples(what, record.Leader), p.Samples(what, record.Redis))
	switch {
	case !ok:
		return ""
	case f.Low == f.High:
		return fmt.Sprintf("%.2f", f.Median)
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", f.Median, f.Low, f.High)
}

// perKeyCell returns the cell with the resident memory that each key has added.
func perKeyCell(p record.Point, system string) string {
	empty, loaded := p.Samples(record.Empty, system), p.Samples(record.Resident, system)
	if p.At < perKeyFrom || len(empty) == 0 || len(loaded) == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", (record.FigureOf(loaded).Median-record.FigureOf(empty).Median)/float64(p.At))
}

// oneLine returns the first line of a text, with slashes instead of the vertical
// bars, which would end a cell.
func oneLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.ReplaceAll(line, "|", "/")
}

func tableHead(b *strings.Builder, cells []string) {
	tableRow(b, cells, len(cells))
	b.WriteString(strings.Repeat("|---", len(cells)) + "|\n")
}

// tableRow writes a row of a table with the given number of columns.
func tableRow(b *strings.Builder, cells []string, columns int) {
	for i := range columns {
		b.WriteString("| ")
		if i < len(cells) && cells[i] != "" {
			b.WriteString(cells[i] + " ")
		}
	}
	b.WriteString("|\n")
}

// costTable returns the table of the processor time per command.
func costTable(d division, rows []record.Profile) string {
	column := func(row record.Profile) string { return row.Row + ": " + row.System }
	return divisionTable(d, rows, column, "", func(row record.Profile, value float64) string {
		share := value / max(row.Sum(), 1)
		return fmt.Sprintf("%.1f µs (%.0f %%)", share*perCount(row)*1e6, 100*share)
	}, func(row record.Profile) string { return fmt.Sprintf("%.1f µs", perCount(row)*1e6) }, "all")
}

// memoryTable returns the table of the memory per key. The heap profile
// contains only live memory, so the resident memory is more than the sum.
func memoryTable(d division, rows []record.Profile) string {
	column := func(row record.Profile) string { return row.System + ", per lock" }
	return divisionTable(d, rows, column, "live memory", func(row record.Profile, value float64) string {
		return fmt.Sprintf("%.0f B (%.0f %%)", value/float64(row.Count), 100*value/max(row.Sum(), 1))
	}, func(row record.Profile) string { return fmt.Sprintf("%.0f B", perCount(row)) }, "resident memory")
}

// perCount returns the total per command or per key.
func perCount(row record.Profile) float64 { return row.Total / float64(row.Count) }

// divisionTable returns a table with a column for each profile and a row for
// each cause. sum is the name of the row with the sums of the shares; if sum is
// empty, the table does not have this row. all is the name of the row with the
// totals. The last row contains the totals of Redis.
func divisionTable(d division, rows []record.Profile, column func(record.Profile) string, sum string,
	cell func(record.Profile, float64) string, total func(record.Profile) string, all string) string {
	var b strings.Builder
	head, last, redis := []string{"cause"}, []string{all}, []string{"Redis, " + all}
	var divided []record.Profile
	for _, row := range rows {
		if row.System == record.Redis {
			redis = append(redis, total(row), "")
			continue
		}
		divided = append(divided, row)
		head = append(head, column(row))
		last = append(last, total(row))
	}
	tableHead(&b, head)
	for _, cause := range d.causes() {
		cells := []string{cause}
		for _, row := range divided {
			text := ""
			if value := valueOf(row, cause); value > 0 {
				text = cell(row, value)
			}
			cells = append(cells, text)
		}
		tableRow(&b, cells, len(head))
	}
	if sum != "" {
		cells := []string{sum}
		for _, row := range divided {
			cells = append(cells, cell(row, row.Sum()))
		}
		tableRow(&b, cells, len(head))
	}
	tableRow(&b, last, len(head))
	tableRow(&b, redis, len(head))
	return b.String()
}

func valueOf(row record.Profile, cause string) float64 {
	for _, s := range row.Shares {
		if s.Cause == cause {
			return s.Value
		}
	}
	return 0
}

// shownConditions lists the conditions that the page shows.
var shownConditions = []string{"machine", "data", "holdfast", "load", "load average at the start"}

// provenance returns a paragraph that says how the data was measured.
func provenance(h record.Header) string {
	text := "Measured with `" + h.Command + "`"
	if h.Preliminary {
		text = "**Preliminary figures of a short run, to be replaced.** " + text
	}
	for _, c := range h.Conditions {
		switch {
		case c[0] == "date":
			text += " on " + strings.ReplaceAll(c[1], "T", " at ") + "."
		case slices.Contains(shownConditions, c[0]):
			value, _, _ := strings.Cut(c[1], " (") // without explanations
			text += " " + strings.ToUpper(c[0][:1]) + c[0][1:] + ": " + value + "."
		}
	}
	return wrap(text)
}

// maxWidth is the width of the paragraphs of a page.
const maxWidth = 80

// wrap breaks a text into lines. Code in backticks stays on one line.
func wrap(text string) string {
	var b strings.Builder
	width := 0
	for _, word := range unbroken(text) {
		n := len([]rune(word))
		switch {
		case width == 0:
		case width+1+n > maxWidth:
			b.WriteByte('\n')
			width = 0
		default:
			b.WriteByte(' ')
			width++
		}
		b.WriteString(word)
		width += n
	}
	return b.String() + "\n"
}

// unbroken splits a text at blanks outside of backticks.
func unbroken(text string) []string {
	var words []string
	for _, field := range strings.Fields(text) {
		if n := len(words); n > 0 && strings.Count(words[n-1], "`")%2 == 1 {
			words[n-1] += " " + field
		} else {
			words = append(words, field)
		}
	}
	return words
}

// replaceBlock replaces the text between the two comments that contain the name
// of a block.
func replaceBlock(page, name, text string) (string, error) {
	begin, end := "<!-- "+name+": begin (written by make plots) -->\n", "<!-- "+name+": end -->"
	before, rest, found := strings.Cut(page, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", fmt.Errorf("the page has no block %q: it needs the lines %q and %q", name, strings.TrimSpace(begin),
			end)
	}
	return before + begin + "\n" + text + "\n" + end + after, nil
}
