package script_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/test/testutil"
)

// author writes random programs. The programs end, because their loops have few
// iterations, and they do not print addresses. Many expressions have a wrong
// type, so the test compares error texts as well as results.
type author struct {
	r     *rand.Rand
	b     strings.Builder
	vars  []string
	depth int
}

func (a *author) pick(list ...string) string { return list[a.r.IntN(len(list))] }

func (a *author) name() string {
	if len(a.vars) == 0 {
		return "ARGV"
	}
	return a.vars[a.r.IntN(len(a.vars))]
}

func (a *author) literal() string {
	switch a.r.IntN(9) {
	case 0:
		return a.pick("0", "1", "2", "3", "-1", "10", "0.5", "1e15", "2^31", "1/3", "-0", "100", "7")
	case 1:
		return a.pick(`"a"`, `"10"`, `""`, `"x y"`, `"0x1f"`, `"%d+"`, `"k1"`, `" 7 "`, `"a,b,c"`, `"\0"`, `'{"a":[1,2]}'`)
	case 2:
		return a.pick("nil", "true", "false")
	case 3:
		return "{}"
	case 4:
		return "{" + a.expr() + "," + a.expr() + "}"
	case 5:
		return "{x=" + a.expr() + ",y=" + a.expr() + ",[" + a.literalKey() + "]=" + a.expr() + "}"
	case 6:
		return strconv.Itoa(a.r.IntN(50) - 10)
	case 7:
		return "KEYS[" + a.pick("1", "2", "9") + "]"
	}
	return a.name()
}

func (a *author) literalKey() string {
	return a.pick("1", "2", `"k"`, "2.5", "true", "-1", "10", `"1"`)
}

func (a *author) expr() string {
	if a.depth++; a.depth > 4 {
		a.depth--
		return a.pick("1", `"s"`, a.name(), "nil", "2")
	}
	defer func() { a.depth-- }()
	switch a.r.IntN(14) {
	case 0, 1, 2:
		return a.literal()
	case 3, 4:
		return "(" + a.expr() + a.pick("+", "-", "*", "/", "%", "^", "..", "..", "+") + a.expr() + ")"
	case 5:
		return "(" + a.expr() + a.pick("==", "~=", "<", "<=", ">", ">=") + a.expr() + ")"
	case 6:
		return "(" + a.expr() + a.pick(" and ", " or ") + a.expr() + ")"
	case 7:
		return "(" + a.pick("not ", "- ", "#") + a.expr() + ")"
	case 8:
		return a.name() + a.pick(".x", ".y", "[1]", "[2]", ".x.y", "["+a.expr()+"]")
	case 9:
		return a.name() + "(" + a.expr() + ")"
	case 10:
		return a.name() + a.pick(":len()", ":upper()", ":nope()", ":rep(2)", ":sub(2)")
	case 11:
		return "(function(...) local a,b=... return " + a.pick("...", "b,a", "a", "select('#',...)") + " end)(" + a.expr() + "," + a.expr() + ")"
	default:
		return a.call()
	}
}

