// tenants.js - tenants: who is guaranteed what, who has what, who has used what.
import * as api from "./api.js";
import {barChart} from "./chart.js";
import {bytes, card, count, el, facts, link, measure, number, percent, seconds, show, state, table} from "./dom.js";

export const title = rest => rest.length ? "Tenant " + rest[0] : api.isAdmin() ? "Tenants" : "My tenant";

const HOUR = 3600e3;

const gpus = v => v === null ? "no limit" : number(v);

async function everyTenant(main, ctx) {
  let shares = [], states = new Map();
  const rows = table({
    caption: "Tenants, as the scheduler sees them", key: s => s.tenant,
    empty: "There is no tenant yet: shunt create tenant NAME makes one.",
    columns: [
      {head: "Tenant", cell: s => link(s.tenant, "tenants", s.tenant)},
      {head: "State", cell: s => state(states.get(s.tenant) || "ACTIVE")},
      {head: "Guaranteed", cell: s => number(s.guaranteed_gpus), num: true, wide: true},
      {head: "Weight", cell: s => number(s.weight), num: true, roomy: true},
      {head: "Most", cell: s => gpus(s.max_gpus), num: true, roomy: true},
      {head: "Has", cell: s => number(s.running_gpus), num: true},
      {head: "Waits for", cell: s => number(s.waiting_gpus), num: true},
      {head: "Fair", cell: s => number(s.fair_gpus), num: true, wide: true},
      {head: "Used of late", cell: s => seconds(s.usage_gpu_seconds), num: true, wide: true},
      {head: "Part of all use", cell: s => part(s.usage_fraction, "Part of all use")},
      {head: "Part by weight", cell: s => part(s.weight_fraction, "Part by weight"), roomy: true},
    ],
  });
  main.append(el("div", {class: "card"}, rows.node, el("p", {class: "soft"},
    "GPUs are slots for jobs. Use of late is device time that loses half of its weight with each half-life.")));
  const draw = () => rows.fill(shares);
  api.watch("/api/v1/shares?limit=500", ctx.signal, page => {
    shares = page.items;
    draw();
  }, ctx.lost);
  api.watch("/api/v1/tenants?limit=500", ctx.signal, page => {
    states = new Map(page.items.map(t => [t.name, t.state]));
    draw();
  }, ctx.lost);
}

function part(v, label) {
  return measure(el("meter", {min: 0, max: 1, value: v, "aria-label": label}), percent(v));
}

function shareFacts(s) {
  return facts([
    ["Guaranteed", number(s.guaranteed_gpus) + " GPUs"], ["At most", gpus(s.max_gpus)],
    ["Weight", number(s.weight)], ["Has", number(s.running_gpus)], ["Waits for", number(s.waiting_gpus)],
    ["Fair share now", number(s.fair_gpus)], ["Kept free for it", number(s.reserved_gpus)],
    ["Device time of late", seconds(s.usage_gpu_seconds)],
    ["Part of all use", part(s.usage_fraction, "Part of all use")],
    ["Part by weight", part(s.weight_fraction, "Part by weight")],
  ]);
}

function usage(at, ctx) {
  const rows = table({
    caption: "Use of the last day", key: u => u.class, empty: "None.",
    columns: [{head: "Class", cell: u => u.class}, {head: "Device time", cell: u => seconds(u.gpu_seconds), num: true},
      {head: "Requests", cell: u => count(u.requests), num: true},
      {head: "Samples", cell: u => count(u.samples), num: true}],
  });
  const box = el("div");
  // The hours are asked for when the sums have changed.
  async function hours() {
    const from = new Date(Math.floor(Date.now() / HOUR) * HOUR - 23 * HOUR);
    const list = await api.pages(`${at}/usage?by=hour&from=${from.toISOString()}`, {signal: ctx.signal});
    const bars = Array.from({length: 24}, (_, i) => {
      const t = from.getTime() + i * HOUR, here = list.filter(u => Date.parse(u.from) === t);
      const name = String(new Date(t).getHours()).padStart(2, "0") + ":00";
      return {name, value: here.reduce((sum, u) => sum + u.gpu_seconds, 0)};
    });
    show(box, barChart("Device time by hour, seconds", bars, seconds));
  }
  let asked = 0;
  api.watch(at + "/usage", ctx.signal, page => {
    rows.fill(page.items);
    if (Date.now() - asked < 10000) return;
    asked = Date.now();
    hours().catch(ctx.lost);
  }, ctx.lost);
  return [rows.node, el("h3", null, "Device time by hour, seconds"), box];
}

async function oneTenant(main, name, ctx) {
  const at = "/api/v1/tenants/" + api.seg(name), share = el("div"), quota = el("div");
  const q = await api.get(at + "/quota", ctx.signal);
  main.append(el("div", {class: "two"}, card("Share", share), card("Quota", quota)), card("Use", usage(at, ctx)));
  show(quota, facts(Object.entries(q).filter(([k]) => k !== "row_version").map(([k, v]) =>
    [k.replaceAll("_", " "), v === null ? "no limit" : k.endsWith("bytes") ? bytes(v) : number(v, 6)])));
  api.watch(at + "/share", ctx.signal, s => show(share, shareFacts(s)), ctx.lost);
}

export function open(main, ctx) {
  if (ctx.rest[0]) return oneTenant(main, ctx.rest[0], ctx);
  return api.isAdmin() ? everyTenant(main, ctx) : oneTenant(main, api.tenantName(), ctx);
}
