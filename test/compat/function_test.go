package compat

import (
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"slices"
	"strings"
	"testing"
)

// lib returns the code of a library with the name lib1.
func lib(code string) string { return "#!lua name=lib1\n" + code }

// load returns the command FUNCTION LOAD with the code of a library.
func load(code string) string { return fmt.Sprintf("FUNCTION LOAD REPLACE %q", code) }

const oneFunction = `redis.register_function('f1', function(keys, args) return {keys, args, 1} end)`

// TestFunction_Heads loads libraries with correct and wrong first lines.
func TestFunction_Heads(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("FUNCTION FLUSH")
		for _, head := range []string{
			"", "return 1", "#!lua", "#!lua\n", "#!lua name=", "#!lua name=\n", "#!lua name=a-b\n",
			"#!lua name=a b=c\n", "#!lua name=a name=b\n", "#!lua  name=lib1   \n",
			"#!LUA name=lib1\n", "#!LuA NAME=lib1\n", "#!js name=x\n", "#! name=x\n", "#!\n", "#!lua name=\"lib1\"\n",
			"#!lua name='lib1\n", "#!lua name=\"li\"b\n", "#!lua name='li\\'b'\n",
			"#!lua name='lib1'\n", "#!lua na\"me=lib1\"\n", "#!lua name=\"l\\x69b1\"\n", "#!lua name=\"l\\nb\"\n",
			"#!lua\tname=lib1\n", "#!lua name=lib1\r\n", "#!lua lib1\n",
			"#!lua name=lib1 flags=no-writes\n", "x#!lua name=lib1\n", "#!js name=a-b\n", "#!js\n", "#!lua foo name=\n",
			"#!a\tb c\n", "#!a\r b name=q\n", "#!lua name=a\x00b\n", "#!lua name=\xe9\n",
			"#!lua\x00 name=lib1\n", "#!lua name=" + strings.Repeat("x", 300) + "\n",
		} {
			p.Do(load(head+oneFunction), "FUNCTION FLUSH")
		}
	})
}

// TestFunction_Load checks what the code of a library may do while it is
// loaded.
func TestFunction_Load(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("FUNCTION FLUSH")
		for _, code := range []string{
			``, `return 1`, `local x = (`, "\n\nerror('boom')", `error({})`, `return redis.call('get','x')`,
			`return redis.pcall('get','x')`, `redis.setresp(3)`, `redis.set_repl(1)`,
			`redis.acl_check_cmd('get','x')`, `redis.breakpoint()`, `redis.replicate_commands()`, `redis.sha1hex('x')`,
			`redis.error_reply('x')`, `x=1`, `redis=1`, `redis.x=1`, `x.y=1`, `return x`,
			`return KEYS`, `return ARGV`, `print('x')`, `_G.x=1`, `rawset(_G,'x',1)`, `string.x=1`, `math.random()`,
			`local x = nil x.y = 1`, `local x = {} x.y.z = 1`, `local x = 'a'+1`, `local x = #5`,
			`local function f() return 1+f() end f()`, `redis.log()`, `redis.log(1)`, `redis.log('x','y')`,
			`redis.log(9,'y')`, `redis.log(redis.LOG_NOTICE,'y')`,
			`local x = redis.REDIS_VERSION`, `local x = redis.REPL_ALL`, `local x = redis.debug`, `local x = tostring`,
			`local t = ('x'):rep(3)`, oneFunction,
			oneFunction + ` error('x')`, `redis.register_function('n',function() end) local x = {} x.y.z=1`,
			`for i=1,1 do redis.register_function('f'..i,function() return i end) end`,
			`return redis.register_function('x',function() end)`,
		} {
			p.Do(load(lib(code)), "FUNCTION LIST WITHCODE", "FUNCTION STATS", "FUNCTION FLUSH")
		}
		p.Do(load("#!lua name=lib1\nlocal x = 'a\x00b' " + oneFunction))
		// FUNCTION LIST has no order for several functions.
		p.Do(load(lib(`for i=1,3 do redis.register_function('f'..i,function() return i end) end`)), "FUNCTION STATS",
			"FCALL f2 0", "FUNCTION FLUSH")
	})
}

