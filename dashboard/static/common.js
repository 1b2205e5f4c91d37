// Functions that all pages share. Texts from the cluster only ever become text
// nodes or attributes, never markup.

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

// byId returns an element of the page.
export const byId = (id) => document.getElementById(id);

// shown returns a text in which control characters, and characters that change the
// direction of text, are visible as escapes.
export function shown(text) {
  return String(text ?? "").replace(
    /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
    (c) => ({ "\n": "\\n", "\r": "\\r", "\t": "\\t" })[c] ?? "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"),
  );
}

// put sets the text of an element if it has changed.
export function put(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// problem is an answer of the API that is an error.
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

// report shows an error on the page, or removes the last one if err is null.
export function report(err) {
  const message = byId("message");
  if (!err) {
    message.hidden = true;
    return;
  }
  const text = err instanceof problem ? err.message : "the node does not answer";
  message.hidden = false;
  message.className = "message bad";
  message.replaceChildren(shown(text));
  if (err.login) {
    const next = encodeURIComponent(location.pathname + location.search);
    message.append(" ", el("a", { href: "/login?next=" + next }, "Log in"));
  }
}

// attempt calls f and shows its error.
export async function attempt(f) {
  try {
    await f();
    report(null);
    return true;
  } catch (err) {
    report(err);
    return false;
  }
}

// poll calls f now and then after each interval, while the page is visible.
// It returns a function that calls f at once.
export function poll(f, milliseconds) {
  let timer, running = false, again = false;
  const run = async () => {
    clearTimeout(timer);
    if (running) {
      again = true;
      return;
    }
    running = true;
    do {
      again = false;
      await attempt(f);
    } while (again);
    running = false;
    if (!document.hidden) timer = setTimeout(run, milliseconds);
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

// duration returns a time in milliseconds for a reader.
export function duration(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

// bytes returns a size for a reader.
export function bytes(n) {
  if (n === null || n === undefined) return "–";
  let unit = 0;
  while (n >= 1024 && unit < 5) {
    n /= 1024;
    unit++;
  }
  return `${n >= 10 || unit === 0 ? Math.round(n) : n.toFixed(1)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

// rows replaces the rows of a table.
export function rows(table, all, empty) {
  const columns = table.tHead.rows[0].cells.length;
  if (all.length === 0) all = [el("tr", {}, el("td", { colspan: columns, class: "muted" }, empty))];
  table.tBodies[0].replaceChildren(...all);
}

// cell returns a cell of a table with a text of the cluster, which is cut on the
// page and whole in its title.
export function cell(text, props = {}) {
  const s = shown(text);
  return el("td", { title: s.length > 40 ? s : null, ...props }, s);
}

// remember keeps the fields of a form in the address of the page, and sets them
// from it.
export function remember(form, changed) {
  const query = new URLSearchParams(location.search);
  for (const field of form.elements) {
    if (!field.name || !query.has(field.name)) continue;
    if (field.type === "checkbox") field.checked = query.get(field.name) === field.value;
    else field.value = query.get(field.name);
  }
  const values = () => Object.fromEntries([...new FormData(form)].filter(([, v]) => v !== ""));
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    history.replaceState(null, "", "?" + new URLSearchParams(values()));
    changed(values());
  });
  return values;
}

// client returns the client of a lock or of a waiter.
export function client(l) {
  return [l.addr, l.name, l.node ? "at " + l.node : ""].filter(Boolean).join(" ") || "–";
}

// lockLink returns the address of the page of a lock.
export function lockLink(l, db) {
  const query = new URLSearchParams(l.key_base64 ? { key_base64: l.key_base64 } : { key: l.key });
  if (db && db !== "0") query.set("db", db);
  return "/locks/lock?" + query;
}

// mode returns how a lock is held.
export const mode = (l) => (l.limit > 0 ? `limit ${l.limit}` : shown(l.mode ?? ""));

// countdown keeps the texts of elements with a time to live up to date. ends has
// for each element the time of the page's clock at which the lease ends.
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
      put(e, "no end");
      return e;
    }
    ends.set(e, performance.now() + ttl);
    put(e, duration(ttl));
    return e;
  };
}
