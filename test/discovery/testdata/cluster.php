<?php
// The cluster client of phpredis. It queries only other masters for the nodes, and
// there is no other master. So after an error, the program makes a new client.
$redis = null;
while (($line = fgets(STDIN)) !== false) {
    $words = explode(' ', trim($line));
    try {
        $redis = $redis ?? new RedisCluster(null, array_slice($argv, 1), 2.0, 5.0);
        if ($words[0] === 'set') {
            if ($redis->set($words[1], $words[2]) !== true) {
                throw new RedisClusterException('not OK');
            }
            echo "ok\n";
        } else {
            $masters = $redis->_masters();
            echo 'ok ', $masters[0][1], "\n";
        }
    } catch (RedisClusterException | RedisException $e) {
        $redis = null;
        echo 'error ', str_replace("\n", ' ', $e->getMessage()), "\n";
    }
}
