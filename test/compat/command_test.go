package compat

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// TestRows compares the rows of the command table with COMMAND INFO and COMMAND
// DOCS of Redis.
func TestRows(t *testing.T) {
	p := newPair(t, 3)
	for _, cmd := range command.NewTable().Rows() {
		if cmd.Flags&fsm.Internal != 0 {
			continue
		}
		raw, err := p.redis.do([]string{"COMMAND", "INFO", cmd.Name}, []string{"COMMAND", "DOCS", cmd.Name})
		if err != nil {
			t.Fatal(err)
		}
		info, docs := decode(t, raw[0]).([]any)[0], decode(t, raw[1]).([]any)
		if info == nil {
			if !laterThanRedis(cmd.Since) {
				t.Errorf("%s: Redis 7.0.15 does not have it, but its row says since %s", cmd.Name, cmd.Since)
			}
			continue
		}
		checkRow(t, cmd.Name, cmd, info.([]any), docs[1].([]any))
	}
}

// laterThanRedis reports whether a command is missing in Redis 7.0.15, because
// it comes from a newer Redis, from Valkey or from Holdfast. since is the
// version that introduced the command.
func laterThanRedis(since string) bool {
	return strings.HasPrefix(since, "8.") || strings.HasPrefix(since, "valkey") || since == "holdfast"
}

func checkRow(t *testing.T, name string, cmd *fsm.Command, info, docs []any) {
	t.Helper()
	check := func(what string, got, want any) {
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s is %q, want %q", name, what, got, want)
		}
	}
	words := func(v any) []string {
		var out []string
		for _, w := range v.([]any) {
			out = append(out, fmt.Sprint(w))
		}
		return out
	}
	check("arity", int64(cmd.Arity), info[1])
	check("flags", cmd.FlagNames(), words(info[2]))
	check("first key", int64(cmd.Keys.First), info[3])
	check("last key", int64(cmd.Keys.Last), info[4])
	check("step", int64(cmd.Keys.Step), info[5])
	check("categories", cmd.ACLCategories(), words(info[6]))
	check("tips", append([]string(nil), cmd.Tips...), words(info[7]))
	check("key specs", keySpecs(cmd), specs(info[8].([]any)))
	doc := fields(docs)
	check("summary", cmd.Doc, doc["summary"])
	check("complexity", cmd.Complexity, doc["complexity"])
	check("group", cmd.Group, doc["group"])
	check("since", cmd.Since, doc["since"])
	if doc["deprecated_since"] != nil || cmd.DeprecatedSince != "" {
		check("deprecated since", cmd.DeprecatedSince, doc["deprecated_since"])
		check("replaced by", cmd.ReplacedBy, doc["replaced_by"])
	}
	var history [][]string
	for _, h := range cmd.History {
		if !laterThanRedis(h.Since) {
			history = append(history, []string{h.Since, h.What})
		}
	}
	var want [][]string
	if doc["history"] != nil {
		for _, h := range doc["history"].([]any) {
			want = append(want, words(h))
		}
	}
	check("history", history, want)

	subs := info[9].([]any)
	check("number of subcommands", len(cmd.Sub), len(subs))
	for _, s := range subs {
		sub := s.([]any)
		full := sub[0].(string)
		row := cmd.FindSub([]byte(strings.TrimPrefix(full, name+"|")))
		if row == nil {
			t.Errorf("%s has no row", full)
			continue
		}
		checkRow(t, full, row, sub, fields(doc["subcommands"].([]any))[full].([]any))
	}
}

// keySpecs prints the key specifications of a row in the form in which the
// function specs prints those of Redis.
func keySpecs(cmd *fsm.Command) []string {
	var out []string
	for _, s := range cmd.KeySpecs() {
		if s.Unknown {
			out = append(out, strings.TrimSpace(s.Access.Mode+" "+s.Access.Flags)+" unknown "+s.Access.Notes)
			continue
		}
		if s.Keyword != "" {
			out = append(out, strings.TrimSpace(s.Access.Mode+" "+s.Access.Flags)+
				fmt.Sprintf(" after %s from %d, 1/%d of what follows %s", s.Keyword, s.Keys.First, s.Part,
					s.Access.Notes))
			continue
		}
		if s.NumKeys {
			out = append(out, strings.TrimSpace(s.Access.Mode+" "+s.Access.Flags)+
				fmt.Sprintf(" as many as %d says by %d %s", s.Keys.First, s.Keys.Step, s.Access.Notes))
			continue
		}
		last := s.Keys.Last
		if last > 0 {
			last -= s.Keys.First
		}
		out = append(out, strings.TrimSpace(s.Access.Mode+" "+s.Access.Flags)+fmt.Sprintf(" from %d to %d by %d %s",
			s.Keys.First, last, s.Keys.Step, s.Access.Notes))
	}
	return out
}

func specs(list []any) []string {
	var out []string
	for _, v := range list {
		s := fields(v.([]any))
		var flags []string
		for _, f := range s["flags"].([]any) {
			flags = append(flags, f.(string))
		}
		if begin := fields(s["begin_search"].([]any)); begin["type"] == "unknown" {
			out = append(out, fmt.Sprint(strings.Join(flags, " "), " unknown ", s["notes"]))
			continue
		}
		begin := fields(fields(s["begin_search"].([]any))["spec"].([]any))
		find := fields(fields(s["find_keys"].([]any))["spec"].([]any))
		notes, _ := s["notes"].(string)
		if begin["keyword"] != nil {
			out = append(out, strings.Join(flags, " ")+fmt.Sprintf(" after %s from %d, 1/%d of what follows %s",
				begin["keyword"], begin["startfrom"], find["limit"], notes))
			continue
		}
		if find["keynumidx"] == int64(0) && find["firstkey"] == int64(1) {
			out = append(out, strings.Join(flags, " ")+fmt.Sprintf(" as many as %d says by %d %s", begin["index"],
				find["keystep"], notes))
			continue
		}
		out = append(out, strings.Join(flags, " ")+fmt.Sprintf(" from %d to %d by %d %s", begin["index"],
			find["lastkey"], find["keystep"], notes))
	}
	return out
}

// decode converts a reply to int64, string, nil or []any. A map becomes a flat
// list.
func decode(t *testing.T, raw string) any {
	t.Helper()
	v, _, err := respwire.Parse([]byte(raw))
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	return plain(v)
}

func plain(v respwire.Value) any {
	if v.Null {
		return nil
	}
	switch v.Kind {
	case ':':
		return v.Int
	case '-':
		return v.Err
	case '*', '~', '%':
		list := make([]any, len(v.Elems))
		for i, e := range v.Elems {
			list[i] = plain(e)
		}
		return list
	}
	return v.Text
}

func fields(list []any) map[string]any {
	m := make(map[string]any)
	for i := 0; i+1 < len(list); i += 2 {
		m[fmt.Sprint(list[i])] = list[i+1]
	}
	return m
}

// TestCommandInfo compares all bytes of COMMAND INFO for the commands of Redis
// without subcommands. The aggregate types of the reply depend on the protocol.
func TestCommandInfo(t *testing.T) {
	both(t, func(p *pair) {
		for _, cmd := range command.NewTable().Rows() {
			ours := cmd.Flags&fsm.Internal != 0 || cmd.Since == "holdfast" || laterThanRedis(cmd.Since)
			if !ours && cmd.Sub == nil { // Redis lists subcommands in any order
				p.Do("COMMAND INFO " + cmd.Name)
			}
		}
		p.Do("COMMAND INFO get MSET nosuch xread|no")
	})
}
