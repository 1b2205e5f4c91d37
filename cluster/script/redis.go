package script

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"

	"github.com/holdfast-kv/holdfast/cluster/script/lua"
)

// The version that scripts see: they ask for it to choose between commands.
const (
	redisVersion    = "7.0.15"
	redisVersionNum = 0x0007000f
)

// callSteps is the price of a redis.call without its arguments and reply.
const callSteps = 50

// Texts of the redis library.
const (
	textNoArgs   = "Please specify at least one argument for this redis lib call"
	textArgType  = "Lua redis lib command arguments must be strings or integers"
	textArgs     = "wrong number or type of arguments"
	textArgCount = "wrong number of arguments"
)

func redisLibrary() *lua.Table {
	t := lua.NewShared(0) // in Redis' order, which pairs shows
	fn := func(name string, f func(st *lua.State, args []lua.Value) []lua.Value) {
		t.SetStr(name, lua.NewBuiltin(name, f))
	}
	num := func(name string, n int) { t.SetStr(name, lua.Int(n)) }
	fn("call", redisCall)
	fn("pcall", redisPcall)
	fn("log", redisLog)
	num("LOG_DEBUG", LogDebug)
	num("LOG_VERBOSE", LogVerbose)
	num("LOG_NOTICE", LogNotice)
	num("LOG_WARNING", LogWarning)
	num("REDIS_VERSION_NUM", redisVersionNum)
	t.SetStr("REDIS_VERSION", lua.Const(redisVersion))
	fn("setresp", redisSetResp)
	fn("sha1hex", redisSHA1)
	fn("error_reply", redisErrorReply)
	fn("status_reply", redisStatusReply)
	fn("set_repl", redisSetRepl)
	num("REPL_NONE", 0)
	num("REPL_AOF", 1)
	num("REPL_SLAVE", 2)
	num("REPL_REPLICA", 2)
	num("REPL_ALL", 3)
	fn("acl_check_cmd", redisACLCheck)
	fn("breakpoint", func(st *lua.State, _ []lua.Value) []lua.Value { return st.Ret(lua.False) })
	fn("debug", func(*lua.State, []lua.Value) []lua.Value { return nil })
	fn("replicate_commands", func(st *lua.State, _ []lua.Value) []lua.Value { return st.Ret(lua.True) })
	return t.Freeze()
}

var (
	keyErr     = lua.Const("err")
	keyOK      = lua.Const("ok")
	keyCounted = lua.Const("ignore_error_stats_update")
)

// errorTable is the error of a library call. A text with a dash in front brings
// its own code.
func errorTable(st *lua.State, text string) lua.Value {
	if rest, ok := strings.CutPrefix(text, "-"); ok {
		code, msg, ok := strings.Cut(rest, " ")
		if !ok {
			code, msg = "ERR", rest
		}
		text = code + " " + msg
	} else {
		text = "ERR " + text
	}
	t := st.NewTable(0, 1)
	t.Set(keyErr, st.NewString(strings.TrimRight(text, "\r\n")))
	return t.Value()
}

func raise(st *lua.State, text string) []lua.Value {
	st.Raise(errorTable(st, text))
	return nil
}

func redisCall(st *lua.State, args []lua.Value) []lua.Value {
	v, failed := command(st, args)
	if failed {
		st.Raise(v)
	}
	return st.Ret(v)
}

func redisPcall(st *lua.State, args []lua.Value) []lua.Value {
	v, _ := command(st, args)
	return st.Ret(v)
}

// command runs a command; failed means that v is the table of an error.
func command(st *lua.State, args []lua.Value) (v lua.Value, failed bool) {
	st.Step(callSteps)
	list, text := commandArgs(st, args)
	if text != "" {
		return errorTable(st, text), true
	}
	r := hostRun(st)
	reply := r.call.Do(list)
	return fromReply(st, reply, r.resp), reply.IsError()
}

