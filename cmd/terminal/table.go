package terminal

import (
	"strconv"

	"github.com/fatih/color"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// NewTable returns a table for a terminal: columns without lines between them,
// as kubectl and docker print them.
func NewTable(header ...string) table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	first := make(table.Row, len(header))
	for i, h := range header {
		first[i] = h
	}
	t.AppendHeader(first)
	return t
}

// Row returns a row of a table whose cells have a color. The color is left out
// if standard output is not a terminal or NO_COLOR is set.
func Row(c *color.Color, cells ...string) table.Row {
	out := make(table.Row, len(cells))
	for i, cell := range cells {
		out[i] = c.Sprint(cell)
	}
	return out
}

// Plain is the color of text that is not highlighted.
var Plain = color.New()

// Shown returns a text for a terminal. It quotes the text if it is empty, or if it
// contains quotation marks, backslashes, or characters that a terminal would
// interpret.
func Shown(s string) string {
	if q := strconv.Quote(s); s == "" || q != `"`+s+`"` {
		return q
	}
	return s
}
