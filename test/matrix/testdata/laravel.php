<?php
// Laravel's cache locks over phpredis.
require 'Illuminate/autoload.php';
use Illuminate\Cache\RedisStore;
use Illuminate\Redis\RedisManager;

[$_, $host, $port] = $argv;
function check($what, $ok)
{
    if (!$ok) {
        fwrite(STDERR, "$what failed\n");
        exit(1);
    }
}
function store($host, $port)
{
    $manager = new RedisManager(null, 'phpredis', ['default' => ['host' => $host, 'port' => (int) $port, 'database' => 1, 'timeout' => 30]]);
    return new RedisStore($manager, 'app:', 'default');
}
$one = store($host, $port);
$two = store($host, $port);
for ($i = 0; $i < 10; $i++) {
    $lock = $one->lock('import', 60);
    check('get', $lock->get());
    check('second get', !$two->lock('import', 60)->get());
    if ($i === 5) {
        echo "half\n";
        fgets(STDIN);
        check('still taken', !$two->lock('import', 60)->get());
    }
    check('owner', $two->restoreLock('import', $lock->owner())->release());
    check('blocked', $two->lock('import', 60)->block(10, fn () => 'in') === 'in');
    check('free again', $one->lock('import', 60)->get(fn () => true) === true);
}
check('add', $one->add("key", 'value', 60) === true);
check('add again', $two->add("key", 'other', 60) === false);
check('forever', $one->lock('forever')->get());
$two->lock('forever')->forceRelease();
check('after force', $two->lock('forever')->get());
echo "ok\n";
