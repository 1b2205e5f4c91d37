local s="" for k,v in pairs({10,20,30,a=1,b=2,c=3}) do s=s..tostring(k)..":"..tostring(v).."," end return s
----
local s="" for k,v in pairs({a=1,b=2,c=3,d=4,e=5,f=6,g=7,h=8}) do s=s..k end return s
----
local t={} for i=1,40 do t["key"..i]=i end for i=1,40,3 do t["key"..i]=nil end for i=1,9 do t["new"..i]=i end local s="" for k in pairs(t) do s=s..k.." " end return s
----
local t={} for i=1,30 do t[i*1.5]=i end local s="" for k in pairs(t) do s=s..k.." " end return s
----
local t={} for i=-10,10 do t[i]=i end local s="" for k in pairs(t) do s=s..k.." " end return s
----
local t={[true]=1,[false]=2,x=3,[1]=4,[2.5]=5,[-1]=6} local s="" for k in pairs(t) do s=s..tostring(k).." " end return s
----
return cjson.encode({a=1,b={1,2},c="x",d=true,e=cjson.null})
----
local t={} for i=1,20 do t["key"..i]=i end return cjson.encode(t)
----
return cjson.encode(cjson.decode('{"z":1,"a":[1,{"b":null}],"m":"x"}'))
----
local t={} for i=1,20 do t["k"..i]=i end return cmsgpack.pack(t)
----
local t={} for k,v in pairs(string) do t[#t+1]=k end return table.concat(t," ")
----
local t={} for k,v in pairs(table) do t[#t+1]=k end return table.concat(t," ")
----
local t={} for k,v in pairs(math) do t[#t+1]=k end return table.concat(t," ")
----
local t={} for k,v in pairs(bit) do t[#t+1]=k end return table.concat(t," ")
----
local t={} for k,v in pairs(struct) do t[#t+1]=k end return table.concat(t," ")
----
local t={} for k,v in pairs(cjson) do t[#t+1]=k end return table.concat(t," ")
----
local t={} for k,v in pairs(cmsgpack) do t[#t+1]=k end return table.concat(t," ")
----
local t={} for k,v in pairs(coroutine) do t[#t+1]=k end return table.concat(t," ")
----
local t={} for k,v in pairs(redis) do t[#t+1]=k end return table.concat(t," ")
----
local t={} for k,v in pairs(redis.pcall("FOO")) do t[#t+1]=k..tostring(v) end return table.concat(t," ")
----
local t={} for i=1,20 do t["k"..i]=i end local r={} for k in pairs(t) do r[#r+1]=k end return table.concat(r," ")
----
return cmsgpack.pack(redis)
