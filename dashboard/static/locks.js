import { byId, cell, client, countdown, duration, el, lockLink, mode, remember, rows, shown } from "./common.js";
import { list } from "./list.js";

const table = byId("locks");
const count = countdown();
const values = remember(byId("search"), () => again());

// query returns the parameters of the API. A text without pattern characters
// finds all keys that contain it.
function query() {
  const q = values();
  if (q.match && !/[*?[\]\\]/.test(q.match)) q.match = `*${q.match}*`;
  return q;
}

function show(found, more) {
  const { db, match, owner, waited } = values();
  rows(table, found.map((l) => el("tr", {},
    el("th", { scope: "row" }, el("a", { href: lockLink(l, db), title: shown(l.key) }, shown(l.key) || '""')),
    cell(l["owner-bytes"] ? l.owner + "…" : l.owner), cell(mode(l)), cell(l.token, { class: "number" }), cell(duration(l["held-ms"])),
    count(el("td", { class: "ttl" }), l["ttl-ms"]), cell(l.waiting, { class: "number" }), cell(client(l)))),
  more ? "none among the locks that were visited so far"
    : match || owner || waited ? "no lock is held that matches" : "no lock is held in this database");
}

const again = list({ path: "locks", field: "locks", query, show, milliseconds: 2000 });