func TestFunction_Register(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("FUNCTION FLUSH")
		for _, args := range []string{
			`()`, `(1)`, `('a')`, `('a',1)`, `(1,function() end)`, `('a','b')`, `('a b',function() end)`,
			`('',function() end)`, `('a',function() end,'x')`, `('a',function() end,1,2)`, `({},function() end)`,
			`({})`, `{function_name='a'}`, `{callback=function() end}`, `{function_name='a',callback=1}`,
			`{function_name=1,callback=function() end}`, `{function_name={},callback=function() end}`,
			`{function_name='a',callback=function() end,flags='x'}`,
			`{function_name='a',callback=function() end,flags={'x'}}`,
			`{function_name='a',callback=function() end,flags={1}}`,
			`{function_name='a',callback=function() end,flags={'no-writes',nil,'x'}}`,
			`{function_name='a',callback=function() end,flags={}}`,
			`{function_name='a',callback=function() end,description=1}`,
			`{function_name='a',callback=function() end,description={}}`,
			`{function_name='a',callback=function() end,description='d d'}`,
			`{function_name='a',callback=function() end,description=''}`,
			`{function_name='a',callback=function() end,unknown=1}`,
			`{function_name='a',callback=function() end,[1]=1}`, `{function_name='a',callback=function() end,[{}]=1}`,
			`{'a','b'}`,
			`{function_name='a',callback=function() end,FLAGS={'no-writes'}}`,
			`('a',function() end) redis.register_function('a',function() end)`, `('a',redis.log)`,
			`{function_name='a',callback=function() end,flags={'no-writes','no-writes','allow-oom','allow-stale','no-cluster'}}`, `{function_name='a',callback=function() end,flags={'allow-cross-slot-keys','no-writes'}}`,
		} {
			p.Do(load(lib("redis.register_function"+args)), "FUNCTION LIST", "FUNCTION FLUSH")
		}
	})
}

func TestFunction_Manage(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("FUNCTION FLUSH", load(lib(oneFunction)))
		other := strings.Replace(lib(oneFunction), "lib1", "lib2", 1)
		named := strings.Replace(other, "f1", "f2", 1)
		p.Do("FUNCTION LIST withcode withcode", "FUNCTION LIST libraryname",
			"FUNCTION LIST libraryname l* libraryname x", "FUNCTION LIST x", `FUNCTION LIST "x\r\ny"`,
			"FUNCTION LIST libraryname LIB*",
			"FUNCTION LIST libraryname nope*", "FUNCTION LIST LIBRARYNAME lib? WITHCODE",
			"FUNCTION LIST WITHCODE LIBRARYNAME *", "FUNCTION LIST withcode libraryname", "FUNCTION LIST a b c d",
			`FUNCTION LIST libraryname ""`)
		p.Do("FUNCTION LOAD", "FUNCTION LOAD x y", "FUNCTION LOAD replace",
			fmt.Sprintf("FUNCTION LOAD %q", lib(oneFunction)),
			fmt.Sprintf("FUNCTION LOAD REPLACE %q x", lib(oneFunction)),
			fmt.Sprintf("FUNCTION LOAD %q", lib("(((")),
			fmt.Sprintf("FUNCTION LOAD replace REPLACE %q", lib(oneFunction)),
			load(other), load(strings.Replace(other, "f1", "F1", 1)), load(named),
			load(lib(strings.Replace(oneFunction, "f1", "f2", 1))), "FUNCTION LIST LIBRARYNAME lib1", "FUNCTION STATS",
			"FUNCTION DELETE nope", "FUNCTION DELETE", "FUNCTION DELETE LIB1", "FUNCTION DELETE lib1 x",
			"FUNCTION DELETE lib2", "FUNCTION LIST", "FCALL f2 0", "FCALL f1 0",
			"FUNCTION FLUSH x", "FUNCTION FLUSH SYNC x", "FUNCTION flush SYNC x", "FUNCTION FLUSH async",
			"FUNCTION FLUSH sync", "FUNCTION FLUSH", "FUNCTION KILL", "FUNCTION KILL x", "FUNCTION STATS",
			"FUNCTION STATS x",
			"FUNCTION NOPE", "FUNCTION", "FUNCTION DUMP x", "FUNCTION HELP", "FUNCTION HELP x", "FUNCTION LIST")
		p.Do("MULTI", load(lib(oneFunction)), "FCALL f1 1 a b", "FUNCTION KILL", "FUNCTION STATS", "FUNCTION DUMP",
			"FUNCTION LIST", "FUNCTION DELETE lib1", "FCALL f1 0", "FUNCTION HELP", "EXEC")
		p.Do("FLUSHALL", "FUNCTION LIST", "COMMAND GETKEYS FCALL x 2 a b c", "COMMAND GETKEYS FCALL_RO x 1 a",
			"COMMAND GETKEYSANDFLAGS FCALL x 1 a", "COMMAND GETKEYSANDFLAGS FCALL_RO x 1 a")
		for _, call := range []string{`'FUNCTION','LIST'`, `'FUNCTION','DUMP'`, `'FUNCTION','STATS'`,
			`'FUNCTION','FLUSH'`, `'FUNCTION','KILL'`, `'FUNCTION','NOPE'`, `'FUNCTION'`, `'FCALL','f1',0`,
			`'FCALL_RO','f1',0`, `'FUNCTION','HELP'`} {
			p.Do(fmt.Sprintf("EVAL %q 0", "return redis.call("+call+")"))
		}
		p.Do(`EVAL "return redis.register_function('x',function() end)" 0`)
	})
}

