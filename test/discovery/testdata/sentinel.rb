# redis-rb with Sentinel.
require "redis"

sentinels = ARGV.map { |a| { host: a[/\A(.*):/, 1], port: a[/\d+\z/].to_i } }
redis = Redis.new(url: "redis://mymaster", sentinels: sentinels, role: :master)
$stdout.sync = true
$stdin.each_line do |line|
  words = line.split
  begin
    if words[0] == "set"
      raise "not OK" unless redis.set(words[1], words[2]) == "OK"
      puts "ok"
    else
      puts "ok #{redis.info("server")["tcp_port"]}"
    end
  rescue StandardError => e
    puts "error #{e.inspect.tr("\n", " ")}"
  end
end
