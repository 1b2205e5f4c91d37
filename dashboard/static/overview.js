import { byId, bytes, draw, duration, el, listen, put, shown } from "./common.js";

// names are the labels of facts whose names alone are not clear.
const names = { Clients: "Client address", Peers: "Peer address", HTTP: "HTTP address", Links: "Round trips" };
const cards = new Map(); // parts of the card of each node, by id
let started = new Map(); // when each node started, by the clock of the page
let silent = new Map(); // last answer of each node that does not answer now, by the clock of the page

// card returns the parts of the card of a node.
function card(id) {
  if (cards.has(id)) return cards.get(id);
  const facts = ["Term", "Lag", "Version", "Uptime", "Last answer", "Clients", "Peers", "HTTP", "Data", "Log", "Disk free",
    "Links"];
  const c = { role: el("span", { class: "role" }), detail: el("p", { class: "detail" }), values: new Map() };
  const list = el("dl", { class: "facts" });
  for (const f of facts) {
    const value = el("dd");
    c.values.set(f, value);
    list.append(el("dt", {}, names[f] ?? f), value);
  }
  c.root = el("li", { class: "card", "data-node": id }, el("h3", {}, shown(id), " ", c.role), list, c.detail);
  cards.set(id, c);
  byId("nodes").append(c.root);
  return c;
}

// sentence returns a text with a capital letter and a period.
const sentence = (text) => shown(text).replace(/^./, (c) => c.toUpperCase()) + ".";

function show(status) {
  const { verdict, nodes } = status;
  const v = byId("verdict");
  v.dataset.state = verdict.state;
  put(v, shown(verdict.sentence));
  byId("problems").hidden = verdict.problems.length + verdict.advice.length === 0;
  byId("problem-list").replaceChildren(
    ...verdict.problems.map((p) => el("li", {}, el("strong", {}, shown(p.text) + "."), " ", sentence(p.remedy))),
    ...verdict.advice.map((a) => el("li", {}, sentence(a))),
  );
  const ids = new Set(nodes.map((n) => n.id));
  for (const [id, c] of cards) {
    if (!ids.has(id)) {
      c.root.remove();
      cards.delete(id);
    }
  }
  started = new Map();
  silent = new Map();
  for (const l of nodes.flatMap((n) => (n.reachable ? n.links ?? [] : []))) {
    const at = performance.now() - l.silent_seconds * 1000;
    if (l.silent_seconds > 0) silent.set(l.to, Math.max(at, silent.get(l.to) ?? -Infinity));
  }
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
    if (up) silent.delete(n.id);
    set("Lag", up ? `${n.lag} ${n.lag === 1 ? "entry" : "entries"}` : "–");
    set("Version", up ? `${n.version}, feature version ${n.feature_version}` : "–");
    set("Clients", n.client_addr ?? "–");
    set("Peers", n.peer_addr);
    set("HTTP", n.http_addr ?? "–");
    const limit = n.maxmemory_bytes ? " of " + bytes(n.maxmemory_bytes) : "";
    set("Data", up ? `${n.keys} keys, ${bytes(n.dataset_bytes)}${limit}` : "–");
    set("Log", up ? bytes(n.log_bytes) : "–");
    set("Disk free", up && n.disk_total_bytes
      ? `${bytes(n.disk_free_bytes)} of ${bytes(n.disk_total_bytes)}, reserve ${bytes(n.disk_reserve_bytes)}` : "–");
    set("Links", up ? (n.links ?? []).map((l) => `${l.to} ${linkText(l)}`).join(", ") || "–" : "–");
    put(c.detail, shown([n.detail, n.snapshot_error].filter(Boolean).join("; ")));
  }
  uptimes();
  last = status;
  drawMap(status);
}

// linkText returns a text about the state of a link, as one of its nodes sees it.
function linkText(l) {
  if (!l.alive) return "no answer";
  return l.round_trip_ms ? `${l.round_trip_ms < 10 ? l.round_trip_ms.toFixed(1) : Math.round(l.round_trip_ms)} ms` : "up";
}

// drawMap draws the nodes on an ellipse, and a line with the round-trip time for
// each link. The cards of the nodes contain the same texts.
function drawMap({ nodes }) {
  if (nodes.length < 2) {
    byId("map").replaceChildren();
    return;
  }
  const width = Math.min(640, Math.max(280, byId("map").parentElement.clientWidth - 2));
  const [height, radius] = [240, 30];
  const at = new Map(nodes.map((n, i) => {
    const angle = -Math.PI / 2 + i * 2 * Math.PI / nodes.length;
    return [n.id, { x: width / 2 + (width / 2 - 50) * Math.cos(angle), y: height / 2 + 82 * Math.sin(angle) + (nodes.length === 3 ? 16 : 0) }];
  }));
  const reported = new Map(nodes.map((n) => [n.id, new Map((n.links ?? []).map((l) => [l.to, l]))]));
  const lines = [], labels = [], circles = [], words = [];
  nodes.forEach((a, i) => nodes.slice(i + 1).forEach((b) => {
    const both = [reported.get(a.id).get(b.id), reported.get(b.id).get(a.id)].filter(Boolean);
    if (both.length === 0) return;
    const cut = both.find((l) => !l.alive) || !a.reachable || !b.reachable;
    const text = cut ? "no answer" : linkText(both[0]);
    const [p, q] = [at.get(a.id), at.get(b.id)];
    lines.push(draw("line", { x1: p.x, y1: p.y, x2: q.x, y2: q.y, class: cut ? "link cut" : "link" }));
    labels.push(draw("text", { x: (p.x + q.x) / 2, y: (p.y + q.y) / 2 + 5, class: cut ? "cut" : "" }, text));
    words.push(`${a.id} to ${b.id}: ${text}`);
  }));
  for (const n of nodes) {
    const { x, y } = at.get(n.id);
    const state = !n.reachable ? "down" : n.role === "leader" ? "leader" : "up";
    circles.push(draw("circle", { cx: x, cy: y, r: radius, class: state }));
    const name = shown(n.id);
    circles.push(draw("text", { x, y: y + 5 }, name.length > 8 ? name.slice(0, 7) + "…" : name));
  }
  byId("map").replaceChildren(draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": shown("Links between the nodes. " + words.join("; ")) }, ...lines, ...labels, ...circles));
}

function uptimes() {
  for (const [id, c] of cards) {
    const at = started.get(id);
    put(c.values.get("Uptime"), at === undefined ? "–" : duration(performance.now() - at));
    const heard = silent.get(id);
    const row = c.values.get("Last answer");
    row.hidden = row.previousSibling.hidden = heard === undefined;
    put(row, heard === undefined ? "–" : `${duration(performance.now() - heard)} ago`);
  }
}

let last;
window.addEventListener("resize", () => last && drawMap(last));
setInterval(uptimes, 1000);
listen({ status: show }, (open) => {
  document.body.dataset.live = open;
  const lost = `${document.body.dataset.node} does not answer; the page shows its last answer and tries again.`;
  put(byId("freshness"), open ? "Live" : lost);
});
