local a = {} for c="3",1,-1 do a[#a+1]=c end return a
----
local a = {} for c=1,"0x4","2" do a[#a+1]=c end return a
----
for i="x",2 do end
----
for i=1,2,{} do end
----
local t={} for i=1,3 do t[i]=function() i=i+1 return i end end return {t[1](),t[1](),t[2](),t[3]()}
----
local t={} local i=1 while i<=3 do local j=i t[i]=function() j=j*10 return j end i=i+1 end return {t[1](),t[1](),t[2](),t[3]()}
----
local n=0 repeat local x=n n=n+1 until x>=4 return n
----
local function f(...) return select('#',...),... end return {f(1,nil,3,nil)}
----
local function f(...) return ... end return {(f(1,2,3))}
----
local function f(...) return ... end return {f(1,2),f(3,4)}
----
local function f(...) local a,b,c=... return {c,b,a} end return f(1,2,3,4)
----
local function f(...) return arg.n,arg[1],arg[3] end return {f(7,8,9)}
----
local function f(...) local x=... return type(arg) end return f(1)
----
return #{1,2,nil,4}
----
return #{1,2,nil,4,nil}
----
return #{nil,nil,3}
----
return #{n=1,[1]=1,[2]=2,[4]=4}
----
local t={} t[1]=1 t[2]=2 t[4]=4 return #t
----
local t={1,2,3} t[#t]=nil return #t
----
local t={} for i=1,10 do t[i]=i end for i=1,10 do if i%2==0 then t[i]=nil end end return #t
----
local t={} for i=10,1,-1 do t[i]=i end return #t
----
local a,b,c=(function() return 1,2,3 end)() return {a,b,c}
----
local a,b=1 return {a,tostring(b)}
----
local t={} local i=1 i,t[i]=i+1,20 return {i,t[1],tostring(t[2])}
----
local a,b=1,2 a,b=b,a return {a,b}
----
local t={1,2} t[1],t[2]=t[2],t[1] return t
----
local t={} for i=1,20 do t[2^i]=i end local s="" for k in pairs(t) do s=s..k.." " end return s
----
local t={1,2,3,x=1,y=2} for k in pairs(t) do t[k]=nil end return next(t)==nil
----
local t={} for i=1,100 do t[i]=i end for k in pairs(t) do t[k]=nil end local n=0 for k in pairs(t) do n=n+1 end return n
----
return next({},1)
----
return next({})
----
return {next({5})}
----
local t=setmetatable({},{__index=function(t,k) return k.."!" end}) return {t.a,t.b,rawget(t,"a")==nil}
----
local t=setmetatable({},{__newindex=function(t,k,v) rawset(t,k,v*2) end}) t.a=5 return t.a
----
local p={} local t=setmetatable({},{__newindex=p,__index=p}) t.a=5 return {rawget(t,"a")==nil,p.a,t.a}
----
local t=setmetatable({},{__call=function(self,a,b) return a+b end}) return t(3,4)
----
local t=setmetatable({},{__call=5}) return t(3,4)
----
local mt={__add=function(a,b) return "add" end,__sub=function() return "sub" end,__mul=function() return "mul" end,__div=function() return "div" end,__mod=function() return "mod" end,__pow=function() return "pow" end,__unm=function() return "unm" end,__concat=function() return "cat" end} local a=setmetatable({},mt) return {a+1,1-a,a*a,a/2,a%2,a^2,-a,a.."x","x"..a,1 ..a}
----
local mt={__eq=function() return true end} return setmetatable({},mt)==setmetatable({},mt)
----
return setmetatable({},{__eq=function() return true end})==setmetatable({},{__eq=function() return true end})
----
local mt={__lt=function(a,b) return a.v<b.v end} local function n(v) return setmetatable({v=v},mt) end return {n(1)<n(2),n(2)<n(1),n(1)<=n(1),n(2)>n(1),n(1)>=n(2)}
----
local mt={__le=function(a,b) return a.v<=b.v end} local function n(v) return setmetatable({v=v},mt) end return {n(1)<=n(2),n(2)>=n(3)}
----
local t=setmetatable({},{__len=function() return 7 end}) return #t
----
return tostring(setmetatable({},{__tostring=function() return "shown" end}))
----
return tostring(setmetatable({},{__tostring=function() return 5 end}))
----
local t=setmetatable({},{__metatable="locked"}) return getmetatable(t)
----
local t=setmetatable({},{__metatable="locked"}) setmetatable(t,{})
----
setmetatable({},5)
----
setmetatable({})
----
setmetatable(5,{})
----
local t={} setmetatable(t,{__index=t}) return t.x
----
local t={} local u=setmetatable({},{__index=t}) setmetatable(t,{__index=u}) return t.x
----
return 7 % 3, -7 % 3
----
return {7%3,-7%3,7%-3,-7%-3,tostring(5.5%2),tostring(-5.5%2),tostring(1%0),tostring(0/0==0/0)}
----
return {tostring(2^0.5),tostring(2^-1),tostring(-2^2),tostring(2^3^2),tostring(1/3),tostring(1e100),tostring(-1e-100),tostring(1e14),tostring(1e15),tostring(123456789012345),tostring(0.1+0.2)}
----
return {tostring(1e308*10),tostring(-1e308*10),tostring(-0),tostring(0*-1),tostring(3.0),tostring(100000000000000)}
----
return {"10"+5,"0x10"+0,"1e2"*1," 5 "+0,"5"-"2",-"3",2^"3"}
----
return "abc"+1
----
return {}+1
----
return nil+1
----
local x="a" return x*2
----
local t={} return t.x+1
----
local t={} return t.x.y
----
local t={} t.x.y=1
----
local t={} t.x.y.z=1
----
local t={} local i="k" t[i].y=1
----
local x return x()
----
local x=5 x()
----
local x=5 x.y()
----
local x="str" x.y()
----
local x="str" x:nope()
----
local x=5 x:nope()
----
(1)()
----
("x").y.z=1
----
local function f() return g() end return f()
----
local up local function f() return up.x end return f()
----
local up local function f() up() end return f()
----
local t={} t[nil]=1
----
local t={} t[0/0]=1
----
return ({})[nil]
----
local t={} t.x=nil t[nil]=nil
----
return 1 < "2"
----
return {} < {}
----
return {} < 1
----
return nil < 1
----
return "a" < "b", "a" < "a"
----
return {"a"<"b","a"<"a","a"<="a","Z"<"a","a\0b"<"a\0c",""<"a"}
----
return "a".."b".. 1 ..2
----
return "a"..{}
----
return "a"..nil
----
local x return "a"..x
----
local t={} return "a"..t.x.."b"
----
return 1 ..true
----
return not nil, not 0
----
return {not nil,not 0,not "",not false}
----
return {1 and 2,nil and 2,false or 3,1 or 2,nil or false}
----
return {1==1,"1"==1,nil==false,{}=={},"a"=="a",0==-0}
----
local a<b
----
x = = 1
----
return return
----
local function end
----
if 1 then
----
if 1 then

else
----
while true do
----
repeat
----
for i=1 do end
----
for i do end
----
for i,j=1,2 do end
----
for 1=1,2 do end
----
local 1=2
----
f(
----
return {1,2
----
return {1,

2
----
return "abc
----
return 'abc\
def'
----
return [[abc
----
return [==[a]]b]=]c]==]
----
return [=[
first newline is dropped]=]
----
return [=x
----
--[[ unfinished
----
--[==[ long
comment ]==] return 1
----
-- comment only
----
return 1 -- trailing
----
return 3x
----
return 0x
----
return 1e
----
return 1..2
----
return 0x1F
----
return {1e2,.5*2,5.,0xA,1E+2,1e-2*100}
----
return "\65\066\0671\n\t\\\"\'\a"
----
return "\256"
----
return "\q"
----
return $
----
return @
----
return 5 5
----
break
----
while true do break end return 1
----
while true do if true then break end end return 1
----
local function f() break end
----
return ...
----
return select('#',...)
----
local function f() return ... end
----
local function f(a,...,b) end
----
local function f(a,) end
----
local function f(a a) end
----
a.b:c = 1
----
(f) = 1
----
f() = 1
----
a, f() = 1
----
local t = {} t:x
----
local f = function(x) return x end
(f)(1)
----
goto = 1
----
local goto = 1 return goto
----
do local x = 1 end return x
----
local x <const> = 1
----
return 5 // 2
----
return 5 & 2
----
return ~5
----
return 1 ~= 2
----
return #"abc" + #{1,2}
----
return -2^2
----
return not 1 == 2
----
return 1 .. 2 == "12"
----
return 2^-3
----
return "a" .. "b" == "ab" and 1 or 2
----
local function fact(n) if n<=1 then return 1 end return n*fact(n-1) end return fact(20)
----
local function sum(n,acc) if n==0 then return acc end return sum(n-1,acc+n) end return sum(100000,0)
----
local function f(n) if n==0 then error("deep") end return f(n-1) end f(10)
----
local function f(n) if n==0 then error("deep",2) end f(n-1) end f(3)
----
local function a() error("lvl2",2) end
local function b() a() end
b()
----
local function a() error({code=5,err="E x"}) end
a()
----
return {pcall(error,"x",0)}
----
return {pcall(error,{err="boxed"})}
----
return {pcall(error)}
----
return {pcall(function() error() end)}
----
return {pcall(function() error("a",0) end)}
----
return {pcall(function() error("a") end)}
----
return {pcall(function() local x=nil; x.y=1 end)}
----
return {pcall(function(...) return ... end,1,2,3)}
----
return {pcall(nil)}
----
return {pcall(5)}
----
return {xpcall(function() error("m") end,function(e) return "handled: "..e end)}
----
return {xpcall(function() return 1,2 end,function(e) return e end)}
----
return {xpcall(function() error("m") end,function(e) error("again") end)}
----
return {xpcall(function() local t=nil; return t.x end,function(e) return e:upper() end)}
----
return {pcall(pcall)}
----
return {pcall(pcall,error,"e")}
----
assert(false)
----
assert(nil,"message")
----
return {assert(1,2,3)}
----
assert()
----
error("multi\nline")
----
error("with code: ERR x")
----
error({err="WRONGTYPE custom"})
----
error({err="nospace"})
----
local ok,e=pcall(redis.call,"GET","h") return e
----
local ok,e=pcall(redis.call,"GET","h") error(e)
----
local e=redis.pcall("GET","h") error(e)
----
local e=redis.pcall("GET","h") return e
----
local e=redis.pcall("GET","h") return e.err
----
redis.call("GET","h")
----
local function wrapped() return redis.call("GET","h") end
local x = wrapped()
return x
----

-- third line
redis.call("NOPE")
----
return type(redis.call("GET","s"))
----
return {redis.call("GET","n")+1,redis.call("INCR","n"),type(redis.call("GET","nokey"))}
----
return redis.call("LRANGE","l",0,-1)
----
return #redis.call("LRANGE","l",0,-1)
----
return redis.call("HGETALL","h")
----
redis.setresp(3) return redis.call("HGETALL","h")
----
redis.setresp(3) return redis.call("HGETALL","h").map.a
----
redis.setresp(3) return redis.call("SMEMBERS","set")
----
redis.setresp(3) return redis.call("SMEMBERS","set").set.m
----
redis.setresp(3) return type(redis.call("GET","nokey"))
----
redis.setresp(3) return {redis.call("GET","nokey"),1}
----
redis.setresp(3) return redis.call("ZSCORE","z","m").double
----
redis.setresp(3) return redis.call("ZSCORE","z","m")
----
redis.setresp(3) return {true,false}
----
redis.setresp(3) return true
----
redis.setresp(3) return false
----
return {true,false,nil,1}
----
return redis.call("ZSCORE","z","n")
----
return redis.call("SMEMBERS","set")
----
return redis.call("SET","x",12345678901234567890)
----
redis.call("SET","x",12345678901234567890) return redis.call("GET","x")
----
redis.call("SET","x",0.1) return redis.call("GET","x")
----
redis.call("SET","x",-0) return redis.call("GET","x")
----
redis.call("SET","x",1e100) return redis.call("GET","x")
----
redis.call("SET","x",2^53) return redis.call("GET","x")
----
redis.call("SET","x",100000000000000000) return redis.call("GET","x")
----
redis.call("SET","x",1e-7) return redis.call("GET","x")
----
redis.call("set",KEYS[1],ARGV[2]) return redis.call("incrby",KEYS[1],ARGV[3])
----
return {KEYS[1],KEYS[3],#KEYS,#ARGV,ARGV[4],ARGV[5],tostring(KEYS[4])}
----
return {unpack(KEYS)}
----
return redis.call(unpack({"MGET","s","n","zz"}))
----
return redis.call("PING","x")
----
return redis.call("ECHO",1)
----
return redis.call("TYPE","s")
----
return redis.call("TYPE","s")["ok"]
----
return redis.call("type","nokey").ok == "none"
----
return redis.status_reply("FINE")
----
return redis.error_reply("MYCODE msg")
----
return redis.error_reply("")
----
return {err=redis.error_reply("A b").err}
----
return {1,{err="inner"},3}
----
return {1,{ok="inner"},3}
----
return {{{{1}}}}
----
return {{},{{}},{{},{}}}
----
return {1.9,-1.9,"1.9"}
----
return {double=1.5}
----
return {double=1e300}
----
return {double=3}
----
return {double="x"}
----
return {map={}}
----
return {map={x={map={y=1}}}}
----
return {set={a=true}}
----
return {set={}}
----
return {map=5}
----
return {big_number="123456789012345678901234567890"}
----
return {big_number=5}
----
return {verbatim_string={format="mkd",string="# x"}}
----
return {verbatim_string={format="txt",string="x"}}
----
return {verbatim_string={format="toolong",string="x"}}
----
return {err="E",ok="O",double=1}
----
return {[1]=1,[2]=2,x=3}
----
return {x=3}
----
return "\0\1\2"
----
return -0.5
----
return 2^63
----
return -2^63
----
return 2^64
----
return math.huge
----
return coroutine.wrap(function() coroutine.yield(1) return 2 end)()
----
local co=coroutine.wrap(function(a) local b=coroutine.yield(a+1) return b*2 end) return {co(1),co(10)}
----
local co=coroutine.create(function() error("inco") end) return {coroutine.resume(co)}
----
local co=coroutine.create(function() error({err="t"}) end) local ok,e=coroutine.resume(co) return e.err
----
local co=coroutine.create(function() end) coroutine.resume(co) return {coroutine.resume(co)}
----
local co co=coroutine.create(function() return coroutine.resume(co) end) return {coroutine.resume(co)}
----
local co=coroutine.create(function() coroutine.yield() end) local a=coroutine.status(co) coroutine.resume(co) local b=coroutine.status(co) coroutine.resume(co) return {a,b,coroutine.status(co)}
----
coroutine.yield(1)
----
local co=coroutine.wrap(function() error("wrapped") end) co()
----
local co=coroutine.wrap(function() pcall(coroutine.yield,1) return 5 end) return co()
----
local co=coroutine.create(function() local t=setmetatable({},{__index=function() coroutine.yield(1) end}) return t.x end) return {coroutine.resume(co)}
----
local co=coroutine.wrap(function() for i=1,3 do coroutine.yield(i) end end) local t={} for v in co do t[#t+1]=v end return t
----
return tostring(coroutine.running())
----
local function gen(n) return coroutine.wrap(function() for i=1,n do coroutine.yield(i) end end) end local s=0 for v in gen(10) do s=s+v end return s
----
local co=coroutine.wrap(function() redis.call("SET","k","v") coroutine.yield(redis.call("GET","k")) end) return co()
----
coroutine.create(5)
----
coroutine.resume(5)
----
coroutine.wrap(print)
----
local co=coroutine.create(function(...) return select('#',...) end) return {coroutine.resume(co,1,nil,nil)}
----
return loadstring("return 1+1")()
----
return {loadstring("x x")}
----
return loadstring("return ...")(7)
----
return {loadstring("error('a')","=name")}
----
loadstring("error('in chunk')","@file")()
----
loadstring("local x\nx.y=1")()
----
loadstring("y=1")()
----
return load(function() return nil end)==nil
----
local i=0 return load(function() i=i+1 return ({"return ","4","2"})[i] end)()
----
load("return 1")
----
loadstring("\27Lua")()
----
return {loadstring("\27Lua")}
----
local f=loadstring("return KEYS[1]") return f()
----
return _G==_G._G
----
return _G.KEYS[1]
----
_G.newvar=1
----
newvar=1
----
redis.call=nil
----
string.len=nil
----
KEYS=nil
----
KEYS[1]="changed" return KEYS[1]
----
table.insert(KEYS,"more") return #KEYS
----
table.insert(redis,1)
----
table.sort(redis)
----
rawset(_G,"x",1)
----
rawset(string,"x",1)
----
local ok,e=pcall(function() x=1 end) return e
----
local ok,e=pcall(rawset,_G,"x",1) return e
----
return rawget(_G,"nothere")==nil
----
return nothere
----
return _G.nothere
----
return _G[5]
----
local x=_G[true]
----
setmetatable(_G,nil)
----
setmetatable(string,{})
----
return getmetatable("").__index==string
----
return getmetatable(redis)
----
for k,v in pairs(nil) do end
----
for k,v in ipairs() do end
----
for i in 5 do end
----
for i in nil do end
----
for i in {} do end
----
local t={} for i,v in ipairs({1,2,nil,4}) do t[#t+1]=v end return t
----
local t={} for i,v in ipairs(setmetatable({},{__index=function(_,i) if i<4 then return i end end})) do t[#t+1]=v end return #t
----
return select(2,"a","b","c")
----
return {select(-1,"a","b","c")}
----
return {select(-2,"a","b","c")}
----
return select(0,1)
----
return select(-5,1)
----
return {select('#')}
----
return select('#',nil,nil)
----
return select("x",1)
----
return select()
----
return {tonumber("10"),tonumber("0x10"),tonumber("10",2),tonumber("ff",16),tonumber("zz",36),tonumber("8",8)==nil,tonumber(" 12 "),tonumber("1e1"),tonumber("")==nil,tonumber("1 2")==nil,tonumber("-0x10"),tonumber(true)==nil,tonumber({})==nil}
----
return {tostring(tonumber("inf")),tostring(tonumber("nan")),tostring(tonumber("-inf")),tostring(tonumber("infinity")),tostring(tonumber("0x1p4")),tostring(tonumber("0x.8")),tostring(tonumber("1_000"))}
----
return {tonumber("-ff",16),tonumber("7fffffffffffffff",16),tonumber("1.5",10)*2,tostring(tonumber("1.5",16))}
----
tonumber()
----
tonumber("1",99)
----
tonumber({},16)
----
return {type(nil),type(1),type("x"),type({}),type(print_)}
----
return {type(nil),type(1),type("x"),type({}),type(type),type(true),type(cjson.null),type(coroutine.create(function() end))}
----
type()
----
return {tostring(nil),tostring(true),tostring(12),tostring("x")}
----
tostring()
----
return {rawequal("a","a"),rawequal({},{}),rawequal(1,1)}
----
return unpack({1,2,3},2)
----
return {unpack({1,2,3},2)}
----
return {unpack({1,2,3},-1,1)}
----
return {unpack({},1,3)}
----
return unpack({},1,1e8)
----
return unpack({},1,8000)
----
return select('#',unpack({},1,7900))
----
unpack(5)
----
return collectgarbage()
----
return collectgarbage("bogus")
----
return collectgarbage("collect")
----
return {gcinfo()>=0}
----
--[==== a title ====]
return 1
----
local s = "--[= no comment" --[=[ a long
one ]=] return s
----
local call = function(x) return x + 1 end
local call = function(x) return call(x) * 2 end
return call(1)
----
local t = {1,2,3,4,5,6,7,8,9,10,1,2,3,4,5,6,7,8,9,20,1,2,3,4,5,6,7,8,9,30,1,2,3,4,5,6,7,8,9,40,1,2,3,4,5,6,7,8,9,50,unpack({51,52})} return {#t, t[1], t[50], t[51], t[52]}
----
local t = {1,2,3,4,5,6,7,8,9,10,1,2,3,4,5,6,7,8,9,20,1,2,3,4,5,6,7,8,9,30,1,2,3,4,5,6,7,8,9,40,1,2,3,4,5,6,7,8,9,50,a=tostring(7),b=tostring(8)} return {#t, t[1], t[2], t[3], t[50], t.a, t.b}
----
return {"010"+1, "0x10"+1, " 7 "*2, "1e1"-1, 10 .. "", -"2", "10"/"4", "7"%"4", "2"^"3"}
----
local ok, e = pcall(function() return "1_0"+1 end) return e
----
for i="1","3" do redis.call("SET", "x" .. i, i) end return redis.call("GET", "x3")
----
local f for i=1,3 do local j=i f = f or function() j = j + 1 return j end end return {f(), f()}
----
local f pcall(function() local x = 5 f = function() return x end error("e") end) return f()
----
local a, b = 1, 2 a, b = b, a return {a, b}
----
local t = {} local i = 1 i, t[i] = i + 1, 20 return {i, t[1], t[2]}
----
local function f(...) return arg.n, arg[1] end return {f(7, 8)}
----
local function f(...) local x = ... return arg end return {tostring(f(7))}
----
return {(function(...) return select("#", ...) end)(nil, nil, nil)}
----
local t = setmetatable({}, {__add = function(a, b) return "added" end}) return {t + "1", "1" + t, t + 1}
----
return 010
----
local o = {n = 1} function o:inc(k) self.n = self.n + k return self.n end function o.twice(x) return 2 * x end return {o:inc(4), o.twice(8)}
----
local s = 0 for k, v in next, {1, 2, 3} do s = s + v end return s
----
local s = 0 for k in pairs({1, 2, 3}) do s = s + k end return s
----
local n = 0 while true do n = n + 1 if n > 5 then break end end repeat local m = n n = n - 1 until m < 3 return n
----
return {tostring(1 % 0.1), tostring(10.5 % 0.1), tostring(5 % 3), tostring(-5 % 3), tostring(5.25 % -2), tostring("7" % 4), tostring(2^53 % 3)}
----
local a, b = 1, 0.1 return {tostring(a % b), tostring(a % b + 1), tostring(-a % b), tostring((a + 9.5) % b), 2 * 7 % 4}
----
local t = setmetatable({}, {__mod = function(a, b) return "mod" end}) return {t % 2, 2 % t}
----
local t = {} return t.x % 2
----
local s = "a" return 3 % s
----
local x = {} return (function() return 7, 8 end)() % 4
