package script_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/script"
)

// eval runs a script and fails the test if the run is aborted.
func eval(tb testing.TB, src string, call fsm.ScriptCall) fsm.Reply {
	tb.Helper()
	if call.Do == nil {
		call.Do = ping
	}
	call.Body = []byte(src)
	r, _, err := shared.RunMetered(call)
	if err != nil {
		tb.Fatalf("%s: %v", src, err)
	}
	return r
}

// TestRun_HasNoWayOut checks that certain Lua globals do not exist, that a
// script cannot load bytecode, and that it cannot change the tables that runs
// share.
func TestRun_HasNoWayOut(t *testing.T) {
	for _, name := range []string{"io", "os", "package", "debug", "print", "require", "module", "dofile", "loadfile",
		"newproxy", "setfenv", "getfenv", "jit", "ffi", "arg", "channel", "server"} {
		if r := eval(t, fmt.Sprintf("return rawget(_G, '%s') == nil", name), fsm.ScriptCall{}); r.Int64() != 1 {
			t.Errorf("%s exists: %s", name, r.Append(nil, 2))
		}
	}
	for _, src := range []string{
		`return loadstring(string.dump(function() end))`,
		`return loadstring('\27LuaQ')()`,
		`local i = 0 return load(function() i = i + 1 if i == 1 then return '\27LuaQ' end end)()`,
		`getmetatable('').__index = {}`,
		`getmetatable('').__index.rep = nil`,
		`getmetatable('').x = 1`,
		`setmetatable(getmetatable(''), {})`,
		`getmetatable(_G).__index = nil`,
		`setmetatable(_G, nil)`,
		`setmetatable(getmetatable(_G), {})`,
		`rawset(getmetatable(_G), '__index', nil)`,
		`rawset(_G, 'x', 1)`,
		`_G.x = 1`,
		`x = 1`,
		`function f() end`,
		`loadstring('x = 1')()`,
		`coroutine.wrap(function() x = 1 end)()`,
		`redis.call = nil`,
		`rawset(redis, 'call', nil)`,
		`table.insert(string, 1)`,
		`table.remove(_G)  string.x = 1`,
		`setmetatable(string, {})`,
		`setmetatable(cjson, {__index = {}})`,
		`math.huge = 1`,
		`bit.x = 1`,
		`struct.x = 1`,
		`cmsgpack.x = 1`,
		`coroutine.x = 1`,
		`table.x = 1`,
		`__redis__err__handler(redis)`,
		`__redis__err__handler(_G)`,
	} {
		if r := eval(t, src, fsm.ScriptCall{}); !r.IsError() {
			t.Errorf("%s: got %s, want an error", src, r.Append(nil, 2))
		}
	}
}

// probe is a script that returns state through which a run could observe
// another run.
const probe = `local t = {}
		for k in pairs(_G) do t[#t+1] = tostring(k) end
		for _, lib in ipairs({string, table, math, redis, cjson, cmsgpack, struct, bit, coroutine, getmetatable(''), getmetatable(_G)}) do
			for k, v in pairs(lib) do t[#t+1] = tostring(k) .. tostring(v) end
		end
		return table.concat(t, ',') .. cjson.encode({0.123456789012345, {[1]=1,[5]=1}}) .. math.random(1000000) .. tostring({})
			.. #KEYS .. tostring(redis.call('GET')) .. collectgarbage('count')`

// TestRun_SeesNoOtherRun checks that a run sees the same state after scripts
// that try to change it.
func TestRun_SeesNoOtherRun(t *testing.T) {
	do := func([][]byte) fsm.Reply { return fsm.Map([]fsm.Reply{fsm.One, fsm.One}) }
	want := eval(t, probe, fsm.ScriptCall{Do: do}).Text()
	if want == "" {
		t.Fatal("the probe returns nothing")
	}
	for _, src := range []string{
		`cjson.encode_number_precision(2) cjson.encode_sparse_array(true) cjson.encode_max_depth(1)`,
		`redis.setresp(3)`,
		`math.randomseed(7) math.random()`,
		`KEYS[1] = 'x' ARGV.y = 2 KEYS.z = _G`,
		`for i = 1, 100 do local t = {} end`,
		`pcall(function() string.x = 1 end) pcall(rawset, _G, 'y', 1) pcall(function() z = 1 end)`,
		`local co = coroutine.wrap(function() coroutine.yield() end) co()`,
		`error('x')`,
		`for k, v in pairs(_G) do pcall(rawset, _G, k, nil) pcall(function() v.x = 1 end) end`,
		`for _, lib in pairs(_G) do if type(lib) == 'table' then for k in pairs(lib) do pcall(rawset, lib, k, 1) pcall(table.sort, lib) pcall(table.insert, lib, 1) end end end`,
	} {
		eval(t, src, fsm.ScriptCall{Do: do})
		if got := eval(t, probe, fsm.ScriptCall{Do: do}).Text(); got != want {
			t.Errorf("after %s: got %s, want %s", src, got, want)
		}
	}
}

