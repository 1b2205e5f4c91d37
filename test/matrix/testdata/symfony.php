<?php
// symfony/lock with its RedisStore over phpredis, as its documentation shows it.
require 'Symfony/Component/Lock/autoload.php';
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\RedisStore;

[$_, $host, $port] = $argv;
function check($what, $ok)
{
    if (!$ok) {
        fwrite(STDERR, "$what failed\n");
        exit(1);
    }
}
function factory($host, $port)
{
    $redis = new Redis();
    $redis->connect($host, (int) $port, 30);
    return new LockFactory(new RedisStore($redis));
}
$one = factory($host, $port);
$two = factory($host, $port);
for ($i = 0; $i < 10; $i++) {
    $lock = $one->createLock('report', 60);
    $other = $two->createLock('report', 60);
    check('acquire', $lock->acquire());
    check('second acquire', !$other->acquire());
    if ($i === 5) {
        echo "half\n";
        fgets(STDIN);
        check('still ours', $lock->isAcquired());
        check('still not theirs', !$other->acquire());
    }
    $lock->refresh(90);
    check('lifetime', $lock->getRemainingLifetime() > 60);
    $lock->release();
    check('released', !$lock->isAcquired());
    check('handed over', $other->acquire());
    $other->release();
}
// Two readers, then a writer.
$r1 = $one->createLock('shared', 60);
$r2 = $two->createLock('shared', 60);
check('read', $r1->acquireRead());
check('second read', $r2->acquireRead());
check('write beside a reader', !$r2->acquire());
$r1->release();
check('write', $r2->acquire());
$r2->release();
echo "ok\n";
