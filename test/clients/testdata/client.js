// node-redis with its defaults: a lock, MULTI, WATCH, a pipeline, a cut connection.
const assert = require('assert');
const { createClient, WatchError } = require('redis');

async function main() {
  const [host, port] = process.argv.slice(2);
  const open = async () => {
    const c = createClient({ socket: { host, port: Number(port) } });
    c.on('error', () => {}); // the cut below is reported here too
    await c.connect();
    return c;
  };
  const r = await open();
  const other = await open();
  assert.strictEqual(await r.ping(), 'PONG');
  assert.strictEqual(await r.set('lock', 'token', { NX: true, EX: 60 }), 'OK');
  assert.strictEqual(await r.set('lock', 'token', { NX: true, EX: 60 }), null);
  assert.strictEqual(await r.get('lock'), 'token');
  assert.deepStrictEqual(await r.multi().set('n', 1).incr('n').get('n').exec(), ['OK', 2, '2']);
  const many = []; // sent in one pipeline
  for (let i = 0; i < 500; i++) many.push(r.set('k' + i, String(i)), r.get('k' + i));
  assert.strictEqual((await Promise.all(many)).pop(), '499');
  await r.watch('n');
  await other.set('n', '9');
  await assert.rejects(r.multi().incr('n').exec(), WatchError);
  assert.ok((await r.info()).includes('redis_version:7.0.15'));
  assert.deepStrictEqual({ ...(await r.configGet('databases')) }, { databases: '16' });
  assert.strictEqual(await other.sendCommand(['CLIENT', 'KILL', 'ID', String(await r.clientId())]), 1);
  let again;
  for (let i = 0; i < 50 && again === undefined; i++) {
    again = await r.get('lock').catch(() => undefined); // fails if it was sent before the client noticed the cut
  }
  assert.strictEqual(again, 'token');
  await r.quit();
  await other.quit();
  console.log('ok');
}

main().catch((err) => {
  console.log(err);
  process.exit(1);
});
