import { api, byId, el, listen, loginLink, offer, poll, remember, rows, shown, silence } from "./common.js";

const form = byId("search");
const values = remember(form, () => load());
const names = { cluster: "elections and members", lock: "lease ended", login: "login refused", backup: "backup",
  audit: "audit log", slow: "slow command" };
const secret = { audit: "the audit log (ACL LOG)", slow: "slow commands (SLOWLOG GET)", lock: "leases that ended (LOCK LIST)" };
let all = [], drawn = ""; // the events, and the state that the page shows

// text describes an event. For an event of the kind "cluster", the text already
// contains the fields, so they are not added.
const text = (e) => e.kind === "cluster" ? e.text
  : [e.text, ...Object.entries(e.fields ?? {}).filter(([, v]) => v !== "").map(([k, v]) => `${k}=${v}`)].join("  ");

function show() {
  const find = form.elements.find.value.toLowerCase();
  const wanted = JSON.stringify([find, all]);
  if (wanted === drawn) return; // drawing a thousand rows again is expensive
  drawn = wanted;
  const found = all.filter((e) => text(e).toLowerCase().includes(find));
  // On a phone, the cells are blocks, which have no roles of their own.
  const td = (...parts) => el("td", { role: "cell" }, ...parts);
  rows(byId("events"), found.map((e) => el("tr", { role: "row", class: e.warning ? "warning" : null },
    td(el("time", { datetime: e.time }, new Date(e.time).toLocaleString())),
    td(shown([e.node, ...(e.also_noticed_by ?? [])].join(", "))), td(names[e.kind] ?? e.kind),
    el("td", { role: "cell", class: "preview" }, e.warning ? el("strong", {}, "Warning: ") : null, shown(text(e))))), "no event");
}

// The stream reports only the events of this node, so the page also asks at intervals.
const load = poll(async () => {
  const { kind, node } = values();
  const answer = await api("events", { kind, node });
  all = answer.events;
  offer(form.elements.node, [answer.node, ...all.map((e) => e.node), ...answer.silent]);
  silence(answer.silent);
  const missing = answer.hidden.filter((k) => secret[k]).map((k) => secret[k]);
  byId("hidden").hidden = missing.length === 0;
  byId("hidden").replaceChildren(`Not shown without the permission: ${missing.join(", ")}. `,
    el("a", { href: loginLink() }, "Log in"));
  show();
}, 5000);

form.elements.find.addEventListener("input", show);
listen({ events: load }, (open) => {
  document.body.dataset.live = open;
  if (open) load();
});
