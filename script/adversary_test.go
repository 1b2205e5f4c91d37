package script_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/script"
	"github.com/holdfast-kv/holdfast/script/luac"
)

// hostile contains scripts that try to use more than their limits allow.
var hostile = map[string]string{
	"loop":                 `while true do end`,
	"empty for":            `for i=1,1e18 do end`,
	"step 0":               `for i=1,1,0 do end`,
	"repeat":               `repeat until false`,
	"iterator":             `for _ in function() return 1 end do end`,
	"pcall loop":           `while true do pcall(function() while true do end end) end`,
	"pcall of error":       `while true do pcall(error, 'x') end`,
	"xpcall handler":       `xpcall(error, function() while true do end end)`,
	"error in handler":     `while true do xpcall(error, function() error('again') end) end`,
	"recursion":            `local function f() return 1 + f() end return f()`,
	"caught recursion":     `local function f() return 1 + f() end while true do pcall(f) end`,
	"mutual":               `local f, g function f() return 1 + g() end function g() return 1 + f() end return f()`,
	"tail calls":           `local function f() return f() end return f()`,
	"tail calls with args": `local function f(...) return f(1, ...) end return f()`,
	"metamethod recursion": `local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k .. 'x'] end return t.a`,
	"tostring recursion":   `local t = setmetatable({}, {__tostring = function(t) return tostring(t) end}) return tostring(t)`,
	"call recursion":       `local t = setmetatable({}, {}) getmetatable(t).__call = t return t()`,
	"concat recursion":     `local t t = setmetatable({}, {__concat = function(a, b) return t .. b end}) return t .. 'x'`,
	"coroutine loop":       `coroutine.wrap(function() while true do end end)()`,
	"coroutine in pcall":   `while true do pcall(coroutine.wrap(function() while true do end end)) end`,
	"coroutine ping":       `local co = coroutine.wrap(function() while true do coroutine.yield() end end) while true do co() end`,
	"many coroutines":      `local t = {} while true do local co = coroutine.create(function() coroutine.yield() end) coroutine.resume(co) t[#t+1] = co end`,
	"nested coroutines":    `local function f() return coroutine.wrap(f)() end return f()`,
	"deep in coroutine":    `return coroutine.wrap(function() local function f() return 1 + f() end return f() end)()`,
	"string.rep":           `return string.rep('x', 1e9)`,
	"string.rep far":       `return string.rep('xy', 2^62)`,
	"doubling":             `local s = 'x' while true do s = s .. s end`,
	"doubling by rep":      `local s = 'x' while true do s = s:rep(2) end`,
	"growing":              `local s = '' while true do s = s .. 'x' end`,
	"caught growth":        `local s = 'x' while true do pcall(function() s = s .. s end) end`,
	"table.concat":         `local t = {} for i=1,1000 do t[i] = string.rep('x', 10000) end return table.concat(t, string.rep('y', 100000))`,
	"gsub growth":          `local s = 'x' while true do s = s:gsub('x', 'xx') end`,
	"gsub replacement":     `return (string.rep('x', 10000):gsub('x', string.rep('y', 100000)))`,
	"format":               `local s = 'x' while true do s = string.format('%s%s', s, s) end`,
	"format q":             `local s = '\0' while true do s = string.format('%q', s) end`,
	"format widths":        `local f = string.rep('%99d', 10000) local t = {} for i=1,7000 do t[i] = 1 end while true do pcall(string.format, f, unpack(t)) end`,
	"upper":                `local s = string.rep('x', 1e6) while true do s = s:upper() end`,
	"reverse":              `local s = string.rep('x', 1e6) while true do local r = s:reverse() end`,
	"sparse store":         `local t = {} t[60000000] = 1 for i=1,1e9 do t[i*1000] = i end`,
	"table growth":         `local t = {} for i=1,1e9 do t[i] = i end`,
	"string keys":          `local t = {} for i=1,1e9 do t['k' .. i] = i end`,
	"nested tables":        `local t = {} while true do t = {t, t} end`,
	"insert at front":      `local t = {} for i=1,1e9 do table.insert(t, 1, i) end`,
	"insert far":           `table.insert({}, -1e9, 1)`,
	"insert farther":       `table.insert({}, 2^53, 1) table.insert({}, -2^53, 1)`,
	"remove":               `local t = {} for i=1,20000 do t[i] = i end while true do table.remove(t, 1) t[#t+1] = 1 end`,
	"rehash":               `local t = {} for i=1,1e4 do t[i*2.5] = i end for i=1,1e9 do t[-i] = i t[-i] = nil end`,
	"sparse length":        `local t = {} for i=0,31 do t[2^i] = 1 end for i=1,5e4 do t[i] = i end while true do local n = #t end`,
	"colliding keys":       `local t, pad = {}, string.rep('x', 8) for i=1,1e9 do local s = pad .. string.char(97+i%26) .. pad:rep(10) .. i t[s] = 1 end`,
	"long equal strings":   `local a, b = string.rep('x', 1e6), string.rep('x', 1e6) while a == b do end`,
	"long keys":            `local a, b, t = string.rep('x', 1e6), string.rep('x', 1e6), {} t[a] = 1 while t[b] do end`,
	"long order":           `local a, b = string.rep('x', 1e6), string.rep('x', 1e6) while not (a < b) do end`,
	"sort":                 `local t = {} for i=1,5000 do t[i] = i end while true do table.sort(t, function(a, b) return a > b end) end`,
	"sort liar":            `local t = {} for i=1,1000 do t[i] = i end while true do pcall(table.sort, t, function() return true end) end`,
	"sort callback":        `table.sort({3, 2, 1}, function() while true do end end)`,
	"next":                 `local t = {} for i=1,1e4 do t['k' .. i] = 1 end for i=1,9999 do t['k' .. i] = nil end while true do next(t) end`,
	"unpack":               `local t = {} for i=1,7000 do t[i] = i end while true do local n = select('#', unpack(t)) end`,
	"varargs":              `local function f(...) while true do local n = select('#', ...) end end local t = {} for i=1,7000 do t[i] = i end f(unpack(t))`,
	"varargs table":        `local function f(...) while true do local t = {...} end end local t = {} for i=1,7000 do t[i] = i end f(unpack(t))`,
	"backtracking":         `return string.find(string.rep('a', 5000), string.rep('.-', 50) .. 'b')`,
	"backtracking stars":   `return string.find(string.rep('a', 5000), string.rep('a*', 20) .. 'b')`,
	"backtracking maybe":   `return string.find(string.rep('a', 40), string.rep('a?', 40) .. string.rep('a', 40) .. 'b')`,
	"balance":              `while true do string.find(string.rep('(', 50000), '%b()') end`,
	"back references":      `return string.find(string.rep('a', 20000), '(.-)(.-)(.-)%1%2%3b')`,
	"captures":             `return string.find(string.rep('a', 20000), string.rep('(.-)', 30) .. 'b')`,
	"long set":             `return string.find(string.rep('a', 20000), '[' .. string.rep('b', 20000) .. ']')`,
	"long pattern":         `return string.find(string.rep('a', 20000), string.rep('a-', 20000))`,
	"frontier":             `return string.find(string.rep('a', 20000), string.rep('%f[a]', 5000) .. 'b')`,
	"plain find":           `local s, p = string.rep('a', 1e6), string.rep('a', 1e5) .. 'b' while true do s:find(p, 1, true) end`,
	"gmatch":               `for _ in string.gmatch(string.rep('a', 1e6), '') do while true do end end`,
	"gsub callback":        `string.gsub(string.rep('a', 1e6), 'a', function() while true do end end)`,
	"loadstring":           `local s = 'local x = ' .. string.rep('1 + ', 15000) .. '1' while true do loadstring(s) end`,
	"load reader":          `load(function() return 'x' end)`,
	"load deep":            `local f = loadstring('local a = 1 return ' .. string.rep('a + ', 15000) .. 'a') local function g(n) return f() + g(n + 1) end return g(1)`,
	"deep chains":          `local s = 'local f = ... return f' .. string.rep('()', 20000) local h h = loadstring(s) local function f() return h(f) end return f()`,
	"load nested":          `return loadstring('return ' .. string.rep('(', 10000))`,
	"cjson.encode":         `local t = {} for i=1,20 do t = {t, t} end return cjson.encode(t)`,
	"cjson.encode deep":    `cjson.encode_max_depth(2147483647) local t = {} t[1] = t return cjson.encode(t)`,
	"cjson.encode sparse":  `cjson.encode_sparse_array(false, 0) return cjson.encode({[1] = 1, [2^31] = 2})`,
	"cjson.decode":         `local s = '[' .. string.rep('[1],', 10000) .. '1]' while true do cjson.decode(s) end`,
	"cjson.decode deep":    `cjson.decode_max_depth(2147483647) return cjson.decode(string.rep('[', 60000))`,
	"cjson.decode escapes": `local s = '["' .. string.rep('\\n', 100000) .. '"]' while true do cjson.decode(s) end`,
	"cjson.new":            `while true do cjson.new() end`,
	"cmsgpack.pack":        `local t = {} for i=1,14 do t = {t, t, t, t, t, t, t, t} end return cmsgpack.pack(t)`,
	"cmsgpack.unpack":      `return cmsgpack.unpack(string.rep('\145', 60000))`,
	"cmsgpack lies":        `return cmsgpack.unpack('\221\255\255\255\255')`,
	"struct.pack":          `local s = string.rep('x', 1e6) while true do struct.pack('s', s) end`,
	"struct format":        `local f = string.rep('x', 1e6) while true do struct.size(f) end`,
	"struct unpack":        `local s = string.rep('\1', 1e5) while true do struct.unpack(string.rep('b', 1e5), s) end`,
	"bit":                  `while true do bit.band(1, 2) end`,
	"sha1hex":              `local s = string.rep('x', 1e6) while true do redis.sha1hex(s) end`,
	"log":                  `while true do redis.log(redis.LOG_WARNING, 'x') end`,
	"commands":             `while true do redis.call('PING') end`,
	"failing commands":     `while true do redis.pcall('NOPE') end`,
	"big arguments":        `local s = string.rep('x', 1e6) while true do redis.call('SET', 'k', s) end`,
	"reply bomb":           `local t = {} for i=1,30 do t = {t, t} end return t`,
	"reply circle":         `local t = {} t[1] = t return t`,
	"reply map circle":     `local t = {} t.map = {x = t} return t`,
	"reply string bomb":    `local s = string.rep('x', 1e6) local t = {} for i=1,1000 do t[i] = s end return t`,
	"error circle":         `local t = {} t.err = string.rep('x', 1e6) while true do pcall(error, t) end`,
	"closures":             `local t = {} while true do t[#t+1] = function() return t end end`,
	"upvalues":             `while true do local a, b, c = 1, 2, 3 local f = function() return a + b + c end end`,
	"collectgarbage":       `while true do collectgarbage() end`,
	"random":               `while true do math.random(1, 100) end`,
	"floats":               `while true do local s = string.format('%.99f', 1e308) end`,
	"tostring":             `while true do local s = tostring(1/3) end`,
	"select negative":      `while true do select(-1, 1, 2, 3) end`,
	"foreach":              `table.foreach({1}, function() while true do end end)`,
	"setmetatable loop":    `local a, b = {}, {} setmetatable(a, {__index = b}) setmetatable(b, {__index = a}) while true do pcall(function() return a.x end) end`,
	"newindex loop":        `local a, b = {}, {} setmetatable(a, {__newindex = b}) setmetatable(b, {__newindex = a}) while true do pcall(function() a.x = 1 end) end`,
	"error objects":        `local function f(n) if n == 0 then error({}) end f(n - 1) end while true do pcall(f, 1000) end`,
	"yield in method":      `local t = setmetatable({}, {__index = function() coroutine.yield(1) return function() end end}) local co = coroutine.wrap(function() t:m() t:m() return 2 end) while true do co() end`,
	"yield in iterator":    `local co = coroutine.wrap(function() for x in function() coroutine.yield(1) return 1 end do end end) while true do co() end`,
	"yield in operators":   `local m = {} for _, n in ipairs({'add', 'sub', 'lt', 'eq', 'concat', 'call', 'newindex', 'unm'}) do m['__' .. n] = function() coroutine.yield(n) return 1 end end local co = coroutine.wrap(function() local a, b = setmetatable({}, m), setmetatable({}, m) while true do pcall(function() return a + b end) a() a.x = 1 local c = a < b c = a == b c = a .. b c = -a end end) while true do co() end`,
	"yield in sort":        `local co = coroutine.wrap(function() table.sort({3, 2, 1}, function(a, b) coroutine.yield() return a < b end) end) while true do co() end`,
	"resume in resume":     `local co co = coroutine.create(function() while true do coroutine.resume(co) coroutine.yield() end end) while true do coroutine.resume(co) end`,
	"errors in coroutines": `while true do coroutine.resume(coroutine.create(function() local x = nil + 1 end)) end`,
	"coroutine upvalues":   `local x = 1 local f = coroutine.wrap(function() local y = x coroutine.yield(function() y = y + 1 return y end) end) local g = f() while true do g() end`,
	"open upvalues":        `local function f(n) local x = n local g = function() return x end if n > 4900 then error('deep') end return 1 + f(n + 1) + g() end while true do pcall(f, 1) end`,
	"error at depth":       `local function f(n) if n > 4900 then local x = nil + 1 end return 1 + f(n + 1) end while true do pcall(f, 1) end`,
	"pcall at depth":       `local function f(n) local ok, e = pcall(f, n + 1) error(e) end while true do pcall(f, 1) end`,
	"many locals":          `local function f(n) local a1,a2,a3,a4,a5,a6,a7,a8,a9,b1,b2,b3,b4,b5,b6,b7,b8,b9,c1,c2,c3,c4,c5,c6,c7,c8,c9,d1,d2,d3,d4,d5,d6,d7,d8,d9 = n return 1 + f(n + 1) end while true do pcall(f, 1) end`,
	"far store":            `local t = {} for i=1,1e9 do local u = {} u[524000] = 1 t[i] = u end`,
	"far and gone":         `local t = {} t[524000] = 1 t[524000] = nil while true do local n = #t t[n+2] = 1 t[n+2] = nil end`,
	"float keys":           `local t = {} for i=1,1e9 do t[i + 0.5] = i end`,
	"keys come and go":     `local t = {} for i=1,1e9 do t['k' .. i] = 1 t['k' .. i] = nil end`,
	"table keys":           `local t = {} while true do t[{}] = 1 end`,
	"constructors":         `local t = {} while true do t = {t, a = t, b = t, c = t} end`,
	"named fields":         `local t = {} for i=1,1e9 do t[i] = {` + namedFields(2000, "k%d = 1,") + `} end`,
	"fields and a list":    `local t = {} for i=1,1e9 do t[i] = {1, 2, ` + namedFields(500, "k%d = 1,") + `} end`,
	"fields at numbers":    `local t = {} for i=1,1e9 do t[i] = {` + namedFields(500, "[%d.5] = 1,") + `} end`,
	"empty tables":         `local t = {} for i=1,1e9 do local u = {} u.x = 1 t[i] = u end`,
	"static keys":          `while true do local t = {} ` + staticKeys(500) + ` end`,
	"arg":                  `local function f(...) return arg end local t = {} for i=1,1e9 do t[i] = f(i, i, i) end`,
	"substrings":           `local s, t = string.rep('x', 1e6), {} for i=1,1e9 do t[i] = s:sub(2) end`,
	"tostring of objects":  `while true do tostring({}) end`,
	"globals loop":         `while true do for k, v in pairs(_G) do end end`,
	"forged position":      `while true do pcall(error, "\27" .. "0:999999999: x", 0) pcall(error, "\27" .. "99:1: attempt to call a non-function object", 0) end`,
	"long numerals":        `local s = string.rep('9', 1e6) while true do local n = s + 1 end`,
	"long hex":             `local s = '0x' .. string.rep('f', 1e6) while true do tonumber(s) end`,
	"compare circle":       `local m = {} m.__eq = function(a, b) return a == setmetatable({}, m) end return setmetatable({}, m) == setmetatable({}, m)`,
	"newindex recursion":   `local t = setmetatable({}, {__newindex = function(t, k, v) t[k .. 'x'] = v end}) t.a = 1`,
	"exponent":             `local x = 2 while true do x = x ^ 1.0001 end`,
}

