import { api, attempt, byId, cell, client, countdown, duration, el, lockLink, mode, poll, remember, rows, shown }
  from "./common.js";

const table = byId("locks");
const count = countdown();
let found = [], cursor = "0", extended = false;
const values = remember(byId("search"), () => {
  extended = false;
  refresh();
});

// query returns the parameters of the API. A text without pattern characters
// finds all keys that contain it.
function query() {
  const q = values();
  if (q.match && !/[*?[\]\\]/.test(q.match)) q.match = `*${q.match}*`;
  return q;
}

function show() {
  const db = values().db;
  rows(table, found.map((l) => el("tr", {},
    el("th", { scope: "row" }, el("a", { href: lockLink(l, db), title: shown(l.key) }, shown(l.key) || '""')),
    cell(l.owner), cell(mode(l)), cell(l.token, { class: "number" }), cell(duration(l["held-ms"])),
    count(el("td", { class: "ttl" }), l["ttl-ms"]), cell(l.waiting, { class: "number" }), cell(client(l)))),
  cursor === "0" ? "no lock is held that matches" : "none among the locks that were searched so far");
  byId("more").hidden = cursor === "0";
  const more = cursor === "0" ? "" : ", and there are more";
  byId("count").textContent = `${found.length} shown${more}`;
}

const refresh = poll(async () => {
  if (extended) return; // the rows of further pages would be lost
  const answer = await api("locks", query());
  [found, cursor] = [answer.locks, answer.cursor];
  show();
}, 2000);

byId("more").addEventListener("click", () => attempt(async () => {
  extended = true;
  const answer = await api("locks", { ...query(), cursor });
  found = found.concat(answer.locks);
  cursor = answer.cursor;
  show();
}));
