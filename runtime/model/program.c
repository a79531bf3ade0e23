/* program.c - from a graph to a program: lowers, rewrites, plans, and answers questions. */
#include "common/mem.h"
#include "runtime/model/autodiff.h"
#include "runtime/model/indices.h"
#include "runtime/model/init.h"
#include "runtime/model/lower.h"
#include "runtime/model/pass.h"
#include "runtime/model/program_int.h"
#include "runtime/model/why.h"

#include <stdio.h>
#include <stdlib.h>

const char *program_nan_hint(const struct program *p)
{
    return p->g->holds ? "; or a sample chose an expert that is missing from the file; export with "
                         "inputs that choose all"
                       : "";
}

static void free_strings(char **list, size_t n)
{
    for (size_t i = 0; list && i < n; i++)
        free(list[i]);
    free(list);
}

void program_free(struct program *p)
{
    if (!p)
        return;
    dev_plan_free(p->dp);
    plan_fini(&p->plan);
    indices_free(p->indices);
    free(p->inputs);
    free(p->outputs);
    free(p->sent);
    free(p->state);
    free(p->gradients);
    free_strings(p->state_names, p->n_state);
    free_strings(p->op_labels, p->n_ops);
    ir_free(p->ir);
    graph_free(p->g);
    free(p);
}

/* ------------------------------------------------------------------ making one */

/* What leaves the device is plain and is never overwritten. */
static void mark_outputs(struct ir *ir)
{
    for (uint32_t i = 0; i < ir->n_outputs; i++) {
        ir_t(ir, ir->outputs[i])->role = DEV_ROLE_OUTPUT;
        ir_t(ir, ir_root(ir, ir->outputs[i]))->role = DEV_ROLE_OUTPUT;
    }
}

static void describe_io(const struct ir *ir, uint32_t t, struct program_io *io)
{
    const struct dev_tensor *d = ir_t(ir, t);

    *io = (struct program_io){.name = d->name,
                              .dtype = d->dtype,
                              .rank = d->rank,
                              .offset = d->offset,
                              .bytes = (size_t)ir_elements(ir, t) * sh_dtype_bytes(d->dtype)};
    memcpy(io->dims, d->dims, sizeof(io->dims));
}

static int list_io(struct program *p, struct sh_err *err)
{
    const struct ir *ir = p->ir;
    uint32_t next = p->g->n_outputs; /* the count of the next output that has one */

    p->inputs = calloc(ir->n_inputs + 1u, sizeof(*p->inputs));
    p->outputs = calloc(ir->n_outputs + 1u, sizeof(*p->outputs));
    if (!p->inputs || !p->outputs)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the list of inputs and outputs");
    for (uint32_t i = 0; i < ir->n_inputs; i++)
        describe_io(ir, ir->inputs[i], &p->inputs[i]);
    for (uint32_t i = 0; i < p->g->n_outputs; i++) {
        const struct graph_value *v = &p->g->values[p->g->outputs[i]];

        describe_io(ir, ir->outputs[i], &p->outputs[i]);
        p->outputs[i].name = v->name;
        p->outputs[i].counted = v->counted;
        if (v->counted)
            p->outputs[i].count_offset = ir_t(ir, ir->outputs[next++])->offset;
    }
    for (uint32_t i = 0; i < ir->n_labels; i++)
        if (ir->labels[i] != DEV_NONE)
            describe_io(ir, ir->labels[i], &p->labels[i]);
    return SH_OK;
}

static int label_ops(struct program *p, struct sh_err *err)
{
    const struct dev_graph *g = &p->ir->g;
    int rc = SH_OK;

    p->op_labels = calloc(g->n_ops + 1u, sizeof(*p->op_labels));
    if (!p->op_labels)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %u labels", g->n_ops);
    p->n_ops = g->n_ops;
    for (uint32_t i = 0; i < g->n_ops && rc == SH_OK; i++)
        rc = sh_asprintf(err, &p->op_labels[i], "%s %s", dev_op_name(g->ops[i].kind),
                         g->ops[i].name);
    return rc;
}