func (a *author) call() string {
	f := a.pick("type", "tostring", "tonumber", "#", "string.rep", "string.sub", "string.format", "string.find", "string.gsub",
		"string.match", "string.byte", "table.concat", "table.insert", "table.remove", "math.floor", "math.max", "math.fmod",
		"cjson.encode", "cjson.decode", "cmsgpack.pack", "cmsgpack.unpack", "unpack", "select", "next", "rawget", "rawequal",
		"struct.pack", "struct.unpack", "bit.band", "bit.lshift", "bit.tohex", "redis.status_reply", "redis.sha1hex", "pcall",
		"string.reverse", "redis.pcall", "redis.call", "string.char", "math.ceil", "ipairs", "table.maxn", "assert", "setmetatable")
	switch f {
	case "#":
		return "#" + a.name()
	case "string.rep":
		return "string.rep(" + a.expr() + "," + a.pick("0", "1", "3", "-1") + ")"
	case "tostring":
		return "tostring((" + a.expr() + ")==nil)"
	case "string.format":
		return "string.format(" + a.pick(`"%d"`, `"%s"`, `"%5.2f|"`, `"%q"`, `"%x"`, `"%g"`, `"%-5s|"`, `"%c"`) + "," + a.expr() + ")"
	case "string.find", "string.match":
		return f + "(" + a.expr() + "," + a.pick(`"%d+"`, `"(a)"`, `"^%s*(.-)%s*$"`, `"[a-c]+"`, `"x*"`, `"()"`) + ")"
	case "string.gsub":
		return "string.gsub(" + a.expr() + "," + a.pick(`"%w"`, `"a"`, `""`, `"(%w)(%w)"`) + "," + a.pick(`"<%0>"`, `"%1"`, "{a=1}", "function(c) return c end") + ")"
	case "struct.pack":
		return "struct.pack(" + a.pick(`"b"`, `">I4"`, `"s"`, `"d"`, `"!4bi4"`) + "," + a.expr() + "," + a.expr() + ")"
	case "struct.unpack":
		return "struct.unpack(" + a.pick(`"b"`, `">I4"`, `"s"`, `"c2"`) + "," + a.expr() + ")"
	case "redis.call", "redis.pcall":
		return f + "(" + a.pick(`"GET","n"`, `"GET","h"`, `"INCR","n"`, `"HGETALL","h"`, `"SET","x",`+a.expr(), `"LRANGE","l",0,-1`, `"EXISTS","n","zz"`, `"NOPE"`, `"GET"`, a.expr()) + ")"
	case "pcall":
		return "pcall(" + a.pick("tostring", "error", "string.rep", a.name()) + "," + a.expr() + ")"
	case "setmetatable":
		return "setmetatable({}," + a.pick(
			"{__index=function(t,k) return k end}", "{__add=function(a,b) return 5 end}", "{__call=function(s,x) return x end}",
			"{__eq=function() return true end,__lt=function() return true end}", "{__concat=function() return 'cc' end}",
			"{__index={x=1,y={}}}", "{__tostring=function() return 'ts' end}", "{__newindex=function(t,k,v) rawset(t,k,1) end}") + ")"
	}
	return f + "(" + a.expr() + a.pick("", ","+a.expr()) + ")"
}

func (a *author) line(format string, args ...any) {
	a.b.WriteString(strings.Repeat(" ", a.depth))
	fmt.Fprintf(&a.b, format+"\n", args...)
}

func (a *author) block(n int) {
	mark := len(a.vars)
	for range n {
		a.statement()
	}
	a.vars = a.vars[:mark]
}

func (a *author) statement() {
	kind := a.r.IntN(13)
	if a.depth > 2 {
		kind = a.r.IntN(6)
	}
	a.depth++
	defer func() { a.depth-- }()
	v := "v" + strconv.Itoa(len(a.vars))
	switch kind {
	case 0, 1, 2:
		a.line("local %s = %s", v, a.expr())
		a.vars = append(a.vars, v)
	case 3:
		a.line("%s = %s", a.name(), a.expr())
	case 4:
		a.line("%s[%s] = %s", a.name(), a.literalKey(), a.expr())
	case 5:
		a.line("%s.x, %s = %s, %s", a.name(), a.name(), a.expr(), a.expr())
	case 6:
		a.line("if %s then", a.expr())
		a.block(2)
		a.line("elseif %s then", a.expr())
		a.block(1)
		a.line("else")
		a.block(1)
		a.line("end")
	case 7:
		a.line("for i=%s,%s,%s do", a.pick("1", "3", `"2"`, a.expr()), a.pick("3", "1", "5"), a.pick("1", "-1", "2"))
		a.vars = append(a.vars, "i")
		a.block(2)
		a.vars = a.vars[:len(a.vars)-1]
		a.line("end")
	case 8:
		a.line("for k,v in %s(%s) do", a.pick("pairs", "ipairs"), a.expr())
		a.vars = append(a.vars, "k", "v")
		a.block(2)
		a.vars = a.vars[:len(a.vars)-2]
		a.line("if true then break end end")
	case 9:
		a.line("local function %s(p, ...)", v)
		a.vars = append(a.vars, "p")
		a.block(2)
		a.line("return p, %s end", a.expr())
		a.vars = a.vars[:len(a.vars)-1]
		a.vars = append(a.vars, v)
	case 10:
		a.line("local %s, %s2 = pcall(function()", v, v)
		a.block(2)
		a.line("return %s end)", a.expr())
		a.vars = append(a.vars, v, v+"2")
	case 11:
		a.line("local %s = 0 repeat %s = %s + 1", v, v, v)
		a.block(1)
		a.line("until %s > 2", v)
		a.vars = append(a.vars, v)
	case 12:
		a.line("do local t = {} for i=1,%d do t[%s..i%s] = i end local s = '' for k in pairs(t) do s = s .. k .. ' ' end", a.r.IntN(20),
			a.pick("'k'", "'long key '", "''"), a.pick("", "*7", "%5"))
		a.line("local %s = s end", v)
	}
}

