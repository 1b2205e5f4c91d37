import { api, byId, cell, client, countdown, duration, el, mode, poll, rows, shown } from "./common.js";

const query = Object.fromEntries(new URLSearchParams(location.search));
const count = countdown();
let before = null;

// note adds a line to what happened since the page was opened.
function note(text) {
  byId("seen").append(el("li", {}, el("time", {}, new Date().toLocaleTimeString()), " ", shown(text)));
}

function facts(pairs) {
  byId("lock").replaceChildren(...pairs.flatMap(([name, value]) => [
    el("dt", {}, name), value instanceof Element ? value : el("dd", {}, shown(value))]));
}

// tokens returns the grants of a lock: the owner by token.
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
  before = now;
}

poll(async () => {
  const { lock: l } = await api("lock", query);
  compare(l);
  const held = before.size > 0;
  const key = query.key ?? l?.key ?? "";
  if (!l) facts([["Key", key], ["Owner", "none: the lock is free"]]);
  else {
    facts([["Key", l.key], ["Owner", l.holders?.length ? `${l.holders.length} owners` : l.owner ?? "none"],
      ["Mode", mode(l)], ["Token", l.token || "–"], ["Lease", count(el("dd", { class: "ttl" }), l["ttl-ms"])],
      ["Held", duration(l["held-ms"])], ["Waited before", duration(l["waited-ms"])],
      ["Renewals", l.renewals ?? "–"], ["Client", client(l)], ["Note", l.meta || "–"]]);
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
