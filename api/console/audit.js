// audit.js - who changed what: for admins.
import * as api from "./api.js";
import {el, field, say, table, time} from "./dom.js";

export const title = () => "Audit";

const PAGE = 100;

// What differs between two states of a thing.
function change(a) {
  const names = [...new Set([...Object.keys(a.before || {}), ...Object.keys(a.after || {})])]
    .filter(k => k !== "row_version");
  const text = v => v === undefined || v === null ? "none" : JSON.stringify(v);
  const lines = names.map(k => [k, text((a.before || {})[k]), text((a.after || {})[k])])
    .filter(([, from, to]) => from !== to);
  if (!lines.length) return "";
  const few = lines.slice(0, 3).map(l => l[0]).join(", ") + (lines.length > 3 ? " …" : "");
  const what = !a.before ? "what it is" : !a.after ? "what it was" : few;
  return el("details", null, el("summary", null, what), el("ul", {class: "plain"}, lines.map(([k, from, to]) =>
    el("li", null, k + ": " + from + " → " + to))));
}

export async function open(main, ctx) {
  const rows = table({
    caption: "Changes, newest first", key: a => a.id, empty: "No change fits.",
    columns: [
      {head: "When", cell: a => time(a.at), short: true},
      {head: "Key", cell: a => a.actor || "–", short: true, wide: true},
      {head: "Tenant", cell: a => a.tenant || "–", wide: true}, {head: "Action", cell: a => a.action, short: true},
      {head: "Thing", cell: a => a.resource}, {head: "Change", cell: change, wide: true},
      {head: "Request", cell: a => a.request_id, short: true, huge: true},
    ],
  });
  const filter = new URLSearchParams(), inputs = {
    tenant: el("input", {size: 12}), action: el("input", {size: 12, placeholder: "key.rotate"}),
    resource: el("input", {size: 16, placeholder: "model/digits"}), actor: el("input", {size: 14}),
  };
  const more = el("button", {class: "hidden"}, "Show " + PAGE + " more");
  let turn = new AbortController(), next = null;
  const at = cursor => {
    const q = new URLSearchParams(filter);
    q.set("limit", PAGE);
    if (cursor) q.set("cursor", cursor);
    return "/api/v1/audit?" + q;
  };
  function start() {
    turn.abort();
    turn = new AbortController();
    let first = true;
    rows.clear();
    api.watch(at(), AbortSignal.any([ctx.signal, turn.signal]), page => {
      for (const a of [...page.items].reverse()) if (!rows.has(a.id)) rows.put(a, true);
      if (first) next = page.next_cursor || null;
      first = false;
      more.classList.toggle("hidden", !next);
    }, e => {
      if (e instanceof api.Problem && e.status === 400) say(e.message);
      else ctx.lost(e);
    });
  }
  more.addEventListener("click", async () => {
    more.disabled = true;
    try {
      const page = await api.get(at(next), ctx.signal);
      await rows.append(page.items);
      next = page.next_cursor || null;
      more.classList.toggle("hidden", !next);
    } catch (x) {
      say(x.message);
    }
    more.disabled = false;
  });
  main.append(el("form", {class: "row", onsubmit: e => {
    e.preventDefault();
    for (const [name, input] of Object.entries(inputs))
      if (input.value.trim()) filter.set(name, input.value.trim());
      else filter.delete(name);
    start();
  }}, field("Tenant", inputs.tenant), field("Action", inputs.action), field("Thing", inputs.resource),
  field("Key", inputs.actor), el("button", null, "Show")), el("div", {class: "card"}, rows.node, more));
  start();
}
