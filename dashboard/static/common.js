// Functions that all pages share. To prevent injection, they put texts from the
// cluster only into text nodes and attributes, never into markup.

// el returns an element. A property that begins with "on" is a listener; null
// children are left out.
export function el(tag, props = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) e.setAttribute(name, value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

// draw returns an element of a drawing.
export function draw(tag, props = {}, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

// byId returns an element of the page.
export const byId = (id) => document.getElementById(id);

// shown returns a text in which control characters, and characters that change the
// direction of text or are invisible, are visible as escapes.
export function shown(text) {
  return String(text ?? "").replace(
    /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffe\uffff]/g,
    (c) => ({ "\n": "\\n", "\r": "\\r", "\t": "\\t" })[c] ?? "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"),
  );
}

// put sets the text of an element if it has changed.
export function put(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// problem is an error that the API has returned.
class problem extends Error {
  constructor(message, login) {
    super(message);
    this.login = login;
  }
}

// api returns the answer of a page of the API.
export async function api(path, params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, v]) => v !== "" && v !== undefined));
  const response = await fetch(`/api/v1/${path}?${query}`);
  const body = await response.json();
  if (!response.ok) throw new problem(body.error, body.login);
  return body;
}

// loginLink returns the address of the login, which leads back to this page.
export const loginLink = () => "/login?next=" + encodeURIComponent(location.pathname + location.search);

// report shows an error on the page, or removes the last one if err is null.
export function report(err) {
  const message = byId("message");
  if (!err) {
    message.hidden = true;
    return;
  }
  for (const td of document.querySelectorAll("main td")) {
    if (td.textContent === "Loading …") td.textContent = "Not loaded";
  }
  const text = err instanceof problem ? err.message : "the node does not answer";
  message.hidden = false;
  message.className = "message bad";
  message.replaceChildren(shown(text));
  if (err.login) {
    message.append(" ", el("a", { href: loginLink() }, "Log in"));
  }
}

// attempt calls f and shows its error. It returns the error, or null.
export async function attempt(f) {
  try {
    await f();
    report(null);
    return null;
  } catch (err) {
    report(err);
    return err;
  }
}

// refusedPause is the time that a page waits after a request for which the user
// lacks rights. The pause is long because the node records each refused command.
const refusedPause = 60000;

// poll calls f at once, and again after each interval, while the page is visible.
// It returns a function that calls f at once. f may return a longer interval.
export function poll(f, milliseconds) {
  let timer, running = false, again = false;
  const run = async () => {
    clearTimeout(timer);
    if (running) {
      again = true;
      return;
    }
    running = true;
    let err, pause;
    do {
      again = false;
      pause = 0;
      err = await attempt(async () => {
        pause = await f();
      });
    } while (again);
    running = false;
    if (!document.hidden) timer = setTimeout(run, err?.login ? refusedPause : Math.max(milliseconds, pause || 0));
  };
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (!document.hidden) run();
  });
  run();
  return run;
}

// listen opens the stream of the node while the page is visible. handlers has a
// function for each topic. state is called with true when the stream opens, and
// with false when it ends.
export function listen(handlers, state) {
  let source, timer;
  const close = () => {
    clearTimeout(timer);
    source?.close();
    source = undefined;
  };
  const open = () => {
    close();
    if (document.hidden) return;
    const query = new URLSearchParams(Object.keys(handlers).map((topic) => ["topic", topic]));
    source = new EventSource("/api/v1/stream?" + query);
    source.onopen = () => state(true);
    source.onerror = () => {
      state(false);
      close();
      timer = setTimeout(open, 2000);
    };
    for (const [topic, f] of Object.entries(handlers)) {
      source.addEventListener(topic, (e) => f(JSON.parse(e.data)));
    }
  };
  document.addEventListener("visibilitychange", open);
  open();
}

