import { byId, bytes, cell, countdown, el, remember, rows, shown } from "./common.js";
import { list } from "./list.js";

const previewBytes = 100, previewElements = 10; // of a value, in the answer of the API
const table = byId("keys");
const count = countdown();
const values = remember(byId("search"), () => again());

// value returns the beginning of the value of a key, with a mark if it is cut off.
function value(k) {
  if (k.denied) return "not permitted";
  if (!k.preview) return k.length > 0 ? "no preview" : "";
  const cut = k.type === "string" ? k.length > previewBytes
    : k.length > previewElements || new TextEncoder().encode(k.preview).length >= previewBytes;
  return cut ? k.preview + " …" : k.preview;
}

function show(found, more) {
  rows(table, found.map((k) => el("tr", {},
    el("th", { scope: "row", title: shown(k.key) }, shown(k.key) || '""'), cell(k.type ?? "–"),
    count(el("td", { class: "ttl" }), k.ttl_ms), cell(k.length, { class: "number" }),
    cell(k.bytes ? bytes(k.bytes) : "–", { class: "number" }),
    cell(value(k), { class: "preview" }))),
  more ? "none among the keys that were visited so far"
    : values().prefix ? "no key has this prefix" : "this database has no key");
}

const again = list({ path: "keys", field: "keys", query: values, show, milliseconds: 5000 });
