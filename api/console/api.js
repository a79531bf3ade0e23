// api.js - the API as the signed-in key sees it. The key lives in this module and nowhere else: it
// is gone with the page.

let key = "";
let chosen = ""; // of an admin: a tenant, or ALL
let tenant = ""; // for whom this page is shown: the chosen one, or the one that its address names
let me = null;
const listeners = new Set();

export const who = () => me;
export const isAdmin = () => me !== null && me.role === "admin";
export const maySubmit = () => me !== null && ["admin", "tenant-admin", "submit"].includes(me.role);
export const mayManage = () => me !== null && ["admin", "tenant-admin"].includes(me.role);
export const mayInfer = () => me !== null && me.role !== "read";
export const mayRead = () => me !== null && me.role !== "infer";
export const ALL = "*"; // no tenant has this name
export const isOfAll = () => isAdmin() && tenant === ALL;
export const tenantName = () => isAdmin() ? (tenant === ALL ? "" : tenant) : me ? me.tenant : "";
export const chosenTenant = () => chosen;
// The name, if a link to something of this tenant has to say it: others than admins have one.
export const elsewhere = name => isAdmin() && name !== tenantName() ? name : "";

export function chooseTenant(name) {
  chosen = tenant = name;
}

// The tenant of the next page; "": the chosen one.
export function showTenant(name) {
  tenant = name || chosen;
}

export class Problem extends Error {
  constructor(status, body) {
    super((body && (body.detail || body.error)) || "the server answered " + status);
    this.status = status;
    this.code = body && body.code;
    this.errors = (body && body.errors) || [];
  }
}

export const seg = encodeURIComponent;

// An admin names the tenant; other keys have one.
export function scoped(path, name = tenant) {
  if (!isAdmin()) return path;
  return path + (path.includes("?") ? "&" : "?") + "tenant=" + seg(name);
}

async function open(method, path, {body, headers, signal} = {}) {
  const h = {Authorization: "Bearer " + key, ...headers};
  const isJson = body !== undefined && !(body instanceof ArrayBuffer) && !(body instanceof Blob);
  if (isJson) h["Content-Type"] = "application/json";
  const r = await fetch(path, {
    method, headers: h, signal, cache: "no-store", credentials: "omit", redirect: "error",
    body: isJson ? JSON.stringify(body) : body,
  });
  if (r.status === 401 && me) signOut("This key is no longer accepted.");
  if (!r.ok && r.status !== 304) {
    let problem = null;
    try {
      problem = await r.json();
    } catch {
      // A proxy's answer, perhaps: the status says enough.
    }
    throw new Problem(r.status, problem);
  }
  return r;
}

export async function call(method, path, body, options) {
  const r = await open(method, path, {body, ...options});
  return r.status === 204 ? null : r.json();
}

export const get = (path, signal) => call("GET", path, undefined, {signal});

// The response itself: for files, and for headers.
export const raw = open;

// All pages of a list, at most `most` items; onPage(items) sees each page as it comes.
export async function pages(path, {most = 1000, signal, onPage} = {}) {
  const all = [];
  const sign = path.includes("?") ? "&" : "?";
  for (let next = "first"; next && all.length < most;) {
    const limit = "limit=" + Math.min(200, most - all.length);
    const at = path + sign + limit + (next === "first" ? "" : "&cursor=" + seg(next));
    const page = await get(at, signal);
    all.push(...page.items);
    if (onPage) await onPage(page.items);
    next = page.next_cursor;
  }
  return all;
}

// The tenants whose things the page lists.
export async function listedTenants(signal) {
  return isOfAll() ? (await pages("/api/v1/tenants", {signal})).map(t => t.name) : [tenantName()];
}

// One answer for each tenant: Map of its name to it, some at a time. One that goes meanwhile is left out.
export async function ofEach(names, path, signal) {
  const out = new Map(), left = [...names];
  async function ask() {
    for (let name = left.shift(); name !== undefined; name = left.shift())
      try {
        out.set(name, await get(scoped(path, name), signal));
      } catch (e) {
        if (!isOfAll() || !(e instanceof Problem) || e.status !== 404) throw e;
      }
  }
  await Promise.all([ask(), ask(), ask()]); // of the six connections that a browser has
  return out;
}