static int add_state_entry(struct program *p, uint32_t t, struct sh_err *err)
{
    static const enum program_state_kind KIND[] = {[IR_PARAM] = PROGRAM_STATE_PARAM,
                                                   [IR_STAT] = PROGRAM_STATE_STAT,
                                                   [IR_OPTIM] = PROGRAM_STATE_OPTIM,
                                                   [IR_EMA] = PROGRAM_STATE_EMA};
    const struct ir_info *info = &p->ir->info[t];
    const struct dev_tensor *d = ir_t(p->ir, t);
    struct program_state_entry *e = &p->state[p->n_state];
    int rc = sh_asprintf(err, &p->state_names[p->n_state], info->suffix ? "%s#%s" : "%s", d->name,
                         info->suffix);

    if (rc)
        return rc;
    *e = (struct program_state_entry){.name = p->state_names[p->n_state],
                                      .kind = KIND[info->state],
                                      .rank = d->rank,
                                      .offset = d->offset,
                                      .bytes = (size_t)ir_elements(p->ir, t) * sizeof(float),
                                      .has_gradient = info->grad != DEV_NONE};
    memcpy(e->dims, d->dims, sizeof(e->dims));
    p->gradients[p->n_state] = info->grad;
    p->n_state++;
    return SH_OK;
}

static bool is_state(const struct ir *ir, uint32_t t)
{
    return ir_t(ir, t)->role == DEV_ROLE_STATE && ir_t(ir, t)->alias_of == DEV_NONE &&
           ir->info[t].state != IR_NO_STATE;
}

static int list_state(struct program *p, struct sh_err *err)
{
    const struct ir *ir = p->ir;
    size_t n = 0;
    int rc = SH_OK;

    for (uint32_t i = 0; i < ir->g.n_tensors; i++)
        n += is_state(ir, i);
    p->state = calloc(n + 1, sizeof(*p->state));
    p->state_names = calloc(n + 1, sizeof(*p->state_names));
    p->gradients = calloc(n + 1, sizeof(*p->gradients));
    if (!p->state || !p->state_names || !p->gradients)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the list of the training state");
    for (uint32_t i = 0; i < ir->g.n_tensors && rc == SH_OK; i++)
        if (is_state(ir, i))
            rc = add_state_entry(p, i, err);
    return rc;
}

static int list_sent(struct program *p, struct sh_err *err)
{
    const struct ir *ir = p->ir;

    p->sent = calloc(ir->g.n_tensors + 1u, sizeof(*p->sent));
    if (!p->sent)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the list of constants");
    for (uint32_t i = 0; i < ir->g.n_tensors; i++)
        if (ir->info[i].sent && ir_t(ir, i)->alias_of == DEV_NONE)
            p->sent[p->n_sent++] = i;
    return SH_OK;
}

static int send_constants(struct program *p, const struct dev_bases *b, struct sh_err *err)
{
    int rc = SH_OK;

    for (uint32_t i = 0; i < p->n_sent && !rc; i++) {
        const struct dev_tensor *t = ir_t(p->ir, p->sent[i]);

        rc = dev_upload(dev_plan_dev(p->dp), b->workspace + t->offset, p->ir->info[p->sent[i]].sent,
                        (size_t)ir_elements(p->ir, p->sent[i]) * sh_dtype_bytes(t->dtype), err);
    }
    return rc;
}

bool program__is_weight(const struct program *p, uint32_t t)
{
    const enum dev_role role = ir_t(p->ir, t)->role;

    return (role == DEV_ROLE_WEIGHT || role == DEV_ROLE_TABLE) &&
           ir_t(p->ir, t)->alias_of == DEV_NONE;
}

/* Has the image of `share` each weight of p at its place? Weights are few beside operations, and
 * mostly in the same order. */
static bool has_weights(const struct program *p, const struct program *share)
{
    const uint32_t n = share->ir->g.n_tensors;
    uint32_t k = 0;

    for (uint32_t i = 0; i < p->ir->g.n_tensors; i++) {
        const struct dev_tensor *t = ir_t(p->ir, i), *s = NULL;
        bool found = !program__is_weight(p, i);

        for (uint32_t tries = 0; tries < n && !found; tries++) {
            s = ir_t(share->ir, k);
            found = program__is_weight(share, k) && s->offset == t->offset &&
                    s->bytes == t->bytes && s->role == t->role && strcmp(s->name, t->name) == 0;
            k = (k + 1) % n;
        }
        if (!found)
            return false;
    }
    return true;
}

/* One image serves all batch sizes, and all sizes of symbols: the same weights at the same places.
 */
