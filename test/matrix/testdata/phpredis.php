<?php
// phpredis: a lock by hand, scripts, MULTI.
[$_, $host, $port] = $argv;
function check($what, $ok)
{
    if (!$ok) {
        fwrite(STDERR, "$what failed\n");
        exit(1);
    }
}
$script = 'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end';
$a = new Redis();
$a->connect($host, (int) $port, 30);
$b = new Redis();
$b->connect($host, (int) $port, 30);
$sha = $a->script('load', $script);
for ($i = 0; $i < 20; $i++) {
    check('lock', $a->set('lock', "a$i", ['nx', 'px' => 60000]) === true);
    check('second lock', $b->set('lock', "b$i", ['nx', 'px' => 60000]) === false);
    if ($i === 10) {
        echo "half\n";
        fgets(STDIN);
        check('owner', $b->get('lock') === "a$i");
    }
    check('ttl', $a->pttl('lock') > 0);
    check('wrong token', $b->eval($script, ['lock', "b$i"], 1) === 0);
    check('unlock', $a->evalSha($sha, ['lock', "a$i"], 1) === 1);
    check('multi', $a->multi()->incr('n')->exec() === [$i + 1]);
}
echo "ok\n";
