<?php
// phpredis with Sentinel: the program queries a Sentinel, connects to the master, and
// queries again after an error.
function master(array $addrs): Redis
{
    foreach ($addrs as $addr) {
        [$host, $port] = explode(':', $addr);
        try {
            $sentinel = new RedisSentinel($host, (int) $port, 1.0);
            $found = $sentinel->getMasterAddrByName('mymaster');
            if ($found === false || count($sentinel->slaves('mymaster')) < 2 || count($sentinel->sentinels('mymaster')) < 2) {
                continue;
            }
            $redis = new Redis();
            if (@$redis->connect($found[0], (int) $found[1], 1.0)) {
                return $redis;
            }
        } catch (RedisException $e) {
            // try the next Sentinel
        }
    }
    throw new RedisException('no Sentinel knows a master that answers');
}

$addrs = array_slice($argv, 1);
$redis = null;
while (($line = fgets(STDIN)) !== false) {
    $words = explode(' ', trim($line));
    try {
        $redis = $redis ?? master($addrs);
        if ($words[0] === 'set') {
            if ($redis->set($words[1], $words[2]) !== true) {
                throw new RedisException('not OK');
            }
            echo "ok\n";
        } else {
            echo 'ok ', $redis->info('server')['tcp_port'], "\n";
        }
    } catch (RedisException $e) {
        $redis = null;
        echo 'error ', str_replace("\n", ' ', $e->getMessage()), "\n";
    }
}
