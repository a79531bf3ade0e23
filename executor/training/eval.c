/* eval.c - see eval.h. One batch at a time, behind all requests.
 *
 * The dataset may be large and on a slow disk, so only the disk thread touches its mapping:
 * it opens it and checks the labels, copies each batch before that batch runs, and closes it after
 * the last. While is_reading is set, everything it uses of the eval belongs to the thread.
 */
#include "executor/training/eval.h"

#include "common/json.h"
#include "common/mem.h"
#include "common/safetensors.h"
#include "common/sample.h"
#include "executor/files/disk.h"
#include "executor/requests/slabs.h"
#include "executor/runs/switch.h"

#include <inttypes.h>
#include <stdlib.h>

#define ALIGN 64u
#define MAX_IO 64u
#define MAX_SLAB ((size_t)4 << 30)

struct io {
    const struct sh_st_tensor *src; /* inputs */
    size_t sample_bytes, off;       /* off: in the slab, for a whole batch */
    int64_t dims[4];                /* of a picture */
    bool is_picture, is_byte;       /* is_byte: the dataset has it as UINT8 */
};

struct head {                          /* an output, beside its labels */
    size_t out;                        /* number of the output */
    const struct sh_st_tensor *labels; /* while there is a file */
    size_t label_bytes;                /* of one sample */
    char *want;                        /* OWNED: the labels of the batch */
    struct train_score *score;
};

struct eval {
    struct disk_task task; /* first member */
    bool is_reading;       /* the thread has the task */
    bool is_gone;          /* eval_free() came meanwhile: only what the thread uses is left */
    struct slabs *slabs;
    struct switcher *sw;
    struct disk *disk;
    struct model *model;
    eval_done_fn *fn;
    void *arg;
    char *dataset; /* OWNED */
    json_t *meta;
    struct sh_sample_sizes sizes;
    struct sh_st *file; /* NULL: all was copied */
    struct head heads[TRAIN_MAX_HEADS];
    struct io in[MAX_IO], out[MAX_IO];
    size_t n_in, n_out;
    struct sh_shm slab;
    uint64_t slab_id;
    bool has_slab;
    struct train_spec train; /* of its losses; without weights */
    int64_t n, at, batch;    /* samples, next one, of the run on its way */
    int64_t *busy_ns;
};

/* ------------------------------------------------------------------ on the thread */

static int bind_eval_input(struct eval *e, const json_t *io, struct sh_err *err)
{
    struct io *v = &e->in[e->n_in];
    struct sh_st_tensor want;
    int rc = sh_sample_read(io, &e->sizes, &want, err);
    size_t bytes;

    if (rc)
        return rc;
    v->sample_bytes = bytes = want.bytes;
    v->src = sh_st_find(e->file, want.name);
    v->is_picture = augment_is_picture(want.dtype, want.rank);
    v->is_byte = v->src && v->src->dtype == SH_U8 && v->is_picture;
    if (v->is_picture)
        memcpy(v->dims, want.dims, sizeof(v->dims));
    if (v->is_byte)
        bytes /= sizeof(float);
    if (!v->src || v->src->rank < 1 || v->src->dims[0] != e->n ||
        v->src->bytes != bytes * (size_t)e->n)
        return SH_FAIL(err, SH_E_INVALID,
                       "the evaluation dataset has no tensor \"%s\" of %" PRId64
                       " samples of %zu bytes",
                       want.name, e->n, bytes);
    if (v->src->dtype != want.dtype && !v->is_byte)
        return SH_FAIL(err, SH_E_INVALID,
                       "tensor \"%s\" of the evaluation dataset is %s, the model wants %s",
                       want.name, sh_dtype_v2(v->src->dtype), sh_dtype_v2(want.dtype));
    e->n_in++;
    return SH_OK;
}

static int bind_labels(struct eval *e, uint32_t i, struct sh_err *err)
{
    const char *name = e->train.heads[i].labels;
    struct head *h = &e->heads[i];

    h->labels = sh_st_find(e->file, name);
    if (!h->labels || h->labels->rank < 1 || h->labels->dims[0] < 1)
        return SH_FAIL(err, SH_E_INVALID, "the evaluation dataset has no tensor \"%s\"", name);
    if (i > 0 && h->labels->dims[0] != e->n)
        return SH_FAIL(err, SH_E_INVALID,
                       "\"%s\" of the evaluation dataset has %" PRId64 " samples, \"%s\" %" PRId64,
                       name, h->labels->dims[0], e->train.heads[0].labels, e->n);
    e->n = h->labels->dims[0];
    h->label_bytes = h->labels->bytes / (size_t)e->n;
    return SH_OK;
}

