for k in next,5 do end
----
for k in string.rep do end
----
return {string.byte("abc"),string.byte("abc",2),string.byte("abc",-1),string.byte("abc",1,3)}
----
return {string.byte("abc",10)}
----
return {("abc"):byte(0,5)}
----
return string.char(72,105,0,255)
----
string.char(256)
----
string.char(-1)
----
string.char("x")
----
return {string.find("hello","l"),string.find("hello","xyz")==nil,string.find("hello","l",4),string.find("hello","")}
----
return {string.find("hello","(l)(l)")}
----
return {string.find("a.b",".",1,true),string.find("a.b","%.")}
----
return {string.find("hello","o",-1),string.find("hello","h",-1)==nil,string.find("hello","",10),string.find("","")}
----
return {string.find("hello","^h"),string.find("hello","^e")==nil,string.find("hello","o$"),string.find("a$b","$b")}
----
return {string.match("key=value","(%w+)=(%w+)")}
----
return {string.match("hello","()ll()")}
----
return string.match("  trim  ","^%s*(.-)%s*$")
----
return {string.match("2024-01-02","(%d+)-(%d+)-(%d+)")}
----
return string.match("abc","%u")
----
return {string.match("[[x]]","%[%[(.-)%]%]")}
----
return string.match("f(a(b)c)d","%b()")
----
return {string.match("THE (quick) fox","%f[%a]%a+",5)}
----
return string.match("aaa","a-")
----
return string.match("aaab","a-b")
----
return string.match("xyz","[x-z]+")
----
return string.match("a-z","[a%-z]+")
----
return string.match("]","[]]")
----
return string.match("^","[%^x]")
----
return string.match("b","[^a]")
----
return string.match("abcabc","(abc)%1")
----
return string.match("hello","(h)(e)(l)(l)(o)")
----
string.match("x","(")
----
string.match("x",")")
----
string.match("x","%")
----
string.match("x","[a")
----
string.match("x","[")
----
string.match("x","[^")
----
string.match("x","[%")
----
string.match("x","%b")
----
string.match("x","%f")
----
string.match("x","%1")
----
string.match("x","(x)%2")
----
string.match("x","(()")
----
string.match("x","((((((((((((((((((((((((((((((((((x))))))))))))))))))))))))))))))))))")
----
return {string.gsub("hello","l","L")}
----
return {string.gsub("hello","l","L",1)}
----
return {string.gsub("hello","l","L",0)}
----
return {string.gsub("hello","","-")}
----
return {string.gsub("hello world","%w+","<%0>")}
----
return {string.gsub("hello world","(%w+) (%w+)","%2 %1")}
----
return {string.gsub("abc","%w","%%%0")}
----
return {string.gsub("abc","%w","%")}
----
return {string.gsub("abc","%w","%2")}
----
return {string.gsub("abc","%w","%x")}
----
return {string.gsub("$name is $age","%$(%w+)",{name="Bob",age=5})}
----
return {string.gsub("abc","%w",function(c) if c=="b" then return "B" end end)}
----
return {string.gsub("abc","%w",function(c) return false end)}
----
return {string.gsub("abc","%w",function(c) return {} end)}
----
return {string.gsub("abc","(a)(b)",function(x,y) return y..x end)}
----
return {string.gsub("abc","()",function(p) return p end)}
----
return {string.gsub("abc","^a","x")}
----
return {string.gsub("aaa","^a","x")}
----
return {string.gsub("abc","b*","x")}
----
string.gsub("abc","b")
----
string.gsub("abc","b",true)
----
string.gsub()
----
local t={} for w in string.gmatch("one two three","%a+") do t[#t+1]=w end return t
----
local t={} for k,v in string.gmatch("a=1,b=2","(%w+)=(%w+)") do t[#t+1]=k..v end return t
----
local t={} for p in string.gmatch("abc","()") do t[#t+1]=p end return t
----
local t={} for w in string.gmatch("abc","") do t[#t+1]="|"..w end return t
----
local t={} for w in string.gmatch("aab","^a") do t[#t+1]=w end return t
----
local t={} for w in string.gfind("a b","%a") do t[#t+1]=w end return t
----
return {string.rep("ab",3),string.rep("x",0),string.rep("",5)}
----
return {string.reverse("abc"),string.upper("aBc1é"),string.lower("AbC"),string.len("a\0b"),("x"):len()}
----
return {string.sub("hello",2),string.sub("hello",2,3),string.sub("hello",-3),string.sub("hello",-3,-2),string.sub("hello",0),string.sub("hello",4,2),string.sub("hello",-100,100)}
----
string.sub("x")
----
string.sub()
----
string.upper()
----
string.upper({})
----
return string.upper(12)
----
("x"):rep()
----
("x"):rep({})
----
("x"):sub("a")
----
local s="x" s:rep(nil)
----
string.rep(nil,1)
----
local r=string.rep r()
----
local t={f=string.rep} t.f()
----
pcall(string.rep) return {pcall(string.rep)}
----
return string.format("%d %5d %-5d| %05d %+d % d",42,42,42,42,42,42)
----
return string.format("%i %u",-5,5)
----
return string.format("%x %X %#x %o %#o %c",255,255,255,8,8,65)
----
return string.format("%s %10s %-10s| %.2s %5.1s",1,"abc","abc","abc","xyz")
----
return string.format("%q",'a "quoted" \\ \n \r \0 end')
----
return string.format("%f %.2f %10.3f %-10.1f| %+f %e %.3E %g %G",1.5,1.005,3.14159,2.25,1,12345.678,0.00012,1e20,1e-10)
----
return string.format("%g %g %g %g %.3g %#g %#.3g",100000,1000000,1e15,0.0001,1234567,1,2)
----
return string.format("%5.3d %.0f %#.0f %.0d",7,2.5,2.5,0)
----
return string.format("%g %f %d",0/0,1/0,3.99)
----
return string.format("%e %E %5g|%-8g|",1/0,-1/0,0/0,1/0)
----
return string.format("%05.1f|%+.2e|%08.3f|%-8d|%+5d",3.14159,12345,-3.5,5,5)
----
return string.format("%%")
----
return string.format("%d","10")
----
return string.format("%d","x")
----
return string.format("%d")
----
return string.format("%s")
----
return string.format("%s",nil)
----
return string.format("%s",true)
----
return string.format("%s",{})
----
return string.format("%y",1)
----
return string.format("%")
----
return string.format("%123d",1)
----
return string.format("%.123d",1)
----
return string.format("%-+ #0d",1)
----
return string.format("%-+ #00d",1)
----
return string.format("%x",-1)
----
return string.format("%d",2^53)
----
return string.format("%.20s|","abc")
----
return string.format("%.14g %.17g %.3f",0.1,0.1,2/3)
----
return string.format("%s %s",1,2,3)
----
return string.format("%-5s|%5s|","abcdefg","ab")
----
return string.format("a\0b%s","c\0d")
----
return string.format("%5s|","c\0d")
----
return string.format("%99d",1)
----
return string.format("%.99f",1/3)
----
return string.format("%.50e",1/3)
----
return string.format("%.30g",0.1)
----
return #string.format("%s",string.rep("x",200))
----
return #string.format("%300s","x")
----
return {table.concat({1,2,3}),table.concat({1,2,3},","),table.concat({1,2,3},",",2),table.concat({1,2,3},",",2,2),table.concat({}),table.concat({1,2},", ",3)}
----
table.concat({1,{},3})
----
table.concat({1,nil,3},",",1,3)
----
table.concat({true})
----
table.concat()
----
table.concat(5)
----
local t={1,2} table.insert(t,3) table.insert(t,1,0) table.insert(t,3,9) return t
----
local t={} table.insert(t,5,"x") return tostring(t[5])
----
local t={1,2,3} table.insert(t,-1,"x") return t
----
table.insert({})
----
table.insert({},1,2,3)
----
table.insert(nil,1)
----
table.insert({},"x",1)
----
local t={1,2,3} return {table.remove(t),table.remove(t,1),#t,t[1]}
----
return {table.remove({}),1}
----
local t={1,2,3} table.remove(t,10) return t
----
local t={3,1,2} table.sort(t) return t
----
local t={3,1,2} table.sort(t,function(a,b) return a>b end) return t
----
local t={"b","a","C"} table.sort(t) return t
----
table.sort({1,"a"})
----
table.sort({{},{}})
----
table.sort({3,1,2,nil,5})
----
table.sort({1,2,3},5)
----
local t={} for i=1,50 do t[i]=(i*37)%11 end table.sort(t) return t
----
local t={} for i=1,30 do t[i]={(i*7)%5,i} end table.sort(t,function(a,b) return a[1]<b[1] end) local r={} for i,v in ipairs(t) do r[i]=v[2] end return r
----
local t={} for i=1,30 do t[i]=(i*7)%13 end local ok,e=pcall(table.sort,t,function(a,b) return true end) return {tostring(ok),e}
----
local n=0 local t={5,3,8,1,9,2,7} table.sort(t,function(a,b) n=n+1 return a<b end) return n
----
table.sort({3,2,1},function(a,b) error("cmp") end)
----
local t = {} t[1], t[4], t[9] = 1, 1, 1 return {table.getn(t), #t, table.maxn(t)}
----
return {table.getn({1,2,3}),table.maxn({1,2,[10]=1}),table.maxn({}),table.maxn({[2.5]=1,[-1]=1})}
----
table.setn({},1)
----
local s=0 table.foreach({1,2,x=3},function(k,v) s=s+v end) return s
----
return table.foreachi({5,6,7},function(i,v) if v==6 then return i end end)
----
table.foreach({})
----
return {math.abs(-5),math.ceil(1.2),math.floor(-1.2),math.max(1,5,3),math.min(4,2,8),math.sqrt(16),math.pow(2,10),math.fmod(7,3),math.fmod(-7,3),math.mod(7,3)}
----
return {tostring(math.sin(1)),tostring(math.cos(1)),tostring(math.tan(1)),tostring(math.asin(0.5)),tostring(math.acos(0.5)),tostring(math.atan(1)),tostring(math.atan2(1,2)),tostring(math.exp(1)),tostring(math.log(10)),tostring(math.log10(1000)),tostring(math.sinh(1)),tostring(math.cosh(1)),tostring(math.tanh(1)),tostring(math.deg(1)),tostring(math.rad(180)),tostring(math.pi)}
----
return {tostring(math.frexp(10)),select(2,math.frexp(10)),math.ldexp(0.5,5),math.modf(3.7),tostring(select(2,math.modf(-3.7))),tostring(math.modf(1/0)),tostring(select(2,math.modf(1/0)))}
----
math.random(0)
----
math.random(5,1)
----
math.random(1,2,3)
----
math.floor()
----
math.floor("x")
----
return math.floor("3.7")
----
math.max()
----
math.max(1,"x")
----
return {tostring(math.huge),tostring(-math.huge),math.huge==1/0}
----
math.randomseed(42) local a={math.random(1000),math.random(1000),math.random(1000),tostring(math.random())} return a
----
math.randomseed(0) return {math.random(1000000),math.random(1000000)}
----
math.randomseed(-7) return {math.random(1000000),math.random(1000000)}
----
return cjson.encode({1,2,3})
----
return cjson.encode({[1]="a",[2]="b",[3]="c"})
----
return cjson.encode({[0]=1})
----
return cjson.encode({[-1]=1,[1.5]=2})
----
return cjson.encode({{},{a={}}})
----
return cjson.encode("")
----
return cjson.encode(12345678901234567890)
----
return cjson.encode({0.1,1/3,1e-10,123456789.123})
----
cjson.encode_sparse_array(true) local s=cjson.encode({[1]=1,[100]=2}) cjson.encode_sparse_array(false) return s
----
cjson.encode_number_precision(3) local s=cjson.encode(1/3) cjson.encode_number_precision(14) return s
----
cjson.encode_number_precision(14) cjson.encode_max_depth(2) local ok,e=pcall(cjson.encode,{{{1}}}) cjson.encode_max_depth(1000) return e
----
cjson.encode_invalid_numbers("null") local s=cjson.encode({0/0,1/0}) cjson.encode_invalid_numbers(false) return s
----
cjson.encode_invalid_numbers(true) local s=cjson.encode({0/0,-(0/0),1/0,-1/0}) cjson.encode_invalid_numbers("off") return s
----
local ok,e=pcall(cjson.encode_invalid_numbers,"bogus") return e
----
cjson.decode_invalid_numbers(false) local ok,e=pcall(cjson.decode,"[0x10]") local ok2,e2=pcall(cjson.decode,"nan") cjson.decode_invalid_numbers(true) return {e,e2}
----
cjson.decode_max_depth(2) local ok,e=pcall(cjson.decode,"[[[1]]]") cjson.decode_max_depth(1000) return e
----
local c=cjson.new() c.encode_number_precision(2) return {c.encode(1/3),cjson.encode(1/3)}
----
return {cjson.decode("true"),cjson.decode("1.5")*2,cjson.decode('"s"'),cjson.decode(" [1, 2 ,3] ")}
----
return cjson.decode('{"a":{"b":{"c":[1,2,{"d":"deep"}]}}}').a.b.c[3].d
----
return cjson.decode('{"a":1,"a":2}').a
----
return cjson.decode('[1e5,-1.5E-3,0,-0,1.0]')[1]
----
return cjson.decode('"tab\\tnl\\nq\\"s\\\\u\\u0041\\/"')
----
return cjson.decode('"\\uD800"')
----
return cjson.decode('"\\uDC00"')
----
return cjson.decode('"\\uD83Dx"')
----
return cjson.decode('"\\u00zz"')
----
return cjson.decode('"raw\ttab"')
----
return cjson.decode("{'a':1}")
----
return cjson.decode('[1,2')
----
return cjson.decode('[1,,2]')
----
return cjson.decode('{"a"}')
----
return cjson.decode('{"a":}')
----
return cjson.decode('{1:2}')
----
return cjson.decode('tru')
----
return cjson.decode('truex')
----
return cjson.decode('-x')
----
return cjson.decode('1.5.5')
----
return cjson.decode('[1]]')
----
return cjson.decode("\0\0")
----
return cjson.decode("1\0")
----
return cjson.decode("[\"a\0b\"]")
----
return cjson.decode('NaNx')
----
return tostring(cjson.decode('-Infinity'))
----
return tostring(cjson.decode('iNf'))
----
return cjson.decode(12)
----
return cjson.decode('1e')
----
return cjson.decode('.5')
----
return cjson.decode('5.')
----
return tostring(cjson.decode('1e400'))
----
return cjson.encode(cjson.decode("[]"))
----
return cjson.encode(setmetatable({1,2},{__index={5}}))
----
return cmsgpack.pack(0,127,128,255,256,65535,65536,4294967295,4294967296,-1,-32,-33,-128,-129,-32768,-32769,-2147483648,-2147483649)
----
return cmsgpack.pack(1.5,0.1,1e300,2^63,-2^63,2^64,1/0,0/0)
----
return cmsgpack.pack("",string.rep("a",31),string.rep("b",32),string.rep("c",255),string.rep("d",256))
----
return #cmsgpack.pack(string.rep("d",65535))+#cmsgpack.pack(string.rep("d",65536))
----
local t={} for i=1,20 do t[i]=i end return cmsgpack.pack(t)
----
return cmsgpack.pack({1,2,nil,4})
----
return cmsgpack.pack({[1]=1,x=2})
----
return cmsgpack.pack({{{}}},true,false,nil)
----
local v=cmsgpack.unpack(cmsgpack.pack({a={1,2,{b="x"}}})) return {v.a[1],v.a[3].b}
----
return {cmsgpack.unpack("\204\255\205\1\2\206\1\2\3\4\208\255\209\255\254\210\255\255\255\254\211\255\255\255\255\255\255\255\254")}
----
return tostring(cmsgpack.unpack("\207\255\255\255\255\255\255\255\255"))
----
return {tostring(cmsgpack.unpack("\202\63\192\0\0")),tostring(cmsgpack.unpack("\203\63\248\0\0\0\0\0\0"))}
----
return {cmsgpack.unpack("\217\3abc\218\0\2de\219\0\0\0\1f\163ghi")}
----
return cmsgpack.unpack("\220\0\2\1\2")
----
return cmsgpack.unpack("\221\0\0\0\2\1\2")
----
return cmsgpack.unpack("\222\0\1\161a\5").a
----
return cmsgpack.unpack("\129\192\1")
----
return cmsgpack.unpack("\163ab")
----
return cmsgpack.unpack("\205\1")
----
return cmsgpack.unpack({})
----
return cmsgpack.unpack()
----
cmsgpack.unpack_limit("x")
----
return {cmsgpack.unpack_limit("\1\2",0)}
----
return {cmsgpack.unpack_limit("\1\2",0,1)}
----
return {cmsgpack.unpack_one("\1\2",-1)}
----
return {cmsgpack.unpack_one("")}
----
return {struct.pack(">I2<I2",258,258),struct.pack("b",-1),struct.pack("B",255),struct.pack("h",-2),struct.pack("H",65534)}
----
return {struct.pack("<l",-3),struct.pack(">L",3),struct.pack("T",7),struct.pack("i3",-5),struct.pack(">I7",2^40)}
----
return {struct.pack("f",1.5),struct.pack(">d",-2.5),struct.pack("s","abc"),struct.pack("c3","abcdef"),struct.pack("c0","abc"),struct.pack("x")}
----
return {struct.pack("!4 b i4",1,2),struct.pack("!2bi8",1,2),struct.pack("!b!h",1,2)}
----
return {struct.unpack("<b>h<H","\255\255\254\1\2")}
----
return {struct.unpack("i3","\255\255\255"),struct.unpack("I3","\255\255\255")}
----
return {struct.unpack("i16",string.rep("\255",16))}
----
return {tostring(struct.unpack("L","\255\255\255\255\255\255\255\255"))}
----
return {struct.unpack("s","abc\0def")}
----
return {struct.unpack("Bc0B","\3abc\4")}
----
return {struct.unpack("c3","abcdef",2)}
----
return {struct.unpack("","abc")}
----
return {struct.unpack("f","\0\0\192\63")}
----
return {struct.unpack("b","\1",1)}
----
struct.unpack("b","\1",-5)
----
struct.unpack("b","\1",1e9)
----
struct.unpack("c0","\1")
----
struct.unpack("bc0","\255x")
----
struct.pack()
----
struct.pack("b")
----
struct.pack("b","x")
----
struct.pack("s")
----
struct.pack("%")
----
struct.pack("!0i4",1)
----
return struct.pack("!16i4",1)
----
return struct.pack("i0",1)
----
return {struct.size("b"),struct.size("!i4b"),struct.size("!bi4"),struct.size(">d"),struct.size("c10"),struct.size("x"),struct.size("i3"),struct.size("")}
----
struct.size("z")
----
return {bit.tobit(0xffffffff),bit.tobit(-1.5),bit.tobit("10"),bit.tobit(2^40+3)}
----
return {bit.band(0xff,0x0f,0x3),bit.bor(1,2,4),bit.bxor(5,3),bit.bnot(5)}
----
return {bit.lshift(1,31),bit.rshift(-1,1),bit.arshift(-16,2),bit.lshift(1,32),bit.rol(0x12345678,12),bit.ror(0x12345678,12),bit.bswap(0x78563412)}
----
return {bit.tohex(1),bit.tohex(-1),bit.tohex(0xabcdef,4),bit.tohex(0xabcdef,-6),bit.tohex(5,0),bit.tohex(5,20)}
----
bit.lshift(1)
----
bit.tohex()
----
return {redis.sha1hex("x"),redis.sha1hex(12)}
----
redis.log(redis.LOG_NOTICE,"a",1,true,nil)
----
return redis.set_repl(redis.REPL_ALL)
----
return redis.set_repl(redis.REPL_NONE)
----
return {(struct.unpack('>H',"\215\154")), (struct.unpack('<I4',struct.pack('<I4',1696041667))), (struct.unpack('>I4',"\195\169\226\130"))}
----
local bad = 0 for i=0,65535 do if struct.unpack('H',struct.pack('H',i)) ~= i then bad = bad + 1 end end return bad
----
return {cjson.encode({[1729760300123]='x'}), cjson.encode({[2147483647.0+1]=1}), cjson.encode({[2^53]='y'})}
----
return cjson.encode({[2147483647]='x'})
----
local t = {} for i=-5,18 do t[#t+1] = tostring(math.log10(10^i)) end return t
