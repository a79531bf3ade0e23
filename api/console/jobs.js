// jobs.js - the jobs of a tenant, or of all: a list that follows what happens.
import * as api from "./api.js";
import {address, count, el, field, linkOf, measure, number, say, select, state, table, timeShort} from "./dom.js";

const LIVE = "STARTING,RUNNING,PREEMPTED,CANCELLING,COMPLETING";
const STATES = [["", "all"], ["QUEUED,HELD", "waiting"], [LIVE, "on a GPU"], ["SUSPENDED", "suspended"],
  ["SUCCEEDED", "succeeded"], ["FAILED,EXPIRED", "failed"], ["CANCELLED", "cancelled"]];
const PAGE = 100, LIVE_MS = 3000;

export const title = () => "Jobs";

export function progress(job) {
  if (!job.steps) return job.step ? count(job.step) : "";
  const node = measure(el("progress", {max: job.steps, value: job.step, "aria-label": "Steps done"}),
    Math.floor(100 * job.step / job.steps) + "\u00a0%");
  node.title = count(job.step) + " of " + count(job.steps) + " steps";
  return node;
}

function makeTable() {
  return table({
    caption: "Jobs, newest first", long: true, key: j => j.id, empty: "No job fits.",
    columns: [
      {head: "Job", cell: j => linkOf(api.elsewhere(j.tenant), String(j.id), "jobs", j.id), width: 5},
      ...api.isOfAll() ? [{head: "Tenant", cell: j => j.tenant, wide: true, width: 8}] : [],
      {head: "Name", cell: j => j.name},
      {head: "Kind", cell: j => j.kind === "batch_inference" ? "batch" : j.kind, roomy: true, width: 6.5},
      {head: "Model", cell: j => j.model, roomy: true},
      {head: "Queue", cell: j => j.queue, huge: true, width: 8},
      {head: "State", cell: j => state(j.state), width: 9.5},
      {head: "Why it waits", cell: j => j.state === "QUEUED" ? j.reason : "", wide: true, width: 8.5},
      {head: "Progress", cell: progress, wide: true, width: 11},
      {head: "Loss", cell: j => j.loss === null ? "" : number(j.loss), num: true, wide: true, width: 6},
      {head: "Preempted", cell: j => j.preemptions || "", num: true, huge: true, width: 7.5},
      {head: "Submitted", cell: j => timeShort(j.created_at), roomy: true, width: 8},
    ],
  });
}

// Events come one by one, and a thousand at a time: what they change is drawn once a moment.
function follow(rows, filter, ctx, onNew) {
  const changed = new Map();
  let fresh = new Set(), timer = 0; // tenants with jobs that are not shown
  async function draw() {
    timer = 0;
    let n = 0;
    for (const [id, e] of [...changed]) {
      changed.delete(id);
      const old = rows.get(id);
      if (old) rows.put({...old, state: e.to, reason: e.reason});
      else fresh.add(e.tenant);
      if (++n % 25 === 0) await new Promise(done => setTimeout(done, 0));
    }
    if (fresh.size) onNew(fresh);
    fresh = new Set();
  }
  const at = "/api/v1/events" + (filter.toString() ? "?" + filter : "");
  return api.stream(api.isOfAll() ? at : api.scoped(at), {
    signal: ctx.signal, onLost: ctx.lost,
    onOpen: () => onNew(null), // what has happened since the list was read, or during a break
    onEvent: (name, e) => {
      changed.set(e.job, e);
      timer = timer || setTimeout(draw, 200);
    },
  });
}

// The jobs of these tenants, newest first, read as far as somebody wants to see them. Numbers of jobs
// grow, whosever they are.
class Lists {
  constructor(names, path, signal) {
    Object.assign(this, {path, signal, lists: names.map(name => ({name, items: [], next: ""}))});
  }

  async read(list) {
    const cursor = list.next ? "&cursor=" + api.seg(list.next) : "";
    const page = (await api.ofEach([list.name], this.path + cursor, this.signal)).get(list.name);
    list.items = page ? page.items.map(j => ({...j, tenant: list.name})) : [];
    list.next = page && page.next_cursor || null;
  }