// commandArgs turns arguments into those of a command, or returns what is wrong
// with them. Numbers keep 17 digits: %.14g, which tostring uses, would change
// timestamps.
func commandArgs(st *lua.State, args []lua.Value) ([][]byte, string) {
	if len(args) == 0 {
		return nil, textNoArgs
	}
	st.Alloc(24 * len(args))
	list := make([][]byte, len(args))
	for i, v := range args {
		s, ok := v.AsString()
		if f, num := v.AsNumber(); num {
			s, ok = lua.FormatG(f, 17), true
		}
		if !ok {
			return nil, textArgType
		}
		st.Alloc(len(s))
		st.Step(len(s) >> 8)
		list[i] = []byte(s)
	}
	return list, ""
}

func redisLog(st *lua.State, args []lua.Value) []lua.Value {
	if len(args) < 2 {
		return raise(st, "redis.log() requires two arguments or more.")
	}
	f, ok := args[0].ToNumber()
	if !ok {
		return raise(st, "First argument must be a number (log level).")
	}
	level := int(lua.ToInt64(f))
	if level < LogDebug || level > LogWarning {
		return raise(st, "Invalid debug level.")
	}
	st.Step(callSteps)
	log := hostRun(st).call.Log
	if log == nil {
		return nil
	}
	var words []string
	for _, v := range args[1:] {
		if s, ok := v.ToString(); ok {
			st.Alloc(len(s))
			words = append(words, s)
		}
	}
	log(level, strings.Join(words, " "))
	return nil
}

func redisSetResp(st *lua.State, args []lua.Value) []lua.Value {
	if len(args) != 1 {
		return raise(st, "redis.setresp() requires one argument.")
	}
	f, _ := args[0].ToNumber()
	n := int(lua.ToInt64(f))
	if n != 2 && n != 3 {
		return raise(st, "RESP version must be 2 or 3.")
	}
	hostRun(st).resp = n
	return nil
}

func redisSHA1(st *lua.State, args []lua.Value) []lua.Value {
	if len(args) != 1 {
		return raise(st, textArgCount)
	}
	s, _ := args[0].ToString()
	st.Step(20 + len(s)>>4)
	sum := sha1.Sum([]byte(s))
	return st.Ret(st.NewString(hex.EncodeToString(sum[:])))
}

func redisErrorReply(st *lua.State, args []lua.Value) []lua.Value {
	if len(args) == 1 {
		if s, ok := args[0].AsString(); ok {
			if !strings.HasPrefix(s, "-") {
				s = "-" + s
			}
			return st.Ret(errorTable(st, s))
		}
	}
	return st.Ret(errorTable(st, textArgs))
}

func redisStatusReply(st *lua.State, args []lua.Value) []lua.Value {
	if len(args) == 1 {
		if _, ok := args[0].AsString(); ok {
			t := st.NewTable(0, 1)
			t.Set(keyOK, args[0])
			return st.Ret(t.Value())
		}
	}
	return st.Ret(errorTable(st, textArgs))
}

// redisSetRepl checks its flags. A write that is not replicated is not a thing
// that a cluster can have.
func redisSetRepl(st *lua.State, args []lua.Value) []lua.Value {
	if len(args) != 1 {
		return raise(st, "redis.set_repl() requires two arguments.")
	}
	f, _ := args[0].ToNumber()
	if lua.ToInt64(f)&^3 != 0 {
		return raise(st, "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.")
	}
	return nil
}

func redisACLCheck(st *lua.State, args []lua.Value) []lua.Value {
	st.Step(callSteps)
	list, text := commandArgs(st, args)
	if text != "" {
		return raise(st, text)
	}
	permits := hostRun(st).call.Permits
	if permits == nil {
		return st.Ret(lua.True)
	}
	permitted, known := permits(list)
	if !known {
		return raise(st, "Invalid command passed to redis.acl_check_cmd()")
	}
	return st.Ret(lua.Bool(permitted))
}