static int check_shared(const struct program *p, const struct program *share, struct sh_err *err)
{
    const struct plan *a = &p->plan, *b = &share->plan;
    uint32_t n = p->ir->g.n_layers;

    if (n == share->ir->g.n_layers && a->image_bytes == b->image_bytes &&
        memcmp(a->layer_ends, b->layer_ends, n * sizeof(*a->layer_ends)) == 0 &&
        has_weights(p, share))
        return SH_OK;
    return SH_FAIL(err, SH_E_UNSUPPORTED,
                   "the constants of the model depend on the batch size or on other sizes of the "
                   "inputs (%zu bytes against %zu), so that one image cannot serve several",
                   a->image_bytes, b->image_bytes);
}

/* Where `trained` has it: the mean of a parameter, if there is one. NULL: nowhere. */
static const struct program_state_entry *find_state(const struct program *trained, const char *name)
{
    const struct program_state_entry *found = NULL;
    const size_t len = strlen(name);

    for (size_t i = 0; i < trained->n_state; i++) {
        const struct program_state_entry *e = &trained->state[i];

        if (strncmp(e->name, name, len) != 0)
            continue;
        if (e->kind == PROGRAM_STATE_EMA && strcmp(e->name + len, "#ema") == 0)
            return e;
        if (e->kind <= PROGRAM_STATE_STAT && e->name[len] == '\0')
            found = e;
    }
    return found;
}

static void join_state(struct program *p, const struct program *trained)
{
    const uint32_t n = p->ir->g.n_tensors;
    size_t end = trained->plan.state_bytes;

    for (uint32_t i = 0; i < n; i++) {
        struct dev_tensor *t = ir_t(p->ir, i);
        const struct program_state_entry *e = NULL;

        if (t->role != DEV_ROLE_STATE || t->alias_of != DEV_NONE)
            continue;
        if (p->ir->info[i].state != IR_NO_STATE)
            e = find_state(trained, t->name);
        t->offset = e ? e->offset : end;
        end += e ? 0 : SH_ALIGN_UP(t->bytes, (size_t)DEV_ALIGN);
    }
    for (uint32_t i = 0; i < n; i++)
        ir_t(p->ir, i)->offset = ir_t(p->ir, ir_root(p->ir, i))->offset;
    p->plan.state_bytes = end;
    p->plan.written_bytes = trained->plan.written_bytes;
}

/* trained: NULL, or whose state this one shares. */
static int make_plan(struct program *p, const struct program *trained, struct sh_err *err)
{
    struct dev_graph *g = &p->ir->g;
    size_t *scratch = calloc(g->n_ops + 1u, sizeof(*scratch));
    int rc = SH_OK;

    if (!scratch)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the plan of %u operations", g->n_ops);
    for (uint32_t i = 0; i < g->n_ops; i++)
        scratch[i] = dev_plan_scratch_bytes(p->dp, i);
    rc = plan_make(g, scratch, dev_plan_keep_bytes(p->dp), &p->plan, err);
    if (!rc && trained)
        join_state(p, trained);
    if (!rc)
        dev_plan_set_keep(p->dp, p->plan.keep);
    for (uint32_t i = 0; rc == SH_OK && i < g->n_ops; i++)
        if (p->plan.scratch[i] != SIZE_MAX)
            dev_plan_set_scratch(p->dp, i, p->plan.scratch[i]);
    free(scratch);
    return rc ? rc : dev_plan_finish(p->dp, err);
}

static int finish_program(struct program *p, struct dev *d, enum dev_precision precision,
                          const struct program *share, const struct program *trained,
                          struct sh_err *err)
{
    int rc;

    if (precision == DEV_FP16)
        pass_small(p->ir);
    rc = ir_compact(p->ir, err);
    if (rc)
        return rc;
    mark_outputs(p->ir);
    rc = dev_plan_new(d, &p->ir->g, precision, share ? share->dp : NULL, &p->dp, err);
    if (!rc)
        rc = make_plan(p, trained, err);
    if (!rc && share)
        rc = check_shared(p, share, err);
    if (!rc)
        rc = list_sent(p, err);
    if (!rc)
        rc = list_io(p, err);
    if (!rc)
        rc = list_state(p, err);
    return rc ? rc : label_ops(p, err);
}

