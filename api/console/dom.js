// dom.js - nodes made of data. Text from the server only ever becomes a text node or an attribute
// that is no code: nothing here makes markup of a string.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attrs, children) {
  for (const [name, value] of Object.entries(attrs || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(9)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

// el("a", {class: "x", href: "#/", onclick: fn}, "text", node, ...)
export function el(tag, attrs, ...children) {
  return fill(document.createElement(tag), attrs, children);
}

export function svg(tag, attrs, ...children) {
  return fill(document.createElementNS(SVG, tag), attrs, children);
}

let carried = ""; // the tenant that the page's address names, and so those that it leads to
export function carryTenant(name) {
  carried = name;
}

// The address of a page of the console; parts of its path may be any text. tenant: "": as here.
export function address(path, tenant = "") {
  const of = tenant || carried;
  return "#/" + path.map(encodeURIComponent).join("/") + (of ? "?tenant=" + encodeURIComponent(of) : "");
}

export function link(text, ...path) {
  return el("a", {href: address(path)}, text);
}

export function linkOf(tenant, text, ...path) {
  return el("a", {href: address(path, tenant)}, text);
}

// Replaces what is in the node. Keeps it if it shows that text already.
export function show(node, ...children) {
  if (children.length === 1 && typeof children[0] === "string") {
    if (node.childElementCount || node.textContent !== children[0]) node.textContent = children[0];
    return node;
  }
  node.replaceChildren();
  return fill(node, null, children);
}

let hush = 0;
// Tells the user, on the screen and through a screen reader.
export function say(text) {
  const box = document.getElementById("said");
  box.replaceChildren(el("p", null, text));
  clearTimeout(hush);
  hush = setTimeout(() => box.replaceChildren(), 6000);
}

export const frame = () => new Promise(done => setTimeout(done, 0));

// ---------------------------------------------------------------- words for values

const none = v => v === null || v === undefined;

export function number(v, digits = 3) {
  if (none(v)) return "–";
  if (v !== 0 && Math.abs(v) < 0.001) return v.toExponential(Math.min(digits, 3) - 1);
  return v.toLocaleString("en", {maximumSignificantDigits: digits});
}

export const count = v => none(v) ? "–" : v.toLocaleString("en");

// What a unit belongs to stays on its line.
const unit = (v, name) => number(v) + "\u00a0" + name;

export function bytes(v) {
  if (none(v)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let u = 0;
  for (; v >= 1024 && u < units.length - 1; u++) v /= 1024;
  return unit(v, units[u]);
}

export function ms(v) {
  if (none(v)) return "–";
  if (v !== 0 && Math.abs(v) < 1) return unit(1000 * v, "µs");
  return v >= 1000 ? unit(v / 1000, "s") : unit(v, "ms");
}

export function seconds(v) {
  if (none(v)) return "–";
  if (v < 1) return ms(1000 * v);
  if (v < 120) return unit(v, "s");
  return v < 7200 ? unit(v / 60, "min") : unit(v / 3600, "h");
}

// Only all of it is 100 %, and only nothing of it 0. digits: behind the point.
export function percent(v, digits = 1) {
  if (none(v)) return "–";
  const least = 10 ** -digits, p = Math.round(100 * v / least) * least;
  if (v > 0 && 100 * v < least) return "<\u00a0" + least + "\u00a0%";
  return (v < 1 ? Math.min(p, 100 - least) : p).toLocaleString("en", {maximumFractionDigits: digits}) + "\u00a0%";
}

export function time(text) {
  return text ? new Date(text).toLocaleString(undefined, {dateStyle: "short", timeStyle: "medium"}) : "–";
}

// For a column: of today the time alone.
export function timeShort(text) {
  const t = text && new Date(text), today = t && t.toDateString() === new Date().toDateString();
  if (!t) return "–";
  return el("span", {title: time(text)}, today ? t.toLocaleTimeString() : t.toLocaleDateString());
}

const TONE = {
  SUCCEEDED: "good", READY: "good", UP: "good", ACTIVE: "good", RESIDENT: "good", OPEN: "good",
  RUNNING: "run", STARTING: "run", COMPLETING: "run", LOADING: "run", COPYING: "run",
  FAILED: "bad", EXPIRED: "bad", DOWN: "bad", SUSPENDED: "warn", PREEMPTED: "warn", HELD: "warn",
  CANCELLING: "warn",
};

// A state: its name, and a sign beside it whose form says the same as its colour.
export function state(name) {
  return el("span", {class: "state " + (TONE[name] || "")}, name);
}

// ---------------------------------------------------------------- parts of pages

export function facts(list) {
  return el("dl", {class: "facts"}, list.filter(f => f).map(([name, value]) =>
    [el("dt", null, name), el("dd", null, value)]));
}

export function card(title, ...children) {
  return el("section", {class: "card"}, title && el("h2", null, title), children);
}

export function field(label, input) {
  return el("label", null, label, input);
}

export function select(options, value, attrs) {
  const node = el("select", attrs, options.map(o => {
    const [v, text] = Array.isArray(o) ? o : [o, o];
    return el("option", {value: v}, text);
  }));
  if (value !== undefined) node.value = value;
  return node;
}

export function problem(e) {
  const more = e.errors && e.errors.length > 1 &&
    el("ul", null, e.errors.map(x => el("li", null, (x.pointer || "/") + ": " + x.detail)));
  return el("div", {class: "note error", role: "alert"}, e.message || String(e), more);
}

// Asks, and resolves to whether the answer is yes.
export function confirm(question, yes, no = "Back") {
  return new Promise(done => {
    const box = el("dialog", {"aria-label": question},
      el("p", null, question),
      el("div", {class: "row"},
        el("button", {onclick: () => box.close("")}, no),
        el("button", {class: "danger", onclick: () => box.close("yes")}, yes)));
    box.addEventListener("close", () => {
      box.remove();
      done(box.returnValue === "yes");
    });
    document.body.append(box);
    box.showModal();
  });
}

// A bar of what is used or done, and its number.
export function measure(bar, text) {
  return el("span", {class: "measure"}, bar, " " + text);
}

// A table whose rows are known by a key. columns: {head, cell(item) -> text or node}, and of these: num
// (a number), short (never broken into lines), width (em), and what needs room: wide (more than a phone
// has), roomy (a laptop's), huge (a large screen's). long: a line for each row, however long its texts.
// empty: what to say if there is no row. quiet: the caption is for screen readers alone, as a heading
// says it. A cell that is text is only touched when it changes.
export function table({caption, columns, key, long, empty, quiet}) {
  const body = el("tbody");
  const rows = new Map();
  const classes = c => ["num", "short", "wide", "roomy", "huge"].filter(x => c[x]).join(" ") || undefined;
  const none_yet = empty && el("p", {class: "soft empty"}, empty);
  const node = el("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": caption},
    el("table", {class: long && "long"}, el("caption", {class: quiet && "unseen"}, caption),
      el("thead", null, el("tr", null, columns.map(c => {
        const th = el("th", {scope: "col", class: classes(c)}, c.head);
        if (c.width) th.style.width = c.width + "em";
        return th;
      }))), body), none_yet);

  // Once it is known that there is none.
  function tellEmpty() {
    if (none_yet) none_yet.classList.toggle("told", rows.size === 0);
  }

  function draw(row, item) {
    row.item = item;
    columns.forEach((c, i) => {
      const value = c.cell(item), cell = row.cells[i];
      if (value instanceof Node) {
        if (cell.was !== value.textContent || !cell.firstChild) cell.replaceChildren(value);
        cell.was = value.textContent;
      } else {
        show(cell, none(value) ? "" : String(value));
        if (long && cell.title !== cell.textContent) cell.title = cell.textContent; // it may be cut
      }
    });
  }
  function make() {
    const tr = el("tr");
    const cells = columns.map(c => tr.appendChild(el("td", {class: classes(c)})));
    return {tr, cells, item: null};
  }
  // Puts an item where it is, or at the end, or first.
  function put(item, first) {
    const id = key(item);
    let row = rows.get(id);
    if (!row) {
      row = make();
      rows.set(id, row);
      if (first) body.prepend(row.tr);
      else body.append(row.tr);
    }
    draw(row, item);
    tellEmpty();
  }
  // All items at once, in this order; others go. Many are drawn in portions, so that keys and
  // clicks are served in between.
  async function fillAll(items) {
    const keep = new Set(items.map(key));
    for (const [id, row] of rows)
      if (!keep.has(id)) {
        row.tr.remove();
        rows.delete(id);
      }
    let n = 0;
    for (const item of items) {
      put(item, false);
      const at = body.children[n], row = rows.get(key(item));
      if (at !== row.tr) body.insertBefore(row.tr, at || null);
      if (++n % 25 === 0) await frame();
    }
    tellEmpty();
  }
  async function append(items) {
    let n = 0;
    for (const item of items) {
      put(item, false);
      if (++n % 25 === 0) await frame();
    }
  }
  // Shows those that fit; the others stay, as they are.
  function only(fits) {
    let n = 0;
    for (const {tr, item} of rows.values()) n += !tr.classList.toggle("hidden", !fits(item));
    if (none_yet) none_yet.classList.toggle("told", n === 0);
  }
  return {
    node, put, append, only, fill: fillAll,
    get: id => rows.get(id) && rows.get(id).item,
    has: id => rows.has(id),
    size: () => rows.size,
    clear: () => { rows.clear(); body.replaceChildren(); },
  };
}
