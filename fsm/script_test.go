package fsm_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

var rewrite = flag.Bool("rewrite", false, "write the replies to the scripts in testdata into the scripts; then read "+
	"the diff")

// TestScripts runs the scripts in testdata. A line that begins with "> " is
// input, the lines below it are the expected output, and "#" begins a comment.
// Every script runs on two machines. At every "snapshot", the second machine is
// replaced by a restored snapshot of itself. The replies of the two machines
// and their final states must be equal.
//
//	SET k v                a command: writes go through the log, reads do not
//	log GET k              a read that goes through the log
//	local GET k            a read at the time of the log's clock, as on a READONLY
//	                       connection
//	clock +500ms, wall -1h move the leader's lease clock or wall clock for the lines
//	                       that follow; no other line does this
//	entry                  an entry without groups
//	resp 3, db 1           the RESP version and the database of the commands that
//	                       follow
//	pipeline … end         commands of one group
//	watch k                get the version of k, which the next multi watches
//	multi … exec           a transaction
//	snapshot               see above
//	clone, clone GET k     clone the machine, run a command only on the clone
//	term 3                 a TermStart of term 3
//	stale 2 SET k v        an entry built in term 2, appended in the current one
//	session n2/1 5 ack 3 INCR k    group 5 of a session, whose node has the replies
//	                       up to group 3
//	session n2/1           the state of the session
//	origin 7, node n2/1    the connection that sends the commands that follow
//	waiters                the waiters, and whether each is open or served
//	unwait 7, waited 7     end the wait of connection 7; remove its waiter
//	stats, len, clocks     counters; keys of all databases; the machine's clock
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("files in testdata: %v, error %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScript(t, file) })
	}
}