enum use { USE_INFER, USE_TRAIN, USE_EVALUATE };

/* A head that names no output is of the first. */
static int find_program_output(const struct program *p, const struct train_head *h, uint32_t *at,
                               struct sh_err *err)
{
    const struct graph *g = p->g;

    for (*at = 0; *at < g->n_outputs; ++*at)
        if (!h->output[0] || strcmp(g->values[g->outputs[*at]].name, h->output) == 0)
            return SH_OK;
    return SH_FAIL(err, SH_E_INVALID, "the model has no output \"%s\" to train on", h->output);
}

static int set_u32_list(uint32_t **list, uint32_t *n, const uint32_t *to, uint32_t n_to,
                        struct sh_err *err)
{
    uint32_t *made = malloc((n_to + 1u) * sizeof(*made));

    if (!made)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a list of %u outputs", n_to);
    memcpy(made, to, n_to * sizeof(*made));
    free(*list);
    *list = made;
    *n = n_to;
    return SH_OK;
}

/* The outputs of the heads become the outputs; others take no part. */
static int pick_outputs(struct program *p, const struct train_spec *t, struct sh_err *err)
{
    uint32_t tensors[TRAIN_MAX_HEADS], values[TRAIN_MAX_HEADS], at;

    for (uint32_t i = 0; i < t->n_heads; i++) {
        int rc = find_program_output(p, &t->heads[i], &at, err);

        if (rc)
            return rc;
        tensors[i] = p->ir->outputs[at];
        values[i] = p->g->outputs[at];
        if (p->g->values[values[i]].counted)
            return SH_FAIL(err, SH_E_UNSUPPORTED, "output \"%s\": " WHY_SIZE,
                           p->g->values[values[i]].name);
    }
    if (set_u32_list(&p->ir->outputs, &p->ir->n_outputs, tensors, t->n_heads, err))
        return err->rc;
    return set_u32_list(&p->g->outputs, &p->g->n_outputs, values, t->n_heads, err);
}

/* t: NULL of inference. */
static int start_program(const struct graph *g, const struct graph_sizes *at,
                         const struct train_spec *t, enum use use, struct program **out,
                         struct sh_err *err)
{
    const bool training = use != USE_INFER;
    struct program *p = calloc(1, sizeof(*p));
    int rc;

    *out = p;
    if (!p)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a program");
    rc = graph_at(g, at, training, &p->g, err);
    if (!rc)
        rc = lower_graph(p->g, training, &p->ir, err);
    if (!rc && t)
        rc = pick_outputs(p, t, err);
    if (!rc && use == USE_EVALUATE)
        pass_evaluate(p->ir);
    if (!rc)
        rc = pass_run(p->ir, training, err);
    if (!rc)
        p->ir->g.update_begin = p->ir->g.n_ops;
    return rc;
}

/* Their layout is the same for all sizes: it depends on what reads a weight, not on how much. */
static int turn_weights(struct ir *ir, enum dev_precision precision, struct sh_err *err)
{
    if (precision != DEV_TF32)
        return SH_OK;
    pass_along(ir);
    ir_drop_unused(ir);
    ir->g.update_begin = ir->g.n_ops;
    return ir_done(ir, err);
}

/* cost: NULL, or what decides on tables where nothing is shared. */
static int make_infer(struct dev *d, const struct graph *g, const struct graph_sizes *at,
                      enum dev_precision precision, const struct program *share,
                      const struct tables_cost *cost, struct program **out, struct sh_err *err)
{
    struct program *p = NULL;
    int rc = start_program(g, at, NULL, USE_INFER, &p, err);

    *out = NULL;
    if (!rc)
        rc = turn_weights(p->ir, precision, err);
    if (!rc && share)
        rc = tables_follow(p->ir, share->ir, err);
    else if (!rc && cost)
        rc = tables_choose(p->ir, cost, err);
    if (!rc)
        rc = finish_program(p, d, precision, share, NULL, err);
    if (!rc)
        rc = indices_find(p->ir, &p->indices, err);
    if (rc) {
        program_free(p);
        return rc;
    }
    *out = p;
    return SH_OK;
}

int program_infer(struct dev *d, const struct graph *g, const struct graph_sizes *at,
                  enum dev_precision precision, const struct program *share, struct program **out,
                  struct sh_err *err)
{
    return make_infer(d, g, at, precision, share, NULL, out, err);
}