func program(seed uint64) string {
	a := &author{r: rand.New(rand.NewPCG(seed, 1))}
	a.line("local t = {1,2,3,x='y',n=5}")
	a.line("local f = function(x) return x end")
	a.line("local s = 'text'")
	a.line("local n = 5")
	a.vars = []string{"t", "f", "s", "n"}
	for range 3 + a.r.IntN(6) {
		a.statement()
	}
	a.line("return {%s, %s, %s}", a.expr(), a.name(), a.name())
	return a.b.String()
}

// named matches the name of a value in an error. Lua names a value only if it
// finds the instruction that loaded the value: in "(x or t) .. 1" it names t.
var named = regexp.MustCompile(`(attempt to [a-z ]*? )(?:local|upvalue|global|field|method) '[^']*' \((a [a-z]+ value)\)`)

// aMethod matches a method in an error. The translation of an error reports a
// method that is not a function as nil, because it does not call __index a
// second time.
var aMethod = regexp.MustCompile(`method '[^']*' \(a [a-z]+ value\)`)

// loose removes the parts of an answer that may differ: the names in errors, and
// the whole error of a program that is refused, because Redis may report a
// different error in the same program.
func loose(answer string) string {
	if strings.HasPrefix(answer, "-ERR Error compiling script (new function): ") {
		return "refused"
	}
	if !strings.HasPrefix(answer, "-") {
		return answer
	}
	// The end of the text contains a hash of the script, which is the same in both
	// answers.
	return named.ReplaceAllString(aMethod.ReplaceAllString(answer, "method"), "$1$2")
}

// TestRun_RandomProgramsAnswerAsRedis checks that random programs give the same
// answers as on a real Redis, apart from the parts that the function loose
// removes.
// HOLDFAST_RANDOM_SCRIPTS sets the number of programs.
func TestRun_RandomProgramsAnswerAsRedis(t *testing.T) {
	n := 400
	if s := os.Getenv("HOLDFAST_RANDOM_SCRIPTS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	socket := testutil.StartRedis(t)
	commands, client := dialRedis(t, socket, 3), dialRedis(t, socket, 3)
	failed := 0
	for seed := range uint64(n) {
		src := program(seed)
		setUp(commands)
		got := evalOurs(src, fsm.ScriptCall{Do: commands.call, Proto: 3})
		if strings.HasPrefix(got, "abort") {
			continue // Redis has no budget
		}
		setUp(commands)
		want := evalReal(client, src)
		if strings.Contains(want, ": 0x") || strings.Contains(want, "(null)") {
			continue // an address, or an error without a text
		}
		if loose(got) != loose(want) {
			t.Errorf("program %d:\n%s\n got %q\nwant %q", seed, src, got, want)
			if failed++; failed > 5 {
				t.FailNow()
			}
		}
	}
}
