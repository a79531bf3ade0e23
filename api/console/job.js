// job.js - one job: where it is, why it waits, its loss, its log, and what may be done with it.
import * as api from "./api.js";
import {lineChart} from "./chart.js";
import {bytes, card, confirm, count, el, facts, link, number, say, seconds, show, state, table,
  time, timeShort} from "./dom.js";
import {progress} from "./jobs.js";

const FINAL = ["SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED"];
const ACTIONS = {
  suspend: "Pause", resume: "Resume", hold: "Hold", release: "Release", checkpoint: "Checkpoint",
  requeue: "Requeue", cancel: "Cancel",
};
const LOG_SHOWN = 65536;
const LOSSES = 20000; // in one request

export const title = rest => "Job " + rest[0];

// Calls fn soon after it was asked for, never twice at a time.
function lazily(fn, ctx) {
  let running = false, again = false;
  return async function run() {
    if (running) {
      again = true;
      return;
    }
    running = true;
    do {
      again = false;
      try {
        await fn();
      } catch (e) {
        if (!ctx.signal.aborted && api.who()) ctx.lost(e);
        again = false;
      }
    } while (again && !ctx.signal.aborted);
    running = false;
  };
}

// The curve: the file that is written with each checkpoint, and behind it what the job reports.
function lossCurve(at, ctx) {
  const chart = lineChart({label: "Loss of the job", x: "step", y: "loss"});
  let filed = [], live = [], read = 0;
  const read_file = lazily(async () => {
    for (;;) {
      const r = await api.get(api.scoped(`${at}/losses?offset=${read}&limit=${LOSSES}`), ctx.signal);
      r.losses.forEach((y, i) => filed.push([read + i + 1, y === null ? NaN : y]));
      read += r.losses.length;
      if (!r.losses.length || read >= r.total) break;
    }
    draw();
  }, ctx);
  function draw() {
    live = live.filter(p => p[0] > read);
    chart.set(live.length ? filed.concat(live) : filed);
  }
  return {
    node: chart.node,
    read: read_file,
    note(job) {
      if (job.loss === null || !job.step || (live.length && live[live.length - 1][0] >= job.step)) return;
      live.push([job.step, job.loss]);
      draw();
    },
  };
}

// The end of the log. The last byte that is shown comes again: if it is another one, the file was
// written anew.
function logPane(at, ctx) {
  const pre = el("pre", {class: "log", tabindex: 0, role: "log", "aria-label": "Log of the job"});
  let end = 0, tag = "", last = "";
  const read = lazily(async () => {
    const headers = {Range: end ? `bytes=${end - 1}-` : `bytes=-${LOG_SHOWN}`};
    if (tag) headers["If-None-Match"] = tag;
    const r = await api.raw("GET", api.scoped(at + "/log"), {headers, signal: ctx.signal});
    if (r.status === 304) return;
    const text = await r.text(), below = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 4;
    const range = /bytes (\d+)-(\d+)\//.exec(r.headers.get("Content-Range") || "");
    tag = r.headers.get("ETag") || "";
    if (end && range && text[0] === last) {
      pre.append(text.slice(1));
    } else if (end && range) {
      end = 0;
      tag = "";
      return read();
    } else {
      show(pre, text);
    }
    if (text) last = text[text.length - 1];
    end = range ? Number(range[2]) + 1 : new TextEncoder().encode(text).length;
    if (below) pre.scrollTop = pre.scrollHeight;
  }, ctx);
  return {node: pre, read};
}

function story(at, ctx, onEvent) {
  const rows = table({
    caption: "What happened, oldest first", key: e => e.id,
    columns: [{head: "When", cell: e => timeShort(e.at), short: true}, {head: "State", cell: e => state(e.to)},
      {head: "Reason", cell: e => e.reason},
      {head: "Executor", cell: e => e.detail && typeof e.detail.executor === "string" ? e.detail.executor : "",
        wide: true}],
  });
  api.stream(api.scoped(at + "/events"), {signal: ctx.signal, onLost: ctx.lost,
    onEvent: (name, e) => {
      rows.put(e);
      onEvent(e);
    }});
  return rows.node;
}