// calls is the code of a library. Each function begins on a new line.
const calls = `redis.register_function('echo', function(keys,args) return {keys,args} end)
redis.register_function('nokeys', function() return KEYS end)
redis.register_function('noargv', function() return ARGV end)
redis.register_function('glob', function() x = 1 end)
redis.register_function('rglob', function() return x end)
redis.register_function('err1', function() error('boom') end)
redis.register_function('err2', function() error({err='MY boom'}) end)
redis.register_function('err3', function() return redis.error_reply('MY boom') end)
redis.register_function('err4', function() error() end)
redis.register_function('err6', function() return redis.call('incr','s') end)
redis.register_function('err7', function() local y = nil; return y.x end)
redis.register_function('err8', function() return redis.call('nope') end)
redis.register_function('err9', function() return redis.call('eval','return 1',0) end)
redis.register_function('err10', function() return redis.call('fcall','echo',0) end)
redis.register_function('err11', function() return redis.call('function','list') end)
redis.register_function('err12', function() return redis.call('function','help') end)
redis.register_function('err13', function() return redis.pcall('incr','s') end)
redis.register_function('err14', function() return redis.call('get') end)
redis.register_function('reg', function() return redis.register_function('q',function() end) end)
local reg = redis.register_function
redis.register_function('late', function() return reg('q',function() end) end)
redis.register_function('status', function() return redis.status_reply('fine') end)
redis.register_function('resp3', function() redis.setresp(3) return redis.call('hgetall','h') end)
redis.register_function('resp2', function() return redis.call('hgetall','h') end)
redis.register_function('set', function(k,a) return redis.call('set',k[1],a[1]) end)
redis.register_function{function_name='ro', callback=function(k,a) return redis.call('get',k[1]) end, flags={'no-writes'}}
redis.register_function{function_name='rw', callback=function(k,a) return redis.call('set',k[1],'x') end, flags={'no-writes'}}
redis.register_function{function_name='oom', callback=function(k,a) return 1 end, flags={'allow-oom'}}
redis.register_function{function_name='stale', callback=function(k,a) return 1 end, flags={'allow-stale','no-writes'}}
redis.register_function('names', function() local t={} for k in pairs(redis) do t[#t+1]=k end table.sort(t) return t end)
redis.register_function('gnames', function() local t={} for k in pairs(_G) do t[#t+1]=k end table.sort(t) return t end)
redis.register_function('nargs', function(...) return select('#',...) end)
redis.register_function('multi', function() return 1,2,3 end)
redis.register_function('none', function() end)
redis.register_function('builtin', redis.log)
redis.register_function('hand', function() return type(__redis__err__handler) end)
redis.register_function('modk', function(k) k[1] = 'z' return k end)
redis.register_function('errline', function()

 error('here') end)
redis.register_function('setrepl', function() return redis.set_repl(redis.REPL_ALL) end)
redis.register_function('acl', function() return redis.acl_check_cmd('get','x') end)
redis.register_function('repc', function() return redis.replicate_commands() end)
redis.register_function('deep', function() local function f() return f2() end return f() end)
redis.register_function('co', function() return coroutine.wrap(function() return redis.call('get','s') end)() end)
redis.register_function('ls', function() return loadstring('return 5')() end)
redis.register_function('ls2', function() return loadstring('error(\'q\')')() end)
redis.register_function('ls3', function() return loadstring('return redis.call("get", "s")')() end)
redis.register_function('xp', function() return {xpcall(function() error('x') end, function(e) return e end)} end)
redis.register_function('pc', function() return {pcall(function() error('x') end)} end)
local r = redis
redis.register_function('g1', function() return r.register_function==nil and type(r.call) end)
redis.register_function('g2', function() return rawget(_G,'KEYS') end)
redis.register_function('g3', function() return _G.redis == redis end)
redis.register_function('g4', function() return r == redis end)
redis.register_function('g5', function() return getfenv end)
redis.register_function('g6', function() rawset(_G,'x',1) end)
redis.register_function('g7', function() redis.x = 1 end)
redis.register_function('g8', function() string.x = 1 end)
redis.register_function('g9', function() return x() end)
redis.register_function('g10', function() return redis.x() end)
redis.register_function('g11', function() return _G.x end)
redis.register_function('g12', function() setmetatable(_G,{}) end)
redis.register_function('g13', function() _G.x = 1 end)
redis.register_function('g14', function() return type(getmetatable(_G).__index) end)
redis.register_function('g15', function() return r.call('get', 's') end)
redis.register_function('g16', function() return tostring() end)
redis.register_function('g17', function() return redis.call() end)
redis.register_function('json', function() return cjson.encode({1,2,{a=1}}) end)
redis.register_function('sel', function() redis.call('select', 3) return redis.call('set', 'x', 'three') end)
redis.register_function('many', function(k, a) for i = 1, 20 do redis.call('rpush', k[1], i) end return redis.call('lrange', k[1], 0, -1) end)
redis.register_function('big', function() return {1, 2.9, 'x', {3, {4}}, false, true, {ok='OK'}, {err='E x'}, nil, 5} end)
redis.register_function('dbl', function() return {double=1.5} end)
redis.register_function('map', function() return {map={a=1}} end)
redis.register_function('set3', function() return {set={a=true}} end)
redis.register_function('bool', function() redis.setresp(3) return true end)
local n = 0
redis.register_function('count', function() n = n + 1 return n end)
redis.register_function('Case', function() return 'case' end)`

