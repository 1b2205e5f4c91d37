// node-redis: a lock with a defined script, MULTI, pub/sub.
const { createClient, defineScript } = require('redis');
const assert = require('assert');
const readline = require('readline');

const [host, port] = process.argv.slice(2);
const release = defineScript({
  NUMBER_OF_KEYS: 1,
  SCRIPT: 'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end',
  transformArguments: (key, token) => [key, token],
  transformReply: (n) => n,
});
const options = { socket: { host, port: Number(port) }, scripts: { release } };
const line = () => new Promise((resolve) => readline.createInterface({ input: process.stdin }).once('line', resolve));

(async () => {
  const a = createClient(options);
  const sub = a.duplicate();
  await a.connect();
  await sub.connect();
  const heard = [];
  await sub.subscribe('freed', (m) => heard.push(m));
  let inside = 0;
  let turns = 0;
  const [workers, rounds] = [4, 8];
  await Promise.all([...Array(workers).keys()].map(async (n) => {
    for (let i = 0; i < rounds; i++) {
      const token = `worker-${n}-${i}`;
      while ((await a.set('lock', token, { NX: true, PX: 60000 })) !== 'OK') {
        await new Promise((r) => setTimeout(r, 5));
      }
      assert.equal(++inside, 1, 'two owners');
      if (++turns === (workers * rounds) / 2) {
        console.log('half');
        await line();
      }
      assert.equal(await a.get('lock'), token);
      inside--;
      assert.equal(await a.release('lock', 'not mine'), 0);
      assert.equal(await a.release('lock', token), 1);
      await a.publish('freed', token);
    }
  }));
  assert.equal(turns, workers * rounds);
  assert.deepEqual(await a.multi().set('n', '1').incr('n').exec(), ['OK', 2]);
  while (heard.length < turns) {
    await new Promise((r) => setTimeout(r, 5));
  }
  await sub.disconnect();
  await a.disconnect();
  console.log('ok');
  process.exit(0);
})().catch((e) => {
  console.error(e);
  process.exit(1);
});
