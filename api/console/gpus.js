// gpus.js - the GPUs: what runs on each now, who had it over the last minute, what it holds.
import * as api from "./api.js";
import {keys, strip} from "./chart.js";
import {bytes, count, el, facts, linkOf, number, percent, show, state, timeShort} from "./dom.js";

export const title = () => "GPUs";

const MODELS_SHOWN = 12;

// In the order of the strip, from below.
const USES = [["training", "training"], ["batch", "batch inference"], ["inference", "requests"],
  ["switch", "switches"], ["load", "loading of models"], ["others", "not yours"], ["idle", "idle"]];
const NAMES = USES.map(([name]) => name);

function memory(g) {
  if (!g.pool) return g.pool_bytes ? bytes(g.pool_bytes) : "–";
  const used = g.pool.used_bytes || 0;
  return el("span", null,
    el("meter", {min: 0, max: g.pool_bytes, value: used, "aria-label": "Device memory in use"}),
    ` ${bytes(used)} of ${bytes(g.pool_bytes)} (weights ${bytes(g.pool.weights_bytes || 0)}, training ` +
    `${bytes(g.pool.training_bytes || 0)}, workspace ${bytes(g.pool.workspace_bytes || 0)})`);
}

function jobText(g) {
  if (!g.job) return "none";
  const mine = api.isAdmin() || g.job.tenant === api.tenantName(), name = "job " + g.job.id;
  return [mine ? linkOf(api.elsewhere(g.job.tenant), name, "jobs", g.job.id) : name, " of " + g.job.tenant + " ",
    state(g.job.state), g.job.steps ? ", step " + count(g.job.step) + " of " + count(g.job.steps) : ""];
}

function models(g) {
  if (!g.models.length) return "none";
  const text = g.models.slice(0, MODELS_SHOWN).map(m => m.tenant + "/" + m.model + ":" + m.version + " " +
    (m.device_bytes > 0 ? bytes(m.device_bytes) : m.state === "READY" ? "in host memory" : m.state)).join(", ");
  return text + (g.models.length > MODELS_SHOWN ? " and " + (g.models.length - MODELS_SHOWN) + " more" : "");
}

function about(g) {
  return facts([
    ["State", state(g.state)],
    ["Device", (g.device_name || g.device) + " on host " + g.host_id],
    ["Memory", memory(g)],
    g.busy && ["Busy", percent(g.busy.requests) + " requests, " + percent(g.busy.jobs) + " jobs"],
    ["Job", jobText(g)],
    ["Requests now", g.runs.length ? g.runs.map(r => r.tenant + "/" + r.model + " × " + r.batch).join(", ")
      : "none"],
    ["Models", models(g)],
    g.link_bytes_per_s && ["Link", number(g.link_bytes_per_s / 1e9) + " GB/s"],
    g.host && g.host.limit_bytes && ["Host memory", bytes(g.host.used_bytes) + " of " + bytes(g.host.limit_bytes)],
    ["Last heard of", timeShort(g.heard_at)],
  ]);
}

export async function open(main, ctx) {
  const cards = new Map(), list = el("div", {class: "cards"});
  const none = el("p", null, "No GPU is connected yet.");
  main.append(none, keys(USES.filter(([name]) => api.isAdmin() ? name !== "others"
    : !["load", "idle"].includes(name))), list);
  const timelines = new Map();
  function drawStrip(name, c) {
    const sums = c.strip.set(timelines.get(name) || [], NAMES);
    const all = [...sums.values()].reduce((a, b) => a + b, 0);
    show(c.sums, all ? "Last minute: " + USES.filter(([n]) => sums.has(n)).map(([n, text]) =>
      text + " " + percent(sums.get(n) / all)).join(", ") : "Last minute: nothing known yet");
  }
  api.watch("/api/v1/gpu-timelines?limit=200", ctx.signal, page => {
    for (const t of page.items) {
      timelines.set(t.gpu, t.cells);
      if (cards.has(t.gpu)) drawStrip(t.gpu, cards.get(t.gpu));
    }
  }, ctx.lost);
  api.watch("/api/v1/gpus?limit=200", ctx.signal, page => {
    none.classList.toggle("hidden", page.items.length > 0);
    for (const g of page.items) {
      let c = cards.get(g.name);
      if (!c) {
        c = {body: el("div"), strip: strip("Who had " + g.name + " over the last minute"), sums: el("p")};
        c.node = el("section", {class: "card"}, el("h2", null, g.name), c.strip.node, c.sums, c.body);
        drawStrip(g.name, c);
        cards.set(g.name, c);
        list.append(c.node);
      }
      show(c.body, about(g));
    }
    for (const [name, c] of cards)
      if (!page.items.some(g => g.name === name)) {
        c.node.remove();
        cards.delete(name);
      }
  }, ctx.lost);
}
