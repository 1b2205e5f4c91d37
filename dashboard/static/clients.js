import { api, byId, cell, duration, el, offer, poll, put, remember, rows, silence } from "./common.js";

// The page refreshes after interval milliseconds, or after rowPause milliseconds
// for each row if that is longer. Each refresh changes all rows, because they show
// the ages of the connections. So refreshing many rows often would use much
// processor time.
const interval = 2000, rowPause = 50;

const form = byId("search");
const values = remember(form, () => refresh());

const refresh = poll(async () => {
  const answer = await api("clients", values());
  offer(form.elements.node, [answer.node, ...answer.clients.map((c) => c.node), ...answer.silent]);
  silence(answer.silent);
  rows(byId("clients"), answer.clients.map((c) => el("tr", {},
    cell(c.node), cell(c.id, { class: "number" }), cell(c.name || "–"), cell(c.addr), cell(c.user),
    cell(duration(c.age * 1000)), cell(duration(c.idle * 1000)), cell(c.cmd),
    cell(c.commands ?? "–", { class: "number" }),
    cell(Number(c.sub) + Number(c.psub) + Number(c.ssub), { class: "number" }),
    cell([c["lib-name"], c["lib-ver"]].filter(Boolean).join(" ") || "–"))), "no client");
  const pause = rowPause * answer.clients.length;
  put(byId("count"), `${answer.clients.length} of ${answer.total} connections`
    + (pause > 2 * interval ? `, refreshed every ${duration(pause)}` : ""));
  return pause;
}, interval);
