// settings.js - the key of this page, the tenant's keys, and the options of the server.
import * as api from "./api.js";
import {card, confirm, el, facts, field, problem, say, select, show, table, time} from "./dom.js";

export const title = () => "Settings";

const ROLES = ["tenant-admin", "submit", "infer", "read"];

function whoAmI() {
  const me = api.who();
  return card("This key", facts([["Id", me.key], ["Role", me.role], ["Tenant", me.tenant || "none: all of them"],
    me.suspended && ["Suspended", "yes: nothing can be changed"]]));
}

function keyTable(at, onChange) {
  return table({
    caption: "Keys, without their secrets", key: k => k.id, empty: "None.",
    columns: [
      {head: "Id", cell: k => k.id, short: true, wide: true}, {head: "Name", cell: k => k.name},
      {head: "Role", cell: k => k.role, short: true},
      {head: "Created", cell: k => time(k.created_at), roomy: true},
      {head: "Last used", cell: k => time(k.last_used_at), wide: true},
      {head: "Expires", cell: k => time(k.expires_at), wide: true},
      {head: "Revoked", cell: k => k.revoked_at ? time(k.revoked_at) : "no", wide: true},
      {head: "Actions", cell: k => k.revoked_at ? "" : el("button", {class: "danger", "aria-label": "Revoke " + k.id,
        onclick: async () => {
          if (!await confirm("Revoke the key " + k.name + "? It stops working at once.", "Revoke it")) return;
          await api.call("DELETE", `${at}/${api.seg(k.id)}`).then(() => say("The key is revoked"),
            x => say(x.message));
          onChange();
        }}, "Revoke")},
    ],
  });
}

async function tenantKeys(ctx) {
  const at = "/api/v1/tenants/" + api.seg(api.tenantName()) + "/keys";
  const rows = keyTable(at, load), made = el("div");
  async function load() {
    await rows.fill(await api.pages(at, {signal: ctx.signal}));
  }
  const name = el("input", {required: true, maxlength: 64}), role = select(ROLES, "read");
  const form = el("form", {class: "row", onsubmit: async e => {
    e.preventDefault();
    try {
      const k = await api.call("POST", at, {name: name.value, role: role.value});
      show(made, el("div", {class: "note"}, "The key, shown this once: ", el("code", null, k.key)));
      name.value = "";
      await load();
    } catch (x) {
      show(made, problem(x));
    }
  }}, field("Name", name), field("Role", role), el("button", null, "Create a key"));
  await load();
  return card("Keys of " + api.tenantName(), rows.node, form, made);
}

// One option that may change while the server runs.
function editor(o) {
  const isBool = typeof o.value === "boolean";
  const input = isBool ? select(["true", "false"], String(o.value), {"aria-label": o.name})
    : el("input", {value: String(o.value), size: 12, "aria-label": o.name,
      type: typeof o.value === "number" ? "number" : "text", step: "any"});
  return el("form", {class: "row", onsubmit: async e => {
    e.preventDefault();
    const value = isBool ? input.value === "true" : typeof o.value === "number" ? Number(input.value) : input.value;
    await api.call("PATCH", "/api/v1/config", {[o.name]: value}).then(
      () => say(o.name + " is " + input.value + " now"), x => say(x.message));
  }}, input, el("button", {"aria-label": "Set " + o.name}, "Set"));
}

function options(ctx) {
  const rows = table({
    caption: "Options of the process that answers; those with a button may change while it runs",
    key: o => o.name, empty: "No option fits.",
    columns: [
      {head: "Option", cell: o => o.name, short: true},
      {head: "Value", cell: o => o.live ? editor(o) : o.value === null || o.value === "" ? "–" : String(o.value)},
      {head: "Changed", cell: o => o.changed ? "yes" : "", roomy: true},
      {head: "Meaning", cell: o => o.help, wide: true},
    ],
  });
  // What somebody is typing stays: only options that differ are drawn anew.
  const shown = new Map(), find = el("input", {type: "search", size: 24, placeholder: "otlp"});
  function draw() {
    const words = find.value.toLowerCase().split(/\s+/);
    rows.only(o => words.every(w => (o.name + " " + o.help).toLowerCase().includes(w)));
  }
  find.addEventListener("input", draw);
  api.watch("/api/v1/config", ctx.signal, c => {
    for (const o of c.options) {
      const now = JSON.stringify(o);
      if (shown.get(o.name) === now) continue;
      shown.set(o.name, now);
      rows.put(o);
    }
    draw();
  }, ctx.lost);
  return card("Options of the server", el("div", {class: "row"}, field("Find", find)), rows.node);
}

export async function open(main, ctx) {
  main.append(whoAmI());
  if (api.mayManage() && api.tenantName()) main.append(await tenantKeys(ctx));
  if (api.isAdmin()) main.append(options(ctx));
}