// ---------------------------------------------------------------- streams

function parse(block) {
  const out = {event: "message", id: undefined, data: ""};
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    if (at <= 0) continue; // a comment: the server says that it is there
    const name = line.slice(0, at), value = line.slice(at + 1).replace(/^ /, "");
    if (name === "data") out.data += value;
    else out[name] = value;
  }
  return out;
}

async function readStream(response, onEvent) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    rest += value;
    const blocks = rest.split("\n\n");
    rest = blocks.pop();
    for (const e of blocks.map(parse))
      if (e.data) onEvent(e.event, JSON.parse(e.data), e.id);
  }
}

const pause = (wait, signal) => new Promise(done => {
  const t = setTimeout(done, wait);
  signal.addEventListener("abort", () => { clearTimeout(t); done(); }, {once: true});
});

// A page that nobody sees gives its connections to those that are seen: a browser has six.
let seen = new AbortController();
document.addEventListener("visibilitychange", () => {
  if (document.hidden) seen.abort();
  else seen = new AbortController();
});

const visible = signal => new Promise(done => {
  if (!document.hidden || signal.aborted) return done();
  const look = () => {
    if (document.hidden && !signal.aborted) return;
    document.removeEventListener("visibilitychange", look);
    done();
  };
  document.addEventListener("visibilitychange", look);
  signal.addEventListener("abort", look, {once: true});
});

// Server-sent events of a path until the signal is aborted; comes back after a break, behind the last
// event. onEvent(name, data). onOpen() tells that events come from now on, each time that it is opened;
// onLost(problem) of a break, onLost(null) of its end. Streams
// pause while the page is hidden. EventSource cannot send a key, so this reads the response's body.
export async function stream(path, {signal, onEvent, onOpen = () => {}, onLost = () => {}}) {
  let last, wait = 500, lost = false;
  for (;;) {
    await visible(signal);
    if (signal.aborted) return;
    const watched = seen;
    try {
      const headers = {Accept: "text/event-stream"};
      if (last !== undefined) headers["Last-Event-ID"] = last;
      const r = await open("GET", path, {headers, signal: AbortSignal.any([signal, watched.signal])});
      if (r.status === 204) return; // there will be no more
      if (lost) onLost(null);
      onOpen();
      lost = false;
      wait = 500;
      await readStream(r, (name, data, id) => {
        if (id !== undefined) last = id;
        onEvent(name, data);
      });
    } catch (e) {
      if (signal.aborted) return;
      lost = true;
      if (watched.signal.aborted) continue;
      if (e instanceof Problem && [400, 401, 403, 404].includes(e.status)) {
        onLost(e);
        return;
      }
      onLost(e);
    }
    await pause(wait, signal);
    wait = Math.min(wait * 2, 15000);
  }
}

// Calls fn now and each time that `every` ms have gone by, while the page is seen.
export async function again(every, signal, fn, onLost) {
  let lost = false;
  for (;;) {
    await visible(signal);
    if (signal.aborted) return;
    try {
      await fn();
      if (lost) onLost(null);
      lost = false;
    } catch (e) {
      if (signal.aborted) return;
      lost = true;
      onLost(e);
    }
    await pause(every, signal);
  }
}

// The answer to a GET now, and each other answer from then on.
export function watch(path, signal, onAnswer, onLost) {
  return stream(path, {signal, onLost, onEvent: (name, data) => name === "answer" && onAnswer(data)});
}

// ---------------------------------------------------------------- signing in and out

export function onSignOut(fn) {
  listeners.add(fn);
}

export async function signIn(secret) {
  key = secret.trim();
  if (!/^[!-~]+$/.test(key)) throw new Problem(401, {detail: "That does not look like a key."});
  try {
    me = await get("/api/v1/whoami");
  } catch (e) {
    key = "";
    me = null;
    throw e;
  }
  return me;
}

export function signOut(why = "") {
  key = tenant = chosen = "";
  me = null;
  for (const fn of listeners) fn(why);
}
