/* train.c - shunt-run train: some steps on the samples of a file, in a process of its own. */
#include "common/mem.h"
#include "runtime/model/order.h"
#include "runtime/run/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct train {
    struct session s;
    json_t *spec_json; /* spec borrows from it */
    struct train_spec spec;
    struct sh_st *in, *labels; /* labels: NULL when they are in the inputs' file */
    char *label_path;          /* OWNED */
    const char *label_name;    /* in label_path or the options; of heads that name none */
    const struct sh_st_tensor **bound, *label[TRAIN_MAX_HEADS];
    struct order drawn;
    uint32_t *order, *runs;
    int64_t n_samples, epoch; /* epoch: the one that order is for */
    json_t *losses;
};

/* ------------------------------------------------------------------ options */

/* FILE:TENSOR, or TENSOR alone. The last colon counts: a path may hold one. */
static int split_labels(struct train *t, const struct run_conf *c, struct sh_err *err)
{
    char *colon;
    int rc;

    if (!c->labels)
        return SH_FAIL(err, SH_E_INVALID,
                       "give the labels with --labels FILE:TENSOR, or TENSOR of --inputs");
    rc = sh_strdup(c->labels, &t->label_path, err);
    if (rc)
        return rc;
    colon = strrchr(t->label_path, ':');
    t->label_name = colon ? colon + 1 : t->label_path;
    if (colon)
        *colon = '\0';
    if (!t->label_name[0] || (colon && colon == t->label_path) ||
        strlen(t->label_name) >= TRAIN_MAX_TENSOR)
        return SH_FAIL(err, SH_E_INVALID, "--labels must be FILE:TENSOR or TENSOR, not \"%s\"",
                       c->labels);
    return colon ? sh_st_open(t->label_path, &t->labels, err) : SH_OK;
}

#define MAX_SPEC (1u << 20)

/* Fields of --spec win over options, which always have a value. */
static int add_spec_file(json_t *spec, const char *path, struct sh_err *err)
{
    json_t *file = NULL;
    int rc = sh_json_load_file(path, MAX_SPEC, &file, err);

    if (!rc && json_is_object(file) && json_object_get(file, "epochs"))
        rc = SH_FAIL(err, SH_E_INVALID, "%s has \"epochs\"; give --steps", path);
    if (!rc && json_object_update(spec, file))
        rc = SH_FAIL(err, SH_E_INVALID, "%s is not a JSON object", path);
    json_decref(file);
    return rc;
}

/* The options as a job's spec, so that both are checked in one place. */
static int read_train_spec(struct train *t, const struct run_conf *c, int64_t batch,
                           struct sh_err *err)
{
    bool is_sgd = strcmp(c->optimizer, "sgd") == 0;
    json_t *o = json_pack("{s:s, s:f}", "name", c->optimizer, "lr", c->lr), *spec;
    int bad = !o, rc;

    if (o && is_sgd) {
        bad |= json_object_set_new(o, "momentum", json_real(c->momentum));
        bad |= json_object_set_new(o, "nesterov", json_boolean(c->nesterov));
    } else if (o) {
        bad |= json_object_set_new(o, "beta1", json_real(c->beta1));
        bad |= json_object_set_new(o, "beta2", json_real(c->beta2));
        bad |= json_object_set_new(o, "eps", json_real(c->eps));
    }
    if (o && c->weight_decay >= 0)
        bad |= json_object_set_new(o, "weight_decay", json_real(c->weight_decay));
    spec = json_pack("{s:s, s:o, s:I, s:I, s:I, s:s, s:s, s:b}", "loss", c->loss, "optimizer", o,
                     "batch", (json_int_t)batch, "steps", (json_int_t)c->steps, "seed",
                     (json_int_t)c->seed, "labels", t->label_name, "precision", c->precision,
                     "shuffle", (int)c->shuffle);
    if (!spec || bad)
        rc =
            SH_FAIL(err, SH_E_INVALID, "could not put the options together (is a name not UTF-8?)");
    else
        rc = c->spec ? add_spec_file(spec, c->spec, err) : SH_OK;
    if (!rc)
        rc = train_spec_read(spec, &t->spec, err);
    t->spec_json = spec;
    return rc;
}

/* ------------------------------------------------------------------ data */

static int make_sample_order(struct train *t, struct sh_err *err)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < t->spec.n_heads; i++)
        bytes += t->label[i] ? t->label[i]->bytes : 0;
    for (size_t i = 0; i < program_n_inputs(t->s.program); i++)
        bytes += t->bound[i]->bytes;
    t->drawn = order_of(t->spec.seed, t->spec.shuffle, t->spec.shuffle_window, t->n_samples,
                        bytes / (size_t)t->n_samples);
    t->order = calloc((size_t)t->n_samples, sizeof(*t->order));
    t->runs = calloc((size_t)order_n_runs(&t->drawn), sizeof(*t->runs));
    return t->order && t->runs
               ? SH_OK
               : SH_FAIL(err, SH_E_NOMEM, "could not allocate the order of the samples");
}

