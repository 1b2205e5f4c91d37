package resp

import (
	"path"
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

var commandRows = []row{
	{run: commandAll, cmd: &fsm.Command{
		Name: "command", Arity: -1,
		Flags: fsm.Loading | fsm.Stale,
		Group: "server", Since: "2.8.13",
		Complexity: "O(N) where N is the number of commands",
		Doc:        "Describe all commands",
		Categories: []string{"connection"},
		Tips:       []string{"nondeterministic_output_order"},
	}, sub: []row{
		{run: commandCount, cmd: &fsm.Command{
			Name: "count", Arity: 2,
			Flags:      fsm.Loading | fsm.Stale,
			Since:      "2.8.13",
			Complexity: "O(1)",
			Doc:        "Return the number of commands",
			Categories: []string{"connection"},
		}},
		{run: commandInfo, cmd: &fsm.Command{
			Name: "info", Arity: -2,
			Flags:      fsm.Loading | fsm.Stale,
			Since:      "2.8.13",
			Complexity: "O(N) where N is the number of commands asked for",
			Syntax:     "[command-name [command-name ...]]",
			Doc:        "Describe commands for programs",
			Categories: []string{"connection"},
			Tips:       []string{"nondeterministic_output_order"},
		}},
		{run: commandDocs, cmd: &fsm.Command{
			Name: "docs", Arity: -2,
			Flags:      fsm.Loading | fsm.Stale,
			Since:      "7.0.0",
			Complexity: "O(N) where N is the number of commands asked for",
			Syntax:     "[command-name [command-name ...]]",
			Doc:        "Describe commands for people",
			Categories: []string{"connection"},
			Tips:       []string{"nondeterministic_output_order"},
		}},
		{run: commandList, cmd: &fsm.Command{
			Name: "list", Arity: -2,
			Flags:      fsm.Loading | fsm.Stale,
			Since:      "7.0.0",
			Complexity: "O(N) where N is the number of commands",
			Syntax:     "[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]",
			Doc:        "List the names of the commands",
			Categories: []string{"connection"},
			Tips:       []string{"nondeterministic_output_order"},
		}},
		{run: commandGetkeys, cmd: &fsm.Command{
			Name: "getkeys", Arity: -4,
			Flags:      fsm.Loading | fsm.Stale,
			Since:      "2.8.13",
			Complexity: "O(N) where N is the number of arguments",
			Syntax:     "command [arg [arg ...]]",
			Doc:        "Find the keys in a command",
			Categories: []string{"connection"},
		}},
		{run: commandGetkeysandflags, cmd: &fsm.Command{
			Name: "getkeysandflags", Arity: -4,
			Flags:      fsm.Loading | fsm.Stale,
			Since:      "7.0.0",
			Complexity: "O(N) where N is the number of arguments",
			Syntax:     "command [arg [arg ...]]",
			Doc:        "Find the keys in a command, and how the command uses each key",
			Categories: []string{"connection"},
		}},
		helpRow("5.0.0", "connection"),
	}},
}

func commandAll(c *conn, args [][]byte) fsm.Reply {
	var out []fsm.Reply
	for _, s := range c.srv.allSpecs() {
		out = append(out, s.info())
	}
	return fsm.Array(out)
}

func commandCount(c *conn, args [][]byte) fsm.Reply { return fsm.Int(int64(len(c.srv.allSpecs()))) }

func commandInfo(c *conn, args [][]byte) fsm.Reply {
	if len(args) == 2 {
		return commandAll(c, args)
	}
	var out []fsm.Reply
	for _, name := range args[2:] {
		if s := c.srv.findSpec(string(name)); s != nil {
			out = append(out, s.info())
		} else {
			out = append(out, fsm.Null)
		}
	}
	return fsm.Array(out)
}

// info returns the command's entry of COMMAND INFO.
func (s *spec) info() fsm.Reply {
	k := s.cmd.Keys
	subs := fsm.Set(nil) // Redis sends an empty set, and an array only if there are subcommands
	if len(s.subs) > 0 {
		list := make([]fsm.Reply, len(s.subs))
		for i, sub := range s.subs {
			list[i] = sub.info()
		}
		subs = fsm.Array(list)
	}
	return fsm.Array([]fsm.Reply{
		fsm.Bulk(s.name),
		fsm.Int(int64(s.cmd.Arity)),
		statusSet(s.cmd.FlagNames()),
		fsm.Int(int64(k.First)), fsm.Int(int64(k.Last)), fsm.Int(int64(k.Step)),
		statusSet(s.cmd.ACLCategories()),
		bulkSet(s.cmd.Tips),
		s.keySpecs(),
		subs,
	})
}

// statusSet returns a set of simple strings.
func statusSet(ss []string) fsm.Reply {
	out := make([]fsm.Reply, len(ss))
	for i, s := range ss {
		out[i] = fsm.Simple(s)
	}
	return fsm.Set(out)
}

func bulkSet(ss []string) fsm.Reply {
	out := make([]fsm.Reply, len(ss))
	for i, s := range ss {
		out[i] = fsm.Bulk(s)
	}
	return fsm.Set(out)
}

// keySpecs returns the key specifications of COMMAND INFO. If no other
// specification can describe the key positions of a command, the specification
// is "unknown", and clients use COMMAND GETKEYS.
func (s *spec) keySpecs() fsm.Reply {
	var out []fsm.Reply
	for _, k := range s.cmd.KeySpecs() {
		if k.Unknown {
			out = append(out, unknownSpec(k.Access))
			continue
		}
		if k.NumKeys {
			out = append(out, keySpec(k.Access,
				searchStep("index", fsm.Bulk("index"), fsm.Int(int64(k.Keys.First))),
				searchStep("keynum",
					fsm.Bulk("keynumidx"), fsm.Int(0),
					fsm.Bulk("firstkey"), fsm.Int(1),
					fsm.Bulk("keystep"), fsm.Int(int64(k.Keys.Step)))))
			continue
		}
		if k.Keyword != "" {
			out = append(out, keySpec(k.Access,
				searchStep("keyword",
					fsm.Bulk("keyword"), fsm.Bulk(k.Keyword),
					fsm.Bulk("startfrom"), fsm.Int(int64(k.Keys.First))),
				searchStep("range",
					fsm.Bulk("lastkey"), fsm.Int(int64(k.Keys.Last)),
					fsm.Bulk("keystep"), fsm.Int(int64(k.Keys.Step)),
					fsm.Bulk("limit"), fsm.Int(int64(k.Part)))))
			continue
		}
		last := k.Keys.Last // in the reply, the last key counts from the first key, or from the end if it is negative
		if last >= 0 {
			last -= k.Keys.First
		}
		out = append(out, keySpec(k.Access,
			searchStep("index", fsm.Bulk("index"), fsm.Int(int64(k.Keys.First))),
			searchStep("range",
				fsm.Bulk("lastkey"), fsm.Int(int64(last)),
				fsm.Bulk("keystep"), fsm.Int(int64(k.Keys.Step)),
				fsm.Bulk("limit"), fsm.Int(0))))
	}
	if out == nil && s.cmd.KeysOf != nil {
		out = append(out, unknownSpec(s.cmd.Access))
	}
	return fsm.Set(out)
}

func unknownSpec(access fsm.Access) fsm.Reply {
	return keySpec(access, searchStep("unknown"), searchStep("unknown"))
}

func keySpec(access fsm.Access, begin, find fsm.Reply) fsm.Reply {
	var spec []fsm.Reply
	if access.Notes != "" {
		spec = append(spec, fsm.Bulk("notes"), fsm.Bulk(access.Notes))
	}
	return fsm.Map(append(spec,
		fsm.Bulk("flags"), accessSet(access),
		fsm.Bulk("begin_search"), begin,
		fsm.Bulk("find_keys"), find))
}

func searchStep(typ string, details ...fsm.Reply) fsm.Reply {
	return fsm.Map([]fsm.Reply{fsm.Bulk("type"), fsm.Bulk(typ), fsm.Bulk("spec"), fsm.Map(details)})
}

func accessSet(a fsm.Access) fsm.Reply {
	return statusSet(append(strings.Fields(a.Mode), strings.Fields(a.Flags)...))
}

func commandDocs(c *conn, args [][]byte) fsm.Reply {
	var specs []*spec
	if len(args) == 2 {
		specs = c.srv.allSpecs()
	}
	for _, name := range args[2:] {
		if s := c.srv.findSpec(string(name)); s != nil {
			specs = append(specs, s)
		}
	}
	var out []fsm.Reply
	for _, s := range specs {
		out = append(out, fsm.Bulk(s.name), s.docs())
	}
	return fsm.Map(out)
}

// docs returns the command's entry of COMMAND DOCS.
func (s *spec) docs() fsm.Reply {
	d := []fsm.Reply{
		fsm.Bulk("summary"), fsm.Bulk(s.cmd.Doc),
		fsm.Bulk("since"), fsm.Bulk(s.cmd.Since),
		fsm.Bulk("group"), fsm.Bulk(s.cmd.Group),
		fsm.Bulk("complexity"), fsm.Bulk(s.cmd.Complexity),
	}
	if s.cmd.DeprecatedSince != "" {
		d = append(d,
			fsm.Bulk("doc_flags"), statusSet([]string{"deprecated"}),
			fsm.Bulk("deprecated_since"), fsm.Bulk(s.cmd.DeprecatedSince),
			fsm.Bulk("replaced_by"), fsm.Bulk(s.cmd.ReplacedBy))
	}
	if len(s.cmd.History) > 0 {
		changes := make([]fsm.Reply, len(s.cmd.History))
		for i, h := range s.cmd.History {
			changes[i] = fsm.Strings(h.Since, h.What)
		}
		d = append(d, fsm.Bulk("history"), fsm.Set(changes))
	}
	if s.cmd.Syntax != "" && len(s.subs) == 0 {
		d = append(d, fsm.Bulk("arguments"), syntaxReply(parseSyntax(s.cmd.Syntax)))
	}
	if len(s.subs) > 0 {
		var subs []fsm.Reply
		for _, sub := range s.subs {
			subs = append(subs, fsm.Bulk(sub.name), sub.docs())
		}
		d = append(d, fsm.Bulk("subcommands"), fsm.Map(subs))
	}
	return fsm.Map(d)
}

func commandList(c *conn, args [][]byte) fsm.Reply {
	keep := func(*spec) bool { return true }
	switch {
	case len(args) == 2:
	case len(args) != 5 || !strings.EqualFold(string(args[2]), "filterby"):
		return fsm.Error(msgSyntax)
	default:
		value := string(args[4])
		switch strings.ToLower(string(args[3])) {
		case "module":
			keep = func(*spec) bool { return false } // there are no modules
		case "aclcat":
			keep = func(s *spec) bool { return s.in(strings.ToLower(value)) }
		case "pattern":
			keep = func(s *spec) bool { return matchName(value, s.name) }
		default:
			return fsm.Error(msgSyntax)
		}
	}
	return fsm.Strings(names(c.srv.allSpecs(), keep)...)
}

// matchName reports whether a name matches a pattern, ignoring case. path.Match
// treats slashes in a special way, but the names contain none. Unlike in Redis,
// a malformed pattern, such as one with an unclosed bracket, matches nothing.
func matchName(pattern, name string) bool {
	ok, err := path.Match(strings.ToLower(pattern), strings.ToLower(name))
	return ok && err == nil
}

func commandGetkeys(c *conn, args [][]byte) fsm.Reply {
	_, keys, refusal := c.srv.keysIn(args[2:])
	if refusal != "" {
		return fsm.Error(refusal)
	}
	out := make([]string, len(keys))
	for i, pos := range keys {
		out[i] = string(args[2+pos])
	}
	return fsm.Strings(out...)
}

func commandGetkeysandflags(c *conn, args [][]byte) fsm.Reply {
	s, keys, refusal := c.srv.keysIn(args[2:])
	if refusal != "" {
		return fsm.Error(refusal)
	}
	out := make([]fsm.Reply, len(keys))
	for i, pos := range keys {
		out[i] = fsm.Array([]fsm.Reply{fsm.Bulk(string(args[2+pos])), accessSet(s.cmd.AccessAt(args[2:], pos))})
	}
	return fsm.Array(out)
}

// keysIn returns the positions of the keys of a complete command, or the error
// reply.
func (s *Server) keysIn(args [][]byte) (found *spec, keys []int, refusal string) {
	found = s.findSpec(string(args[0]))
	if found != nil && len(found.subs) > 0 && len(args) > 1 {
		found = s.findSpec(string(args[0]) + "|" + string(args[1]))
	}
	switch {
	case found == nil:
		return nil, nil, "ERR Invalid command specified"
	case found.cmd.Keys.First == 0 && found.cmd.KeysOf == nil:
		return nil, nil, "ERR The command has no key arguments"
	case !found.cmd.ArityOK(len(args)):
		return nil, nil, "ERR Invalid number of arguments specified for command"
	}
	if keys = found.cmd.KeyPositions(args); keys == nil && found.cmd.KeysOf != nil {
		return nil, nil, "ERR Invalid arguments specified for command"
	}
	return found, keys, ""
}

// spec is a command as COMMAND describes it.
type spec struct {
	cmd  *fsm.Command
	name string // such as "client|list"
	subs []*spec
}

// newSpec returns the spec of a command and its subcommands.
func newSpec(cmd *fsm.Command) *spec {
	s := &spec{cmd: cmd, name: cmd.Name}
	for i := range cmd.Sub {
		sub := &cmd.Sub[i]
		s.subs = append(s.subs, &spec{cmd: sub, name: cmd.Name + "|" + sub.Name})
	}
	return s
}

// in reports whether the command belongs to an ACL category.
func (s *spec) in(category string) bool {
	return slices.Contains(s.cmd.ACLCategories(), "@"+category)
}

// allSpecs returns the commands of the port that are not hidden, sorted by name.
func (s *Server) allSpecs() []*spec {
	var out []*spec
	for _, r := range s.cmds.rows {
		if !r.has(fsm.Hidden) {
			out = append(out, newSpec(r.cmd))
		}
	}
	slices.SortFunc(out, func(a, b *spec) int { return strings.Compare(a.name, b.name) })
	return out
}

// findSpec returns the command or subcommand ("client|list") with a name. The
// case of the letters does not matter. findSpec returns nil if there is no such
// command or if it is hidden.
func (s *Server) findSpec(name string) *spec {
	name, sub, isSub := strings.Cut(name, "|")
	r := lookup(s.cmds.rows, []byte(name))
	if r == nil || r.has(fsm.Hidden) {
		return nil
	}
	found := newSpec(r.cmd)
	if !isSub {
		return found
	}
	for _, c := range found.subs {
		if c.cmd.Name == strings.ToLower(sub) {
			return c
		}
	}
	return nil
}

// names returns the names of the specs that the function keep accepts.
func names(specs []*spec, keep func(*spec) bool) []string {
	out := []string{}
	for _, s := range specs {
		if keep(s) {
			out = append(out, s.name)
		}
		out = append(out, names(s.subs, keep)...)
	}
	return out
}

// argument is a part of a command's syntax as COMMAND DOCS describes it.
// redis-cli derives its hints from these parts.
type argument struct {
	name, typ, token   string
	optional, multiple bool
	args               []argument // parts of a oneof or a block
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
// be several arguments: "key value [key value ...]". repeats returns false if
// the words do not have this form.
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

// value parses a word, and the value after it if the word is a token with a
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
		// The token has several values: alternatives makes a block of them.
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
	case "seconds", "milliseconds", "increment", "decrement", "count", "offset", "index", "start", "end",
		"cursor", "numkeys", "timeout", "numreplicas", "numlocal", "protover", "bits", "db",
		"client-id", "destination-db", "len", "limit", "permits", "token":
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