int program_infer_tables(struct dev *d, const struct graph *g, const struct graph_sizes *at,
                         enum dev_precision precision, const struct tables_cost *cost,
                         struct program **out, struct sh_err *err)
{
    return make_infer(d, g, at, precision, NULL, cost, out, err);
}

int program_train(struct dev *d, const struct graph *g, const struct train_spec *t,
                  struct program **out, struct sh_err *err)
{
    const struct graph_sizes at = {.batch = t->batch, .of = t->sizes};
    struct program *p = NULL;
    int rc = start_program(g, &at, t, USE_TRAIN, &p, err);

    *out = NULL;
    if (!rc) {
        p->seed = t->seed;
        rc = init_note(p->ir, g, t, &p->drawn, err);
    }
    if (!rc)
        rc = autodiff_train(p->ir, t, err);
    if (!rc)
        rc = finish_program(p, d, t->precision, NULL, NULL, err);
    if (rc) {
        program_free(p);
        return rc;
    }
    *out = p;
    return SH_OK;
}

int program_evaluate(struct dev *d, const struct graph *g, const struct train_spec *t,
                     const struct program *trained, struct program **out, struct sh_err *err)
{
    const struct graph_sizes at = {.batch = t->batch, .of = t->sizes};
    struct train_spec plain = *t;
    struct program *p = NULL;
    int rc = start_program(g, &at, t, USE_EVALUATE, &p, err);

    *out = NULL;
    plain.augment = augment_fixed(&t->augment);
    if (!rc) {
        pass_pictures(p->ir, &plain);
        p->ir->g.update_begin = p->ir->g.n_ops;
        rc = ir_done(p->ir, err);
    }
    if (!rc)
        rc = finish_program(p, d, t->precision, NULL, trained, err);
    if (rc) {
        program_free(p);
        return rc;
    }
    *out = p;
    return SH_OK;
}

/* ------------------------------------------------------------------ answers */

uint32_t program_n_ops(const struct program *p)
{
    return p->ir->g.n_ops;
}

uint32_t program_n_layers(const struct program *p)
{
    return p->ir->g.n_layers;
}

uint32_t program_update_begin(const struct program *p)
{
    return p->ir->g.update_begin;
}

