// model.js - one model: its versions, which of them serve, where they are, and its latency target.
import * as api from "./api.js";
import {address, bytes, card, confirm, count, el, facts, field, link, ms, number, percent, say, select, show,
  state, table, time} from "./dom.js";
import {budget} from "./models.js";

const WINDOWS = [["5m", "5 minutes"], ["1h", "hour"], ["1d", "day"]];

export const title = rest => "Model " + rest[0];

const tensors = list => (list || []).map(t => t.name + " " + t.datatype + " [" + t.shape.join(", ") + "]")
  .join("; ");

const shares = list => {
  const all = (list || []).reduce((sum, t) => sum + t.weight, 0);
  return (list || []).map(t => t.version + (list.length > 1 ? " (" + percent(t.weight / all) + ")" : "")).join(", ") ||
    "–";
};

// Asks first: it changes what requests get.
async function move(button, question, yes, path, body, done) {
  if (!await confirm(question, yes)) return;
  button.disabled = true;
  await api.call("POST", api.scoped(path), body).then(() => say(done), x => say(x.message));
  button.disabled = false;
}

function aliasTable(at, mine) {
  return table({
    caption: "Aliases", quiet: true, key: a => a.name,
    columns: [
      {head: "Alias", cell: a => a.name},
      {head: "Versions that serve", cell: a => shares(a.targets)},
      {head: "Before", cell: a => shares(a.previous), wide: true},
      {head: "Rolled back by itself", cell: a => a.rolled_back ? a.rolled_back.reason : "", wide: true},
      mine && api.maySubmit() && {head: "Actions", cell: a => a.previous ? el("button", {
        "aria-label": "Roll back " + a.name,
        onclick: e => move(e.currentTarget, "Roll " + a.name + " back to version " + shares(a.previous) + "?",
          "Roll it back", `${at}/aliases/${a.name}/rollback`, undefined, a.name + " is rolled back"),
      }, "Roll back") : ""},
    ].filter(c => c),
  });
}

function actions(at, v) {
  const list = [["load", "Load"], ["unload", "Unload"], v.pinned ? ["unpin", "Unpin"] : ["pin", "Pin"]];
  return list.map(([name, text]) => el("button", {
    "aria-label": text + " version " + v.version,
    onclick: async e => {
      const button = e.currentTarget;
      if (name === "unload" && !await confirm("Unload version " + v.version +
        "? Requests for it are refused until it is loaded again.", "Unload it")) return;
      button.disabled = true;
      await api.call("POST", api.scoped(`${at}/versions/${v.version}/${name}`)).then(
        () => say("Version " + v.version + ": " + name + " is asked for"), x => say(x.message));
      button.disabled = false;
    },
  }, text));
}

function serveButton(at, v) {
  return el("button", {
    "aria-label": "Serve version " + v.version,
    onclick: e => move(e.currentTarget, "Let the alias stable stand for version " + v.version +
      "? Requests that name no version get it then.", "Serve it", at + "/aliases/stable/promote",
    {version: v.version}, "stable is version " + v.version),
  }, "Serve");
}

function versionTable(at, mine) {
  return table({
    caption: "Versions", quiet: true, key: v => v.version,
    columns: [
      {head: "Version", cell: v => String(v.version), num: true},
      {head: "State", cell: v => state(v.state)},
      {head: "Why", cell: v => v.reason || (v.loading ? v.loading.step : ""), wide: true},
      {head: "Inputs", cell: v => tensors(v.inputs), roomy: true},
      {head: "Outputs", cell: v => tensors(v.outputs), roomy: true},
      {head: "Batch", cell: v => "up to " + v.max_batch, num: true, wide: true},
      {head: "Image", cell: v => bytes(v.image_bytes), num: true, wide: true},
      {head: "Made by", cell: v => v.source_job ? link("job " + v.source_job, "jobs", v.source_job) : "upload",
        wide: true},
      {head: "Pinned", cell: v => v.pinned ? "yes" : "no", wide: true},
      api.maySubmit() && {head: "Actions", cell: v => el("span", {class: "acts"}, actions(at, v),
        mine && serveButton(at, v))},
    ].filter(c => c),
  });
}

function placeTable() {
  return table({
    caption: "Where the newest version is", key: p => p.executor,
    columns: [
      {head: "GPU", cell: p => p.executor},
      {head: "State", cell: p => state(p.state)},
      {head: "On the device", cell: p => bytes(p.device_bytes), num: true},
      {head: "In host memory", cell: p => bytes(p.host_bytes), num: true, wide: true},
      {head: "Pin", cell: p => p.pin, wide: true},
      {head: "Last used", cell: p => time(p.last_use_at), wide: true},
    ],
  });
}