func runScript(t *testing.T, file string) {
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := newScript(t)
	var out strings.Builder
	lines := strings.Split(strings.TrimSuffix(string(src), "\n"), "\n")
	for i := 0; i < len(lines); {
		line := lines[i]
		i++
		fmt.Fprintln(&out, line)
		input, ok := strings.CutPrefix(line, "> ")
		if !ok {
			continue
		}
		var want []string
		for i < len(lines) && lines[i] != "" && !strings.HasPrefix(lines[i], "> ") && !strings.HasPrefix(lines[i], "#") {
			want = append(want, lines[i])
			i++
		}
		got := s.line(input)
		for _, m := range s.machines {
			if err := fsm.Broken(m); err != nil {
				t.Fatalf("%s:%d: %s: %v", file, i, input, err)
			}
		}
		if !*rewrite && strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s:%d: %s\ngot:\n%s\nwant:\n%s", file, i, input, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for _, l := range got {
			fmt.Fprintln(&out, l)
		}
	}
	s.compare()
	if *rewrite && out.String() != string(src) {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// script is one run of a script: the clocks of a leader, and two machines.
type script struct {
	t        *testing.T
	table    *fsm.Table
	machines [2]*fsm.Machine // the second one is restored from snapshots
	clone    *fsm.Machine

	index uint64
	term  uint64
	stamp time.Duration
	wall  time.Time
	proto int
	db    int

	node   fsm.SessionID
	seqs   map[fsm.SessionID]uint64
	origin uint64

	block   string // "", pipeline or multi
	group   fsm.Group
	queued  []fsm.Queued
	watches []fsm.Watch
}

func newScript(t *testing.T) *script {
	s := &script{t: t, table: command.NewTable(), proto: 2, origin: 1, node: fsm.SessionID{NodeID: "n1", Boot: 1}, seqs: make(map[fsm.SessionID]uint64), wall: time.UnixMicro(1_700_000_000_000_000), stamp: time.Second}
	for i := range s.machines {
		s.machines[i] = fsm.New(s.table)
	}
	s.openTerm(1)
	return s
}

func (s *script) header() fsm.Header {
	return fsm.Header{Term: s.term, Stamp: int64(s.stamp), Wall: s.wall.UnixMicro(), Seed: s.index * 7}
}

// apply applies an entry to both machines and returns the result of the first.
func (s *script) apply(data []byte) *fsm.Result {
	s.t.Helper()
	s.index++
	var results [2]*fsm.Result
	for i, m := range s.machines {
		var err error
		if results[i], err = m.Apply(s.index, s.term, data); err != nil {
			s.t.Fatalf("apply to machine %d: %v", i, err)
		}
	}
	if !reflect.DeepEqual(results[0], results[1]) {
		s.t.Fatalf("machines differ at entry %d:\n%+v\n%+v", s.index, results[0], results[1])
	}
	return results[0]
}

func (s *script) openTerm(term uint64) {
	s.term = term
	s.apply(fsm.AppendTermStart(nil, s.header(), fsm.TermStart{NodeID: "n1", Instance: "i1", Boot: 1, ClusterID: "c1", Features: fsm.MaxFeatures}))
}

// compare checks that the states of the machines are equal, byte for byte.
func (s *script) compare() {
	s.t.Helper()
	i0, h0 := s.machines[0].Hash()
	i1, h1 := s.machines[1].Hash()
	if i0 != i1 || h0 != h1 {
		s.t.Errorf("hash chains differ: %d %x, %d %x", i0, h0, i1, h1)
	}
	if !bytes.Equal(snapshotOf(s.t, s.machines[0]), snapshotOf(s.t, s.machines[1])) {
		s.t.Error("snapshots of the two machines differ")
	}
	if a, b := s.machines[0].NextDeadline(), s.machines[1].NextDeadline(); a != b {
		s.t.Errorf("next deadlines differ: %d, %d", a, b)
	}
}

func snapshotOf(t testing.TB, m *fsm.Machine) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := m.WriteSnapshot(&b, m.Sessions()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func restore(t testing.TB, data []byte) *fsm.Machine {
	t.Helper()
	m, err := fsm.ReadSnapshot(bytes.NewReader(data), command.NewTable())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// line runs one line of input.
func (s *script) line(input string) []string {
	s.t.Helper()
	word, rest, _ := strings.Cut(input, " ")
	args := respwire.Words(input)
	if word == strings.ToUpper(word) {
		return s.command(args)
	}
	switch word {
	case "log":
		return s.write(s.groupOf(args[1:]))
	case "local":
		return s.read(s.machines[0], s.groupOf(args[1:]), 0)
	case "clock":
		s.stamp += s.duration(rest)
	case "wall":
		s.wall = s.wall.Add(s.duration(rest))
	case "entry":
		var b fsm.BatchBuilder
		if s.apply(b.Encode(s.header())).Backwards {
			return []string{"backwards"}
		}
	case "resp":
		s.proto = s.number(rest)
	case "db":
		s.db = s.number(rest)
	case "pipeline", "multi":
		s.block = word
		s.group.Reset(s.proto, s.origin)
		s.queued = nil
	case "end", "exec":
		if word == "exec" {
			s.group.Transaction(s.watches, s.queued)
			s.watches = nil
		}
		s.block = ""
		return s.run(&s.group)
	case "watch":
		for i, m := range s.machines {
			line := s.read(m, s.groupOf([]string{fsm.VersionCommand, args[1]}), int64(s.stamp))[0]
			v, err := strconv.ParseUint(strings.TrimPrefix(line, ":"), 10, 64)
			if err != nil {
				s.t.Fatalf("watch: %v", err)
			}
			if i == 0 {
				s.watches = append(s.watches, fsm.Watch{DB: s.db, Key: args[1], Version: v})
			}
		}
	case "snapshot":
		s.machines[1] = restore(s.t, snapshotOf(s.t, s.machines[1]))
	case "clone":
		if rest != "" {
			return s.onClone(args[1:])
		}
		s.clone = s.machines[0].Clone()
	case "term":
		s.openTerm(uint64(s.number(rest)))
	case "stale":
		return s.stale(uint64(s.number(args[1])), args[2:])
	case "session":
		return s.session(args[1:])
	case "origin":
		s.origin = uint64(s.number(rest))
	case "node":
		s.node = s.sessionID(rest)
	case "waiters":
		return s.waiters()
	case "unwait", "waited":
		return s.write(s.groupOf([]string{"_" + word, rest, strconv.FormatUint(uint64(s.waiterOf(rest)), 10)}))
	case "stats":
		return []string{fmt.Sprintf("%+v", s.machines[0].Stats())}
	case "len":
		return []string{strconv.Itoa(s.machines[0].Len()) + " keys, " + strconv.Itoa(s.machines[0].Volatile()) + " volatile"}
	case "clocks":
		c := s.machines[0].Clock()
		return []string{time.Duration(c.Lease).String() + " " + time.UnixMicro(c.Wall).UTC().Format(time.RFC3339Nano)}
	default:
		s.t.Fatalf("unknown line %q", input)
	}
	return nil
}

func (s *script) duration(text string) time.Duration {
	s.t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *script) number(text string) int {
	s.t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// find returns the row of the command table for a command line, and the
// arguments.
func find(t testing.TB, table *fsm.Table, words []string) (*fsm.Command, [][]byte) {
	t.Helper()
	cmd := table.Find([]byte(words[0]))
	if cmd == nil || !cmd.ArityOK(len(words)) {
		t.Fatalf("unknown command or wrong number of arguments: %q", words)
	}
	return cmd, respwire.Args(words...)
}

func (s *script) groupOf(words []string) *fsm.Group {
	s.t.Helper()
	cmd, args := find(s.t, s.table, words)
	g := new(fsm.Group)
	g.Reset(s.proto, s.origin)
	g.Command(cmd, s.db, args)
	return g
}

func (s *script) command(words []string) []string {
	s.t.Helper()
	cmd, args := find(s.t, s.table, words)
	switch s.block {
	case "pipeline":
		s.group.Command(cmd, s.db, args)
	case "multi":
		s.queued = append(s.queued, fsm.Queued{DB: s.db, Cmd: cmd, Args: args})
	default:
		return s.run(s.groupOf(words))
	}
	return nil
}

// run sends a group as a read or through the log, as its commands require.
func (s *script) run(g *fsm.Group) []string {
	s.t.Helper()
	if g.Write {
		return s.write(g)
	}
	a := s.read(s.machines[0], g, int64(s.stamp))
	b := s.read(s.machines[1], g, int64(s.stamp))
	if strings.Join(a, "\n") != strings.Join(b, "\n") {
		s.t.Errorf("the replies of the two machines to a read differ:\n%q\n%q", a, b)
	}
	return a
}

func (s *script) read(m *fsm.Machine, g *fsm.Group, now int64) []string {
	s.t.Helper()
	if err := s.table.Check(g.Bytes(), true); err != nil {
		s.t.Fatalf("check: %v", err)
	}
	wall := s.wall.UnixMicro()
	if now == 0 {
		wall = 0
	}
	reply, expiryPending, err := m.Read(nil, fsm.ReadRequest{Body: g.Bytes(), Now: now, Wall: wall, Seed: 1})
	if err != nil {
		s.t.Fatalf("read: %v", err)
	}
	if expiryPending {
		return []string{"expiry pending"}
	}
	return show(reply)
}

func (s *script) write(g *fsm.Group) []string {
	s.t.Helper()
	seq := s.seqs[s.node] + 1
	s.seqs[s.node] = seq
	var b fsm.BatchBuilder
	b.Add(s.node, seq-1, seq, g.Bytes())
	if err := s.table.Check(g.Bytes(), false); err != nil {
		s.t.Fatalf("check: %v", err)
	}
	res := s.apply(b.Encode(s.header()))
	return append(s.groupResult(res.Groups[0]), s.woken(res)...)
}

// woken returns the lines that describe the waits that an entry has ended.
func (s *script) woken(res *fsm.Result) []string {
	var out []string
	for _, w := range res.Woken {
		line := fmt.Sprintf("woken %s %d:", w.Session(), w.Origin())
		end := " gone"
		for _, n := range s.machines[0].WaitersOf(w.Session()) {
			if _, reply := s.machines[1].Waiter(w.Session(), n.Origin, n.Pos); n.Origin == w.Origin() {
				end = fmt.Sprintf(" %q", reply)
			}
		}
		out = append(out, line+end)
	}
	return out
}

// waiters returns the lines that describe the waiters.
func (s *script) waiters() []string {
	out := []string{fmt.Sprintf("%d wait", s.machines[1].Waiting())}
	for _, ws := range s.machines[1].WaitSessions() {
		line := ws.ID.String()
		if ws.Suspended {
			line += " suspended"
		}
		for _, n := range s.machines[1].WaitersOf(ws.ID) {
			state, _ := s.machines[1].Waiter(ws.ID, n.Origin, n.Pos)
			line += fmt.Sprintf(" %d:%s", n.Origin, [...]string{"gone", "open", "served"}[state])
		}
		out = append(out, line)
	}
	return out
}

// waiterOf returns the position of the waiter of a connection of the current
// node, or 0 if the connection has no waiter.
func (s *script) waiterOf(origin string) fsm.Pos {
	s.t.Helper()
	for _, n := range s.machines[1].WaitersOf(s.node) {
		if n.Origin == uint64(s.number(origin)) {
			return n.Pos
		}
	}
	return 0
}

func (s *script) sessionID(text string) fsm.SessionID {
	node, boot, _ := strings.Cut(text, "/")
	return fsm.SessionID{NodeID: node, Boot: uint64(s.number(boot))}
}

var statusNames = map[fsm.Status]string{fsm.StatusGap: "gap", fsm.StatusFenced: "fenced", fsm.StatusStale: "stale session", fsm.StatusReplyLost: "reply lost"}

func (s *script) groupResult(g fsm.GroupResult) []string {
	if g.Status != fsm.StatusDone {
		return []string{statusNames[g.Status]}
	}
	return show(g.Reply)
}

// stale applies an entry that was built in another term.
func (s *script) stale(term uint64, words []string) []string {
	s.t.Helper()
	h := s.header()
	h.Term = term
	var b fsm.BatchBuilder
	b.Add(s.node, 0, s.seqs[s.node]+1, s.groupOf(words).Bytes())
	return s.groupResult(s.apply(b.Encode(h)).Groups[0])
}

// session sends a numbered group, or returns a line with the state of a
// session.
func (s *script) session(args []string) []string {
	s.t.Helper()
	id := s.sessionID(args[0])
	if len(args) == 1 {
		st := s.machines[0].Session(id)
		line := fmt.Sprintf("last %d stale %v kept", st.LastSeq, st.Stale)
		for _, g := range st.Replies {
			line += fmt.Sprintf(" %d:%q", g.Seq, g.Reply)
		}
		return []string{line}
	}
	seq, ack := s.number(args[1]), 0
	words := args[2:]
	if words[0] == "ack" {
		ack, words = s.number(words[1]), words[2:]
	}
	var b fsm.BatchBuilder
	b.Add(id, uint64(ack), uint64(seq), s.groupOf(words).Bytes())
	return s.groupResult(s.apply(b.Encode(s.header())).Groups[0])
}

// onClone runs a command on the clone alone, outside the log.
func (s *script) onClone(words []string) []string {
	s.t.Helper()
	reply, err := fsm.RunOn(s.clone, s.groupOf(words).Bytes())
	if err != nil {
		s.t.Fatalf("run the group on the clone: %v", err)
	}
	return show(reply)
}

// show returns "waits N ms" for the reply of a command that waits. It splits
// any other reply into lines and escapes bytes that cannot be printed.
func show(reply []byte) []string {
	var out []string
	if _, timeout, ok := fsm.Waiting(reply); ok {
		return []string{fmt.Sprintf("waits %d ms", timeout)}
	}
	for _, line := range strings.Split(strings.TrimSuffix(string(reply), "\r\n"), "\r\n") {
		q := strconv.Quote(line)
		q = strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
		if q == "" {
			q = `""`
		}
		out = append(out, q)
	}
	return out
}
