package top

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/docker/go-units"
	"github.com/gdamore/tcell/v2"
	"github.com/mattn/go-runewidth"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/verdict"
	"github.com/holdfast-kv/holdfast/cmd/terminal"
	"github.com/holdfast-kv/holdfast/lock/listing"
)

// model is the content of the screen. Events change it: keys that the user presses,
// and new results of source.look (type sight).
type model struct {
	question
	every  time.Duration
	colors bool
	quit   bool

	nodeFilter string
	editing    bool // the user types a filter
	scroll     int  // number of rows that are scrolled off above the screen
	rows       int  // rows of the table that the screen has room for

	seen  seen // result of the latest look
	known seen // result of the latest look that a node answered
}

func newModel(o *options) *model {
	m := &model{every: o.every, colors: os.Getenv("NO_COLOR") == ""}
	m.question.locks = o.locks
	*m.shownFilter() = o.filter
	return m
}

// shownFilter returns the filter of the table that is shown.
func (m *model) shownFilter() *string {
	if m.question.locks {
		return &m.question.filter
	}
	return &m.nodeFilter
}

// handle changes the model after an event of the screen.
func (m *model) handle(e tcell.Event) {
	switch e := e.(type) {
	case *sight:
		m.seen = e.seen
		if e.seen.err == nil {
			m.known = e.seen
		}
	case *tcell.EventKey:
		m.key(e)
	}
}

func (m *model) key(e *tcell.EventKey) {
	filter := m.shownFilter()
	switch k := e.Key(); {
	case k == tcell.KeyCtrlC:
		m.quit = true
	case k == tcell.KeyEscape:
		*filter, m.editing, m.scroll = "", false, 0
	case m.editing && k == tcell.KeyEnter:
		m.editing = false
	case m.editing && (k == tcell.KeyBackspace || k == tcell.KeyBackspace2):
		_, size := utf8.DecodeLastRuneInString(*filter)
		*filter = (*filter)[:len(*filter)-size]
	case m.editing && k == tcell.KeyRune:
		*filter += string(e.Rune())
		m.scroll = 0
	case k == tcell.KeyTab:
		m.question.locks = !m.question.locks
		m.editing, m.scroll = false, 0
	case k == tcell.KeyRune && e.Rune() == 'q':
		m.quit = true
	case k == tcell.KeyRune && e.Rune() == '/':
		m.editing = true
	default:
		m.move(k)
	}
}

// move changes the scroll position. The method lines bounds the position by the
// length of the table.
func (m *model) move(k tcell.Key) {
	switch k {
	case tcell.KeyUp:
		m.scroll--
	case tcell.KeyDown:
		m.scroll++
	case tcell.KeyPgUp:
		m.scroll -= m.rows
	case tcell.KeyPgDn:
		m.scroll += m.rows
	case tcell.KeyHome:
		m.scroll = 0
	case tcell.KeyEnd:
		m.scroll = 1 << 30
	}
	m.scroll = max(m.scroll, 0)
}

// kind determines the style of a line.
type kind byte

const (
	plain kind = iota
	title
	good
	warning
	bad
)

// line is a line of the screen.
type line struct {
	text string
	kind kind
}

// page is a page of the screen: a table between lines that do not scroll.
type page struct {
	head  []line
	table []line
	foot  []line
}

// page returns the content of the screen.
func (m *model) page() page {
	p := page{head: []line{m.bar(), m.headline(), {}}}
	switch {
	case m.known.at.IsZero():
	case m.question.locks:
		p.head = append(p.head, line{m.lockCount(), plain})
		m.lockTable(&p)
	default:
		m.nodeTable(&p)
		m.nodeFoot(&p)
	}
	if m.seen.err != nil {
		for _, text := range strings.Split(m.seen.err.Error(), "\n") {
			p.foot = append(p.foot, line{"no status: " + terminal.Shown(text), bad})
		}
		if !m.known.at.IsZero() {
			p.foot = append(p.foot, line{"This is the state at " + m.known.at.Format(time.TimeOnly) + ".", warning})
		}
	}
	if filter := *m.shownFilter(); m.editing {
		p.foot = append(p.foot, line{"filter: " + filter + "_", title})
	} else if filter != "" {
		p.foot = append(p.foot, line{"filter: " + terminal.Shown(filter) + "  (Esc removes it)", plain})
	}
	return p
}