func TestFunction_Call(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("FUNCTION FLUSH", load(lib(calls)), "SET s text", "HSET h a 1")
		var names []string
		for _, line := range strings.Split(calls, "\n") {
			if after, ok := strings.CutPrefix(line, "redis.register_function"); ok {
				names = append(names, strings.Split(after, "'")[1])
			}
		}
		names = slices.DeleteFunc(names, func(name string) bool { return name == "count" })
		for _, name := range append(names, "nope", "ECHO", "Echo", "eRR1", "CASE") {
			p.Do("SET s text", fmt.Sprintf("FCALL %s 1 s v", name), fmt.Sprintf("FCALL_RO %s 1 s v", name))
		}
		p.Do("GET s", "SELECT 3", "GET x", "SELECT 0")
		p.Do("FCALL echo", "FCALL echo x", "FCALL echo -1", "FCALL echo 3 a", "FCALL nope x", "FCALL nope 5",
			"FCALL echo 0", "FCALL echo 0 a", "FCALL echo 99999999999999999999", "FCALL echo 2 a b c",
			"FCALL_RO echo", "FCALL nope -1", "FCALL_RO echo x", "FCALL_RO echo -1", "FCALL_RO ro 0", "FCALL_RO ro x",
			"FCALL_RO ro 1 s", "FCALL", "FCALL_RO")
		p.DoPipelined("SET p 1", "FCALL set 1 p 2", "GET p", "FCALL many 1 q", "LLEN q", "FCALL ro 1 p")
		p.Do("FCALL count 0", anotherCount)
		p.Do("MULTI", "FCALL set 1 p 3", "FCALL err6 0", "GET p", "FCALL_RO ro 1 p", "EXEC")
	})
}

// TestFunction_Restore checks that each server restores the dumps of the other.
func TestFunction_Restore(t *testing.T) {
	both(t, func(p *pair) {
		libraries := []string{lib(oneFunction), lib(calls),
			lib("local s = '" + strings.Repeat("compressible ", 500) + "' " + oneFunction),
			"#!lua name=l\n" + `redis.register_function('a',function()end)`}
		for _, code := range libraries {
			p.setup("FUNCTION FLUSH", load(code))
			p.Do("FUNCTION DUMP") // equal bytes
			redis, holdfast := p.ask("FUNCTION DUMP")
			for _, payload := range []string{redis[0], holdfast[0]} {
				_, payload, _ = strings.Cut(payload, "\r\n")
				restore := "FUNCTION RESTORE " + fmt.Sprintf("%q", strings.TrimSuffix(payload, "\r\n"))
				p.Do(restore, restore+" append", restore+" foo", restore+" replace x", restore+" REPLACE",
					"FUNCTION DUMP", restore+" flush", "FUNCTION DUMP", "FUNCTION FLUSH", restore, "FUNCTION DUMP",
					"FUNCTION FLUSH", load(strings.Replace(lib(oneFunction), "lib1", "other", 1)))
				if code != lib(calls) { // calls has many functions, whose order differs
					p.Do(restore, restore+" REPLACE", "FUNCTION LIST LIBRARYNAME other")
				}
				p.Do("FUNCTION FLUSH", restore)
			}
		}
		p.Do("FUNCTION FLUSH", "FUNCTION DUMP", `FUNCTION RESTORE ""`, "FUNCTION RESTORE abc",
			"FUNCTION RESTORE abcdefghijklmn", "FUNCTION RESTORE x foo", "FUNCTION RESTORE x a b", "FUNCTION RESTORE",
			"FUNCTION LIST")
	})
}