function about(job) {
  return facts([
    ["State", state(job.state)],
    job.name && ["Name", job.name],
    ["Model", [link(job.model, "models", job.model), " version " + job.version]],
    job.dataset && ["Dataset", job.dataset],
    ["Queue", job.queue + ", priority " + job.priority],
    ["Progress", progress(job) || "–"],
    ["Loss", job.loss === null ? "–" : number(job.loss, 5)],
    job.steps_per_s !== null && ["Rate", number(job.steps_per_s) + " steps/s"],
    job.executor && ["Executor", job.executor],
    ["Device time", seconds(job.busy_ns / 1e9)],
    ["Preempted", count(job.preemptions) + " times, " + count(job.steps_redone) + " steps run again"],
    ["Attempt", job.attempt + " of " + job.max_attempts],
    ["Submitted", time(job.created_at)],
    job.started_at && ["Started", time(job.started_at)],
    job.finished_at && ["Ended", time(job.finished_at)],
    Object.keys(job.labels).length &&
      ["Labels", Object.entries(job.labels).map(([k, v]) => k + "=" + v).join(", ")],
    job.error && ["Error", el("span", {class: "bad"}, job.error)],
    job.result && ["Result", el("pre", null, JSON.stringify(job.result, (k, v) => v === null ? undefined : v, 1))],
  ]);
}

function explained(x) {
  const waits = x.waits_for || [];
  return [
    el("p", null, x.text),
    facts([
      x.reason && x.state === "QUEUED" && ["Rule", x.reason],
      x.position !== undefined && ["Place", x.position + " of " + x.waiting],
      x.estimated_start && ["Estimated start", time(x.estimated_start)],
      x.basis && ["Estimate from", x.basis],
    ]),
    waits.length > 0 && el("ul", null, waits.map(w => el("li", null, w.executor + ": ",
      w.job ? ["job " + w.job, w.left_ms !== undefined && ", about " + seconds(w.left_ms / 1000) + " left"]
        : "free"))),
  ];
}

function actionButtons(at, id, allowed, onDone) {
  return allowed.filter(name => ACTIONS[name]).map(name => el("button", {
    class: name === "cancel" && "danger",
    onclick: async e => {
      const button = e.currentTarget;
      if (name === "cancel" && !await confirm("Cancel job " + id + "? It does not come back.",
        "Cancel the job")) return;
      button.disabled = true;
      try {
        const job = await api.call("POST", api.scoped(at + "/" + name), {});
        say("Job " + id + " is " + job.state + (job.flags.length ? " (" + job.flags.join(", ") + ")" : ""));
        onDone(job);
      } catch (x) {
        say(x.message);
        button.disabled = false;
      }
    },
  }, ACTIONS[name]));
}

function checkpoints(at, ctx) {
  const rows = table({caption: "The files of the last two are kept", key: c => c.id, empty: "None yet.", columns: [
    {head: "Step", cell: c => count(c.step), num: true}, {head: "Size", cell: c => bytes(c.bytes), num: true},
    {head: "Written", cell: c => time(c.created_at)}]});
  const read = lazily(async () => {
    await rows.fill(await api.pages(api.scoped(at + "/checkpoints"), {most: 200, signal: ctx.signal}));
  }, ctx);
  return {node: rows.node, read};
}

export async function open(main, ctx) {
  const id = ctx.rest[0], at = "/api/v1/jobs/" + api.seg(id);
  const first = await api.get(api.scoped(at), ctx.signal);
  const overview = el("div"), why = el("div"), buttons = el("div", {class: "row"});
  const curve = lossCurve(at, ctx), log = logPane(at, ctx), saved = checkpoints(at, ctx);
  let said = "", readAt = 0;

  const explain = lazily(async () => {
    const x = await api.get(api.scoped(at + "/explain"), ctx.signal);
    show(why, explained(x));
    if (api.maySubmit()) show(buttons, actionButtons(at, id, x.allowed, onJob));
  }, ctx);
  function onJob(job) {
    const now = [job.state, job.reason, job.flags.join(), job.executor].join();
    show(overview, about(job));
    curve.note(job);
    log.read();
    if (now !== said) explain();
    // The file of losses grows with checkpoints: it is read at times, and when a state ends.
    if (now !== said || Date.now() - readAt > 10000) {
      readAt = Date.now();
      if (job.kind === "training") curve.read();
      saved.read();
    }
    said = now;
  }
  if (first.name) ctx.name("Job " + id + ": " + first.name);
  main.append(buttons, el("div", {class: "two"}, card("Overview", overview), el("div", null,
    card(FINAL.includes(first.state) ? "How it ended" : "Why it is where it is", why),
    first.kind === "training" && card("Loss", curve.node))),
  el("div", {class: "two"}, card("Events", story(at, ctx, () => {
    log.read();
    explain();
  })), card("Checkpoints", saved.node)), card("Log", log.node),
  card("Spec", el("pre", null, JSON.stringify(first.spec, null, 2))));
  onJob(first);
  api.watch(api.scoped(at), ctx.signal, onJob, ctx.lost);
}
