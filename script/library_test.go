package script_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/library"
	"github.com/holdfast-kv/holdfast/script"
)

// loadLibrary loads a library and returns the functions that it registers.
func loadLibrary(r *script.Runner, code string) (list []library.Function, reply fsm.Reply) {
	reply = r.RunScript(fsm.ScriptCall{Body: []byte(code), Register: func(f library.Function) string {
		list = append(list, f)
		return ""
	}})
	return list, reply
}

func callFunction(r *script.Runner, code, name string, keys ...string) fsm.Reply {
	call := fsm.ScriptCall{Body: []byte(code), Function: name, Do: ping, Proto: 2}
	for _, k := range keys {
		call.Keys = append(call.Keys, []byte(k))
	}
	return r.RunScript(call)
}

func TestLibrary_Registers(t *testing.T) {
	t.Parallel()
	list, reply := loadLibrary(shared, "#!lua name=x\n"+`redis.register_function('a', function() end)
		redis.register_function{function_name='b', callback=redis.log, description='text', flags={'no-writes', 'allow-stale'}}`)
	want := []library.Function{{Name: "a"}, {Name: "b", Description: "text", Described: true, Flags: library.NoWrites | library.AllowStale}}
	if reply.IsError() || !slices.Equal(list, want) {
		t.Errorf("got %+v and %q, want %+v", list, reply.Text(), want)
	}
}

// TestLibrary_CallsAreApart checks that the call of a library function sees no
// state of other runs: of the same library, another library or a script. The
// runs reuse the same State.
func TestLibrary_CallsAreApart(t *testing.T) {
	t.Parallel()
	r := script.NewRunner(script.DefaultConfig())
	code := "#!lua name=x\nlocal n = 0 redis.register_function('up', function() n = n + 1 return n end) redis.register_function('keys', function(k) return {rawget(_G, 'KEYS') == nil, k[1], #k} end)"
	for range 3 {
		if got := callFunction(r, code, "up"); got.Int64() != 1 {
			t.Errorf("a call returns the counter %d, want 1", got.Int64())
		}
		if got := r.RunScript(fsm.ScriptCall{Body: []byte("return KEYS[1]"), Keys: [][]byte{[]byte("k")}}); got.Text() != "k" {
			t.Errorf("a script between the calls sees the key %q, want k", got.Text())
		}
		if got := callFunction(r, code, "keys", "a", "b"); len(got.Elems()) != 3 || got.Elems()[1].Text() != "a" {
			t.Errorf("a function sees %v, want three elements with the key a", got)
		}
		if got := callFunction(r, strings.ReplaceAll(code, "'up'", "'down'"), "up"); !strings.Contains(got.Text(), "no longer registers") {
			t.Errorf("a function that another library registers: got %q, want an error", got.Text())
		}
		if got := r.RunScript(fsm.ScriptCall{Body: []byte("return redis.register_function == nil and type(redis.breakpoint)")}); got.Text() != "function" {
			t.Errorf("a script sees %q, want the type function", got.Text())
		}
	}
}

// TestLibrary_IsNoScript checks that the same text is compiled separately as a
// script and as a library.
func TestLibrary_IsNoScript(t *testing.T) {
	t.Parallel()
	r := script.NewRunner(script.DefaultConfig())
	code := "#!lua name=x\nredis.register_function('f', function() return 1 end)"
	for range 2 {
		if got := r.CompileScript([]byte(code)); got != "ERR Unknown lua shebang option: name=x" {
			t.Errorf("compiled as a script: got %q, want an error", got)
		}
		if got := callFunction(r, code, "f"); got.Int64() != 1 {
			t.Errorf("called as a library: got %q, want 1", got.Text())
		}
	}
}

// TestLibrary_LogsOnce checks that the log lines of a library's top-level code
// are written when the library is loaded, and not at every call of a function.
func TestLibrary_LogsOnce(t *testing.T) {
	t.Parallel()
	var lines []string
	c := script.DefaultConfig()
	c.Log = func(_ int, text string) { lines = append(lines, text) }
	r := script.NewRunner(c)
	code := "#!lua name=x\nredis.log(redis.LOG_NOTICE, 'loaded') redis.register_function('f', function() redis.log(redis.LOG_NOTICE, 'called') end)"
	loadLibrary(r, code)
	callFunction(r, code, "f")
	callFunction(r, code, "f")
	if got, want := strings.Join(lines, " "), "loaded called called"; got != want {
		t.Errorf("logged %q, want %q", got, want)
	}
}

// TestLibrary_IsBounded checks that the budget of a script applies to loading and
// to calling a library, and that the reply says whether loading or calling exceeded
// the budget.
func TestLibrary_IsBounded(t *testing.T) {
	t.Parallel()
	r := script.NewRunner(smallLimits())
	for code, want := range map[string]string{
		"while true do end": "ERR Error registering functions: ERR FUNCTION LOAD timeout",
		"for i = 1, 1e9 do redis.register_function('f' .. i, redis.log) end":                     "ERR Error registering functions: ERR",
		"local function f() return f() end f()":                                                  "ERR Error registering functions: ERR FUNCTION LOAD timeout",
		"redis.register_function{function_name='f', callback=redis.log, flags={'a','b'}}":        "ERR Error registering functions: ERR unknown flag given",
		"local t = {} for i = 1, 1e9 do t[i] = function() end end":                               "ERR Error registering functions: ERR it used too much memory at line 2",
		"redis.register_function('f', function() while true do end end) while true do end x = 1": "ERR Error registering functions: ERR FUNCTION LOAD timeout",
	} {
		if _, reply := loadLibrary(r, "#!lua name=x\n"+code); !strings.HasPrefix(reply.Text(), want) {
			t.Errorf("%s: got %q, want %q", code, reply.Text(), want)
		}
	}
	code := "#!lua name=x\nredis.register_function('f', function() while true do end end)"
	if got, want := callFunction(r, code, "f").Text(), "ERR user_function:2: the script was stopped: it ran too long (instructions) script: f, on @user_function:2."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLibrary_Interrupted(t *testing.T) {
	t.Parallel()
	r := script.NewRunner(script.DefaultConfig())
	code := "#!lua name=x\nredis.register_function('f', function()\n while true do end end)"
	got := r.RunScript(fsm.ScriptCall{Body: []byte(code), Function: "f", Do: ping, Interrupt: func() string { return "ERR enough" }})
	if want := "ERR enough script: f, on @user_function:1."; got.Text() != want {
		t.Errorf("got %q, want %q", got.Text(), want)
	}
	asked := 0
	got = r.RunScript(fsm.ScriptCall{Body: []byte(code), Function: "f", Do: ping, Interrupt: func() string {
		if asked++; asked < 5 {
			return ""
		}
		return "ERR enough"
	}})
	if want := "ERR enough script: f, on @user_function:3."; got.Text() != want {
		t.Errorf("got %q, want %q", got.Text(), want)
	}
	_, got = loadLibrary(r, "#!lua name=x\nlocal x")
	if got.IsError() {
		t.Errorf("a library that is not interrupted: got the error %q", got.Text())
	}
}