uint32_t program_layer_begin(const struct program *p, uint32_t layer)
{
    uint32_t lo = 0, hi = p->ir->g.n_ops;

    while (lo < hi) { /* op.layer never falls */
        uint32_t mid = lo + (hi - lo) / 2;

        if (p->ir->g.ops[mid].layer < layer)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const char *program_op_label(const struct program *p, uint32_t op)
{
    return op < p->n_ops ? p->op_labels[op] : "";
}

size_t program_image_bytes(const struct program *p)
{
    return p->plan.image_bytes;
}

size_t program_state_bytes(const struct program *p)
{
    return p->plan.state_bytes;
}

size_t program_written_bytes(const struct program *p)
{
    return p->plan.written_bytes;
}

size_t program_workspace_bytes(const struct program *p)
{
    return p->plan.workspace_bytes;
}

uint32_t program_n_tables(const struct program *p)
{
    return p->plan.n_tables;
}

size_t program_tables_at(const struct program *p)
{
    return p->plan.tables_at;
}

uint64_t program_rows_bytes(const struct program *p)
{
    return tables_rows_bytes(p->ir);
}

const uint64_t *program_layer_ends(const struct program *p)
{
    return p->plan.layer_ends;
}

size_t program_n_inputs(const struct program *p)
{
    return p->ir->n_inputs;
}

size_t program_n_outputs(const struct program *p)
{
    return p->g->n_outputs;
}

const struct program_io *program_input(const struct program *p, size_t i)
{
    return i < p->ir->n_inputs ? &p->inputs[i] : NULL;
}

const struct program_io *program_output(const struct program *p, size_t i)
{
    return i < p->g->n_outputs ? &p->outputs[i] : NULL;
}

const struct program_io *program_label(const struct program *p, size_t head)
{
    return head < p->ir->n_labels && p->ir->labels[head] != DEV_NONE ? &p->labels[head] : NULL;
}

int64_t program_n_classes(const struct program *p, size_t head)
{
    const struct dev_graph *g = &p->ir->g;

    for (uint32_t i = 0; i < g->n_ops && head < p->ir->n_labels; i++)
        if (g->ops[i].kind == DEV_OP_LOSS_XENT && g->ops[i].in[1] == p->ir->labels[head])
            return g->tensors[g->ops[i].in[0]].dims[1];
    return 0;
}

size_t program_loss_offset(const struct program *p)
{
    return p->ir->loss == DEV_NONE ? SIZE_MAX : ir_t(p->ir, p->ir->loss)->offset;
}

static bool writes(const struct dev_op *op, uint32_t tensor)
{
    for (uint32_t i = 0; i < op->n_out; i++)
        if (op->out[i] == tensor)
            return true;
    return false;
}

uint32_t program_loss_end(const struct program *p)
{
    const struct dev_graph *g = &p->ir->g;
    uint32_t end = g->n_ops;

    while (end > 0 && !writes(&g->ops[end - 1], p->ir->loss))
        end--;
    return end;
}

const struct init_count *program_drawn(const struct program *p)
{
    return &p->drawn;
}

bool program_scaler(const struct program *p, size_t *offset)
{
    const bool has = p->ir->scaler != DEV_NONE;

    *offset = has ? ir_t(p->ir, p->ir->scaler)->offset : 0;
    return has;
}

size_t program_n_state(const struct program *p)
{
    return p->n_state;
}

const struct program_state_entry *program_state(const struct program *p, size_t i)
{
    return i < p->n_state ? &p->state[i] : NULL;
}

int program_gradient(struct program *p, const struct dev_bases *b, size_t i, float *out,
                     struct sh_err *err)
{
    const struct dev_tensor *t;
    size_t scaler;
    float scale = 1;
    void *stored;
    int rc;

    if (i >= p->n_state || !p->state[i].has_gradient)
        return SH_FAIL(err, SH_E_INVALID, "entry %zu of the state has no gradient", i);
    t = ir_t(p->ir, p->gradients[i]);
    stored = malloc(t->bytes ? t->bytes : 1);
    if (!stored)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a gradient of %zu bytes", t->bytes);
    rc = dev_download(dev_plan_dev(p->dp), stored, b->workspace + t->offset, t->bytes, err);
    if (!rc && program_scaler(p, &scaler))
        rc = dev_download(dev_plan_dev(p->dp), &scale, b->state + scaler, sizeof(scale), err);
    if (!rc)
        rc = dev_sync(dev_plan_dev(p->dp), err);
    if (!rc)
        rc = dev_plan_unpack(p->dp, p->gradients[i], stored, out, err);
    for (int64_t k = 0; k < ir_elements(p->ir, p->gradients[i]) && !rc && scale != 1; k++)
        out[k] /= scale;
    free(stored);
    return rc;
}

int program_check_sample(const struct program *p, size_t input, const void *sample, size_t bytes,
                         struct sh_err *err)
{
    enum sh_dtype t = p->inputs[input].dtype;

    return indices_check(p->indices, (uint32_t)input, t, sample, bytes / sh_dtype_bytes(t), err);
}

int program_warm(struct program *p, double *op_ns, struct sh_err *err)
{
    return dev_plan_warm(p->dp, op_ns, err);
}

enum dev_replay program_replay(const struct program *p)
{
    return dev_plan_replay(p->dp);
}

int program_prepare(struct program *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                    struct sh_err *err)
{
    return dev_plan_prepare(p->dp, b, from, to, err);
}

void program_turn(const struct train_spec *t, int64_t step, int64_t steps, struct dev_bases *b)
{
    int64_t first, n;

    train_group(t, step, steps, &first, &n);
    b->step = step;
    b->turn.update = first / t->accumulate;
    b->turn.lr = train_rate(t, b->turn.update, (steps - 1) / t->accumulate + 1);
    b->turn.part = step - first;
    b->turn.last = n - 1;
    b->turn.mix = (float)augment_mix(&t->augment, t->seed, step);
}

int program_run(struct program *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                struct sh_err *err)
{
    int rc = from == 0 ? send_constants(p, b, err) : SH_OK;

    return rc ? rc : dev_plan_run(p->dp, b, from, to, err);
}

int program_profile(struct program *p, const struct dev_bases *b, uint32_t repeat, double *op_ns,
                    struct sh_err *err)
{
    return dev_plan_profile(p->dp, b, repeat, op_ns, err);
}