// namedFields returns fields of a table constructor.
func namedFields(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func staticKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "t.k%d = 1 ", i)
	}
	return b.String()
}

// smallLimits returns a configuration with limits that are a fraction of a
// node's.
func smallLimits() script.Config {
	c := unhurried()
	c.Limits.Steps = 500_000
	c.Limits.Memory = 16 << 20
	return c
}

func ping([][]byte) fsm.Reply { return fsm.Simple("PONG") }

// TestRun_EndsWithinItsBudget checks that a script cannot evade its budget: a
// run never spends more than its limits, and allocates at most eight times its
// memory limit on Go's heap. The test also checks that the next run does not
// notice the script.
func TestRun_EndsWithinItsBudget(t *testing.T) {
	conf := smallLimits()
	r := script.NewRunner(conf)
	want := r.RunScript(fsm.ScriptCall{Body: []byte(probe), Do: ping}).Text()
	if want == "" {
		t.Fatal("the probe returns nothing")
	}
	for name, src := range hostile {
		t.Run(name, func(t *testing.T) {
			if text := r.CompileScript([]byte(src)); text != "" {
				t.Fatal(text)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			reply, used, err := r.RunMetered(fsm.ScriptCall{Body: []byte(src), Do: ping, Proto: 2})
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			if err == nil && !reply.IsError() && len(reply.Append(nil, 2)) > conf.Limits.Memory {
				t.Errorf("the reply has %d bytes, want at most the %d bytes of the memory limit",
					len(reply.Append(nil, 2)), conf.Limits.Memory)
			}
			if used.Steps > conf.Limits.Steps || used.Bytes > conf.Limits.Memory {
				t.Errorf("the run used %+v, want no more than the limits %+v", used, conf.Limits)
			}
			if got, most := after.TotalAlloc-before.TotalAlloc, uint64(8*conf.Limits.Memory); got > most {
				t.Errorf("allocated %d bytes, want at most %d", got, most)
			}
			t.Logf("%s: %v, %+v, allocated %d KiB, %d ns a step: %v %.80s", name, took.Round(time.Microsecond), used,
				(after.TotalAlloc-before.TotalAlloc)>>10, took.Nanoseconds()/int64(max(used.Steps, 1)), err, reply.Text())
			if got := r.RunScript(fsm.ScriptCall{Body: []byte(probe), Do: ping}).Text(); got != want {
				t.Errorf("the next run sees %s, want %s", got, want)
			}
			if errors.Is(err, script.ErrPanic) {
				var a *script.Abort
				errors.As(err, &a)
				t.Errorf("%v\n%s", err, a.Stack)
			}
		})
	}
}

// TestRun_ChargesConstructors checks that a run is charged for at least a third of
// the bytes that its table constructors allocate.
func TestRun_ChargesConstructors(t *testing.T) {
	r := script.NewRunner(unhurried())
	for name, fields := range map[string]string{
		"names":            namedFields(2000, "k%d = 1,"),
		"names and a list": "1, 2, nil, 4, " + namedFields(2000, "k%d = 1,"),
		"numbers":          namedFields(2000, "[%d.5] = 1,"),
		"negative numbers": namedFields(2000, "[-%d] = 1,"),
		"fractions":        "1, 2, " + namedFields(2000, "[1.%d1] = 1,"),
		"a list":           namedFields(2000, "'%d',"),
	} {
		src := []byte(`local t = {} for i = 1, 50 do t[i] = {` + fields + `} end`)
		if text := r.CompileScript(src); text != "" {
			t.Fatal(text)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		reply, used, err := r.RunMetered(fsm.ScriptCall{Body: src, Do: ping})
		runtime.ReadMemStats(&after)
		if err != nil || reply.IsError() {
			t.Fatalf("%s: %v %s", name, err, reply.Text())
		}
		if took := after.TotalAlloc - before.TotalAlloc; uint64(used.Bytes) < took/3 {
			t.Errorf("%s: %d bytes charged, want at least a third of the %d bytes allocated", name, used.Bytes, took)
		}
	}
}

// TestRun_AbortPassesPcall checks that a script cannot catch an abort, and that
// the error names the line.
func TestRun_AbortPassesPcall(t *testing.T) {
	r := script.NewRunner(smallLimits())
	for _, src := range []string{
		"\n\nwhile true do end",
		"\n\npcall(function() while true do end end) return 'survived'",
		"\n\nxpcall(function() while true do end end, function() return 1 end) return 'survived'",
		"\n\ntable.sort({1,2,3}, function() pcall(function() while true do end end) end) return 'survived'",
	} {
		_, _, err := r.RunMetered(fsm.ScriptCall{Body: []byte(src), Do: ping})
		if !errors.Is(err, script.ErrSteps) {
			t.Errorf("%s: got %v, want %v", src, err, script.ErrSteps)
		}
		var a *script.Abort
		if !errors.As(err, &a) || a.Line != 3 {
			t.Errorf("%s: got %+v, want line 3", src, a)
		}
	}
	src := []byte(`local s = 'x' while true do pcall(function() s = s .. s end) end`)
	roomy := smallLimits()
	roomy.Limits.Steps = 1 << 60
	if _, _, err := script.NewRunner(roomy).RunMetered(fsm.ScriptCall{Body: src, Do: ping}); !errors.Is(err, script.ErrMemory) {
		t.Errorf("got %v, want %v", err, script.ErrMemory)
	}
}

func TestRun_StopsWhenInterrupted(t *testing.T) {
	c := unhurried()
	c.Limits.Steps = 1 << 60
	asked := 0
	interrupt := func() string {
		if asked++; asked < 100 {
			return ""
		}
		return "UNAVAILABLE enough"
	}
	body := []byte(`pcall(function() while true do end end)`)
	reply := script.NewRunner(c).RunScript(fsm.ScriptCall{Body: body, Do: ping, Interrupt: interrupt})
	if got, want := reply.Text(), "UNAVAILABLE enough script: "+fsm.SHA1(body)+", on @user_script:1."; got != want || !reply.IsError() {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRun_StopsByTheClock(t *testing.T) {
	c := unhurried()
	c.Limits = script.LimitsFor(20 * time.Millisecond) // the time runs out before the steps on every machine
	if _, _, err := script.NewRunner(c).RunMetered(fsm.ScriptCall{Body: []byte(`while true do end`), Do: ping}); !errors.Is(err, script.ErrTime) {
		t.Errorf("got %v, want %v", err, script.ErrTime)
	}
}

// TestRun_PanicsBecomeErrors checks that a panic in ScriptCall.Do becomes an
// error of the run, even inside pcall.
func TestRun_PanicsBecomeErrors(t *testing.T) {
	for _, src := range []string{`redis.call('X')`, `pcall(redis.call, 'X')`} {
		do := func([][]byte) fsm.Reply { panic("broken machine") }
		_, _, err := shared.RunMetered(fsm.ScriptCall{Body: []byte(src), Do: do})
		var a *script.Abort
		if !errors.As(err, &a) || !errors.Is(err, script.ErrPanic) || !strings.Contains(a.Detail, "broken machine") || len(a.Stack) == 0 {
			t.Errorf("%s: got %v, want an Abort that reports the panic", src, err)
		}
	}
}

// TestCompile_RefusesHugeScripts checks which long or deeply nested texts the
// compiler refuses.
func TestCompile_RefusesHugeScripts(t *testing.T) {
	r := script.NewRunner(unhurried())
	if r.CompileScript(make([]byte, luac.MaxBytes+1)) == "" {
		t.Error("a script above the size limit was compiled")
	}
	n := luac.MaxBytes
	for src, refused := range map[string]bool{
		"return " + strings.Repeat("(", n-100): true, strings.Repeat("do ", n/3-1): true, "return " + strings.Repeat("{", n-100): true,
		"return " + strings.Repeat("- ", n/2-10) + "1": true, "return " + strings.Repeat("not ", n/4-10) + "1": true,
		"local x = " + strings.Repeat("function() return ", 1000): true, strings.Repeat("a.", n/2-10) + "b = 1": true,
		"return " + strings.Repeat("a..", n/3-10) + "a": true, "return " + strings.Repeat("2^", n/2-10) + "2": true,
		"[" + strings.Repeat("=", n-10): true, strings.Repeat("local a ", 8000): true, "return f" + strings.Repeat("{}", n/2-10): true,
		strings.Repeat("function f() ", 250) + strings.Repeat(" end ", 250): true, "return " + strings.Repeat("a+", n/2-10) + "a": true,
		"local a " + strings.Repeat("a,", n/2-100) + "a = 1": true, "return '" + strings.Repeat("\\", n-100): true, "--[" + strings.Repeat("=", n-100): false,
		"return " + strings.Repeat("(", 150) + "1" + strings.Repeat(")", 150):           false,
		"local x = 1 " + strings.Repeat("if x == 2 then elseif x == 3 then end ", 1000): false,
		"return {" + strings.Repeat("1,", 20000) + "}":                                  false, "return {" + distinct(20000) + "}": true,
		"if 1 then " + strings.Repeat("elseif 2 then ", 10000) + "end": true,
	} {
		start := time.Now()
		text := r.CompileScript([]byte(src))
		t.Logf("%.30q: %v, %.90s", src, time.Since(start).Round(time.Microsecond), text)
		if got := text != ""; got != refused {
			t.Errorf("%.30q: got %q, refused %v, want %v", src, text, got, refused)
		}
	}
}

func distinct(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d,", i)
	}
	return b.String()
}

// TestRunner_CacheIsBounded checks that the cache does not exceed its bounds.
func TestRunner_CacheIsBounded(t *testing.T) {
	c := unhurried()
	c.CacheEntries = 10
	r := script.NewRunner(c)
	for i := range 100 {
		r.CompileScript([]byte(fmt.Sprint("return ", i)))
	}
	if got, want := r.Cached(), 10; got != want {
		t.Errorf("%d scripts are cached, want %d", got, want)
	}
	c.CacheEntries, c.CacheBytes = 1000, 100
	r = script.NewRunner(c)
	for i := range 100 {
		r.CompileScript([]byte(fmt.Sprint("return ", i)))
	}
	if got := r.Cached(); got > 15 {
		t.Errorf("the cache keeps %d scripts in 100 bytes, want at most 15", got)
	}
}