func (m *model) bar() line {
	other := "locks"
	if m.question.locks {
		other = "nodes"
	}
	text := "holdfast top  "
	if !m.known.at.IsZero() {
		text += m.known.at.Format(time.TimeOnly) + "  " + m.known.from + "  "
	}
	return line{text + "Tab: " + other + "  /: filter  q: quit", title}
}

func (m *model) headline() line {
	switch v := m.known.verdict; {
	case m.known.at.IsZero() && m.seen.err == nil:
		return line{"waiting for the first answer", plain}
	case m.known.at.IsZero():
		return line{"no node answers", bad}
	case m.seen.err != nil:
		return line{"no node answers; before that: " + v.Sentence, bad}
	case v.State == verdict.Healthy:
		return line{v.Sentence, good}
	default:
		return line{v.Sentence, bad}
	}
}

func (m *model) nodeTable(p *page) {
	rows := [][]string{{"NODE", "ROLE", "TERM", "APPLIED", "LAG", "OPS/S", "CLIENTS", "DISK FREE", "VERSION", "UPTIME",
		"ADDRESS", "DETAIL"}}
	kinds := []kind{title}
	for _, n := range m.known.nodes {
		row, k := m.nodeRow(n)
		if !strings.Contains(strings.Join(row, " "), m.nodeFilter) {
			continue
		}
		rows, kinds = append(rows, row), append(kinds, k)
	}
	p.table = layOut(rows, kinds)
}

func (m *model) nodeRow(n cluster.NodeStatus) ([]string, kind) {
	if !n.Reachable {
		return []string{n.ID, n.Role, "-", "-", "-", "-", "-", "-", "-", "-", n.PeerAddr, n.Detail}, bad
	}
	role, k := n.Role, plain
	switch {
	case role == "leader":
		k = good
	case role == "follower" && !n.Voter:
		role = "learner"
	case role != "follower" || n.SnapshotError != "":
		k = warning
	}
	ops, clients := "-", "-"
	if l, known := m.known.load[n.ID]; known {
		ops, clients = strconv.FormatInt(l.ops, 10), strconv.FormatInt(l.clients, 10)
	}
	free := "-"
	if n.DiskTotal > 0 {
		free = units.BytesSize(float64(n.DiskFree))
	}
	uptime := time.Duration(n.Uptime * float64(time.Second)).Round(time.Second).String()
	return []string{n.ID, role, fmt.Sprint(n.Term), fmt.Sprint(n.Applied), fmt.Sprint(n.Lag), ops, clients, free,
		n.Version, uptime, n.ClientAddr, strings.Trim(n.Detail+"; "+n.SnapshotError, "; ")}, k
}

// nodeFoot adds the size of the data set and the problems of the cluster.
func (m *model) nodeFoot(p *page) {
	p.foot = append(p.foot, line{})
	for _, n := range m.known.nodes {
		if n.Role == "leader" && n.Reachable {
			limit := "without a limit"
			if n.MaxMemory > 0 {
				limit = "of " + units.BytesSize(float64(n.MaxMemory))
			}
			text := fmt.Sprintf("%d keys, data set: %s %s", n.Keys, units.BytesSize(float64(n.DatasetBytes)), limit)
			p.foot = append(p.foot, line{text, plain})
		}
	}
	for _, problem := range m.known.verdict.Problems {
		text := problem.Text
		if problem.Remedy != "" {
			text += ": " + problem.Remedy
		}
		p.foot = append(p.foot, line{strings.TrimPrefix(problem.Node+": ", ": ") + text, warning})
	}
	for _, advice := range m.known.verdict.Advice {
		p.foot = append(p.foot, line{"note: " + advice, plain})
	}
}

