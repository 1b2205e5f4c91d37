<?php
// phpredis with its defaults: a lock, MULTI, WATCH, a pipeline, a cut connection.
function check($what, $ok)
{
    if (!$ok) {
        echo "$what failed\n";
        exit(1);
    }
}

[$_, $host, $port] = $argv;
$r = new Redis();
$r->connect($host, (int) $port);
check('ping', $r->ping() === true);
check('lock', $r->set('lock', 'token', ['nx', 'ex' => 60]) === true);
check('lock again', $r->set('lock', 'token', ['nx', 'ex' => 60]) === false);
check('get', $r->get('lock') === 'token');
check('absent', $r->get('absent') === false);
check('multi', $r->multi()->set('n', 1)->incr('n')->get('n')->exec() === [true, 2, '2']);
$p = $r->pipeline();
for ($i = 0; $i < 500; $i++) {
    $p->set("k$i", $i)->get("k$i");
}
$replies = $p->exec();
check('pipeline', count($replies) === 1000 && $replies[999] === '499');
$other = new Redis();
$other->connect($host, (int) $port);
$r->watch('n');
$other->set('n', 9);
check('watch', $r->multi()->incr('n')->exec() === false);
$info = $r->info();
check('info', $info['role'] === 'master' && $info['redis_version'] === '7.0.15');
check('config', $r->config('GET', 'databases') === ['databases' => '16']);
check('client list', count($r->client('list')) === 2);
check('kill', $other->rawCommand('CLIENT', 'KILL', 'ID', $r->rawCommand('CLIENT', 'ID')) === 1);
check('reconnect', $r->get('lock') === 'token');
echo "ok\n";
