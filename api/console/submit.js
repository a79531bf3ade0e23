// submit.js - submits a training or a batch inference job.
import * as api from "./api.js";
import {address, card, el, field, problem, say, select} from "./dom.js";

export const title = () => "Submit a job";

const numeric = (attrs, value) => el("input", {type: "number", step: "any", ...attrs, value});

function lines(text) {
  const out = {};
  for (const line of text.split("\n").map(x => x.trim()).filter(x => x)) {
    const at = line.indexOf("=");
    if (at < 1) throw new Error("A label is KEY=VALUE, not \"" + line + "\".");
    out[line.slice(0, at)] = line.slice(at + 1);
  }
  return out;
}

export async function open(main, ctx) {
  const [models, datasets, queues] = await Promise.all(["models", "datasets", "queues"].map(what =>
    api.pages(api.scoped("/api/v1/" + what), {signal: ctx.signal})));
  const names = list => list.length ? list.map(x => x.name) : [["", "none yet"]];
  const f = {
    kind: select([["training", "training"], ["batch_inference", "batch inference"]], "training"),
    model: select(names(models.filter(m => m.tenant === api.tenantName() || m.visibility === "shared"))),
    dataset: select(names(datasets)),
    queue: select(names(queues), queues.some(q => q.name === "default") ? "default" : undefined),
    name: el("input", {maxlength: 128}),
    priority: numeric({min: -1000, max: 1000, step: 1}, 0),
    labels: el("textarea", {class: "few", placeholder: "team=vision", rows: 2}),
    loss: el("input", {value: "cross-entropy"}),
    target: el("input", {value: "label"}),
    optimizer: select(["sgd", "adam", "adamw"], "sgd"),
    lr: numeric({min: 0}, 0.05),
    batch: numeric({min: 1, step: 1}, 32),
    epochs: numeric({min: 1, step: 1}, 5),
    more: el("textarea", {class: "few", placeholder: "{\"seed\": 1}", rows: 3, spellcheck: "false"}),
  };
  const training = el("fieldset", null, el("legend", null, "Training"), el("div", {class: "row"},
    field("Loss", f.loss), field("Tensor of the labels", f.target), field("Optimizer", f.optimizer),
    field("Learning rate", f.lr), field("Epochs", f.epochs)));
  const wrong = el("div"), button = el("button", {class: "main"}, "Submit");
  f.kind.addEventListener("change", () => {
    training.classList.toggle("hidden", f.kind.value !== "training");
  });

  function body() {
    const spec = {batch: Number(f.batch.value)};
    if (f.kind.value === "training")
      Object.assign(spec, {loss: f.loss.value, labels: f.target.value, epochs: Number(f.epochs.value),
        optimizer: {name: f.optimizer.value, lr: Number(f.lr.value)}});
    if (f.more.value.trim()) Object.assign(spec, JSON.parse(f.more.value));
    if (spec.steps !== undefined) delete spec.epochs;
    return {kind: f.kind.value, model: f.model.value, dataset: f.dataset.value, queue: f.queue.value,
      name: f.name.value, priority: Number(f.priority.value), labels: lines(f.labels.value), spec};
  }
  const form = el("form", {onsubmit: async e => {
    e.preventDefault();
    wrong.replaceChildren();
    button.disabled = true;
    try {
      const job = await api.call("POST", api.scoped("/api/v1/jobs"), body());
      say("Job " + job.id + " is submitted");
      location.hash = address(["jobs", String(job.id)]);
    } catch (x) {
      wrong.replaceChildren(problem(x));
    }
    button.disabled = false;
  }},
  el("div", {class: "row"}, field("Kind", f.kind), field("Model", f.model), field("Dataset", f.dataset),
    field("Batch", f.batch)),
  training,
  el("div", {class: "row"}, field("Name", f.name), field("Queue", f.queue), field("Priority", f.priority)),
  field("Labels, one on a line", f.labels),
  field("More of the spec, as JSON; it goes before the fields above", f.more),
  wrong, el("p", null, button));
  main.append(card(null, form));
}
