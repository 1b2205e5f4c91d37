package fsm_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// compiler is a runner that remembers which scripts it has compiled.
type compiler struct {
	lines
	compiled map[string]bool // by SHA1, with the prefix f for libraries
	bytes    int             // compiled so far
}

func (c *compiler) Compiled(sha string, library bool) bool {
	return c.compiled[map[bool]string{true: "f"}[library]+sha]
}

func (c *compiler) compile(name string, body []byte) {
	if !c.compiled[name] {
		c.compiled[name] = true
		c.bytes += len(body)
	}
}

func (c *compiler) CompileScript(body []byte) string {
	c.compile(fsm.SHA1(body), body)
	return ""
}

func (c *compiler) RunScript(call fsm.ScriptCall) fsm.Reply {
	if call.Function != "" || call.Register != nil {
		c.compile("f"+call.SHA, call.Body)
	}
	return c.lines.RunScript(call)
}

// sized returns a script of n bytes that runs a command.
func sized(n int, command string) string {
	return "--" + strings.Repeat("x", n-len(command)-3) + "\n" + command
}

// TestSpeculation_Uncompiled checks that the leader cuts a group before it
// compiles more than 1 KiB of the scripts of the group, and that a dry run
// compiles a larger library.
func TestSpeculation_Uncompiled(t *testing.T) {
	const most = 1 << 10
	s := newStage(t)
	s.quick = true // the clone with the effects of a cut group is dropped
	c := &compiler{compiled: make(map[string]bool)}
	s.runner = c
	compiles := func(what, want string, bytes int) {
		t.Helper()
		before := c.bytes
		s.want(what, want)
		if got := c.bytes - before; got != bytes {
			t.Errorf("%s: %d bytes were compiled, want %d", what, got, bytes)
		}
	}
	s.group("EVAL|" + sized(most, "INCR n") + "|0")
	compiles("a script of the largest size", ":1 ", most)
	for _, command := range []string{"EVAL|%s|0", "SCRIPT|LOAD|%s"} {
		s.group(fmt.Sprintf(command, sized(most+1, "INCR "+command[:2])))
		compiles(command+" of a larger script", "\x00", 0)
	}
	code := "#!lua name=l\n" + sized(most, "register f")
	s.group("FUNCTION|LOAD|" + code)
	compiles("a library", "\x00", 0)

	pipeline := []string{"INCR|n", "EVAL|" + sized(most-100, "INCR a") + "|0", "EVAL|" + sized(most-101, "INCR a") + "|0"}
	s.group(pipeline...)
	compiles("a pipeline", "\x00", most-100)
	s.group(pipeline...)
	compiles("the pipeline, half of which is compiled", ":2 :1 :2 ", most-101)

	var g fsm.Group
	g.Reset(2, 1)
	cmd, args := s.words("FUNCTION|LOAD|" + code)
	g.Command(cmd, 0, args)
	before := c.bytes
	_, _, cut, err := s.m.Clone().Try(fsm.Header{Term: 1, Stamp: s.stamp, Wall: 1}, g.Bytes(), s.runner, nil)
	if err != nil || cut || c.bytes-before != len(code) {
		t.Fatalf("dry run of the library: %d bytes were compiled, want %d, cut %v, error %v", c.bytes-before, len(code), cut, err)
	}
	fsm.SetScriptBudget(g.Bytes(), fsm.DryRunPassed)
	s.add(&g)
	compiles("the library after its dry run", "$1 l ", 0)
	clear(c.compiled) // as after a change of leader
	s.group("FCALL|f|0")
	compiles("a function", "\x00", 0)

	clear(c.compiled)
	group := func(budget fsm.ScriptBudget, lines ...string) *fsm.Group {
		var g fsm.Group
		g.Reset(2, 1)
		for _, line := range lines {
			cmd, args := s.words(line)
			g.Command(cmd, 0, args)
		}
		fsm.SetScriptBudget(g.Bytes(), budget)
		return &g
	}
	for i, command := range []string{"EVAL|%s|0", "SCRIPT|LOAD|%s"} {
		line := fmt.Sprintf(command, sized(most+1, "INCR "+command[:2]))
		s.add(group(fsm.DryRunPassed, line))
		compiles(command+" of a script that the cache has lost since the dry run", "\x00", 0)
		s.add(group(fsm.GivenUp, line, "INCR|n"))
		compiles(command+" in a group whose dry run was cut", fmt.Sprintf("-BUSY the script was not executed: too many "+
			"bytes of scripts were not compiled yet, load them one by one first :%d ", 3+i), 0)
	}
	var many []string
	for i := range 9 {
		many = append(many, fmt.Sprintf("SCRIPT|LOAD|%s", sized(250<<10, "INCR "+fmt.Sprint(i))))
	}
	began := c.bytes
	_, _, cut, err = s.m.Clone().Try(fsm.Header{Term: 1, Stamp: s.stamp, Wall: 1}, group(fsm.Briefly, many...).Bytes(), s.runner, nil)
	if got := c.bytes - began; err != nil || !cut || got > 5*250<<10 {
		t.Errorf("dry run of 2,250 KiB of scripts: %d KiB were compiled, cut %v, error %v, want at most 1,250 KiB", got>>10, cut, err)
	}

	many = many[:0]
	for i := range 3000 { // the interpreter keeps 4,096 scripts, however small they are
		many = append(many, fmt.Sprintf("SCRIPT|LOAD|return %d", i))
	}
	before = len(c.compiled)
	_, _, cut, err = s.m.Clone().Try(fsm.Header{Term: 1, Stamp: s.stamp, Wall: 1}, group(fsm.Briefly, many...).Bytes(), s.runner, nil)
	if got := len(c.compiled) - before; err != nil || !cut || got > 2048 {
		t.Errorf("dry run of 3,000 small scripts: %d were compiled, cut %v, error %v, want at most 2,048", got, cut, err)
	}
}
