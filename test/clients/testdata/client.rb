# redis-rb with its defaults: a lock, MULTI, WATCH, a pipeline, a cut connection.
require "redis"

def check(what, ok)
  abort("#{what} failed") unless ok
end

r = Redis.new(host: ARGV[0], port: ARGV[1].to_i)
check "ping", r.ping == "PONG"
check "lock", r.set("lock", "token", nx: true, ex: 60) == true
check "lock again", r.set("lock", "token", nx: true, ex: 60) == false
check "get", r.get("lock") == "token"
check "absent", r.get("absent").nil?
check "multi", r.multi { |m| m.set("n", 1); m.incr("n"); m.get("n") } == ["OK", 2, "2"]
check "pipeline", r.pipelined { |p| 500.times { |i| p.set("k#{i}", i); p.get("k#{i}") } }.last == "499"
other = Redis.new(host: ARGV[0], port: ARGV[1].to_i)
lost = r.watch("n") do
  other.set("n", 9)
  r.multi { |m| m.incr("n") }
end
check "watch", lost.nil?
info = r.info
check "info", info["role"] == "master" && info["redis_version"] == "7.0.15"
check "config", r.config(:get, "databases") == { "databases" => "16" }
check "client list", r.client(:list).size == 2
check "kill", other.call("CLIENT", "KILL", "ID", r.call("CLIENT", "ID")) == 1
check "reconnect", r.get("lock") == "token"
check "quit", r.quit == "OK"
puts "ok"
