package fsm_test

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/fsm/library"
)

// lines is an interpreter of a simple language, because these tests need no
// Lua. A script has one command per line; $K and $A stand for the first of KEYS
// and the first of ARGV. The last reply is the reply of the script, and an
// error ends the script. "fail" ends it with an error, "result" returns an
// error as a value, and "try" continues after an error. "resp3" and "readonly"
// call SetProto and SetReadOnly. "long" exceeds the budget Briefly, and "long
// without end" also exceeds the budget DryRun. With the budget GivenUp, both
// return an error. "dup n" makes the last argument of the next command n bytes
// long. "may c" returns the results of Permits for the command c. In a library,
// "register f flags" begins a function f, which consists of the lines up to the
// next "register". The words after f that are not flags are the description of
// f.
type lines struct {
	runs int
	last fsm.ScriptCall
}

func (l *lines) CompileScript(body []byte) string {
	if strings.HasPrefix(string(body), "(") {
		return "ERR Error compiling script"
	}
	return ""
}

func (l *lines) RunScript(call fsm.ScriptCall) fsm.Reply {
	l.runs++
	l.last = call
	reply, long, function := fsm.Null, 0, ""
	for _, line := range strings.Split(string(call.Body), "\n") {
		if strings.HasPrefix(line, "--") || strings.HasPrefix(line, "#!") || line == "" {
			continue
		}
		if words := strings.Fields(line); words[0] == "register" {
			function = words[1]
			f := library.Function{Name: function, Described: len(words) > 2}
			for _, w := range words[2:] {
				flag, known := library.FlagNamed(w)
				if f.Flags |= flag; !known {
					f.Description += w
				}
			}
			if call.Register != nil {
				if refusal := call.Register(f); refusal != "" {
					return fsm.Error("ERR " + refusal)
				}
			}
			continue
		}
		if function != call.Function {
			continue
		}
		line, try := strings.CutPrefix(line, "try ")
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "fail":
			return fsm.Error("ERR failed script: " + call.SHA)
		case "long": // a runner does the same when a script exceeds its budget
			if call.ScriptBudget == fsm.Briefly || call.ScriptBudget == fsm.DryRun && rest == "without end" {
				call.Cut()
				return fsm.Error("ERR too long")
			}
			if call.ScriptBudget == fsm.GivenUp {
				return fsm.Error("ERR too long")
			}
			continue
		case "result":
			return fsm.ErrorResult("ERR " + rest)
		case "resp3":
			call.SetProto(3)
			continue
		case "readonly":
			call.SetReadOnly()
			continue
		case "may":
			permitted, known := call.Permits([][]byte{[]byte(rest)})
			reply = fsm.Strings(fmt.Sprint(permitted), fmt.Sprint(known))
			continue
		case "dup":
			long, _ = strconv.Atoi(rest)
			continue
		}
		var args [][]byte
		for _, w := range strings.Fields(line) {
			switch w {
			case "$K":
				w = string(call.Keys[0])
			case "$A":
				w = string(call.Args[0])
			}
			args = append(args, []byte(w))
		}
		if long > 0 {
			args[len(args)-1] = bytes.Repeat([]byte("x"), long)
			long = 0
		}
		if reply = call.Do(args); reply.IsError() && !try {
			return reply
		}
	}
	return reply
}

// runs stands for the scripts and functions that run on a node. Kill returns one
// of its fields.
type runs struct{ script, function fsm.KillResult }

func (r runs) Kill(function bool) fsm.KillResult {
	if function {
		return r.function
	}
	return r.script
}

func (r runs) Function() *fsm.RunningFunction {
	return &fsm.RunningFunction{Name: "f", Command: []string{"FCALL", "f", "0"}, Millis: 7}
}

// stage is a machine and the groups of the next batch.
type stage struct {
	t       *testing.T
	m       *fsm.Machine
	table   *fsm.Table
	lines   lines
	runner  fsm.ScriptRunner // the field lines, unless a test sets another interpreter
	quick   bool             // do not compare states: they are large
	enough  bool             // close the entry after each group with a script
	entries []byte           // all entries, each after its length
	record  fsm.Record       // content of the last entry
	size    int              // bytes of the last entry
	index   uint64
	seq     uint64
	origin  uint64 // origin of the groups, 1 at first
	stamp   int64
	batch   fsm.BatchBuilder
	events  []fsm.Event // events of the last entry
}