/* A head that names no output is of the first. */
static int bind_eval_head(struct eval *e, uint32_t i, const json_t *out, struct sh_err *err)
{
    const struct train_head *t = &e->train.heads[i];
    struct head *h = &e->heads[i];
    struct sh_st_tensor like;
    int rc;

    while (t->output[0] && h->out < json_array_size(out) &&
           strcmp(sh_json_text(json_array_get(out, h->out), "name"), t->output) != 0)
        h->out++;
    if (h->out == json_array_size(out))
        return SH_FAIL(err, SH_E_INVALID, "the trained model has no output \"%s\"", t->output);
    rc = sh_sample_read(json_array_get(out, h->out), &e->sizes, &like, err);
    if (!rc)
        rc = train_score_new(t, &like, h->labels, &h->score, err);
    return rc ? rc : train_score_check(h->score, h->labels, err);
}

static int bind_eval_outputs(struct eval *e, const json_t *out, struct sh_err *err)
{
    struct sh_st_tensor t;
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < json_array_size(out); i++) {
        rc = sh_sample_read(json_array_get(out, i), &e->sizes, &t, err);
        e->out[e->n_out++].sample_bytes = t.bytes;
    }
    for (uint32_t i = 0; !rc && i < e->train.n_heads; i++)
        rc = bind_eval_head(e, i, out, err);
    return rc;
}

static int bind_eval(struct eval *e, struct sh_err *err)
{
    const json_t *in = json_object_get(e->meta, "inputs"),
                 *out = json_object_get(e->meta, "outputs");
    int rc = SH_OK;

    if (json_array_size(in) > MAX_IO || json_array_size(out) > MAX_IO || json_array_size(out) < 1)
        return SH_FAIL(err, SH_E_UNSUPPORTED, "a model with this many tensors cannot be evaluated");
    for (uint32_t i = 0; !rc && i < e->train.n_heads; i++)
        rc = bind_labels(e, i, err);
    if (!rc)
        rc = sh_sample_sizes(in, e->file, &e->sizes, err);
    for (size_t i = 0; !rc && i < json_array_size(in); i++)
        rc = bind_eval_input(e, json_array_get(in, i), err);
    return rc ? rc : bind_eval_outputs(e, out, err);
}

static int open_eval_dataset(struct disk_task *t, struct sh_err *err)
{
    struct eval *e = (struct eval *)t;
    int rc = sh_st_open(e->dataset, &e->file, err);

    return rc ? rc : bind_eval(e, err);
}

static void copy_samples(const struct eval *e, const struct io *v, size_t at, size_t n)
{
    const size_t bytes = v->src->bytes / (size_t)e->n;
    const char *from = (const char *)v->src->data + at * bytes;
    char *to = (char *)e->slab.base + v->off;

    if (!v->is_picture || (!v->is_byte && !e->train.augment.normalises)) {
        memcpy(to, from, n * bytes);
        return;
    }
    for (size_t i = 0; i < n; i++)
        augment_sample(&e->train.augment, v->dims, v->is_byte, from + i * bytes,
                       (float *)(void *)(to + i * v->sample_bytes));
}

static int copy_batch(struct disk_task *t, struct sh_err *err)
{
    struct eval *e = (struct eval *)t;
    const size_t at = (size_t)e->at, n = (size_t)e->batch;

    (void)err;
    for (size_t i = 0; i < e->n_in; i++)
        copy_samples(e, &e->in[i], at, n);
    for (uint32_t i = 0; i < e->train.n_heads; i++) {
        const struct head *h = &e->heads[i];

        memcpy(h->want, (const char *)h->labels->data + at * h->label_bytes, n * h->label_bytes);
    }
    if (at + n == (size_t)e->n) {
        sh_st_close(e->file); /* here: many pages take a while */
        e->file = NULL;
    }
    return SH_OK;
}

/* ------------------------------------------------------------------ batches */

static int make_eval_slab(struct eval *e, struct sh_err *err)
{
    size_t batch = e->model->max_batch, at = 0;
    int rc;

    for (size_t i = 0; i < e->n_in + e->n_out; i++) {
        struct io *v = i < e->n_in ? &e->in[i] : &e->out[i - e->n_in];

        v->off = at;
        if (v->sample_bytes > MAX_SLAB / batch || at > MAX_SLAB)
            return SH_FAIL(err, SH_E_TOOBIG, "a batch for the evaluation needs more than %zu MiB",
                           MAX_SLAB >> 20);
        at = SH_ALIGN_UP(at + v->sample_bytes * batch, ALIGN);
    }
    for (uint32_t i = 0; i < e->train.n_heads; i++) {
        /* As many as of an output: not too many. */
        e->heads[i].want = malloc(e->heads[i].label_bytes * batch);
        if (!e->heads[i].want)
            return SH_FAIL(err, SH_E_NOMEM, "could not allocate the labels of a batch");
    }
    e->slab_id = slabs_own_id(e->slabs);
    rc = sh_shm_create("shunt-eval", SH_MAX(at, (size_t)1), &e->slab, err);
    if (!rc)
        rc = slabs_add(e->slabs, e->slab_id, e->slab.fd, e->slab.bytes, err);
    e->has_slab = rc == SH_OK;
    return rc;
}

static void on_run(void *arg, const struct run_result *r);