// TestFunction_RestoreForged restores dumps that no server has written.
func TestFunction_RestoreForged(t *testing.T) {
	code := func(name, function string) string {
		s := fmt.Sprintf("#!lua name=%s\nredis.register_function('%s',function() return 1 end)", name, function)
		return "\xf5" + string([]byte{0x40 | byte(len(s)>>8), byte(len(s))}) + s
	}
	both(t, func(p *pair) {
		p.setup("FUNCTION FLUSH")
		for _, body := range []string{
			code("x", "f"), code("p", "p") + code("q", "p"), code("p", "p") + code("p", "q"), "\x00", "\xf5",
			"\xf5\x05ab", "\xf5\x03foo", "\xf5\x17#!lua name=x\nerror('x')", code("k", "k") + "\xf5",
			"\xf5\xc0\x05", "\xf5\x15#!lua name=e\nreturn 1", code("x", "f2"), code("x", "f2") + code("y", "g"),
		} {
			for _, version := range []byte{10, 11, 1} {
				restore := fmt.Sprintf("FUNCTION RESTORE %q", sealed(body, version))
				p.Do(restore, "FUNCTION LIST LIBRARYNAME x", "FUNCTION STATS", restore+" REPLACE", "FUNCTION STATS",
					"FUNCTION FLUSH")
			}
		}
		p.Do(restoreCandidate)
	})
}

// sealed appends a format version and a checksum to the body of a dump.
func sealed(body string, version byte) string {
	b := append([]byte(body), version, 0)
	jones := crc64.MakeTable(0x95ac9329ac4bc9b5)
	return string(binary.LittleEndian.AppendUint64(b, ^crc64.Update(^uint64(0), jones, b)))
}

// TestFunction_Rights compares which functions and which FUNCTION commands
// users with few rights may call.
func TestFunction_Rights(t *testing.T) {
	both(t, func(p *pair) {
		defer p.deleteUsers("caller", "keeper")
		p.setup("FUNCTION FLUSH", load(lib(calls)), "SET a 1", "SET b 2",
			"ACL SETUSER caller on nopass ~a* %R~b +fcall +fcall_ro +get +multi +exec",
			"ACL SETUSER keeper on nopass ~* +function -function|flush -function|restore")
		q := p.other()
		q.setup("AUTH caller x")
		q.Do("FCALL ro 1 a", "FCALL ro 1 b", "FCALL_RO ro 1 b", "FCALL ro 1 c", "FCALL_RO ro 1 c", "FCALL set 1 a 5",
			"FCALL set 0", "FCALL rw 1 a", "FCALL err6 0", "FCALL acl 0", "FCALL nope 1 c", "FCALL nope 0",
			"FCALL err12 0",
			"FUNCTION LIST", "FUNCTION HELP", "FUNCTION STATS", "FUNCTION NOPE", "FUNCTION", load(lib(oneFunction)),
			"MULTI", "FCALL ro 1 a", "EXEC", "MULTI", "FCALL ro 1 c", "EXEC")
		k := p.other()
		k.setup("AUTH keeper x")
		k.Do("FCALL ro 1 a", "FUNCTION LIST LIBRARYNAME x", "FUNCTION FLUSH", "FUNCTION RESTORE x", "FUNCTION DUMP",
			"FUNCTION STATS", "FUNCTION DELETE nope", load("x"), "FUNCTION KILL")
		p.Do("GET a", "ACL DRYRUN caller FCALL ro 1 c", "ACL DRYRUN caller FUNCTION FLUSH",
			"ACL DRYRUN caller FCALL_RO ro 1 b", "ACL DRYRUN caller FCALL ro 1 b")
	})
}
