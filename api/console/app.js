// app.js - signs in, and shows the page that the address names: #/jobs/17.
import * as api from "./api.js";
import {carryTenant, el, field, problem, say, select} from "./dom.js";
import * as job from "./job.js";
import * as jobs from "./jobs.js";
import * as model from "./model.js";
import * as models from "./models.js";
import * as submit from "./submit.js";
import * as attempt from "./try.js";
import * as audit from "./audit.js";
import * as gpus from "./gpus.js";
import * as settings from "./settings.js";
import * as switches from "./switches.js";
import * as tenants from "./tenants.js";

// The first part of the address, and who sees the page. `one` has the page of one thing. ofTenant: it is
// about one tenant; ofAll: or about all of them, for an admin.
const PAGES = [
  {path: "gpus", name: "GPUs", page: gpus, may: api.mayRead},
  {path: "jobs", name: "Jobs", page: jobs, one: job, may: api.mayRead, ofTenant: true, ofAll: true},
  {path: "submit", name: "Submit", page: submit, may: api.maySubmit, ofTenant: true},
  {path: "models", name: "Models", page: models, one: model, may: api.mayRead, ofTenant: true, ofAll: true},
  {path: "try", name: "Try a model", page: attempt, may: api.mayInfer, ofTenant: true},
  {path: "tenants", name: "Tenants", page: tenants, one: tenants, may: api.mayRead},
  {path: "switches", name: "Switches", page: switches, may: api.mayRead},
  {path: "audit", name: "Audit", page: audit, may: api.isAdmin},
  {path: "settings", name: "Settings", page: settings, may: () => api.who() !== null},
];

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const whoBox = document.getElementById("who");
let open = null; // the page that is shown: its signal is aborted when it goes

// #/jobs/17?tenant=vision: its parts, and the tenant that it names.
function where() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  try {
    return {parts: path.split("/").filter(x => x).map(decodeURIComponent),
      tenant: api.isAdmin() && new URLSearchParams(query).get("tenant") || ""};
  } catch {
    return {parts: [], tenant: ""};
  }
}

function showNav(current) {
  const may = PAGES.filter(p => p.may());
  nav.replaceChildren(el("ul", null, may.map(p =>
    el("li", null, el("a", {href: "#/" + p.path, "aria-current": p === current && "page"}, p.name)))));
  showHere();
}

// A phone shows a part of the list.
function showHere() {
  const here = nav.querySelector("[aria-current]"), list = here && here.closest("ul");
  if (here) list.scrollLeft = here.offsetLeft - list.offsetLeft - (list.clientWidth - here.offsetWidth) / 2;
}

async function showWho() {
  const me = api.who();
  const out = el("button", {onclick: () => api.signOut("You have signed out.")}, "Sign out");
  if (!api.isAdmin()) {
    whoBox.replaceChildren(el("span", {class: "soft"}, me.tenant + " (" + me.role + ")"), out);
    return;
  }
  const names = (await api.pages("/api/v1/tenants")).map(t => t.name);
  const options = names.length ? [[api.ALL, "all tenants"], ...names] : [["", "no tenant yet"]];
  const pick = select(options, api.chosenTenant() || names[0] || "", {
    "aria-label": "Tenant whose jobs and models are shown",
    onchange: () => {
      api.chooseTenant(pick.value);
      const {parts, tenant} = where();
      if (tenant) location.hash = "#/" + parts[0]; // what it shows is of that one
      else route();
    },
  });
  api.chooseTenant(pick.value);
  whoBox.replaceChildren(el("span", {class: "soft"}, "admin"), pick, out);
}

function lost(e) {
  const old = main.querySelector(".lost");
  if (old) old.remove();
  if (!e) return;
  const gone = e instanceof api.Problem && e.status === 404;
  main.prepend(el("div", {class: "note lost", role: "status"}, gone ? e.message
    : "The connection is interrupted; what you see may be old. Trying again: " + e.message));
}

async function route() {
  if (!api.who()) return;
  const {parts: [first, ...rest], tenant} = where();
  const entry = PAGES.find(p => p.path === first && p.may()) || PAGES.find(p => p.may());
  const page = rest.length && entry.path === first && entry.one ? entry.one : entry.page;
  if (open) open.abort();
  const mine = open = new AbortController();
  const body = el("div");
  api.showTenant(tenant);
  carryTenant(tenant);
  showNav(entry);
  const head = el("h1", {tabindex: -1});
  function name(text) {
    head.textContent = text + (tenant ? " of " + tenant : "");
    document.title = head.textContent + " – Shunt";
  }
  name(page.title(rest));
  main.replaceChildren(head, body);
  head.focus({preventScroll: true});
  if (entry.ofTenant && !api.tenantName() && !(api.isOfAll() && entry.ofAll && page === entry.page)) {
    body.append(el("p", null, api.isOfAll() ? "This page is about one tenant: choose it at the top."
      : "There is no tenant yet: shunt create tenant NAME makes one."));
    return;
  }
  try {
    await page.open(body, {
      signal: mine.signal, rest, name,
      lost: e => { if (!mine.signal.aborted) lost(e); },
    });
  } catch (e) {
    if (mine.signal.aborted) return;
    if (api.who()) body.prepend(problem(e));
  }
}

function askForKey(why) {
  if (open) open.abort();
  open = null;
  nav.replaceChildren();
  whoBox.replaceChildren();
  document.title = "Sign in – Shunt";
  const input = el("input", {type: "password", autocomplete: "off", required: true, spellcheck: "false"});
  const wrong = el("div");
  const button = el("button", {class: "main"}, "Sign in");
  const form = el("form", {onsubmit: async e => {
    e.preventDefault();
    button.disabled = true;
    wrong.replaceChildren();
    try {
      await api.signIn(input.value);
      input.value = "";
      await showWho();
      await route();
    } catch (x) {
      wrong.replaceChildren(problem(x));
      input.focus();
    }
    button.disabled = false;
  }}, field("API key", input), el("p", {class: "soft"},
    "The key stays in the memory of this page and is gone when it is closed or loaded again."),
  wrong, button);
  main.replaceChildren(el("div", {class: "card sign"}, el("h1", null, "Sign in to Shunt"),
    why && el("p", null, why), form));
  input.focus();
}

api.onSignOut(askForKey);
window.addEventListener("hashchange", route);
window.addEventListener("resize", showHere);
window.addEventListener("unhandledrejection", e => {
  if (e.reason instanceof api.Problem) {
    e.preventDefault();
    say(e.reason.message);
  }
});
askForKey("");