  async take(n) {
    const out = [], left = this.lists.filter(l => l.next === "");
    const first = async () => {
      for (let l = left.shift(); l; l = left.shift()) await this.read(l);
    };
    await Promise.all([first(), first(), first()]);
    while (out.length < n) {
      let newest = null;
      for (const l of this.lists) {
        if (!l.items.length && l.next) await this.read(l);
        if (l.items.length && (!newest || l.items[0].id > newest.items[0].id)) newest = l;
      }
      if (!newest) break;
      out.push(newest.items.shift());
    }
    return out;
  }

  hasMore() {
    return this.lists.some(l => l.items.length || l.next);
  }
}

// What is live changes between two events, too: steps, losses.
function followLive(rows, shownTenants, ctx) {
  const path = "/api/v1/jobs?limit=200&state=" + LIVE;
  const show = (items, name) => {
    for (const j of items) if (rows.has(j.id)) rows.put({...j, tenant: name});
  };
  if (!api.isOfAll()) {
    const name = api.tenantName();
    api.watch(api.scoped(path), ctx.signal, page => show(page.items, name), ctx.lost);
    return;
  }
  api.again(LIVE_MS, ctx.signal, async () => {
    for (const [name, page] of await api.ofEach(shownTenants(), path, ctx.signal)) show(page.items, name);
  }, ctx.lost);
}

export async function open(main, ctx) {
  const filter = new URLSearchParams();
  const rows = makeTable();
  const more = el("button", {class: "hidden"}, "Show " + PAGE + " more");
  const shown = el("span", {class: "soft", role: "status"});
  const tenants = await api.listedTenants(ctx.signal);
  let lists = null, lowest = 0, turn = new AbortController(); // lowest: of the jobs shown, if there are more
  const path = () => "/api/v1/jobs?" + new URLSearchParams([...filter, ["limit", PAGE]]);
  const shownTenants = new Set(); // that have a job in the list

  function note(jobs) {
    for (const j of jobs) shownTenants.add(j.tenant);
    more.classList.toggle("hidden", !lists.hasMore());
    shown.textContent = rows.size() + (lists.hasMore() ? " shown, there are more" : " shown");
  }
  async function load() {
    const jobs = await lists.take(PAGE);
    if (rows.size()) await rows.append(jobs);
    else await rows.fill(jobs);
    lowest = lists.hasMore() && jobs.length ? jobs[jobs.length - 1].id : 0;
    note(jobs);
  }
  // New jobs: the newest ones of these tenants again (null: of all), in front of those that are shown.
  async function renew(names) {
    const found = [];
    for (const [name, page] of await api.ofEach(names || tenants, path(), ctx.signal))
      found.push(...page.items.map(j => ({...j, tenant: name})));
    const fit = found.filter(j => rows.has(j.id) || j.id > lowest).sort((a, b) => a.id - b.id);
    for (const j of fit) rows.put(j, !rows.has(j.id));
    note(fit);
  }
  async function start() {
    turn.abort();
    turn = new AbortController();
    const mine = {lost: ctx.lost, signal: AbortSignal.any([ctx.signal, turn.signal])};
    rows.clear();
    shownTenants.clear();
    lists = new Lists(tenants, path(), mine.signal);
    await load();
    const events = new URLSearchParams(filter);
    events.delete("state"); // a job that leaves these states is shown as it is then
    follow(rows, events, mine, names => renew(names).catch(() => {}));
    followLive(rows, () => shownTenants, mine);
  }
  const states = select(STATES, "", {id: "state"}), label = el("input", {placeholder: "team=vision"});
  const form = el("form", {class: "row", onsubmit: e => {
    e.preventDefault();
    for (const [name, value] of [["state", states.value], ["label", label.value.trim()]])
      if (value) filter.set(name, value);
      else filter.delete(name);
    start().catch(x => say(x.message));
  }}, field("State", states), field("Labels", label), el("button", null, "Show"),
  api.maySubmit() && !api.isOfAll() && el("a", {class: "button", href: address(["submit"])}, "Submit a job"));
  states.addEventListener("change", () => form.requestSubmit());
  more.addEventListener("click", async () => {
    more.disabled = true;
    await load().catch(x => say(x.message));
    more.disabled = false;
  });
  main.append(form, el("div", {class: "card"}, rows.node, el("div", {class: "row"}, more, shown)));
  await start();
}
