package script

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/script/numeral"
)

// The Redis version that scripts see. Scripts read it to choose between
// commands.
const (
	redisVersion    = "7.0.15"
	redisVersionNum = 0x0007000f
)

// callSteps is the cost of a redis.call in steps, excluding its arguments and
// reply.
const callSteps = 50

// Error texts of the redis library.
const (
	textNoArgs   = "Please specify at least one argument for this redis lib call"
	textArgType  = "Lua redis lib command arguments must be strings or integers"
	textArgs     = "wrong number or type of arguments"
	textArgCount = "wrong number of arguments"
)

// Levels of redis.log.
const (
	LogDebug = iota
	LogVerbose
	LogNotice
	LogWarning
)

// fillRedis fills the library in Redis' order, which pairs shows.
func fillRedis() {
	t := redisTable
	fn := func(name string, f func(st *State, args []Value) []Value) { t.RawSetString(name, builtin(f)) }
	num := func(name string, n int) { t.RawSetString(name, Int(n)) }
	fn("call", redisCall)
	fn("pcall", redisPcall)
	fn("log", redisLog)
	num("LOG_DEBUG", LogDebug)
	num("LOG_VERBOSE", LogVerbose)
	num("LOG_NOTICE", LogNotice)
	num("LOG_WARNING", LogWarning)
	num("REDIS_VERSION_NUM", redisVersionNum)
	t.RawSetString("REDIS_VERSION", Const(redisVersion))
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
	fn("breakpoint", func(st *State, _ []Value) []Value { return st.Ret(False) })
	fn("debug", func(*State, []Value) []Value { return nil })
	fn("replicate_commands", func(st *State, _ []Value) []Value { return st.Ret(True) })
	freeze(t)
}

var (
	keyErr     = Const("err")
	keyOK      = Const("ok")
	keyCounted = Const("ignore_error_stats_update")
)

// errorTable returns the table for the error of a library call. A text that
// begins with a dash contains its own error code.
func errorTable(st *State, text string) Value {
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
	st.RawSet(t, keyErr, st.NewString(strings.TrimRight(text, "\r\n")))
	return t
}

func raiseText(st *State, text string) []Value {
	st.Raise(errorTable(st, text))
	return nil
}

func redisCall(st *State, args []Value) []Value {
	v, failed := command(st, args)
	if failed {
		st.Raise(v)
	}
	return st.Ret(v)
}

func redisPcall(st *State, args []Value) []Value {
	v, _ := command(st, args)
	return st.Ret(v)
}

// command runs a command. If failed is true, v is the table of an error.
func command(st *State, args []Value) (v Value, failed bool) {
	st.Step(callSteps)
	list, text := commandArgs(st, args)
	if text != "" {
		return errorTable(st, text), true
	}
	reply := st.do(list)
	st.look()
	return fromReply(st, reply, st.resp), reply.IsError()
}

// do runs a command. A panic of the command ends the run, even inside a
// coroutine.
func (st *State) do(list [][]byte) fsm.Reply {
	defer func() {
		if r := recover(); r != nil {
			st.failed(r)
		}
	}()
	r := st.call.Do(list)
	st.last = time.Time{} // the time of the command is not charged to the script
	return r
}

// commandArgs converts the arguments of redis.call into those of a command, or
// returns the text of an error. It prints numbers with 17 digits, because
// %.14g, which tostring uses, would change timestamps.
func commandArgs(st *State, args []Value) ([][]byte, string) {
	if len(args) == 0 {
		return nil, textNoArgs
	}
	st.Alloc(24 * len(args))
	list := make([][]byte, len(args))
	for i, v := range args {
		s, ok := asString(v)
		if f, num := asNumber(v); num {
			s, ok = numeral.FormatG(f, 17), true
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

func redisLog(st *State, args []Value) []Value {
	if len(args) < 2 {
		return raiseText(st, "redis.log() requires two arguments or more.")
	}
	f, ok := toNumber(args[0])
	if !ok {
		return raiseText(st, "First argument must be a number (log level).")
	}
	level := int(numeral.ToInt64(f))
	if level < LogDebug || level > LogWarning {
		return raiseText(st, "Invalid debug level.")
	}
	st.Step(callSteps)
	log := st.runner.log
	// The top-level code of a library logs only in FUNCTION LOAD and FUNCTION
	// RESTORE.
	if log == nil || st.lib.loading && st.call.Register == nil {
		return nil
	}
	var words []string
	for _, v := range args[1:] {
		if s, ok := toString(v); ok {
			st.Alloc(len(s))
			st.Step(len(s) >> 8)
			words = append(words, s)
		}
	}
	log(level, strings.Join(words, " "))
	return nil
}

func redisSetResp(st *State, args []Value) []Value {
	if len(args) != 1 {
		return raiseText(st, "redis.setresp() requires one argument.")
	}
	f, _ := toNumber(args[0])
	n := int(numeral.ToInt64(f))
	if n != 2 && n != 3 {
		return raiseText(st, "RESP version must be 2 or 3.")
	}
	st.resp = n
	if st.call.SetProto != nil {
		st.call.SetProto(n)
	}
	return nil
}

func redisSHA1(st *State, args []Value) []Value {
	if len(args) != 1 {
		return raiseText(st, textArgCount)
	}
	s, _ := toString(args[0])
	st.Step(20 + len(s)>>4)
	sum := sha1.Sum([]byte(s))
	return st.Ret(st.NewString(hex.EncodeToString(sum[:])))
}

func redisErrorReply(st *State, args []Value) []Value {
	if len(args) == 1 {
		if s, ok := asString(args[0]); ok {
			if !strings.HasPrefix(s, "-") {
				s = "-" + s
			}
			return st.Ret(errorTable(st, s))
		}
	}
	return st.Ret(errorTable(st, textArgs))
}

func redisStatusReply(st *State, args []Value) []Value {
	if len(args) == 1 {
		if _, ok := asString(args[0]); ok {
			t := st.NewTable(0, 1)
			st.RawSet(t, keyOK, args[0])
			return st.Ret(t)
		}
	}
	return st.Ret(errorTable(st, textArgs))
}

// redisSetRepl checks the flags and changes nothing. A cluster cannot have a
// write that is not replicated.
func redisSetRepl(st *State, args []Value) []Value {
	if len(args) != 1 {
		return raiseText(st, "redis.set_repl() requires two arguments.")
	}
	f, _ := toNumber(args[0])
	if numeral.ToInt64(f)&^3 != 0 {
		return raiseText(st, "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.")
	}
	return nil
}

func redisACLCheck(st *State, args []Value) []Value {
	st.Step(callSteps)
	list, text := commandArgs(st, args)
	if text != "" {
		return raiseText(st, text)
	}
	permits := st.call.Permits
	if permits == nil {
		return st.Ret(True)
	}
	permitted, known := permits(list)
	if !known {
		return raiseText(st, "Invalid command passed to redis.acl_check_cmd()")
	}
	return st.Ret(Bool(permitted))
}
