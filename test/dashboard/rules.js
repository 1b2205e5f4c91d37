// Rules of accessibility, for the tests. Evaluate this text in a page, then call
// violations().

var visible = (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && e.getClientRects().length > 0;

// controls returns the elements that the key Tab should reach, in their order.
var controls = () => [...document.querySelectorAll(
  "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']")].filter((e) => visible(e) && !e.disabled);

// nameOf returns the name that a screen reader says.
var nameOf = (e) => {
  const by = e.getAttribute("aria-labelledby");
  const texts = by ? by.split(" ").map((id) => document.getElementById(id)?.textContent) : [];
  return [...texts, e.getAttribute("aria-label"), e.labels?.[0]?.textContent, e.alt, e.querySelector?.("title")?.textContent,
    e.caption?.textContent, ["IMG", "svg", "INPUT", "SELECT", "TABLE"].includes(e.tagName) ? "" : e.textContent, e.title]
    .filter(Boolean).join(" ").trim();
};

// rgb returns a color with its opacity.
var rgb = (text) => {
  const n = text.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0, 0];
  return [...n.slice(0, 3), n[3] ?? 1];
};

// over returns the color that one color has on top of another one.
var over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);

// behind returns the color of the page behind the text of an element.
var behind = (e) => {
  const layers = [];
  for (; e; e = e.parentElement) layers.push(rgb(getComputedStyle(e).backgroundColor));
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
};

var contrast = (a, b) => {
  const light = (c) => {
    const [r, g, s] = c.slice(0, 3).map((v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * s;
  };
  const [x, y] = [light(a), light(b)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
};

// focusProblem describes a problem with the focus of the active element, or returns "".
var focusProblem = () => {
  const e = document.activeElement, s = getComputedStyle(e);
  if (s.outlineStyle === "none" || parseFloat(s.outlineWidth) < 2) return "the focus is not visible: " + e.outerHTML.slice(0, 100);
  const c = contrast(rgb(s.outlineColor), behind(e.parentElement));
  if (c < 3) return `contrast ${c.toFixed(1)} of the focus: ` + e.outerHTML.slice(0, 100);
  const box = e.getBoundingClientRect();
  if (box.bottom < 0 || box.top > innerHeight) return "the focus is outside of the window: " + e.outerHTML.slice(0, 100);
  return "";
};

var violations = () => {
  const bad = new Set();
  const say = (text, e) => bad.add(e ? `${text}: ${e.outerHTML.slice(0, 120)}` : text);
  const all = [...document.querySelectorAll("body *")];

  // Names.
  for (const e of document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, img, [role=img], " +
    "[role=region], nav, fieldset")) {
    if (visible(e) && !nameOf(e)) say("no name", e);
  }
  // The order and reach of the focus.
  for (const e of document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea")) {
    if (visible(e) && e.tabIndex < 0) say("not reachable by keyboard", e);
  }
  for (const e of all) if (e.tabIndex > 0) say("changes the order of the focus", e);
  // An element that scrolls must be reachable by keyboard.
  for (const e of all) {
    const s = getComputedStyle(e);
    const scrolls = /auto|scroll/.test(s.overflowX + s.overflowY) && (e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight);
    if (visible(e) && scrolls && !["SELECT", "INPUT", "TEXTAREA"].includes(e.tagName) && e.tabIndex < 0 && !e.querySelector("a[href], button, input")) {
      say("cannot be scrolled by keyboard", e);
    }
  }
  // Structure.
  if (!document.documentElement.lang) say("no language");
  if (!document.title.trim()) say("no title");
  const headings = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter(visible);
  const mains = headings.filter((h) => h.tagName === "H1").length;
  if (mains !== 1) say(`${mains} main headings`);
  headings.forEach((h, i) => {
    const before = i === 0 ? 0 : Number(headings[i - 1].tagName[1]);
    if (Number(h.tagName[1]) > before + 1) say(`heading after h${before}`, h);
  });
  for (const tag of ["main", "header", "nav"]) {
    if ([...document.querySelectorAll(tag)].filter(visible).length !== 1) say(`not one ${tag}`);
  }
  const ids = new Set();
  for (const e of document.querySelectorAll("[id]")) {
    if (ids.has(e.id)) say("id twice", e);
    ids.add(e.id);
  }
  for (const name of ["aria-labelledby", "aria-describedby", "aria-controls", "for"]) {
    for (const e of document.querySelectorAll(`[${name}]`)) {
      for (const id of e.getAttribute(name).split(" ")) if (!ids.has(id)) say(`${name} names no element`, e);
    }
  }
  for (const e of document.querySelectorAll("ul, ol")) {
    for (const c of e.children) if (c.tagName !== "LI") say("not an item of a list", c);
  }
  // Tables.
  for (const e of document.querySelectorAll("table")) {
    if (!visible(e) || e.classList.contains("u-legend")) continue;
    if (!nameOf(e) && !e.closest("[role=region][aria-label]")) say("table without a name", e);
  }
  for (const e of document.querySelectorAll("th")) if (!e.scope) say("heading of a table without scope", e);
  // Contrast of texts.
  for (const e of all) {
    if (!visible(e) || ![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
    if (["SCRIPT", "NOSCRIPT", "TITLE", "OPTION", "title"].includes(e.tagName)) continue;
    const s = getComputedStyle(e), below = behind(e);
    const text = over(rgb(e.closest("svg") ? s.fill : s.color), below), c = contrast(text, below);
    const size = parseFloat(s.fontSize), large = size >= 24 || size >= 18.6 && Number(s.fontWeight) >= 700;
    if (c < (large ? 3 : 4.5)) say(`contrast ${c.toFixed(1)}`, e);
  }
  // Contrast and size of controls.
  for (const e of document.querySelectorAll("button, input:not([type=hidden]):not([type=checkbox]), select, .button")) {
    if (!visible(e)) continue;
    const s = getComputedStyle(e), below = behind(e.parentElement);
    const edge = Math.max(contrast(over(rgb(s.borderTopColor), below), below), contrast(behind(e), below));
    if (edge < 3) say(`contrast ${edge.toFixed(1)} of the border`, e);
  }
  for (const e of controls()) {
    const box = e.getBoundingClientRect(), inline = getComputedStyle(e).display === "inline";
    const target = e.type === "checkbox" ? e.closest("label").getBoundingClientRect() : box;
    if (!inline && (target.width < 24 || target.height < 24)) say(`small: ${target.width} × ${target.height} pixels`, e);
  }
  return [...bad];
};
