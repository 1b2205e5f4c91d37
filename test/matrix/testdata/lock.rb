# redis-rb: SET NX PX and a compare-and-delete script, among four threads.
require 'redis'
require 'securerandom'

mode, host, port, sentinels = ARGV
options =
  if mode == 'sentinel'
    { url: 'redis://mymaster', role: :master, reconnect_attempts: 20, reconnect_delay: 0.1, reconnect_delay_max: 0.5,
      sentinels: sentinels.split(',').map { |a| h, p = a.split(':'); { host: h, port: p.to_i } } }
  else
    { host: host, port: port.to_i, timeout: 30 }
  end
SCRIPT = 'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end'.freeze
WORKERS = 4
ROUNDS = 8
inside = Mutex.new
turns = Queue.new

def persist(mode)
  yield
rescue Redis::BaseConnectionError
  raise unless mode == 'sentinel'
  sleep 0.05
  retry
end

threads = (0...WORKERS).map do |n|
  Thread.new do
    Thread.current.report_on_exception = false
    r = Redis.new(options)
    sha = persist(mode) { r.script(:load, SCRIPT) }
    ROUNDS.times do
      token = SecureRandom.hex
      until persist(mode) { r.set('lock', token, nx: true, px: 60_000) } || persist(mode) { r.get('lock') } == token
        sleep 0.005
      end
      raise 'two owners' unless inside.try_lock
      turns << n
      if turns.size == WORKERS * ROUNDS / 2
        puts 'half'
        $stdout.flush
        $stdin.gets
      end
      inside.unlock
      freed = persist(mode) { r.evalsha(sha, keys: ['lock'], argv: [token]) }
      raise "freed #{freed}" unless freed == 1 || mode == 'sentinel'
    end
  end
end
threads.each(&:join)
raise "#{turns.size} turns" unless turns.size == WORKERS * ROUNDS
puts 'ok'