func newStage(t *testing.T) *stage {
	table := command.NewTable()
	s := &stage{t: t, m: fsm.New(table), table: table, origin: 1}
	s.runner = &s.lines
	return s
}

var stageSession = fsm.SessionID{NodeID: "n1", Boot: 1}

// group adds a group of commands. Bars separate the words of a command, as in
// "EVAL|body|1|k".
func (s *stage) group(commands ...string) {
	s.groupAs("", commands...)
}

// groupAs adds a group of a user. The group has no user if the name is empty.
func (s *stage) groupAs(user string, commands ...string) {
	var g fsm.Group
	g.Reset(2, s.origin)
	if user != "" {
		g.As(user)
	}
	for _, c := range commands {
		cmd, args := s.words(c)
		g.Command(cmd, 0, args)
	}
	s.add(&g)
}

func (s *stage) words(c string) (*fsm.Command, [][]byte) {
	var args [][]byte
	for _, w := range strings.Split(c, "|") {
		args = append(args, []byte(w))
	}
	return s.table.Find(args[0]), args
}

func (s *stage) add(g *fsm.Group) {
	if err := s.table.Check(g.Bytes(), false); err != nil {
		s.t.Fatalf("group refused: %v", err)
	}
	s.seq++
	s.batch.Add(stageSession, 0, s.seq, g.Bytes())
}

// commit executes the batch speculatively if it has scripts, and applies the
// result. Unless quick is set, it checks that all nodes get the state of the
// speculative execution. It returns the replies.
func (s *stage) commit() string {
	s.t.Helper()
	var out []string
	for groups, _ := s.batch.Len(); groups > 0; groups, _ = s.batch.Len() {
		out = append(out, s.entry()...)
	}
	return strings.Join(out, "/ ")
}

// entry commits one entry. The groups that the speculative execution leaves for
// the next entry become the next batch.
func (s *stage) entry() []string {
	s.t.Helper()
	s.index++
	s.stamp += 1e9
	h := fsm.Header{Term: 1, Stamp: s.stamp, Wall: 1_700_000_000_000_000 + s.stamp/1000, Seed: uint64(s.index)}
	b, rest := &s.batch, fsm.BatchBuilder{}
	var sp *fsm.Speculation
	if b.Scripts() {
		b = &fsm.BatchBuilder{}
		sp = s.m.Speculate(h, &s.batch, s.runner)
		if err := sp.Run(b, &rest, func() bool { return s.enough }); err != nil {
			s.t.Fatalf("speculate: %v", err)
		}
	}
	entry := b.Encode(h)
	s.batch = rest
	s.size = len(entry)
	s.entries = append(append(s.entries, byte(len(entry)), byte(len(entry)>>8)), entry...)
	rec, err := fsm.ReadRecord(entry)
	if err != nil {
		s.t.Fatalf("read the entry: %v", err)
	}
	s.record = rec
	// Another node, which has no interpreter, applies the same entry.
	var other *fsm.Machine
	if !s.quick {
		other = restore(s.t, snapshotOf(s.t, s.m))
	}
	res, err := s.m.Apply(s.index, 1, entry)
	if err != nil {
		s.t.Fatalf("apply: %v", err)
	}
	s.events = res.Events
	if other != nil {
		if _, err := other.Apply(s.index, 1, entry); err != nil {
			s.t.Fatalf("apply the entry on another node: %v", err)
		}
		if !bytes.Equal(snapshotOf(s.t, s.m), snapshotOf(s.t, other)) {
			s.t.Fatal("the state of another node differs")
		}
	}
	if sp != nil && !s.quick {
		var speculated, applied bytes.Buffer
		if err := errors.Join(fsm.StateOf(fsm.Speculated(sp), &speculated), fsm.StateOf(s.m, &applied)); err != nil {
			s.t.Fatal(err)
		}
		if !bytes.Equal(speculated.Bytes(), applied.Bytes()) {
			s.t.Fatalf("speculative state:\n%q\napplied:\n%q", speculated.Bytes(), applied.Bytes())
		}
	}
	var out []string
	for _, g := range res.Groups {
		if g.Status != fsm.StatusDone {
			s.t.Fatalf("group %d: status %d, want StatusDone", g.Seq, g.Status)
		}
		out = append(out, strings.ReplaceAll(string(g.Reply), "\r\n", " "))
	}
	return out
}

func (s *stage) want(what, want string) {
	s.t.Helper()
	if got := s.commit(); got != want {
		s.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}
