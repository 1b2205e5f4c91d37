# The cluster client of redis-rb. It gets only the address of a follower.
require "redis"

redis = Redis.new(cluster: ["redis://#{ARGV[0]}"])
$stdout.sync = true
$stdin.each_line do |line|
  words = line.split
  begin
    if words[0] == "set"
      raise "not OK" unless redis.set(words[1], words[2]) == "OK"
      puts "ok"
    else
      master = redis.cluster(:nodes).find { |n| n["flags"].include?("master") }
      puts "ok #{master["ip_port"][/:(\d+)/, 1]}"
    end
  rescue StandardError => e
    puts "error #{e.inspect.tr("\n", " ")}"
  end
end
