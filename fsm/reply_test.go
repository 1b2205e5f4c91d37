package fsm_test

import (
	"math"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

func TestReply_Append(t *testing.T) {
	for _, c := range []struct {
		reply        fsm.Reply
		resp2, resp3 string
	}{
		{fsm.OK, "+OK\r\n", "+OK\r\n"},
		{fsm.Null, "$-1\r\n", "_\r\n"},
		{fsm.NullArray, "*-1\r\n", "_\r\n"},
		{fsm.None, "", ""},
		{fsm.Int(-5), ":-5\r\n", ":-5\r\n"},
		{fsm.Bool(true), ":1\r\n", ":1\r\n"},
		{fsm.Bulk("a\r\nb"), "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n"},
		{fsm.Simple("a\r\nb"), "+a  b\r\n", "+a  b\r\n"},
		{fsm.Error("ERR it's\nbad"), "-ERR it's bad\r\n", "-ERR it's bad\r\n"},
		{fsm.ErrorResult("ERR x"), "-ERR x\r\n", "-ERR x\r\n"},
		{fsm.Array(nil), "*0\r\n", "*0\r\n"},
		{fsm.Strings("a", ""), "*2\r\n$1\r\na\r\n$0\r\n\r\n", "*2\r\n$1\r\na\r\n$0\r\n\r\n"},
		{fsm.Map([]fsm.Reply{fsm.Bulk("k"), fsm.Null}), "*2\r\n$1\r\nk\r\n$-1\r\n", "%1\r\n$1\r\nk\r\n_\r\n"},
		{fsm.Set([]fsm.Reply{fsm.One}), "*1\r\n:1\r\n", "~1\r\n:1\r\n"},
		{fsm.Double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"},
		{fsm.Double(math.Inf(-1)), "$4\r\n-inf\r\n", ",-inf\r\n"},
		{fsm.DecimalDouble("0.50000000000000001"), "$19\r\n0.50000000000000001\r\n", ",0.50000000000000001\r\n"},
		{fsm.Verbatim("x"), "$1\r\nx\r\n", "=5\r\ntxt:x\r\n"},
		{fsm.VerbatimAs("mkd", "x"), "$1\r\nx\r\n", "=5\r\nmkd:x\r\n"},
		{fsm.Boolean(true), ":1\r\n", "#t\r\n"},
		{fsm.Boolean(false), ":0\r\n", "#f\r\n"},
		{fsm.BigNumber("12345678901234567890"), "$20\r\n12345678901234567890\r\n", "(12345678901234567890\r\n"},
		{fsm.Raw([]byte(":7\r\n")), ":7\r\n", ":7\r\n"},
	} {
		if got := string(c.reply.Append(nil, 2)); got != c.resp2 {
			t.Errorf("RESP2: %q, want %q", got, c.resp2)
		}
		if got := string(c.reply.Append([]byte("x"), 3)); got != "x"+c.resp3 {
			t.Errorf("RESP3: %q, want %q", got, "x"+c.resp3)
		}
	}
	if !fsm.Error("ERR x").IsError() || fsm.OK.IsError() || fsm.Bulk("t").Text() != "t" {
		t.Error("IsError must be true for errors only, and Text must return the string")
	}
}

func TestErrorTexts(t *testing.T) {
	args := func(words ...string) [][]byte {
		var out [][]byte
		for _, w := range words {
			out = append(out, []byte(w))
		}
		return out
	}
	for _, c := range []struct{ got, want string }{
		{fsm.UnknownCommand(args("FOO", "bar", "baz")), "ERR unknown command 'FOO', with args beginning with: 'bar' 'baz' "},
		{fsm.UnknownCommand(args("foo")), "ERR unknown command 'foo', with args beginning with: "},
		{fsm.UnknownSubcommand([]byte("x"), "OBJECT"), "ERR unknown subcommand 'x'. Try OBJECT HELP."},
		{fsm.WrongArity("get"), "ERR wrong number of arguments for 'get' command"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestReply_Inspect(t *testing.T) {
	if r := fsm.Int(7); r.Kind() != fsm.KindInt || r.Int64() != 7 {
		t.Errorf("integer 7 is read as %d of kind %d", r.Int64(), r.Kind())
	}
	if r := fsm.Boolean(true); r.Kind() != fsm.KindBoolean || r.Int64() != 1 {
		t.Errorf("boolean true is read as %d of kind %d", r.Int64(), r.Kind())
	}
	if r := fsm.Double(1.5); r.Kind() != fsm.KindDouble || r.Float64() != 1.5 {
		t.Errorf("double 1.5 is read as %v of kind %d", r.Float64(), r.Kind())
	}
	if r := fsm.DecimalDouble("2.50"); r.Kind() != fsm.KindDouble || r.Float64() != 2.5 || r.Text() != "2.50" || fsm.Double(2.5).Text() != "2.5" {
		t.Errorf("decimal 2.50 is read as %v, %q of kind %d", r.Float64(), r.Text(), r.Kind())
	}
	if r := fsm.Map([]fsm.Reply{fsm.Bulk("k"), fsm.Null}); r.Kind() != fsm.KindMap || len(r.Elems()) != 2 || r.Elems()[0].Text() != "k" {
		t.Errorf("map of k is read as %v of kind %d", r.Elems(), r.Kind())
	}
	if got := fsm.Verbatim("x").Format() + fsm.VerbatimAs("mkd", "x").Format(); got != "txtmkd" {
		t.Errorf("formats are %q, want txtmkd", got)
	}
}
