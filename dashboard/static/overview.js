import { byId, bytes, duration, el, listen, put, shown } from "./common.js";

const cards = new Map(); // parts of the card of each node, by id
let started = new Map(); // when each node started, by the clock of the page

// card returns the parts of the card of a node.
function card(id) {
  if (cards.has(id)) return cards.get(id);
  const facts = ["Term", "Lag", "Version", "Uptime", "Clients", "Peers", "Data", "Disk free"];
  const c = { role: el("span", { class: "role" }), detail: el("p", { class: "detail" }), values: new Map() };
  const list = el("dl", { class: "facts" });
  for (const f of facts) {
    const value = el("dd");
    c.values.set(f, value);
    list.append(el("dt", {}, f), value);
  }
  c.root = el("li", { class: "card", "data-node": id }, el("h3", {}, shown(id), " ", c.role), list, c.detail);
  cards.set(id, c);
  byId("nodes").append(c.root);
  return c;
}

function show(status) {
  const { verdict, nodes } = status;
  const v = byId("verdict");
  v.dataset.state = verdict.state;
  put(v, shown(verdict.sentence));
  byId("problems").hidden = verdict.problems.length + verdict.advice.length === 0;
  byId("problem-list").replaceChildren(
    ...verdict.problems.map((p) => el("li", {}, el("strong", {}, shown(p.text)), " ", shown(p.remedy) + ".")),
    ...verdict.advice.map((a) => el("li", {}, shown(a))),
  );
  const ids = new Set(nodes.map((n) => n.id));
  for (const [id, c] of cards) {
    if (!ids.has(id)) {
      c.root.remove();
      cards.delete(id);
    }
  }
  started = new Map();
  for (const n of nodes) {
    const c = card(n.id);
    const role = !n.voter && n.role === "follower" ? "learner" : n.role;
    c.root.dataset.role = role;
    c.root.dataset.reachable = n.reachable;
    put(c.role, role + (n.id === status.node ? " · this node" : ""));
    const set = (name, text) => put(c.values.get(name), shown(text));
    const up = n.reachable;
    if (up) started.set(n.id, performance.now() - n.uptime_seconds * 1000);
    set("Term", up ? n.term : "–");
    set("Lag", up ? n.lag : "–");
    set("Version", up ? n.version : "–");
    set("Clients", n.client_addr ?? "–");
    set("Peers", n.peer_addr);
    const limit = n.maxmemory_bytes ? " of " + bytes(n.maxmemory_bytes) : "";
    set("Data", up ? `${n.keys} keys, ${bytes(n.dataset_bytes)}${limit}` : "–");
    set("Disk free", up && n.disk_free_bytes ? bytes(n.disk_free_bytes) : "–");
    put(c.detail, shown([n.detail, n.snapshot_error].filter(Boolean).join("; ")));
  }
  uptimes();
}

function uptimes() {
  for (const [id, c] of cards) {
    const at = started.get(id);
    put(c.values.get("Uptime"), at === undefined ? "–" : duration(performance.now() - at));
  }
}

setInterval(uptimes, 1000);
listen({ status: show }, (open) => {
  document.body.dataset.live = open;
  const lost = `${document.body.dataset.node} does not answer; the page shows its last answer and tries again.`;
  put(byId("freshness"), open ? "Live" : lost);
});