/* The labels of all samples. An output may have several rows for each, one for each word, say; so
 * have the labels then. */
static int bind_label(struct train *t, const struct run_conf *c, uint32_t i, struct sh_err *err)
{
    const struct program_io *io = program_label(t->s.program, i);
    const char *path = t->labels ? t->label_path : c->inputs;
    int64_t rows;
    int rc;

    if (!io)
        return SH_OK;
    if (io->rank == 0 || io->dims[0] % t->spec.batch)
        return SH_FAIL(err, SH_E_INVALID,
                       "the labels \"%s\" would have no row for each sample of a batch (%lld)",
                       t->spec.heads[i].labels, (long long)t->spec.batch);
    rc = tensors_bind(t->labels ? t->labels : t->in, path, t->spec.heads[i].labels, "label",
                      io->dtype, io->rank, io->dims, &t->label[i], err);
    rows = io->dims[0] / t->spec.batch;
    if (!rc && t->label[i]->dims[0] != t->n_samples * rows)
        rc = SH_FAIL(err, SH_E_INVALID, "there are %lld labels, and %lld samples want %lld",
                     (long long)t->label[i]->dims[0], (long long)t->n_samples,
                     (long long)(t->n_samples * rows));
    return rc;
}

static int bind_train_input(struct train *t, const struct run_conf *c, size_t i, struct sh_err *err)
{
    const struct program_io *in = program_input(t->s.program, i);
    int rc = tensors_bind(t->in, c->inputs, in->name, "input", in->dtype, in->rank, in->dims,
                          &t->bound[i], err);

    if (!rc && (in->rank == 0 || in->dims[0] != t->spec.batch))
        rc = SH_FAIL(err, SH_E_INVALID,
                     "the input \"%s\" has no row for each sample of a batch (%lld), so the model "
                     "cannot be trained; export it with an axis of samples in each input",
                     in->name, (long long)t->spec.batch);
    return rc;
}

static int bind_train_columns(struct train *t, const struct run_conf *c, struct sh_err *err)
{
    const struct program *p = t->s.program;
    size_t n_in = program_n_inputs(p);
    int rc = SH_OK;

    t->bound = calloc(n_in + 1, sizeof(*t->bound));
    if (!t->bound)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the list of inputs");
    for (size_t i = 0; i < n_in && rc == SH_OK; i++)
        rc = bind_train_input(t, c, i, err);
    for (uint32_t i = 0; i < t->spec.n_heads && !rc; i++)
        rc = bind_label(t, c, i, err);
    if (!rc && t->n_samples < t->spec.batch)
        rc = SH_FAIL(err, SH_E_INVALID, "%lld samples do not fill one batch of %lld",
                     (long long)t->n_samples, (long long)t->spec.batch);
    return rc ? rc : make_sample_order(t, err);
}

static int load_label(struct train *t, uint32_t i, int64_t first, struct sh_err *err)
{
    struct program_io io = *program_label(t->s.program, i);

    io.dims[0] = t->spec.batch; /* what its rows are of */
    return tensors_upload(&t->s, t->label[i], &io, t->order, first, t->spec.batch, err);
}

/* Whole batches of one epoch after the other; what does not fill a batch is left out. */
static int load_step(struct train *t, int64_t step, struct sh_err *err)
{
    const struct program *p = t->s.program;
    int64_t per_epoch = t->n_samples / t->spec.batch, first = step % per_epoch * t->spec.batch;
    int rc = SH_OK;

    if (t->epoch != step / per_epoch) {
        t->epoch = step / per_epoch;
        order_draw_runs(&t->drawn, t->epoch, t->runs);
        order_draw(&t->drawn, t->epoch, t->runs, t->order);
    }
    for (size_t i = 0; i < program_n_inputs(p) && rc == SH_OK; i++)
        rc = tensors_upload(&t->s, t->bound[i], program_input(p, i), t->order, first, t->spec.batch,
                            err);
    for (uint32_t i = 0; i < t->spec.n_heads && !rc; i++)
        if (t->label[i])
            rc = load_label(t, i, first, err);
    return rc;
}

/* ------------------------------------------------------------------ results */

/* Writes the state's entries of the given kinds, or their gradients. */
static int write_entries(struct train *t, const char *path, bool gradients, struct sh_err *err)
{
    struct program *p = t->s.program;
    size_t n = 0, n_state = program_n_state(p);
    struct sh_st_tensor *list = calloc(n_state + 1, sizeof(*list));
    int rc = list ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate the list of tensors");

    for (size_t i = 0; i < n_state && rc == SH_OK; i++) {
        const struct program_state_entry *e = program_state(p, i);
        void *data;

        if (e->kind == PROGRAM_STATE_OPTIM || (gradients && !e->has_gradient))
            continue;
        data = malloc(e->bytes ? e->bytes : 1);
        if (!data) {
            rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu bytes", e->bytes);
            break;
        }
        list[n] = (struct sh_st_tensor){.name = e->name, .rank = e->rank, .bytes = e->bytes};
        list[n].data = data;
        memcpy(list[n].dims, e->dims, sizeof(list[n].dims));
        n++;
        rc = gradients ? program_gradient(p, &t->s.bases, i, data, err)
                       : dev_download(t->s.dev, data, t->s.bases.state + e->offset, e->bytes, err);
    }
    if (!rc)
        rc = dev_sync(t->s.dev, err);
    if (!rc)
        rc = sh_st_write(path, list, n, NULL, err);
    for (size_t i = 0; i < n; i++)
        free((void *)(uintptr_t)list[i].data);
    free(list);
    return rc;
}

