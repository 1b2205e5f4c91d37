// The cluster client of node-redis. Version 4.5 follows a transfer of leadership, but
// keeps using a dead leader. So after an error, the program makes a new client, which
// queries another node first.
const readline = require('readline');
const { createCluster } = require('redis');

const addrs = process.argv.slice(2);

async function connect() {
  addrs.push(addrs.shift());
  const cluster = createCluster({
    rootNodes: addrs.map((a) => ({ url: 'redis://' + a })),
    defaults: { disableOfflineQueue: true, socket: { reconnectStrategy: (n) => (n > 2 ? new Error('gone') : 20) } },
  });
  cluster.on('error', () => {}); // a kill is reported here too
  await cluster.connect();
  return cluster;
}

async function main() {
  let cluster;
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const words = line.trim().split(' ');
    try {
      cluster = cluster || (await connect());
      if (words[0] === 'set') {
        if ((await cluster.set(words[1], words[2])) !== 'OK') throw new Error('not OK');
        console.log('ok');
      } else {
        const info = await cluster.sendCommand('any', false, ['INFO', 'server']);
        console.log('ok ' + /tcp_port:(\d+)/.exec(info)[1]);
      }
    } catch (err) {
      if (cluster) cluster.disconnect().catch(() => {});
      cluster = undefined;
      console.log('error ' + String(err).replace(/\n/g, ' '));
    }
  }
  process.exit(0);
}

main().catch((err) => {
  console.error(err);
  process.exit(1);
});
