// jobs.js - the jobs of a tenant: a list that follows what happens.
import * as api from "./api.js";
import {count, el, field, link, number, say, select, state, table, time} from "./dom.js";

const LIVE = "STARTING,RUNNING,PREEMPTED,CANCELLING,COMPLETING";
const STATES = [["", "all"], ["QUEUED,HELD", "waiting"], [LIVE, "on a GPU"], ["SUSPENDED", "suspended"],
  ["SUCCEEDED", "succeeded"], ["FAILED,EXPIRED", "failed"], ["CANCELLED", "cancelled"]];
const PAGE = 100;

export const title = () => "Jobs";

export function progress(job) {
  if (!job.steps) return job.step ? count(job.step) : "";
  return el("span", {title: count(job.step) + " of " + count(job.steps)},
    el("progress", {max: job.steps, value: job.step, "aria-label": "Steps done"}),
    " " + Math.floor(100 * job.step / job.steps) + " %");
}

function makeTable() {
  return table({
    caption: "Jobs, newest first", long: true, key: j => j.id,
    columns: [
      {head: "Job", cell: j => link(String(j.id), "jobs", j.id), width: "70"},
      {head: "Name", cell: j => j.name},
      {head: "Kind", cell: j => j.kind === "batch_inference" ? "batch" : j.kind, wide: true, width: "80"},
      {head: "Model", cell: j => j.model, wide: true},
      {head: "Queue", cell: j => j.queue, wide: true, width: "90"},
      {head: "State", cell: j => state(j.state), width: "130"},
      {head: "Why it waits", cell: j => j.state === "QUEUED" ? j.reason : "", width: "130"},
      {head: "Progress", cell: progress, wide: true, width: "165"},
      {head: "Loss", cell: j => j.loss === null ? "" : number(j.loss), num: true, width: "90"},
      {head: "Preempted", cell: j => j.preemptions || "", num: true, wide: true, width: "110"},
      {head: "Submitted", cell: j => time(j.created_at), wide: true, width: "175"},
    ],
  });
}

// Events come one by one, and a thousand at a time: what they change is drawn once a moment.
function follow(rows, filter, ctx, onNew) {
  const changed = new Map();
  let fresh = 0, timer = 0;
  async function draw() {
    timer = 0;
    let n = 0;
    for (const [id, e] of [...changed]) {
      changed.delete(id);
      const old = rows.get(id);
      if (old) rows.put({...old, state: e.to, reason: e.reason});
      else fresh++;
      if (++n % 25 === 0) await new Promise(done => setTimeout(done, 0));
    }
    if (fresh) onNew();
    fresh = 0;
  }
  const at = "/api/v1/events" + (filter.toString() ? "?" + filter : "");
  return api.stream(api.scoped(at), {
    signal: ctx.signal, onLost: ctx.lost,
    onOpen: onNew, // what has happened since the list was read, or during a break
    onEvent: (name, e) => {
      changed.set(e.job, e);
      timer = timer || setTimeout(draw, 200);
    },
  });
}

export async function open(main, ctx) {
  const filter = new URLSearchParams();
  const rows = makeTable();
  const more = el("button", {class: "hidden"}, "Show " + PAGE + " more");
  const shown = el("span", {class: "soft", role: "status"});
  let next = null, turn = new AbortController();

  async function load(cursor) {
    const query = new URLSearchParams(filter);
    query.set("limit", PAGE);
    if (cursor) query.set("cursor", cursor);
    const page = await api.get(api.scoped("/api/v1/jobs?" + query), ctx.signal);
    if (cursor) await rows.append(page.items);
    else await rows.fill(page.items);
    next = page.next_cursor || null;
    more.classList.toggle("hidden", !next);
    shown.textContent = rows.size() + (next ? " shown, there are more" : " shown");
  }
  // New jobs: the newest ones again, in front of those that are shown.
  async function renew() {
    const query = new URLSearchParams(filter);
    query.set("limit", PAGE);
    const page = await api.get(api.scoped("/api/v1/jobs?" + query), ctx.signal);
    for (const j of page.items.reverse()) rows.put(j, !rows.has(j.id));
    shown.textContent = rows.size() + " shown";
  }
  async function start() {
    turn.abort();
    turn = new AbortController();
    const mine = {lost: ctx.lost, signal: AbortSignal.any([ctx.signal, turn.signal])};
    rows.clear();
    await load(null);
    const events = new URLSearchParams(filter);
    events.delete("state"); // a job that leaves these states is shown as it is then
    follow(rows, events, mine, () => renew().catch(() => {}));
    api.watch(api.scoped("/api/v1/jobs?limit=200&state=" + LIVE), mine.signal, page => {
      for (const j of page.items) if (rows.has(j.id)) rows.put(j);
    }, ctx.lost);
  }
  const states = select(STATES, "", {id: "state"}), label = el("input", {placeholder: "team=vision"});
  const form = el("form", {class: "row", onsubmit: e => {
    e.preventDefault();
    for (const [name, value] of [["state", states.value], ["label", label.value.trim()]])
      if (value) filter.set(name, value);
      else filter.delete(name);
    start().catch(x => say(x.message));
  }}, field("State", states), field("Labels", label), el("button", null, "Show"),
  api.maySubmit() && el("a", {class: "button", href: "#/submit"}, "Submit a job"));
  states.addEventListener("change", () => form.requestSubmit());
  more.addEventListener("click", async () => {
    more.disabled = true;
    await load(next).catch(x => say(x.message));
    more.disabled = false;
  });
  main.append(form, el("div", {class: "card"}, rows.node, el("div", {class: "row"}, more, shown)));
  await start();
}