// TestRun_Concurrently checks that one Runner can serve many goroutines.
func TestRun_Concurrently(t *testing.T) {
	src := []byte(`
		local t = setmetatable({}, {__index = function(t, k) return k .. ARGV[1] end})
		local s = ''
		for w in ('a b c'):gmatch('%a') do s = s .. t[w] end
		return cjson.encode({s}) .. redis.call('ECHO', ARGV[1]) .. tostring(select(2, pcall(error, KEYS[1])))`)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			arg := fmt.Sprint(g)
			want := fmt.Sprintf(`["a%sb%sc%s"]%sk%s`, arg, arg, arg, arg, arg)
			for range 200 {
				r := shared.RunScript(fsm.ScriptCall{
					Body: src, Keys: byteList([]string{"k" + arg}), Args: byteList([]string{arg}),
					Do: func(args [][]byte) fsm.Reply { return fsm.Bulk(string(args[1])) },
				})
				if r.Text() != want {
					t.Errorf("got %q, want %q", r.Text(), want)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestRun_PassesArgumentsOn(t *testing.T) {
	var got []string
	do := func(args [][]byte) fsm.Reply {
		for _, a := range args {
			got = append(got, string(a))
		}
		return fsm.OK
	}
	eval(t, `redis.call('SET', KEYS[1], ARGV[1], 1729760300001, 0.1, -0, 1e17, 2^53, 1/0)`, fsm.ScriptCall{
		Keys: byteList([]string{"k\x00"}), Args: byteList([]string{"\xff"}), Do: do,
	})
	want := []string{"SET", "k\x00", "\xff", "1729760300001", "0.10000000000000001", "-0", "1e+17", "9007199254740992", "inf"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRun_NamesScriptInErrors(t *testing.T) {
	r := eval(t, "\nerror('x')", fsm.ScriptCall{SHA: "f00d"})
	if got, want := r.Text(), "ERR user_script:2: x script: f00d, on @user_script:2."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// Redis crashes on these scripts; here they return errors.
	for _, src := range []string{`error({})`, `error({err={}})`, `error(setmetatable({}, {__index=function() error('y') end}))`} {
		if got := eval(t, src, fsm.ScriptCall{}).Text(); !strings.HasPrefix(got, "ERR unknown error script: ") {
			t.Errorf("%s: got %q", src, got)
		}
	}
}

func TestRun_Logs(t *testing.T) {
	var got []string
	c := unhurried()
	c.Log = func(level int, text string) { got = append(got, fmt.Sprint(level, " ", text)) }
	r := script.NewRunner(c).RunScript(fsm.ScriptCall{
		Body: []byte(`redis.log(redis.LOG_WARNING, 'a', 1, {}, 'b') redis.log(redis.LOG_DEBUG, 'c')`), Do: ping})
	if want := "3 a 1 b|0 c"; strings.Join(got, "|") != want || r.IsError() {
		t.Errorf("got %q, %s, want %q", got, r.Text(), want)
	}
}

func TestRun_SeedsRandom(t *testing.T) {
	src := `return math.random(1000000)`
	a, b := eval(t, src, fsm.ScriptCall{Seed: 1}).Int64(), eval(t, src, fsm.ScriptCall{Seed: 1}).Int64()
	if a != b {
		t.Errorf("the same seed gave %d, then %d", a, b)
	}
	if c := eval(t, src, fsm.ScriptCall{Seed: 2}).Int64(); c == a {
		t.Errorf("another seed gave %d as well", c)
	}
}

// TestRun_ReadsRawReplies checks that the runner parses replies that Do has
// encoded, and that a broken one becomes an error.
func TestRun_ReadsRawReplies(t *testing.T) {
	raw := "%2\r\n+a\r\n*3\r\n:1\r\n_\r\n$2\r\nhi\r\n$1\r\nb\r\n,1.5\r\n"
	do := func([][]byte) fsm.Reply { return fsm.Raw([]byte(raw)) }
	if got, want := eval(t, `local m = redis.call('X').map return m.b.double * 2`, fsm.ScriptCall{Do: do}).Int64(), int64(3); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
	for _, broken := range []string{"", "x", "*5\r\n", "$10\r\nab", "$-9999999999999999999\r\n", "*99999999999\r\n", strings.Repeat("*1\r\n", 5000)} {
		raw = broken
		if r := eval(t, `return redis.call('X')`, fsm.ScriptCall{Do: do}); !r.IsError() {
			t.Errorf("%.20q: got %q, want an error", broken, r.Append(nil, 2))
		}
	}
}

func TestCompile_Flags(t *testing.T) {
	got, err := script.FlagsOf([]byte("#!lua flags=no-writes,allow-stale  flags=no-cluster\nreturn 1"))
	if err != nil {
		t.Fatal(err)
	}
	if want := (script.Flags{Shebang: true, NoWrites: true, AllowStale: true, NoCluster: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for src, want := range map[string]string{
		"#!lua flags=no-writes,bad\nreturn 1": "ERR Unexpected flag in script shebang: bad",
		"#!foo\nreturn 1":                     "ERR Unexpected engine in script shebang: #!foo",
		"#!lua x=1\nreturn 1":                 "ERR Unknown lua shebang option: x=1",
		"#!\nreturn 1":                        "ERR Unexpected engine in script shebang: #!",
		"#!lua return 1":                      "ERR Invalid script shebang",
		"#!lua\nreturn (":                     "ERR Error compiling script (new function): user_script:2: unexpected symbol near '<eof>'",
	} {
		if got := shared.CompileScript([]byte(src)); got != want {
			t.Errorf("%q: got %v, want %s", src, got, want)
		}
	}
}