static int fill_part_spans(const struct eval *e, struct run_part *p, struct sh_err *err)
{
    const size_t batch = (size_t)e->batch;

    *p = (struct run_part){.api_id = e->slab_id, .batch = (uint32_t)e->batch};
    p->in = calloc(e->n_in + 1, sizeof(*p->in));
    p->out = calloc(e->n_out + 1, sizeof(*p->out));
    if (!p->in || !p->out) {
        free(p->in);
        free(p->out);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a run of the evaluation");
    }
    p->n_in = e->n_in;
    p->n_out = e->n_out;
    for (size_t i = 0; i < e->n_in; i++)
        p->in[i] = (struct msg_span){e->in[i].off, e->in[i].sample_bytes * batch};
    for (size_t i = 0; i < e->n_out; i++)
        p->out[i] = (struct msg_span){e->out[i].off, e->out[i].sample_bytes * batch};
    return SH_OK;
}

static int run_eval_batch(struct eval *e, struct sh_err *err)
{
    struct run_part part;
    int rc = fill_part_spans(e, &part, err);

    if (rc)
        return rc;
    rc = switch_submit(e->sw, e->model, &e->sizes.sizes, &part, on_run, e, err);
    if (rc) {
        free(part.in);
        free(part.out);
    }
    return rc;
}

static void on_read(struct disk_task *t);

static int read_with(struct eval *e, disk_work_fn *work, struct sh_err *err)
{
    int rc;

    e->task = (struct disk_task){.work = work, .done = on_read};
    rc = disk_submit(e->disk, &e->task, err);
    e->is_reading = rc == SH_OK;
    return rc;
}

static int read_batch(struct eval *e, struct sh_err *err)
{
    e->batch = SH_MIN((int64_t)e->model->max_batch, e->n - e->at);
    return read_with(e, copy_batch, err);
}

static void end_eval(struct eval *e, const struct sh_err *why)
{
    struct eval_result res = {0};

    for (uint32_t i = 0; i < e->train.n_heads && !why->rc; i++)
        train_score_end(e->heads[i].score, &res.heads[i]);
    if (!why->rc)
        train_scores_join(&e->train, res.heads, &res.all);
    e->fn(e->arg, &res, why);
}

static void on_run(void *arg, const struct run_result *r)
{
    struct eval *e = arg;
    struct sh_err err = {0};
    int rc = r->rc;

    *e->busy_ns += r->held_ns;
    if (rc && r->sample >= 0)
        SH_FAIL(&err, rc, "sample %" PRId64 " of the evaluation dataset: %s", e->at + r->sample,
                r->msg);
    else if (rc)
        SH_FAIL(&err, rc, "%s", r->msg);
    if (!rc) {
        for (uint32_t i = 0; i < e->train.n_heads; i++)
            train_score_add(e->heads[i].score,
                            (const char *)e->slab.base + e->out[e->heads[i].out].off,
                            e->heads[i].want, (size_t)e->batch);
        e->at += e->batch;
        if (e->at < e->n)
            rc = read_batch(e, &err);
    }
    if (rc || e->at == e->n)
        end_eval(e, &err);
}

static void destroy_eval(struct eval *e)
{
    sh_shm_fini(&e->slab);
    sh_st_close(e->file);
    json_decref(e->meta);
    free(e->dataset);
    for (uint32_t i = 0; i < TRAIN_MAX_HEADS; i++) {
        free(e->heads[i].want);
        train_score_free(e->heads[i].score);
    }
    free(e);
}

static void on_read(struct disk_task *t)
{
    struct eval *e = (struct eval *)t;
    struct sh_err err = t->err;
    int rc = err.rc;

    e->is_reading = false;
    if (e->is_gone) {
        destroy_eval(e);
        return;
    }
    if (!rc && e->has_slab) {
        rc = run_eval_batch(e, &err);
    } else if (!rc) { /* it was opened */
        rc = make_eval_slab(e, &err);
        if (!rc)
            rc = read_batch(e, &err);
    }
    if (rc)
        end_eval(e, &err);
}

/* ------------------------------------------------------------------ start and end */

int eval_start(const struct eval_conf *c, eval_done_fn *fn, void *arg, struct eval **out,
               struct sh_err *err)
{
    struct eval *e = calloc(1, sizeof(*e));
    int rc;

    *out = NULL;
    if (!e)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an evaluation");
    *e = (struct eval){.slabs = c->slabs,
                       .sw = c->sw,
                       .disk = c->disk,
                       .model = c->model,
                       .fn = fn,
                       .arg = arg,
                       .train = *c->train,
                       .slab = {.fd = -1}};
    e->busy_ns = c->busy_ns;
    e->meta = json_incref(c->meta);
    rc = sh_strdup(c->dataset, &e->dataset, err);
    if (!rc)
        rc = read_with(e, open_eval_dataset, err);
    if (rc) {
        destroy_eval(e);
        return rc;
    }
    *out = e;
    return SH_OK;
}

void eval_free(struct eval *e)
{
    if (!e)
        return;
    switch_withdraw(e->sw, e);
    if (e->has_slab)
        slabs_drop(e->slabs, e->slab_id);
    if (e->is_reading)
        e->is_gone = true; /* on_read() frees it */
    else
        destroy_eval(e);
}
