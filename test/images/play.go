package main

import (
	"fmt"
	"math"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// tape contains the steps of all nodes of a recording in one order, that of
// their time stamps. If a step of one node caused a step of another, the cause
// comes first, because strace stamps the end of a call before the process
// continues, and the beginning of a call before the kernel executes it.
type tape struct {
	rec   *recording
	steps []placed
}

// placed is a step of a node. If step.call is nil, it is the end of the node's
// process.
type placed struct {
	step
	node, life int
}

// readTape reads the traces of a recording.
func readTape(rec *recording) (*tape, error) {
	t := &tape{rec: rec}
	for node, lives := range rec.lives {
		last := time.Duration(math.MinInt64)
		for i, l := range lives {
			steps, ended, err := readTrace(l.trace, l.killed)
			if err != nil {
				return nil, err
			}
			if !ended {
				return nil, fmt.Errorf("the trace %s does not contain the end of the process", l.trace)
			}
			for _, s := range steps {
				// Within one trace, the order of the lines determines the order
				// of the steps, because the times are not precise enough.
				s.at = max(s.at, last)
				last = s.at
				t.steps = append(t.steps, placed{s, node, i})
			}
			t.steps = append(t.steps, placed{step{at: last}, node, i})
		}
	}
	sort.SliceStable(t.steps, func(i, j int) bool { return t.steps[i].at < t.steps[j].at })
	return t, nil
}

// player plays a tape into disks.
type player struct {
	tape    *tape
	disks   []*disk
	begun   []map[*call]bool         // by node: calls that have begun and not returned
	clients []map[string]*connection // by node: the connection of each socket
	named   map[string]*connection   // connections whose replies are recorded
}

func (t *tape) player(forgets func(string) bool) *player {
	p := &player{tape: t, named: make(map[string]*connection)}
	for _, dir := range t.rec.dirs {
		d := newDisk(dir)
		d.forgets = forgets
		p.disks = append(p.disks, d)
		p.begun = append(p.begun, make(map[*call]bool))
		p.clients = append(p.clients, make(map[string]*connection))
	}
	return p
}

// play plays step i and returns the kind of event, or "" if there is none.
func (p *player) play(i int) (touched string, err error) {
	s := p.tape.steps[i]
	d := p.disks[s.node]
	if s.call == nil {
		var unfinished []*call
		for c := range p.begun[s.node] {
			unfinished = append(unfinished, c)
		}
		clear(p.begun[s.node])
		clear(p.clients[s.node])
		left := p.tape.rec.lives[s.node][s.life].left
		if err := d.died(unfinished, left); err != nil {
			return "", fmt.Errorf("the recording is incomplete: %w", err)
		}
		return "death of a process", nil
	}
	if s.end {
		delete(p.begun[s.node], s.call)
	} else {
		p.begun[s.node][s.call] = true
	}
	if err := d.play(s.step); err != nil {
		return "", fmt.Errorf("%s of n%d: %w", s.call.name, s.node+1, err)
	}
	replied, err := p.replies(i, s)
	if replied {
		return "reply", err
	}
	return d.touched, err
}

// replies records the replies of the nodes to clients. The first reply on a
// connection is the connection's name, which identifies the connection.
func (p *player) replies(i int, s placed) (replied bool, err error) {
	_, socket := fd(s.call.arg(0))
	if s.call.name == "close" && !s.end {
		delete(p.clients[s.node], socket) // the kernel may use the number of the socket again
	}
	if s.call.name != "write" || s.end || !strings.HasPrefix(socket, "socket:") {
		return false, nil
	}
	data, err := s.call.text(1)
	if err != nil {
		return false, err
	}
	switch n, err := strconv.Atoi(s.call.ret); {
	case s.call.failed():
		return false, nil // nothing was sent, or the call is repeated
	case err == nil && n < len(data):
		data = data[:n] // a later call sends the rest
	}
	from := p.clients[s.node][socket]
	if from == nil {
		first, _, err := respwire.Parse(data)
		if err != nil || p.named[first.Text] == nil {
			return false, nil // the peer is another node, or a client that only waits for a leader
		}
		from = p.named[first.Text]
		p.clients[s.node][socket] = from
	}
	before := len(from.answers)
	err = from.sent(i, data)
	return len(from.answers) > before && !from.monitor, err
}

// moments plays the whole tape. found contains, for each kind of event, the
// steps after which an image is useful. bad describes the processes that
// answered clients before they had synced the data of earlier processes. That
// is a violation, because from its first answer on, a process relies on this
// data. moments fails if the recording is incomplete.
func (t *tape) moments() (found map[string][]int, bad []string, err error) {
	p := t.player(nil)
	answered := make(map[[2]int]bool)
	for _, s := range t.rec.connections {
		p.named[s.name] = s
	}
	found = make(map[string][]int)
	for i := range t.steps {
		touched, err := p.play(i)
		if err != nil {
			return nil, nil, err
		}
		at := t.steps[i]
		if id := [2]int{at.node, at.life}; touched == "reply" && !answered[id] {
			answered[id] = true
			if left := p.disks[at.node].inherited(); left != "" {
				bad = append(bad, fmt.Sprintf("start %d of n%d answers clients, but %s has unsynced changes of "+
					"a dead process", at.life+1, at.node+1, left))
			}
		}
		if touched != "" {
			found[touched] = append(found[touched], i)
		}
	}
	for _, s := range t.rec.connections {
		if len(s.answers) < s.got {
			return nil, nil, fmt.Errorf("the recording is incomplete: %s read %d replies, and %d were recorded", s.name,
				s.got, len(s.answers))
		}
		if len(s.answers) > len(s.cmds) {
			return nil, nil, fmt.Errorf("%s sent %d commands and got %d replies; the last replies are %+v, "+
				"the last commands %+v", s.name, len(s.cmds), len(s.answers),
				s.answers[max(0, len(s.answers)-3):], s.cmds[max(0, len(s.cmds)-3):])
		}
	}
	return found, bad, nil
}

// promise contains what must be true of the cluster after a loss of power at a
// step of the tape.
type promise struct {
	connections []promised
	acked       int      // answered commands
	fence       int64    // highest fencing token that a client received
	terms       []uint64 // by node: the highest term that the node has reported
	led         uint64   // the highest term in which a node has reported that it leads
}

// promised holds the states that the keys of one connection may have. One of them
// must match.
type promised struct {
	connection *connection
	states     []state
}

var infoTerm = regexp.MustCompile(`(?m)^raft_term:(\d+)`)

// promisedAt returns what the nodes had promised up to a step.
func (t *tape) promisedAt(i int) *promise {
	pr := &promise{terms: make([]uint64, len(t.rec.dirs))}
	for _, s := range t.rec.connections {
		if s.monitor {
			for _, a := range s.answers {
				m := infoTerm.FindStringSubmatch(a.reply.Text)
				if a.step > i || m == nil {
					continue
				}
				term, err := strconv.ParseUint(m[1], 10, 64)
				if err != nil {
					continue // the reply does not contain a term
				}
				pr.terms[s.node] = max(pr.terms[s.node], term)
				if strings.Contains(a.reply.Text, "raft_role:leader") {
					pr.led = max(pr.led, term)
				}
			}
			continue
		}
		states, acked := s.states(i)
		pr.acked += acked
		for j := range acked {
			if r := s.answers[j].reply; s.cmds[j].args[0] == "EXEC" && len(r.Elems) == 2 {
				pr.fence = max(pr.fence, r.Elems[1].Int)
			}
		}
		if len(s.cmds) > 0 {
			pr.connections = append(pr.connections, promised{s, states})
		}
	}
	return pr
}
