// try.js - sends one request to a model: JSON, or an image.
import * as api from "./api.js";
import {barChart} from "./chart.js";
import {card, el, field, ms, number, problem, select, show} from "./dom.js";

const SHOWN = 1000; // values of an output
const TOP = 10;

export const title = rest => rest.length ? "Try " + rest[0] : "Try a model";

const sizeOf = shape => shape.reduce((a, b) => a * b, 1);

// One sample, with 1 for every size that is open.
const oneOf = shape => shape.map((n, i) => i === 0 || n < 1 ? 1 : n);

function example(inputs) {
  return {inputs: inputs.map(t => {
    const shape = oneOf(t.shape), n = sizeOf(shape);
    const fill = t.datatype === "BOOL" ? false : t.datatype === "BYTES" ? "" : 0;
    return {name: t.name, datatype: t.datatype, shape, data: Array(Math.min(n, 4096)).fill(fill)};
  })};
}

const ANY_SIDE = 224; // pixels, where the model takes any

// {height, width, channels, last}: how an image goes into the tensor; null: it is no image.
function imageForm(t) {
  const s = t.shape, side = n => n > 0 ? n : ANY_SIDE;
  if (s.length !== 4 || !["FP32", "UINT8"].includes(t.datatype)) return null;
  if ([1, 3].includes(s[1])) return {channels: s[1], height: side(s[2]), width: side(s[3]), last: false};
  if ([1, 3].includes(s[3])) return {channels: s[3], height: side(s[1]), width: side(s[2]), last: true};
  return null;
}

// Pixels of a file, scaled to the tensor's size and as its numbers.
async function pixels(file, form, datatype, mean, std) {
  const {channels, height, width, last} = form;
  const bitmap = await createImageBitmap(file, {resizeWidth: width, resizeHeight: height,
    resizeQuality: "high"});
  const canvas = el("canvas", {width, height}), g = canvas.getContext("2d");
  g.drawImage(bitmap, 0, 0, width, height);
  const rgba = g.getImageData(0, 0, width, height).data, n = width * height;
  const out = datatype === "UINT8" ? new Uint8Array(n * channels) : new Float32Array(n * channels);
  for (let i = 0; i < n; i++)
    for (let c = 0; c < channels; c++) {
      const v = channels === 1 ? .299 * rgba[4 * i] + .587 * rgba[4 * i + 1] + .114 * rgba[4 * i + 2]
        : rgba[4 * i + c];
      out[last ? i * channels + c : c * n + i] = datatype === "UINT8" ? v
        : (v / 255 - mean[c % mean.length]) / std[c % std.length];
    }
  return out;
}

// A request whose tensor stands behind its JSON.
function binary(t, form, data) {
  const shape = form.last ? [1, form.height, form.width, form.channels]
    : [1, form.channels, form.height, form.width];
  const head = new TextEncoder().encode(JSON.stringify({inputs: [{name: t.name, datatype: t.datatype, shape,
    parameters: {binary_data_size: data.byteLength}}]}));
  return {body: new Blob([head, data]), headers: {"Content-Type": "application/octet-stream",
    "Inference-Header-Content-Length": String(head.length)}};
}

function softmax(v) {
  const high = Math.max(...v), e = v.map(x => Math.exp(x - high)), sum = e.reduce((a, b) => a + b, 0);
  return e.map(x => x / sum);
}

function output(o) {
  const data = o.data || [];
  const scores = o.shape.length === 2 && o.shape[0] === 1 && data.length > 1 && data.length <= 100000 &&
    data.every(x => typeof x === "number");
  const text = JSON.stringify(data.slice(0, SHOWN)) + (data.length > SHOWN ? " … of " + data.length : "");
  let best = null;
  if (scores) {
    const odd = data.some(x => x < 0 || x > 1), parts = odd ? softmax(data) : data;
    best = [el("p", null, "Highest of " + data.length + (odd ? ", as a softmax" : "")),
      barChart("Highest values", parts.map((value, i) => ({name: String(i), value}))
        .sort((a, b) => b.value - a.value).slice(0, TOP))];
  }
  return card(o.name + " " + o.datatype + " [" + o.shape.join(", ") + "]", best,
    el("details", {open: !scores}, el("summary", null, "Values"), el("pre", null, text)));
}

