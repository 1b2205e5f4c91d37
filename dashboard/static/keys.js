import { api, attempt, byId, bytes, cell, countdown, el, poll, remember, rows, shown } from "./common.js";

const table = byId("keys");
const count = countdown();
let found = [], cursor = "0", extended = false;
const values = remember(byId("search"), () => {
  extended = false;
  refresh();
});

function show() {
  rows(table, found.map((k) => el("tr", {},
    el("th", { scope: "row", title: shown(k.key) }, shown(k.key) || '""'), cell(k.type ?? "–"),
    count(el("td", { class: "ttl" }), k.ttl_ms), cell(k.length, { class: "number" }),
    cell(k.bytes ? bytes(k.bytes) : "–", { class: "number" }),
    cell(k.denied ? "not permitted" : k.preview ?? "", { class: "preview" }))),
  cursor === "0" ? "no key has this prefix" : "none among the keys that were searched so far");
  byId("more").hidden = cursor === "0";
  byId("count").textContent = `${found.length} shown${cursor === "0" ? "" : ", and there are more"}`;
}

const refresh = poll(async () => {
  if (extended) return; // the rows of further pages would be lost
  const answer = await api("keys", values());
  [found, cursor] = [answer.keys, answer.cursor];
  show();
}, 5000);

byId("more").addEventListener("click", () => attempt(async () => {
  extended = true;
  const answer = await api("keys", { ...values(), cursor });
  found = found.concat(answer.keys);
  cursor = answer.cursor;
  show();
}));