// What was met of the target in each window. It is asked for again when requests have come.
function attainment(at, ctx) {
  const rows = table({
    caption: "How requests met the target", key: a => a.window,
    columns: [
      {head: "Last", cell: a => WINDOWS.find(w => w[0] === a.window)[1]},
      {head: "Requests", cell: a => count(a.requests), num: true, wide: true},
      {head: "Attained", cell: a => a.attained_percent === null ? "–" : percent(a.attained_percent / 100, 3),
        num: true},
      {head: "Missed", cell: a => count(a.missed), num: true, wide: true},
      {head: "Rejected", cell: a => count(a.rejected), num: true, wide: true},
      {head: "p50", cell: a => ms(a.p50_ms), num: true, wide: true},
      {head: "p99", cell: a => ms(a.p99_ms), num: true},
      {head: "Error budget", cell: a => budget(a.error_budget_left)},
    ],
  });
  const box = el("div");
  let shown;
  return {
    node: box,
    async note(slo) {
      const now = JSON.stringify(slo);
      if (now === shown) return;
      shown = now;
      if (!slo) {
        show(box, "This model has no latency target.");
        return;
      }
      const list = await Promise.all(WINDOWS.map(([w]) =>
        api.get(api.scoped(`${at}/slo/attainment?window=${w}`), ctx.signal)));
      await rows.fill(list);
      if (!rows.node.isConnected) show(box, rows.node);
    },
  };
}

function targetForm(at, slo) {
  const latency = el("input", {type: "number", min: "0.001", step: "any", required: true,
    value: slo ? slo.latency_ms : ""});
  const percentile = el("input", {type: "number", min: "0.001", max: "99.999", step: "any", required: true,
    value: slo ? slo.percentile : 99});
  const miss = select(["best-effort", "reject"]);
  return el("form", {class: "row", onsubmit: e => {
    e.preventDefault();
    api.call("PUT", api.scoped(at + "/slo"), {latency_ms: Number(latency.value),
      percentile: Number(percentile.value), on_miss: miss.value}).then(
      () => say("The target is set"), x => say(x.message));
  }}, field("Latency, ms", latency), field("Percentile", percentile), field("If it cannot be met", miss),
  el("button", null, "Set the target"));
}

export async function open(main, ctx) {
  const name = ctx.rest[0], at = "/api/v1/models/" + api.seg(name);
  const first = await api.get(api.scoped(at), ctx.signal);
  const mine = first.tenant === api.tenantName();
  const overview = el("div"), versions = versionTable(at, mine), places = placeTable(), met = attainment(at, ctx);
  const aliases = aliasTable(at, mine), aliasBox = el("div");
  let newest = 0, follows = new AbortController();

  function onModel(m) {
    show(overview, facts([
      ["Owner", m.tenant], ["Shared", m.visibility], ["Created", time(m.created_at)],
      ["Requests", m.traffic ? number(m.traffic.per_s) + "/s, p50 " + ms(m.traffic.p50_ms) + ", p99 " +
        ms(m.traffic.p99_ms) : "none in the last minute"],
      ["Target", m.slo ? ms(m.slo.latency_ms) + " for " + m.slo.percentile + "\u00a0%" : "none"],
    ]));
    met.note(m.slo).catch(ctx.lost);
    aliases.fill(m.aliases);
    if (!m.aliases.length)
      show(aliasBox, "This model has no alias: requests that name no version get the newest one that is READY.");
    else if (!aliases.node.isConnected)
      show(aliasBox, aliases.node);
    const last = m.versions.length ? m.versions[m.versions.length - 1].version : 0;
    if (last && last !== newest) {
      newest = last;
      follows.abort();
      follows = new AbortController();
      api.watch(api.scoped(`${at}/versions/${last}/placements`), AbortSignal.any([ctx.signal, follows.signal]),
        p => places.fill(p.placements), ctx.lost);
    }
  }
  main.append(el("div", {class: "row"}, api.mayInfer() &&
    el("a", {class: "button", href: address(["try", name])}, "Try it")),
  card("Overview", overview), card("Versions", versions.node), card("What serves", aliasBox),
  card("Where it is", places.node),
  card("Latency target", met.node, mine && api.maySubmit() && targetForm(at, first.slo)));
  onModel(first);
  api.watch(api.scoped(at), ctx.signal, onModel, ctx.lost);
  api.watch(api.scoped(at + "/versions?limit=100"), ctx.signal, page => versions.fill(page.items), ctx.lost);
}