static int write_loss_list(const struct train *t, const char *path, struct sh_err *err)
{
    if (json_dump_file(t->losses, path, JSON_INDENT(1) | JSON_REAL_PRECISION(9)))
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not write %s", path);
    return SH_OK;
}

static int take_step_loss(struct train *t, int64_t step, struct sh_err *err)
{
    float loss;
    int rc = dev_download(t->s.dev, &loss, t->s.bases.workspace + program_loss_offset(t->s.program),
                          sizeof(loss), err);

    if (!rc)
        rc = dev_sync(t->s.dev, err);
    if (rc)
        return rc;
    if (!isfinite(loss))
        return SH_FAIL(err, SH_E_NAN, "the loss of step %lld is not a number; try a smaller --lr%s",
                       (long long)step + 1, program_nan_hint(t->s.program));
    if (json_array_append_new(t->losses, json_real((double)loss)))
        return SH_FAIL(err, SH_E_NOMEM, "could not keep the loss of step %lld",
                       (long long)step + 1);
    return SH_OK;
}

/* ------------------------------------------------------------------ the run */

static int run_step(struct train *t, const struct run_conf *c, int64_t k, struct sh_err *err)
{
    struct program *p = t->s.program;
    uint32_t update = program_update_begin(p);
    int rc = load_step(t, k, err);

    program_turn(&t->spec, k, t->spec.steps, &t->s.bases);
    if (!rc)
        rc = program_run(p, &t->s.bases, 0, update, err);
    if (!rc)
        rc = take_step_loss(t, k, err);
    if (!rc && k == 0 && c->gradients)
        rc = write_entries(t, c->gradients, true, err);
    return rc ? rc : program_run(p, &t->s.bases, update, program_n_ops(p), err);
}

static int say_train_end(struct train *t, struct sh_err *err)
{
    float scaler[DEV_SCALER];
    size_t off;
    int rc = SH_OK;

    if (t->spec.draws)
        printf("%u drawn, %u keep their values%s%s\n", program_drawn(t->s.program)->drawn,
               program_drawn(t->s.program)->kept,
               program_drawn(t->s.program)->kept ? ", first " : "",
               program_drawn(t->s.program)->first_kept);
    printf("%lld steps, last loss %.6g", (long long)t->spec.steps,
           json_number_value(json_array_get(t->losses, (size_t)t->spec.steps - 1)));
    if (program_scaler(t->s.program, &off)) {
        rc = dev_download(t->s.dev, scaler, t->s.bases.state + off, sizeof(scaler), err);
        if (!rc)
            rc = dev_sync(t->s.dev, err);
        if (!rc)
            printf(", loss scale %g, %g updates skipped", (double)scaler[0], (double)scaler[2]);
    }
    printf("\n");
    return rc;
}

static int open_train(struct train *t, const struct run_conf *c, struct sh_err *err)
{
    int64_t batch = 0;
    int rc;

    if (!c->inputs)
        return SH_FAIL(err, SH_E_INVALID, "give --inputs FILE (safetensors)");
    rc = split_labels(t, c, err);
    if (!rc)
        rc = session_open(c, &t->s, err);
    if (!rc)
        rc = sh_st_open(c->inputs, &t->in, err);
    if (!rc)
        rc = tensors_samples(t->s.graph, t->in, c->inputs, &t->n_samples, &t->s.sizes, err);
    if (!rc)
        rc = session_batch(&t->s, c, t->n_samples, &batch, err);
    if (!rc)
        rc = read_train_spec(t, c, batch, err);
    if (!rc)
        rc = session_compile(&t->s, c, t->spec.batch, &t->spec, err);
    if (!rc)
        rc = bind_train_columns(t, c, err);
    t->losses = json_array();
    if (!rc && !t->losses)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the list of losses");
    return rc;
}

int train_run(const struct run_conf *c, struct sh_err *err)
{
    struct train t = {.epoch = -1};
    int rc = open_train(&t, c, err);

    for (int64_t k = 0; rc == SH_OK && k < t.spec.steps; k++)
        rc = run_step(&t, c, k, err);
    if (!rc && c->losses)
        rc = write_loss_list(&t, c->losses, err);
    if (!rc && c->state)
        rc = write_entries(&t, c->state, false, err);
    if (!rc)
        rc = say_train_end(&t, err);
    json_decref(t.losses);
    json_decref(t.spec_json);
    free(t.bound);
    free(t.order);
    free(t.runs);
    free(t.label_path);
    sh_st_close(t.labels);
    sh_st_close(t.in);
    session_close(&t.s);
    return rc;
}
