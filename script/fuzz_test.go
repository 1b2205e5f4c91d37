package script_test

import (
	"errors"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/script"
)

// fuzzDo returns one of many kinds of reply. The total length of the arguments
// selects the kind.
func fuzzDo(args [][]byte) fsm.Reply {
	n := 0
	for _, a := range args {
		n += len(a)
	}
	replies := []fsm.Reply{
		fsm.OK, fsm.Null, fsm.Int(int64(n)), fsm.Bulk("text"), fsm.Error("ERR no"), fsm.Strings("a", "b"), fsm.NullArray,
		fsm.Map([]fsm.Reply{fsm.Bulk("k"), fsm.One}), fsm.Set([]fsm.Reply{fsm.Bulk("m")}), fsm.Double(1.5), fsm.Verbatim("v"),
		fsm.Raw([]byte("*2\r\n:1\r\n$1\r\nx\r\n")), fsm.Raw([]byte("broken")), fsm.None,
	}
	return replies[n%len(replies)]
}

// FuzzScript checks that a run of any text ends within its budget and without a
// panic, and that a second run gives the same answer unless a run is aborted.
func FuzzScript(f *testing.F) {
	for _, list := range scripts(f) {
		for _, src := range list {
			f.Add(src)
		}
	}
	for _, src := range hostile {
		f.Add(src)
	}
	for _, l := range lockScripts(f) {
		f.Add(l)
	}
	for seed := range uint64(50) {
		f.Add(program(seed))
	}
	conf := unhurried()
	conf.Limits = script.Limits{Steps: 50_000, Memory: 2 << 20}
	r := script.NewRunner(conf)
	f.Fuzz(func(t *testing.T, src string) {
		call := fsm.ScriptCall{Body: []byte(src), Keys: byteList(testKeys), Args: byteList(testArgs), Do: fuzzDo, Proto: 2 + len(src)%2}
		reply, used, err := r.RunMetered(call)
		if errors.Is(err, script.ErrPanic) {
			var a *script.Abort
			errors.As(err, &a)
			t.Fatalf("%v\n%s", err, a.Stack)
		}
		if used.Steps > conf.Limits.Steps || used.Bytes > conf.Limits.Memory {
			t.Fatalf("the run used %+v, want no more than the limits %+v", used, conf.Limits)
		}
		again, _, errAgain := r.RunMetered(call)
		if err != nil || errAgain != nil {
			return // the line at which a run is aborted may depend on the clock
		}
		if a, b := string(reply.Append(nil, call.Proto)), string(again.Append(nil, call.Proto)); a != b {
			t.Fatalf("the first run gives %q, the second %q, want equal replies", a, b)
		}
	})
}
