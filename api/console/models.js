// models.js - the models of a tenant, or of all: where they are, what is asked of them, how they meet
// their targets.
import * as api from "./api.js";
import {el, linkOf, measure, ms, number, percent, state, table} from "./dom.js";

const EVERY_MS = 5000;

export const title = () => "Models";

// How much of the misses that a target allows is left: 1: none is spent; below 0: overspent.
export function budgetLeft(slo) {
  const allowed = slo.requests * (1 - slo.percentile / 100);
  return slo.requests ? 1 - (slo.requests - slo.met) / allowed : 1;
}

export function budget(left) {
  return el("span", {class: left < 0 ? "bad" : undefined},
    measure(el("meter", {min: 0, max: 1, low: 0.25, optimum: 1, value: Math.max(0, left),
      "aria-label": "Error budget left"}), left < 0 ? percent(-left, 0) + " over" : percent(left) + " left"));
}

function attained(m) {
  if (!m.slo) return "";
  return m.slo.requests ? percent(m.slo.met / m.slo.requests, 3) : "no requests";
}

function versions(m) {
  const last = m.versions[m.versions.length - 1];
  if (!last) return "none";
  const all = m.versions.map(v => v.version + " " + v.state).join(", ");
  return el("span", {title: all}, last.version + " ", state(last.state), last.loading && " " + last.loading.step,
    m.versions.length > 1 && " of " + m.versions.length);
}

// {model: Map of GPU to the best state there}, of the newest answers.
function placesOf(gpus) {
  const out = new Map();
  for (const g of gpus)
    for (const m of g.models) {
      const id = m.tenant + "/" + m.model;
      if (!out.has(id)) out.set(id, new Map());
      out.get(id).set(g.name, m.device_bytes > 0 ? "device" : m.host_bytes > 0 ? "host" : m.state);
    }
  return out;
}

// A browser has not so many connections that each tenant's list could have a stream.
async function everyModel(ctx, onList) {
  async function look() {
    const names = await api.listedTenants(ctx.signal), all = [];
    for (const [name, page] of await api.ofEach(names, "/api/v1/models?limit=500", ctx.signal))
      all.push(...page.items.filter(m => m.tenant === name)); // others share some with it
    await onList(all.sort((a, b) => a.tenant.localeCompare(b.tenant) || a.name.localeCompare(b.name)));
  }
  await look();
  api.again(EVERY_MS, ctx.signal, look, ctx.lost);
}

export async function open(main, ctx) {
  let places = new Map(), known = [];
  const where = m => {
    const at = places.get(m.tenant + "/" + m.name);
    return at ? [...at].map(([gpu, how]) => gpu + " (" + how + ")").join(", ") : "nowhere";
  };
  const rows = table({
    caption: "Models, with the last minute's requests and the last hour's target", long: true,
    key: m => m.tenant + "/" + m.name, empty: "There is no model yet: shunt push model NAME FILE.onnx makes one.",
    columns: [
      ...api.isOfAll() ? [{head: "Tenant", cell: m => m.tenant, wide: true, width: 8}] : [],
      {head: "Model", cell: m => api.isOfAll() || m.tenant === api.tenantName()
        ? linkOf(api.elsewhere(m.tenant), m.name, "models", m.name) : m.name + " (of " + m.tenant + ")"},
      {head: "Shared", cell: m => m.visibility, huge: true, width: 7},
      {head: "Newest version", cell: versions, wide: true, width: 11},
      {head: "Where", cell: where, roomy: true},
      {head: "Requests/s", cell: m => m.traffic ? number(m.traffic.per_s) : "0", num: true, width: 7},
      {head: "p99", cell: m => m.traffic ? ms(m.traffic.p99_ms) : "–", num: true, wide: true, width: 6},
      {head: "Target", cell: m => m.slo ? ms(m.slo.latency_ms) + " for " + m.slo.percentile + "\u00a0%" : "",
        roomy: true, width: 10},
      {head: "Attained", cell: attained, num: true, width: 7},
      {head: "Error budget", cell: m => m.slo ? budget(budgetLeft(m.slo)) : "", wide: true, width: 13},
    ],
  });
  main.append(el("div", {class: "card"}, rows.node));
  const draw = () => rows.fill(known);
  api.watch("/api/v1/gpus?limit=200", ctx.signal, page => {
    places = placesOf(page.items);
    draw();
  }, ctx.lost);
  if (api.isOfAll()) {
    await everyModel(ctx, list => {
      known = list;
      return draw();
    });
    return;
  }
  api.watch(api.scoped("/api/v1/models?limit=500"), ctx.signal, page => {
    known = page.items;
    draw();
  }, ctx.lost);
}
