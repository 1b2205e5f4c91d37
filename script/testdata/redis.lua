error(5)
----
error("x",0)
----
error("x",2)
----
local t=setmetatable({},{__index=function(t,k) return k.."!" end}) return t.abc
----
return pcall(error)
----
return {pcall(error,"x")}
----
rawset(redis,"x",1)
----
setmetatable(_G,{})
----
return getmetatable("").__index == string
----
getmetatable("").__index.x=1
----
return getmetatable(_G)==nil
----
_G.x=1
----
KEYS[1]=5 return KEYS[1]
----
KEYS=5
----
table.foo=1
----
return tostring(0/0)
----
return tostring(-(0/0))
----
return 0/0
----
return 1/0
----
return -1/0
----
return 1e300
----
string.gsub("x","x",error)
----
string.gsub("x","x",function() error("y") end)
----
local s=loadstring("return (") return s
----
return {loadstring("return (")}
----
loadstring("error('q')")()
----
loadstring("error('q')","=foo")()
----
return tostring(cjson.null)
----
return redis.log()
----
redis.log(1)
----
redis.log("x","y")
----
redis.log(99,"y")
----
redis.setresp()
----
redis.setresp(4)
----
redis.setresp("x")
----
redis.set_repl()
----
redis.set_repl(99)
----
return redis.breakpoint()
----
return redis.debug("x")
----
return redis.replicate_commands()
----
return redis.acl_check_cmd()
----
return redis.acl_check_cmd("foo")
----
return redis.acl_check_cmd("get","x")
----
return redis.acl_check_cmd("get")
----
return redis.sha1hex()
----
return redis.sha1hex(1)
----
return redis.sha1hex({})
----
return redis.error_reply(1)
----
return redis.error_reply()
----
return redis.error_reply("-FOO bar")
----
return redis.error_reply("foo\r\nbar")
----
return redis.status_reply("a\r\nb")
----
return redis.status_reply(1)
----
return redis.call({})
----
return redis.call("get",true)
----
return redis.call("get",nil)
----
return {redis.REDIS_VERSION,redis.REDIS_VERSION_NUM,redis.LOG_DEBUG,redis.LOG_WARNING,redis.REPL_ALL,redis.REPL_SLAVE}
----
return gcinfo()>0
----
return collectgarbage("count")>0
----
return __redis__err__handler("x").err
----
local t={} for k,v in pairs(__redis__err__handler("x")) do t[#t+1]=k..'='..tostring(v) end return t
----
return {err="a\r\nb"}
----
return {ok="a\nb"}
----
return {err=5}
----
return {ok=5}
----
return {double=3.5}
----
return {map={a=1},ok="x"}
----
return {set={a=1},map={b=2}}
----
return {big_number="12\n3"}
----
return {verbatim_string={string="ab",format="txt"}}
----
return {verbatim_string={string="ab"}}
----
return {1,2,function() end,4}
----
return function() end
----
return redis.call
----
return coroutine.create(function() end)
----
return cjson.null
----
return {pcall(redis.call,"FOO")}
----
error({err="x"})
----
error(nil)
----
error(true)
----
return cjson.encode(0/0)
----
return cjson.encode(1/0)
----
return cjson.encode(function() end)
----
return cjson.encode({[1]=1,[100]=2})
----
return cjson.encode({[1]=1,[11]=2})
----
return cjson.encode({[1]=1,[10]=2})
----
return cjson.encode({[true]=1})
----
return cjson.encode({a={b={}}})
----
local t={} t.t=t return cjson.encode(t)
----
return cjson.encode()
----
return cjson.encode(1,2)
----
return cjson.encode("a/b\"\\\n\127\1é")
----
return cjson.encode(cjson.null)
----
return cjson.encode({1.5,1e15,100000000000000,0.1,-0,1e-5,2^53})
----
return cjson.encode({x=cjson.null,1})
----
return cjson.decode("")
----
return cjson.decode("{")
----
return cjson.decode("[1,]")
----
return cjson.decode("{\"a\":1,}")
----
return cjson.decode("{\"a\" 1}")
----
return cjson.decode("{a:1}")
----
return cjson.decode("[1 2]")
----
return cjson.decode("1 2")
----
return cjson.decode("\"abc")
----
return cjson.decode("\"\\x\"")
----
return cjson.decode("\"\\u12\"")
----
return cjson.decode("nul")
----
return cjson.decode("+1")
----
return cjson.decode("-")
----
return tostring(cjson.decode("0x10"))
----
return tostring(cjson.decode("Infinity"))
----
return tostring(cjson.decode("nan"))
----
return tostring(cjson.decode("01"))
----
return cjson.decode("\"\\ud83d\\ude00 \\u00e9\"")
----
return cjson.decode("\"\\ud83d\"")
----
return cjson.decode("[" .. string.rep("[",1001) .. "1")
----
return tostring(cjson.decode("null")==cjson.null)
----
return cjson.decode()
----
return cjson.decode({})
----
return cjson.decode("[1,2,{\"a\":[]}]")[3].a[1]==nil
----
return {cjson.encode_sparse_array()}
----
return {cjson.encode_max_depth(),cjson.decode_max_depth(),cjson.encode_number_precision(),cjson.encode_keep_buffer(),cjson.encode_invalid_numbers(),cjson.decode_invalid_numbers()}
----
return {cjson._NAME,cjson._VERSION}
----
cjson.encode_max_depth(0)
----
cjson.encode_number_precision(20)
----
cjson.encode_sparse_array("x")
----
return {type(cjson.new), type(cjson.new())}
----
return cmsgpack.pack()
----
return cmsgpack.pack({},{1,2},{a=1},"x",1.5,-1,300,nil,true,2^40,-2^40,0.1)
----
return {cmsgpack.unpack(cmsgpack.pack(1,"a",{1,{x=2}}))}
----
return {cmsgpack.unpack("")}
----
return {cmsgpack.unpack("\145")}
----
return {cmsgpack.unpack("\193")}
----
return {cmsgpack.unpack("\196\1a")}
----
return {cmsgpack.unpack("\212\1a")}
----
return {cmsgpack.unpack_one("\1\2\3")}
----
return {cmsgpack.unpack_one("\1\2\3",2)}
----
return {cmsgpack.unpack_limit("\1\2\3",2)}
----
return {cmsgpack.unpack_limit("\1\2\3",2,1)}
----
return {cmsgpack.unpack_limit("\1\2\3",2,9)}
----
return {cmsgpack.unpack_limit("\1\2\3",-2,9)}
----
return {cmsgpack._NAME,cmsgpack._VERSION,cmsgpack._COPYRIGHT,cmsgpack._DESCRIPTION}
----
return cmsgpack.pack(function() end)
----
local t={} t[1]=t return #cmsgpack.pack(t)
----
return cmsgpack.pack({[1]=1,[2]=2,[4]=4})
----
return cmsgpack.pack({[1.5]=1})
----
return {struct.unpack(">I2h<i4bBxsc3","\1\2\255\254\1\0\0\0\255\255\0abc\0xyz")}
----
return {struct.unpack("Bc0","\3abcdef")}
----
return {struct.unpack("c0","\3abcdef")}
----
return struct.pack("z",1)
----
return struct.pack("i33",1)
----
return struct.pack("!3i4",1)
----
return struct.pack("c5","abc")
----
return struct.pack("i99999999999",1)
----
return struct.size("i4i8d!8bi8")
----
return struct.size("s")
----
return struct.size("c0")
----
return struct.size("bi8")
----
return {struct.unpack("i4","ab")}
----
return {struct.unpack("s","ab")}
----
return {struct.unpack("b","ab",0)}
----
return {struct.unpack("b","ab",3)}
----
return struct.pack("!bi4h",1,2,3)
----
return struct.pack(">d<f",1.5,2.5)
----
return struct.pack("I4",-1)
----
return struct.pack(">i16",-2)
----
return {struct.unpack("l","\255\255\255\255\255\255\255\255")}
----
return {bit.tohex(255),bit.tohex(255,-4),bit.tohex(-1,2),bit.band(),1}
----
return bit.band()
----
return {bit.tobit(2^32+5),bit.tobit(0.5),bit.tobit(1.5),bit.bnot(0),bit.bswap(0x12345678),bit.lshift(1,33),bit.arshift(-8,1),bit.rol(1,31),bit.ror(1,1),bit.rshift(-1,28)}
----
return bit.band("x")
----
#!lua flags=no-writes return 1
----
error("a\nb\n")
----
return {err="a\nb\n"}
----
return {err=""}
----
local t={} for i=1,300 do t={t} end return t
----
return 1
----
return 3.99
----
return "x"
----
return nil
----
return false
----
return true
----
return {1,2,nil,4}
----
return {1,false,"a",{2}}
----
return {ok="FINE"}
----
return {err="MYERR boo"}
----
return {err="boo"}
----
return redis.status_reply("OK")
----
return redis.error_reply("ERROR")
----
return redis.error_reply("MY ERR")
----
return {}
----
return redis.call("SET",KEYS[1],ARGV[1])
----
return redis.call("GET","nope")
----
return type(redis.call("GET","nope"))
----
return redis.call("TYPE","k").ok
----
return redis.call("SET","k","x","NX")
----
return type(redis.call("SET","k","x","NX"))
----
return redis.call("PING")
----
return {map={a=1}}
----
return 9007199254740993
----
return 1e15
----
return tostring(1729760300000)
----
return tostring(1e15)
----
redis.call("SET","n",1729760300000+1) return redis.call("GET","n")
----
redis.call("SET","n",1.5) return redis.call("GET","n")
----
redis.call("SET","n",10/3) return redis.call("GET","n")
----
return "5"+3
----
return math.max(3,"10")
----
return "10" < "9"
----
return redis.sha1hex("")
----
return redis.call("INCR",KEYS[1])
----
return redis.pcall("INCR",KEYS[1])
----
return redis.call("FOO")
----
return redis.call("GET")
----
return redis.call()
----
error({err="X y"})
----
return x
----
return (
----
return KEYS[1]
----
return redis.call("MULTI")
----
return redis.call("SUBSCRIBE","a")
----
return redis.call("BLPOP","a",0)
----
return redis.call("EVAL","return 1",0)
----
return redis.call("TIME")[1]+0 > 0
----
return redis.pcall("FOO")["err"]
----
local t=redis.pcall("GET") return t.err
----
local t={} for k,v in pairs(redis) do t[#t+1]=k end table.sort(t) return table.concat(t," ")
----
local t={} for k,v in pairs(_G) do t[#t+1]=k end table.sort(t) return table.concat(t," ")
----
return _VERSION
----
return {tostring(server), tostring(os and os.clock)}
----
return bit.band(7,3)
----
return cjson.encode({1,2,a=1})
----
return cmsgpack.unpack(cmsgpack.pack(5))
----
return struct.pack(">I4",1)
----
#!lua flags=no-writes\nreturn 1
----
redis.replicate_commands() return 1
----
redis.setresp(3) return redis.call("HGETALL","h")
----
return redis.call("HGETALL","h")
----
return redis.call("ZSCORE","z","m")
----
redis.setresp(3) return redis.call("ZSCORE","z","m")