// duration returns a time in milliseconds as a text for people.
export function duration(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

// bytes returns a size as a text for people.
export function bytes(n) {
  if (n === null || n === undefined) return "–";
  let unit = 0;
  while (n >= 1024 && unit < 5) {
    n /= 1024;
    unit++;
  }
  return `${n >= 10 || unit === 0 ? Math.round(n) : n.toFixed(1)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

// rows replaces the rows of a table. A link that has the focus keeps it.
export function rows(table, all, empty) {
  const columns = table.tHead.rows[0].cells.length;
  if (all.length === 0) all = [el("tr", {}, el("td", { colspan: columns, class: "muted" }, empty))];
  const focused = table.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  table.tBodies[0].replaceChildren(...all);
  if (focused === null) return;
  const again = [...table.querySelectorAll("a[href]")].find((a) => a.getAttribute("href") === focused);
  again?.focus({ preventScroll: true });
}

// A table says that it is loading until its first rows are there.
for (const table of document.querySelectorAll("main table")) rows(table, [], "Loading …");

// cell returns a cell of a table with a text from the cluster. The page cuts a
// long text; the title of the cell has the whole text.
export function cell(text, props = {}) {
  const s = shown(text);
  return el("td", { title: s.length > 40 ? s : null, ...props }, s);
}

// remember stores the fields of a form in the address of the page, and restores
// them from the address.
export function remember(form, changed) {
  const query = new URLSearchParams(location.search);
  for (const field of form.elements) {
    if (!field.name || !query.has(field.name)) continue;
    if (field.type === "checkbox") field.checked = query.get(field.name) === field.value;
    else field.value = query.get(field.name);
  }
  const values = () => Object.fromEntries([...new FormData(form)].filter(([, v]) => v !== ""));
  const apply = () => {
    history.replaceState(null, "", "?" + new URLSearchParams(values()));
    changed(values());
  };
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    apply();
  });
  form.querySelectorAll("select").forEach((s) => s.addEventListener("change", apply));
  return values;
}

// offer adds values to a selection, if it does not have them yet. If the address of
// the page contains a value, offer selects this value as soon as the selection has
// it.
export function offer(select, all) {
  const known = [...select.options].map((o) => o.value);
  const wanted = new URLSearchParams(location.search).get(select.name);
  for (const value of [...new Set(all)].sort()) {
    if (known.includes(value)) continue;
    select.append(el("option", { value }, shown(value)));
  }
  if (wanted && select.value !== wanted && !select.dataset.offered) select.value = wanted;
  select.dataset.offered = "yes";
}

// silence shows which nodes have not answered.
export function silence(nodes) {
  byId("silent").hidden = nodes.length === 0;
  put(byId("silent"), shown(`No answer from ${nodes.join(", ")}: the data of these nodes is missing.`));
}

// client returns the client of a lock or of a waiter.
export function client(l) {
  const id = !l.addr && l["client-id"] ? "client " + l["client-id"] : "";
  return [l.addr, id, l.name, l.node ? "at " + l.node : ""].filter(Boolean).join(" ") || "–";
}

// lockLink returns the address of the page of a lock.
export function lockLink(l, db) {
  const query = new URLSearchParams(l.key_base64 ? { key_base64: l.key_base64 } : { key: l.key });
  if (db && db !== "0") query.set("db", db);
  return "/locks/lock?" + query;
}

// mode returns the mode of a lock as text.
export const mode = (l) => (l.limit > 0 ? `limit ${l.limit}` : shown(l.mode ?? ""));

// countdown returns a function that makes an element show a remaining time,
// which counts down every second. ends maps each element to the time of the
// page's clock at which its time is over.
export function countdown() {
  const ends = new Map();
  setInterval(() => {
    for (const [e, end] of ends) {
      if (!e.isConnected) ends.delete(e);
      else put(e, duration(Math.max(0, end - performance.now())));
    }
  }, 1000);
  return (e, ttl) => {
    if (ttl < 0 || ttl === undefined) {
      ends.delete(e);
      put(e, "no end");
      return e;
    }
    ends.set(e, performance.now() + ttl);
    put(e, duration(ttl));
    return e;
  };
}
