package resp

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
)

func TestLogLimiter(t *testing.T) {
	var q logLimiter
	now := time.Unix(100, 0)
	for i, want := range []struct {
		at   time.Duration
		left int
		ok   bool
	}{{0, 0, true}, {1, 0, false}, {999 * time.Millisecond, 0, false}, {time.Second, 2, true}, {time.Second + 1, 0, false}, {3 * time.Second, 1, true}} {
		if left, ok := q.allow("a", now.Add(want.at)); left != want.left || ok != want.ok {
			t.Errorf("allow of line %d returns %d, %v, want %d, %v", i, left, ok, want.left, want.ok)
		}
	}
	if _, ok := q.allow("b", now); !ok {
		t.Error("a line for another reason is suppressed, want it to be logged")
	}
}

// TestSyntax parses the syntax of every row and checks that no word is lost.
func TestSyntax(t *testing.T) {
	var rows []fsm.Command
	for _, r := range append(ConnectionCommands(), deref(command.NewTable().Rows())...) {
		rows = append(append(rows, r), r.Sub...)
	}
	for _, r := range rows {
		got := strings.Fields(flatten(parseSyntax(r.Syntax)))
		for _, w := range strings.FieldsFunc(r.Syntax, func(c rune) bool { return strings.ContainsRune(" []<>|", c) }) {
			if w != "..." && !slices.Contains(got, w) {
				t.Errorf("%s %s: the word %s is missing in the parsed syntax %v", r.Name, r.Syntax, w, got)
			}
		}
	}
	for syntax, want := range map[string]string{
		"":                          "",
		"key":                       "key:key ",
		"key [key ...]":             "key:key* ",
		"key value [key value ...]": "key_value:block*(key:key value:string ) ",
		"[EX seconds | PX milliseconds | KEEPTTL]": "seconds:oneof?(EX=seconds:integer PX=milliseconds:integer KEEPTTL=keepttl:pure-token ) ",
		"<ON | OFF>": "on:oneof(ON=on:pure-token OFF=off:pure-token ) ",
		"[protover [AUTH username password] [SETNAME clientname]]": "protover:block?(protover:integer AUTH=auth:block?(username:string password:string ) SETNAME=clientname:string? ) ",
		"cursor [MATCH pattern] [COUNT count]":                     "cursor:integer MATCH=pattern:pattern? COUNT=count:integer? ",
		"key owner [token] [SHARED | LIMIT permits]":               "key:key owner:string token:integer? shared:oneof?(SHARED=shared:pure-token LIMIT=permits:integer ) ",
		"]] a [": "a:string arg:string? ",
	} {
		if got := describe(parseSyntax(syntax)); got != want {
			t.Errorf("the syntax %s is parsed as %s, want %s", syntax, got, want)
		}
	}
}

func deref(rows []*fsm.Command) (out []fsm.Command) {
	for _, r := range rows {
		out = append(out, *r)
	}
	return out
}

func flatten(args []argument) string {
	var b strings.Builder
	for _, a := range args {
		b.WriteString(a.name + " " + a.token + " " + flatten(a.args) + " ")
	}
	return b.String()
}

func describe(args []argument) string {
	var b strings.Builder
	for _, a := range args {
		if a.token != "" {
			b.WriteString(a.token + "=")
		}
		b.WriteString(a.name + ":" + a.typ)
		if a.optional {
			b.WriteByte('?')
		}
		if a.multiple {
			b.WriteByte('*')
		}
		if a.args != nil {
			b.WriteString("(" + describe(a.args) + ")")
		}
		b.WriteByte(' ')
	}
	return b.String()
}
