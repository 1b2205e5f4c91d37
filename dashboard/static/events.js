import { api, attempt, byId, el, listen, rows, shown } from "./common.js";

const form = byId("search");
let all = [];

function show() {
  const find = form.elements.find.value.toLowerCase();
  const text = (e) => [e.text, ...Object.entries(e.fields ?? {}).map(([k, v]) => `${k}=${v}`)].join("  ");
  const found = all.filter((e) => text(e).toLowerCase().includes(find));
  rows(byId("events"), found.map((e) => el("tr", { class: e.warning ? "warning" : null },
    el("td", {}, el("time", { datetime: e.time }, new Date(e.time).toLocaleString())), el("td", {}, e.kind),
    el("td", { class: "preview" }, e.warning ? el("strong", {}, "Warning: ") : null, shown(text(e))))), "no event");
}

const load = () => attempt(async () => {
  const answer = await api("events", { kind: form.elements.kind.value });
  all = answer.events;
  const hidden = byId("hidden");
  hidden.hidden = answer.hidden.length === 0;
  const names = { audit: "the audit log (ACL LOG)", slow: "slow commands (SLOWLOG GET)" };
  hidden.replaceChildren(`Not shown without the permission: ${answer.hidden.map((k) => names[k]).join(", ")}. `,
    el("a", { href: "/login?next=/events" }, "Log in"));
  show();
});

form.addEventListener("submit", (e) => e.preventDefault());
form.elements.kind.addEventListener("change", load);
form.elements.find.addEventListener("input", show);
listen({ events: load }, (open) => {
  document.body.dataset.live = open;
  if (open) load();
});
