package resp

import (
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

// argument is a part of a command's syntax as COMMAND DOCS describes it.
// redis-cli derives its hints from it.
type argument struct {
	name, typ, token   string
	optional, multiple bool
	args               []argument // of a oneof or a block
}

// parseSyntax parses the syntax of a row. A word in lower case stands for a
// value, a word in upper case for itself. [x] is optional, <a | b> and [a | b]
// are alternatives, "x [x ...]" may be repeated, and UPPER lower is a value
// with its token.
func parseSyntax(s string) []argument {
	for _, mark := range []string{"[", "]", "<", ">", "|"} {
		s = strings.ReplaceAll(s, mark, " "+mark+" ")
	}
	p := syntaxParser{words: strings.Fields(s)}
	var out []argument
	for len(p.words) > 0 { // a surplus closing bracket ends a sequence
		out = append(out, p.sequence()...)
		p.next()
	}
	return out
}

type syntaxParser struct{ words []string }

func (p *syntaxParser) peek() string {
	if len(p.words) == 0 {
		return ""
	}
	return p.words[0]
}

func (p *syntaxParser) next() string {
	w := p.peek()
	if w != "" {
		p.words = p.words[1:]
	}
	return w
}

// sequence parses up to a closing bracket or a bar.
func (p *syntaxParser) sequence() []argument {
	var out []argument
	for {
		switch w := p.peek(); w {
		case "", "]", ">", "|":
			return out
		case "[", "<":
			p.next()
			if w == "[" && p.repeats(&out) {
				continue
			}
			a := p.alternatives()
			p.next()
			a.optional = w == "["
			out = append(out, a)
		default:
			out = append(out, p.value())
		}
	}
}

// repeats parses the "x ...]" of "x [x ...]" and marks x as repeatable. x may
// be several arguments: "key value [key value ...]".
func (p *syntaxParser) repeats(out *[]argument) bool {
	end := slices.Index(p.words, "]")
	if end < 2 || p.words[end-1] != "..." {
		return false
	}
	inner := syntaxParser{words: p.words[:end-1]}
	again := inner.sequence()
	from := len(*out) - len(again)
	if from < 0 || len(again) == 0 || (*out)[from].name != again[0].name || (*out)[from].token != again[0].token {
		return false
	}
	p.words = p.words[end+1:]
	if len(again) == 1 {
		(*out)[from].multiple = true
		return true
	}
	var names []string
	for _, a := range again {
		names = append(names, a.name)
	}
	block := argument{name: strings.Join(names, "_"), typ: "block", multiple: true, args: slices.Clone((*out)[from:])}
	*out = append((*out)[:from], block)
	return true
}

// alternatives parses a | b | c, or a sequence.
func (p *syntaxParser) alternatives() argument {
	var choices []argument
	for {
		seq := p.sequence()
		switch len(seq) {
		case 0:
		case 1:
			choices = append(choices, seq[0])
		default:
			b := argument{name: seq[0].name, typ: "block", args: seq}
			if seq[0].typ == "pure-token" { // UPPER a b: a block with a token
				b.token, b.args = seq[0].token, seq[1:]
			}
			choices = append(choices, b)
		}
		if p.peek() != "|" {
			break
		}
		p.next()
	}
	switch len(choices) {
	case 0:
		return argument{name: "arg", typ: "string"}
	case 1:
		return choices[0]
	}
	return argument{name: choices[0].name, typ: "oneof", args: choices}
}

// value parses a word, and the value behind it if the word is a token with a
// value.
func (p *syntaxParser) value() argument {
	w := p.next()
	if w != strings.ToUpper(w) || strings.ToLower(w) == w {
		return argument{name: w, typ: argumentType(w)}
	}
	switch v := p.peek(); {
	case v == "", strings.ContainsAny(v, "[]<>|"), v == strings.ToUpper(v):
		return argument{name: strings.ToLower(w), typ: "pure-token", token: w}
	case len(p.words) > 1 && !strings.ContainsAny(p.words[1], "[]<>|") && p.words[1] != strings.ToUpper(p.words[1]):
		// A token with several values: see alternatives.
		return argument{name: strings.ToLower(w), typ: "pure-token", token: w}
	}
	a := p.value()
	a.token = w
	return a
}

// argumentType derives the type of a value from its name.
func argumentType(name string) string {
	switch strings.TrimSuffix(strings.TrimSuffix(name, "1"), "2") {
	case "key", "newkey", "source", "destination":
		return "key"
	case "pattern":
		return "pattern"
	case "seconds", "milliseconds", "increment", "decrement", "count", "offset", "index", "start", "end", "cursor", "numkeys",
		"timeout", "numreplicas", "numlocal", "protover", "bits", "db", "client-id", "destination-db", "len":
		return "integer"
	case "unix-time-seconds", "unix-time-milliseconds":
		return "unix-time"
	}
	return "string"
}

func syntaxReply(args []argument) fsm.Reply {
	out := make([]fsm.Reply, len(args))
	for i, a := range args {
		d := []fsm.Reply{fsm.Bulk("name"), fsm.Bulk(a.name), fsm.Bulk("type"), fsm.Bulk(a.typ)}
		if a.typ == "key" {
			d = append(d, fsm.Bulk("key_spec_index"), fsm.Zero)
		}
		if a.token != "" {
			d = append(d, fsm.Bulk("token"), fsm.Bulk(a.token))
		}
		var flags []string
		if a.optional {
			flags = append(flags, "optional")
		}
		if a.multiple {
			flags = append(flags, "multiple")
		}
		if flags != nil {
			d = append(d, fsm.Bulk("flags"), statusSet(flags))
		}
		if a.args != nil {
			d = append(d, fsm.Bulk("arguments"), syntaxReply(a.args))
		}
		out[i] = fsm.Map(d)
	}
	return fsm.Array(out)
}
