// switches.js - what the last switches cost, stage by stage.
import * as api from "./api.js";
import {keys} from "./chart.js";
import {bytes, el, linkOf, ms, number, svg, table, timeShort} from "./dom.js";

export const title = () => "Switches";

const W = 300, H = 16, KEPT = 200;
// Name, column, and what happens.
const STAGES = [["wait", "Waits", "other runs go first"], ["memory", "Memory", "it gets its memory"],
  ["first", "Stop, first weights", "training stops, the first weights come"],
  ["compute", "Computes", "it computes, while more weights come"]];

const total = s => STAGES.reduce((sum, [name]) => sum + Math.max(s[name + "_ms"], 0), 0);

function bar(s, longest) {
  const node = svg("svg", {class: "stages", viewBox: `0 0 ${W} ${H}`, role: "img",
    "aria-label": STAGES.map(([name, , text]) => text + " " + ms(s[name + "_ms"])).join(", ")});
  let x = 0;
  for (const [name, , text] of STAGES) {
    const wide = Math.max(s[name + "_ms"], 0) / longest * W;
    node.append(svg("rect", {class: "stage-" + name, x, width: wide, y: 0, height: H},
      svg("title", null, text + ": " + ms(s[name + "_ms"]))));
    x += wide;
  }
  return node;
}

function median(list) {
  const v = [...list].sort((a, b) => a - b);
  return v.length ? v[Math.floor(v.length / 2)] : null;
}

export async function open(main, ctx) {
  let known = new Map(), longest = 1;
  const stage = ([name, head]) => ({head, cell: s => ms(s[name + "_ms"]), num: true, huge: true});
  const rows = table({
    caption: "The last switches, newest first", key: s => s.id,
    columns: [
      {head: "When", cell: s => timeShort(s.at), short: true}, {head: "GPU", cell: s => s.gpu, wide: true},
      {head: "Tenant", cell: s => s.tenant || "several", roomy: true},
      {head: "Model", cell: s => s.tenant && (api.isAdmin() || s.tenant === api.tenantName())
        ? linkOf(api.elsewhere(s.tenant), s.model, "models", s.model) : s.model},
      {head: "Total", cell: s => ms(total(s)), num: true},
      {head: "Stages", cell: s => bar(s, longest)},
      {head: "Batch", cell: s => String(s.batch), num: true, roomy: true},
      {head: "Training stopped", cell: s => s.stopped_training ? "yes" : "no", roomy: true},
      {head: "Weights", cell: s => s.copy_ms > 0 ? bytes(s.copied_bytes) + " in " + ms(s.copy_ms) : "all there",
        num: true, wide: true},
      ...STAGES.map(stage),
    ],
  });
  const sums = el("p", {role: "status"});
  main.append(el("div", {class: "card"}, el("p", null, "A switch is a run of requests for which weights had to " +
    "come to the device, or training had to stop."), sums,
  keys(STAGES.map(([name, , text]) => ["stage-" + name, text])), rows.node));
  api.watch("/api/v1/gpu-timelines?limit=200", ctx.signal, page => {
    for (const g of page.items)
      for (const s of g.switches) {
        const id = [g.gpu, s.at, s.tenant, s.model, s.version, s.wait_ms].join(" ");
        known.set(id, {...s, id, gpu: g.gpu});
      }
    const list = [...known.values()].sort((a, b) => b.at.localeCompare(a.at)).slice(0, KEPT);
    known = new Map(list.map(s => [s.id, s]));
    longest = Math.max(...list.map(total), 1);
    const rate = median(list.filter(s => s.copy_ms > 0).map(s => s.copied_bytes / s.copy_ms / 1e6));
    sums.textContent = list.length ? `${list.length} switches. Medians: ${ms(median(list.map(total)))} in all; ` +
      STAGES.map(([name, , text]) => `${text} ${ms(median(list.map(s => s[name + "_ms"])))}`).join("; ") +
      (rate ? `; weights come at ${number(rate)} GB/s.` : ".") : "None yet.";
    rows.fill(list);
  }, ctx.lost);
}