// lockCount says how many locks the table has.
func (m *model) lockCount() string {
	switch k := m.known; {
	case k.question != m.question:
		return "asking for the locks"
	case k.lockErr != nil:
		return "the locks are not known: " + k.lockErr.Error()
	case k.more:
		return fmt.Sprintf("the first %d locks", len(k.locks))
	case len(k.locks) == 1:
		return "1 lock"
	default:
		return fmt.Sprintf("%d locks", len(k.locks))
	}
}

func (m *model) lockTable(p *page) {
	rows := [][]string{{"KEY", "OWNER", "MODE", "TOKEN", "HELD", "TTL", "WAITING", "CLIENT"}}
	kinds := []kind{title}
	if m.known.question == m.question {
		for _, l := range m.known.locks {
			k := plain
			if l.Int("waiting") > 0 {
				k = warning
			}
			owner := terminal.Shown(l.Text("owner"))
			if _, one := l["owner"]; !one {
				owner = fmt.Sprintf("%d owners", len(l.Holders()))
			}
			client := strings.TrimSpace(l.Text("addr") + " " + l.Text("name"))
			switch id := l.Int("client-id"); {
			case client == "" && id != 0: // from the history
				client = fmt.Sprintf("client %d at %s", id, l.Text("node"))
			case client == "":
				client = "-"
			}
			rows = append(rows, []string{terminal.Shown(l.Text("key")), owner, l.Mode(), fmt.Sprint(l.Int("token")),
				duration(l, "held-ms"), duration(l, "ttl-ms"), fmt.Sprint(l.Int("waiting")), terminal.Shown(client)})
			kinds = append(kinds, k)
		}
	}
	p.table = layOut(rows, kinds)
}

// duration returns a field in milliseconds as the text of a duration, or "-" if
// there is no such field.
func duration(l listing.Lock, name string) string {
	n, ok := l[name].(int64)
	if !ok || n < 0 {
		return "-"
	}
	return (time.Duration(n) * time.Millisecond).Round(time.Second / 10).String()
}

// layOut aligns the columns of a table. Its first row is the header.
func layOut(rows [][]string, kinds []kind) []line {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], runewidth.StringWidth(cell))
		}
	}
	all := make([]line, len(rows))
	for i, row := range rows {
		var b strings.Builder
		for j, cell := range row {
			b.WriteString(cell)
			if j+1 < len(row) {
				b.WriteString(strings.Repeat(" ", widths[j]-runewidth.StringWidth(cell)+2))
			}
		}
		all[i] = line{b.String(), kinds[i]}
	}
	return all
}

// lines returns the lines for a screen of the given height. It bounds the
// scroll position. The header of the table stays visible.
func (m *model) lines(height int) []line {
	p := m.page()
	all := p.head
	if len(p.table) > 0 {
		all = append(all, p.table[0])
		p.table = p.table[1:]
	}
	m.rows = max(height-len(all)-len(p.foot), 1)
	m.scroll = max(min(m.scroll, len(p.table)-m.rows), 0)
	end := min(m.scroll+m.rows, len(p.table))
	return append(append(all, p.table[m.scroll:end]...), p.foot...)
}

// draw draws the model.
func (m *model) draw(screen tcell.Screen) {
	screen.Clear()
	width, height := screen.Size()
	for y, l := range m.lines(height) {
		style, x := m.style(l.kind), 0
		for _, r := range l.text {
			if !unicode.IsPrint(r) { // such a character could control the terminal
				r = '?'
			}
			w := runewidth.RuneWidth(r)
			if x+w > width {
				break
			}
			screen.SetContent(x, y, r, nil, style)
			x += w
		}
	}
	screen.Show()
}

func (m *model) style(k kind) tcell.Style {
	style := tcell.StyleDefault
	if k == title {
		return style.Bold(true)
	}
	colors := map[kind]tcell.Color{good: tcell.ColorGreen, warning: tcell.ColorYellow, bad: tcell.ColorRed}
	if c, found := colors[k]; found && m.colors {
		style = style.Foreground(c)
	}
	return style
}
