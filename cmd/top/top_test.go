package top

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/verdict"
	"github.com/holdfast-kv/holdfast/lock/listing"
)

// threeNodes returns the result of a look at three nodes. The first node leads.
func threeNodes() seen {
	s := seen{at: time.Now(), from: "10.0.0.1:6379", load: map[string]nodeLoad{"n1": {ops: 1234, clients: 7}}}
	for _, id := range []string{"n1", "n2", "n3"} {
		n := cluster.NodeStatus{ID: id, Role: "follower", Voter: true, Leader: "n1", Reachable: true, Ready: true}
		n.Term, n.Commit, n.Applied, n.ClientAddr = 4, 90, 90, "10.0.0.1:6379"
		s.nodes = append(s.nodes, n)
	}
	s.nodes[0].Role = "leader"
	s.verdict = verdict.Assess(s.nodes)
	return s
}

func text(m *model, height int) string {
	var all []string
	for _, l := range m.lines(height) {
		all = append(all, l.text)
	}
	return strings.Join(all, "\n")
}

func press(m *model, keys ...any) {
	for _, k := range keys {
		switch k := k.(type) {
		case string:
			for _, r := range k {
				m.handle(tcell.NewEventKey(tcell.KeyRune, r, tcell.ModNone))
			}
		case tcell.Key:
			m.handle(tcell.NewEventKey(k, 0, tcell.ModNone))
		}
	}
}

func wants(t *testing.T, m *model, parts ...string) {
	t.Helper()
	shown := text(m, 30)
	for _, p := range parts {
		if not, found := strings.CutPrefix(p, "!"); found == strings.Contains(shown, not) {
			t.Errorf("want %q (after \"!\": not) in\n%s", p, shown)
		}
	}
}

// TestModel_Nodes follows a cluster that loses one node, and then all nodes.
func TestModel_Nodes(t *testing.T) {
	m := newModel(&options{})
	wants(t, m, "waiting for the first answer", "Tab: locks")
	m.handle(&sight{seen: threeNodes()})
	wants(t, m, "Healthy: tolerates 1 more failure", "n1    leader", "1234", "n3    follower", "!n4")

	press(m, "/", "n2x", tcell.KeyBackspace2, tcell.KeyEnter)
	wants(t, m, "filter: n2", "n2    follower", "!n1    leader")
	press(m, tcell.KeyEscape)
	wants(t, m, "n1    leader", "!filter:")

	s := threeNodes()
	s.nodes[2] = cluster.NodeStatus{ID: "n3", Role: "unreachable", Voter: true, Detail: "connection refused"}
	s.verdict = verdict.Assess(s.nodes)
	m.handle(&sight{seen: s})
	wants(t, m, "Degraded: n3 is unreachable", "connection refused")

	m.handle(&sight{seen: seen{at: time.Now(), err: errors.New("10.0.0.1:6379: \x1b[31mrefused")}})
	wants(t, m, "no node answers; before that: Degraded", `no status: "10.0.0.1:6379: \x1b[31mrefused"`, "n1    leader",
		"This is the state at")
	if press(m, "q"); !m.quit {
		t.Error("q does not end the program")
	}
}

// TestModel_Locks checks the page of the locks: the table, scrolling, the filter,
// and an error.
func TestModel_Locks(t *testing.T) {
	m := newModel(&options{})
	m.handle(&sight{seen: threeNodes()})
	press(m, tcell.KeyTab)
	wants(t, m, "asking for the locks", "Tab: nodes")
	s := threeNodes()
	s.question = m.question
	for i := range 40 {
		s.locks = append(s.locks, listing.Lock{
			"key": "deploy:" + string(rune('A'+i)), "owner": "o\x1b[2J", "token": int64(i), "ttl-ms": int64(1500),
			"waiting": int64(0),
		})
	}
	s.locks[0]["waiting"] = int64(3)
	s.locks[1]["held-ms"], s.locks[1]["node"], s.locks[1]["client-id"] = int64(2500), "n2", int64(7)
	s.more = true
	m.handle(&sight{seen: s})
	wants(t, m, "the first 40 locks", "KEY", "deploy:A", `"o\x1b[2J"`, "1.5s", "2.5s", "client 7 at n2",
		"!deploy:h")
	if strings.Contains(text(m, 30), "\x1b") {
		t.Error("the name of an owner controls the terminal")
	}
	press(m, tcell.KeyEnd)
	wants(t, m, "KEY", "!deploy:A", "deploy:h")
	press(m, tcell.KeyPgUp, tcell.KeyPgUp, tcell.KeyDown)
	wants(t, m, "!deploy:A ", "deploy:B")
	if m.scroll != 1 {
		t.Errorf("scroll position is %d, want 1", m.scroll)
	}

	press(m, "/", "q/")
	if m.quit || m.question.filter != "q/" {
		t.Errorf("filter is %q, quit is %v; want the filter \"q/\", quit false", m.question.filter, m.quit)
	}
	wants(t, m, "filter: q/_", "asking for the locks", "!deploy:A")
	s.question, s.locks, s.lockErr = m.question, nil, errors.New("NOPERM")
	m.handle(&sight{seen: s})
	wants(t, m, "the locks are not known: NOPERM")
	press(m, tcell.KeyTab)
	wants(t, m, "n1    leader", "!filter:")
}

// TestDraw draws on a small screen, with and without colors.
func TestDraw(t *testing.T) {
	for _, noColor := range []string{"", "1"} {
		t.Setenv("NO_COLOR", noColor)
		screen := tcell.NewSimulationScreen("UTF-8")
		if err := screen.Init(); err != nil {
			t.Fatal(err)
		}
		screen.SetSize(40, 8)
		m := newModel(&options{})
		m.handle(&sight{seen: threeNodes()})
		m.draw(screen)
		cells, width, _ := screen.GetContents()
		var second strings.Builder
		colored := false
		for i, c := range cells {
			if i/width == 1 {
				second.WriteString(string(c.Runes))
			}
			fg, _, _ := c.Style.Decompose()
			colored = colored || fg != tcell.ColorDefault
		}
		screen.Fini()
		if got := strings.TrimSpace(second.String()); got != "Healthy: tolerates 1 more failure" {
			t.Errorf("second line is %q, want the verdict", got)
		}
		if colored != (noColor == "") {
			t.Errorf("NO_COLOR=%s: the screen has colors: %v", noColor, colored)
		}
	}
}
