/* global uPlot */
import { api, attempt, byId, bytes, el, listen, put } from "./common.js";

const number = (v) => (v === null || v === undefined ? "–" : v >= 100 ? Math.round(v).toString() : Number(v.toPrecision(3)).toString());
const ms = (v) => (v === null || v === undefined ? "–" : number(v) + " ms");

// charts are the charts of the page. Each has one line for each node, or, if it has
// several values, one line for each value of each node.
const charts = [
  { title: "Writes per second", values: ["writes_per_second"], format: number },
  { title: "Reads per second", values: ["reads_per_second"], format: number },
  { title: "LOCK commands per second", values: ["locks_per_second"], format: number },
  { title: "Other commands per second", values: ["other_per_second"], format: number },
  { title: "Latency of commands: median", values: ["p50_ms"], format: ms },
  { title: "Latency of commands: 99th percentile", values: ["p99_ms"], format: ms },
  { title: "Commit of an entry: 99th percentile", values: ["commit_p99_ms"], format: ms },
  { title: "Fsync of the log: 99th percentile", values: ["fsync_p99_ms"], format: ms },
  { title: "Groups per log entry", values: ["groups_per_entry"], format: number },
  { title: "Clients", values: ["clients"], format: number },
  { title: "Data set, and its limit (dashed)", values: ["dataset_bytes", "maxmemory_bytes"], format: bytes,
    dashed: "limit" },
  { title: "Free disk space, and the reserve (dashed)", values: ["disk_free_bytes", "disk_reserve_bytes"],
    format: bytes, dashed: "reserve" },
];

const limit = 15 * 60 * 1000; // age in milliseconds up to which the page keeps fine samples
let span = "15m", nodes = {}, plots = [];

// color returns a color of the style sheet.
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// align returns the times of all nodes, and the columns of each node at these
// times. The nodes take their samples at different moments, so times are rounded to
// the interval.
function align(ids) {
  const step = Math.max(...ids.map((id) => nodes[id].interval_seconds)) || 5;
  const at = (t) => Math.round(t / 1000 / step) * step;
  const times = [...new Set(ids.flatMap((id) => nodes[id].times_ms.map(at)))].sort((a, b) => a - b);
  // A line has a gap at a value that is not known (null). It has no gap if the node
  // merely has no sample for this time (undefined).
  const column = (id, name) => {
    const byTime = new Map(nodes[id].times_ms.map((t, i) => [at(t), nodes[id].values[name]?.[i] ?? null]));
    return times.map((t) => byTime.get(t));
  };
  return { times, column };
}

// isolated returns the positions of the values that have a gap on both sides. The
// chart must draw them as points, because no line shows them.
function isolated(values) {
  const known = [...values.keys()].filter((i) => values[i] !== undefined);
  return known.filter((p, i) => values[p] !== null && (values[known[i - 1]] ?? null) === null
    && (values[known[i + 1]] ?? null) === null);
}

// sizes are the steps of an axis of bytes: powers of two, so that its labels are round.
const sizes = [...Array(60).keys()].map((i) => 2 ** i);

// clock returns a time of day, with seconds if the steps of the axis are short.
const clock = (t, step) => new Date(t * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit",
  second: step < 60 ? "2-digit" : undefined, hourCycle: "h23" });

function draw() {
  const ids = Object.keys(nodes).sort();
  const { times, column } = align(ids);
  const width = byId("charts").clientWidth;
  const columns = Math.max(1, Math.floor(width / 420));
  const size = { width: Math.floor((width - (columns - 1) * 16) / columns) - 26, height: 170 };
  const build = plots.length === 0 || plots[0].ids !== ids.join() || plots[0].width !== size.width;
  if (build) {
    plots.forEach((p) => p.plot.destroy());
    plots = [];
    byId("charts").replaceChildren();
  }
  charts.forEach((chart, i) => {
    const lines = chart.values.flatMap((name, dashed) => ids.map((id, j) => ({ name, id, j, dashed: dashed > 0 })));
    const data = [times, ...lines.map((l) => column(l.id, l.name))];
    const last = lines.filter((l) => !l.dashed).map((l) => {
      const values = column(l.id, l.name).filter((v) => v !== null && v !== undefined);
      return `${l.id}: ${chart.format(values.at(-1))}`;
    }).join(", ");
    if (!build) {
      plots[i].plot.setData(data);
      put(plots[i].now, last);
      return;
    }
    const now = el("p", { class: "muted now" }, last);
    const root = el("figure", { class: "card" }, el("figcaption", {}, chart.title), now);
    byId("charts").append(root);
    const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
    const plot = new uPlot({
      ...size, padding: [8, 30, 0, 0], cursor: { y: false }, legend: { live: true }, scales: { y: { range: (u, low, high) => [0, (high || 1) * 1.1] } },
      axes: [{ ...axis, space: 90, values: (u, all, axis, space, step) => all.map((t) => clock(t, step)) },
        { ...axis, size: 64, values: (u, all) => all.map(chart.format), incrs: chart.format === bytes ? sizes : undefined }],
      series: [{ value: (u, t) => (t ? new Date(t * 1000).toLocaleTimeString() : "–") },
        ...lines.map((l) => ({ label: l.dashed ? `${l.id} ${chart.dashed}` : l.id, stroke: color(`--line-${l.j % 5}`), width: l.dashed ? 1 : 2,
          dash: l.dashed ? [4, 4] : undefined, points: { filter: (u, i, show) => (show ? null : isolated(u.data[i])) }, value: (u, v) => chart.format(v) }))],
    }, data, root);
    root.querySelectorAll(".u-legend th").forEach((th) => th.setAttribute("scope", "row"));
    plots.push({ plot, now, ids: ids.join(), width: size.width });
  });
  document.body.dataset.samples = times.length;
}

// add appends samples that the stream has sent.
function add(fresh) {
  if (span !== "15m") return;
  for (const [id, s] of Object.entries(fresh.nodes)) {
    const old = nodes[id] ?? { ...s, times_ms: [], values: {} };
    nodes[id] = old;
    s.times_ms.forEach((t, i) => {
      if (t <= (old.times_ms.at(-1) ?? 0)) return;
      old.times_ms.push(t);
      for (const [name, column] of Object.entries(s.values)) (old.values[name] ??= []).push(column[i]);
    });
    while (old.times_ms[0] < old.times_ms.at(-1) - limit) {
      old.times_ms.shift();
      Object.values(old.values).forEach((column) => column.shift());
    }
  }
  draw();
}

const load = () => attempt(async () => {
  ({ nodes } = await api("traffic", { window: span }));
  draw();
  put(byId("freshness"), (span === "24h" ? "One sample every 5 minutes" : "Live, one sample every 5 s")
    + "; the lines of a node begin when the node was started. Percentiles are upper bounds, and have gaps where nothing was measured.");
});

for (const button of document.querySelectorAll("[data-window]")) {
  button.addEventListener("click", () => {
    span = button.dataset.window;
    document.querySelectorAll("[data-window]").forEach((b) => b.setAttribute("aria-pressed", b === button));
    load();
  });
}
let resized;
window.addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(draw, 200);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  plots.forEach((p) => p.plot.destroy());
  plots = [];
  draw();
});
listen({ traffic: add }, (open) => {
  document.body.dataset.live = open;
  if (open) load();
});
