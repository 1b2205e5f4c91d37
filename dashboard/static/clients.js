import { api, byId, cell, duration, el, poll, remember, rows } from "./common.js";

const values = remember(byId("search"), () => refresh());

const refresh = poll(async () => {
  const answer = await api("clients", values());
  rows(byId("clients"), answer.clients.map((c) => el("tr", {},
    cell(c.id, { class: "number" }), cell(c.name || "–"), cell(c.addr), cell(c.user),
    cell(duration(c.age * 1000)), cell(duration(c.idle * 1000)), cell(c.cmd),
    cell(Number(c.sub) + Number(c.psub) + Number(c.ssub), { class: "number" }),
    cell([c["lib-name"], c["lib-ver"]].filter(Boolean).join(" ") || "–"))), "no client");
  byId("count").textContent = `${answer.clients.length} of ${answer.total} connections to ${answer.node}`;
}, 2000);
