import { api, byId, cell, client, countdown, duration, el, mode, poll, put, rows, shown } from "./common.js";

const query = Object.fromEntries(new URLSearchParams(location.search));
const count = countdown();
const lease = el("dd", { class: "ttl" });
let before = null;

// note adds a line to the list of the events since the page was opened.
function note(text) {
  byId("seen").append(el("li", {}, el("time", {}, new Date().toLocaleTimeString()), " ", shown(text)));
}

// facts shows the fields of the lock: pairs of a name and a value. It does not
// replace a value that is already an element of the page.
function facts(pairs) {
  const values = [...byId("lock").querySelectorAll("dd")];
  const same = values.length === pairs.length && pairs.every(([, v], i) => !(v instanceof Element) || v === values[i]);
  if (same) {
    pairs.forEach(([, v], i) => v instanceof Element || put(values[i], shown(v)));
    return;
  }
  byId("lock").replaceChildren(...pairs.flatMap(([name, value]) => [
    el("dt", {}, name), value instanceof Element ? value : el("dd", {}, shown(value))]));
}

// grants returns the grants of a lock: a map from tokens to owners.
function grants(l) {
  if (!l) return new Map();
  if (l.holders?.length) return new Map(l.holders.map((h) => [h.token, h.owner]));
  return l.token ? new Map([[l.token, l.owner ?? "an owner"]]) : new Map();
}

function compare(l) {
  const now = grants(l);
  if (before === null) {
    for (const [token, owner] of now) note(`${owner} holds the lock with token ${token}`);
    if (now.size === 0) note("the lock is free");
  } else {
    for (const [token, owner] of before) if (!now.has(token)) note(`the grant of ${owner} (token ${token}) ended`);
    for (const [token, owner] of now) if (!before.has(token)) note(`${owner} got the lock with token ${token}`);
  }
  if (before === null || [...before.keys()].join() !== [...now.keys()].join()) loadHistory();
  before = now;
}

const numbered = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
const chosen = byId("window").elements.window;
let lastHistory = "", refused = false;

// loadHistory shows the past grants and their time line.
async function loadHistory() {
  const width = Math.max(600, byId("line").parentElement.clientWidth - 2);
  try {
    const answer = await api("lock/history", { ...query, window: chosen.value, width,
      offset: -new Date().getTimezoneOffset() });
    refused = false;
    // The texts of the drawing are escaped, and the parser runs no scripts.
    const svg = new DOMParser().parseFromString(answer.drawing, "image/svg+xml").documentElement;
    byId("line").replaceChildren(document.adoptNode(svg));
    byId("line-key").hidden = false;
    const { grants } = answer.history;
    const more = answer.hidden > 0 ? ` ${answer.hidden} more owners are not drawn.` : "";
    put(byId("line-text"), `${numbered(grants.length, "grant")}, ${numbered(answer.failovers.length, "failover")}.${more}`);
    const now = JSON.stringify(grants);
    if (now === lastHistory) return;
    lastHistory = now;
    rows(byId("past"), grants.map((g) => el("tr", {}, cell(g.token, { class: "number" }), cell(g.owner),
      cell(g.mode ? mode(g) : "–"), cell(g["acquired-ms"] ? new Date(g["acquired-ms"]).toLocaleString() : "–"),
      cell(duration(g["waited-ms"])), cell(duration(g["held-ms"])),
      cell([g.how === "held" ? "still held" : g.how, g["ended-by-node"] ? `client ${g["ended-by-client-id"]} at ${g["ended-by-node"]}` : ""]
        .filter(Boolean).join(" by ")),
      cell(g.renewals, { class: "number" }), cell(client(g)))), "no grant in this time");
  } catch (err) {
    refused = Boolean(err.login);
    rows(byId("past"), [], "no history");
    put(byId("line-text"), shown(`No history: ${err.message}`));
    byId("line").replaceChildren();
    byId("line-key").hidden = true;
  }
}
chosen.addEventListener("change", loadHistory);
setInterval(() => {
  if (!document.hidden && !refused) loadHistory();
}, 10000);

poll(async () => {
  const { lock: l } = await api("lock", query);
  compare(l);
  const held = before.size > 0;
  const key = query.key ?? l?.key ?? "";
  if (!l) facts([["Key", key], ["Owner", "none: the lock is free"]]);
  else {
    facts([["Key", l.key], ["Owner", l.holders?.length ? `${l.holders.length} owners` : l.owner ?? "none"],
      ["Mode", mode(l)], ["Token", l.token || "–"], ["Lease", count(lease, l["ttl-ms"])],
      ["Held", duration(l["held-ms"])], ["Waited before", duration(l["waited-ms"])],
      ["Renewals", l.renewals ?? "–"], ["Client", client(l)], ["Note", l.meta || "–"],
      ...(l["delay-ms"] ? [["Delay", `no client gets the lock for another ${duration(l["delay-ms"])}`]] : [])]);
  }
  byId("break").hidden = !held;
  byId("break").href = "/locks/break?" + new URLSearchParams(query);
  const holders = l?.holders ?? [];
  byId("holders").hidden = holders.length === 0;
  rows(byId("holders").querySelector("table"), holders.map((h) => el("tr", {}, cell(h.token), cell(h.owner),
    cell(duration(h["held-ms"])), count(el("td", { class: "ttl" }), h["ttl-ms"]), cell(client(h)))), "none");
  rows(byId("waiters"), (l?.waiters ?? []).map((w, i) => el("tr", {}, cell(i + 1, { class: "number" }),
    cell(w.owner), cell(mode(w)), cell(duration(w["waited-ms"])), cell(client(w)))), "no client waits");
}, 1000);