function timing(header, took) {
  const parts = (header || "").split(",").map(p => /([\w-]+);.*?dur=([\d.]+)/.exec(p)).filter(p => p);
  return el("p", null, "Answered in " + ms(took) + ". ",
    parts.length > 0 && "On the server: " + parts.map(p => p[1] + " " + ms(Number(p[2]))).join(", ") + ".");
}

async function names(signal) {
  const index = await api.call("POST", api.scoped("/v2/repository/index"), {ready: true}, {signal});
  return [...new Set(index.map(m => m.name))].sort();
}

function requestForm(at, meta, ctx) {
  const out = el("div", {"aria-live": "polite"}), picture = meta.inputs.length === 1 && imageForm(meta.inputs[0]);
  async function send(make, button) {
    button.disabled = true;
    show(out, "Waiting for the answer …");
    try {
      const {body, headers} = await make();
      const begin = performance.now();
      const r = await api.raw("POST", api.scoped(at + "/infer"), {body, headers, signal: ctx.signal});
      const answer = await r.json();
      show(out, timing(r.headers.get("Server-Timing"), performance.now() - begin),
        el("p", {class: "soft"}, "Version " + answer.model_version), answer.outputs.map(output));
    } catch (x) {
      show(out, problem(x));
    }
    button.disabled = false;
  }
  const text = el("textarea", {spellcheck: "false", rows: 12});
  text.value = JSON.stringify(example(meta.inputs));
  const go = el("button", {class: "main"}, "Send JSON");
  const json = el("form", {onsubmit: e => {
    e.preventDefault();
    send(() => ({body: JSON.parse(text.value)}), go);
  }}, field("Request", text), el("p", null, go));
  if (!picture) return [card("JSON", json), out];

  const t = meta.inputs[0], file = el("input", {type: "file", accept: "image/*", required: true});
  const mean = el("input", {value: "0", size: 16}), std = el("input", {value: "1", size: 16});
  const goImage = el("button", {class: "main"}, "Send the image");
  const list = input => input.value.split(/[\s,]+/).filter(x => x).map(Number);
  const image = el("form", {onsubmit: e => {
    e.preventDefault();
    send(async () => binary(t, picture, await pixels(file.files[0], picture, t.datatype, list(mean),
      list(std))), goImage);
  }}, el("p", null, `It is scaled to ${picture.width} × ${picture.height} pixels, ` +
    (picture.channels === 1 ? "grey." : "RGB.")),
  el("div", {class: "row"}, field("Image", file), t.datatype === "FP32" && [
    field("Mean, of values from 0 to 1", mean), field("Standard deviation", std)]), el("p", null, goImage));
  return [el("div", {class: "two"}, card("An image", image), card("JSON", json)), out];
}

export async function open(main, ctx) {
  const all = await names(ctx.signal), wanted = ctx.rest[0];
  if (!all.length) {
    main.append(el("p", null, "No model is ready to be asked."));
    return;
  }
  const pick = select(wanted && !all.includes(wanted) ? [wanted, ...all] : all, wanted || all[0]);
  const about = el("div"), form = el("div");
  async function choose() {
    const at = "/v2/models/" + api.seg(pick.value);
    form.replaceChildren();
    try {
      const meta = await api.get(api.scoped(at), ctx.signal);
      const say = list => list.map(t => `${t.name} ${t.datatype} [${t.shape.join(", ")}]`).join("; ");
      show(about, el("p", {class: "soft"}, "Inputs: " + say(meta.inputs) + ". Outputs: " + say(meta.outputs) +
        "."));
      show(form, requestForm(at, meta, ctx));
    } catch (x) {
      show(about, problem(x));
    }
  }
  pick.addEventListener("change", choose);
  main.append(card(null, field("Model", pick), about), form);
  await choose();
}
