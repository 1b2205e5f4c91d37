package script_test

import (
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/script"
)

func benchmark(b *testing.B, src string, call fsm.ScriptCall) {
	call.Body, call.SHA = []byte(src), script.SHA1([]byte(src))
	b.ReportAllocs()
	for b.Loop() {
		if r := shared.RunScript(call); r.IsError() {
			b.Fatal(r.Text())
		}
	}
}

const compareAndDelete = "local holder = redis.call('GET', KEYS[1])\nif not holder then return -1 end\nif holder ~= ARGV[1] then return 0 end\nreturn redis.call('DEL', KEYS[1])"

// BenchmarkRun_CompareAndDelete runs a script that releases a lock. It does not
// include the cost of the commands.
func BenchmarkRun_CompareAndDelete(b *testing.B) {
	token := "a token"
	do := func(args [][]byte) fsm.Reply {
		if len(args[0]) == 3 && args[0][0] == 'G' {
			return fsm.Bulk(token)
		}
		return fsm.One
	}
	benchmark(b, compareAndDelete, fsm.ScriptCall{Keys: byteList([]string{"lock"}), Args: byteList([]string{token}), Do: do, Proto: 2})
}

func BenchmarkRun_Empty(b *testing.B) { benchmark(b, `return 1`, fsm.ScriptCall{Do: ping}) }

func BenchmarkRun_Loop(b *testing.B) {
	benchmark(b, `local s = 0 for i=1,10000 do if i % 3 == 0 then s = s + i * 2 end end return s`, fsm.ScriptCall{Do: ping})
}

func BenchmarkRun_Tables(b *testing.B) {
	benchmark(b, `local t = {} for i=1,1000 do t[#t+1] = {id=i, name='n' .. i} end table.sort(t, function(a, b) return a.name < b.name end) return #t`, fsm.ScriptCall{Do: ping})
}

func BenchmarkRun_Calls(b *testing.B) {
	benchmark(b, `local function f(n) if n < 2 then return n end return f(n-1) + f(n-2) end return f(15)`, fsm.ScriptCall{Do: ping})
}

func BenchmarkRun_JSON(b *testing.B) {
	benchmark(b, `local t = cjson.decode(ARGV[1]) t.n = t.n + 1 return cjson.encode(t)`,
		fsm.ScriptCall{Do: ping, Args: byteList([]string{`{"n":1,"list":[1,2,3,{"a":"text"}],"name":"value"}`})})
}

func BenchmarkCompile_CompareAndDelete(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := script.FlagsOf([]byte(compareAndDelete)); err != nil {
			b.Fatal(err)
		}
	}
}
