/* data.c - see worker.h. An epoch takes every sample once, in whole batches; what does not fill a
 * batch is left out of that epoch. With shuffle, the order of epoch e is a Fisher-Yates permutation
 * drawn from SplitMix64 seeded with (seed, e). */
#include "common/mem.h"
#include "executor/model/order.h"
#include "executor/worker/worker.h"

#include <inttypes.h>
#include <stdlib.h>

struct column { /* one input, or the labels */
    const struct sh_st_tensor *src;
    const struct program_io *dst;
    size_t sample_bytes;
    char *staging; /* OWNED: one batch */
};

struct data {
    struct sh_st *file;
    struct column *columns;
    size_t n_columns;
    int64_t n_samples, batch, per_epoch, steps;
    bool shuffle;
    uint64_t seed;
    int64_t order_epoch; /* which epoch `order` is for; -1 = none */
    uint32_t *order;
};

/* `name` in the file is `dst->name`, except for the labels, which the spec names. */
static int bind_column(struct data *d, const char *name, const struct program_io *dst,
                       struct sh_err *err)
{
    const struct sh_st_tensor *t = sh_st_find(d->file, name);
    struct column *c = &d->columns[d->n_columns];

    if (!t)
        return SH_FAIL(err, SH_E_INVALID, "the dataset has no tensor \"%s\"", name);
    if (t->dtype != dst->dtype)
        return SH_FAIL(err, SH_E_INVALID, "tensor \"%s\" of the dataset is %s, the model wants %s",
                       name, sh_dtype_v2(t->dtype), sh_dtype_v2(dst->dtype));
    if (t->rank < 1 || t->dims[0] < 1 || t->bytes % (size_t)t->dims[0])
        return SH_FAIL(err, SH_E_INVALID, "tensor \"%s\" of the dataset has no samples", name);
    *c = (struct column){.src = t, .dst = dst, .sample_bytes = t->bytes / (size_t)t->dims[0]};
    if (c->sample_bytes != dst->bytes / (size_t)d->batch)
        return SH_FAIL(err, SH_E_INVALID,
                       "a sample of \"%s\" has %zu bytes in the dataset, the model wants %zu", name,
                       c->sample_bytes, dst->bytes / (size_t)d->batch);
    if (d->n_samples && t->dims[0] != d->n_samples)
        return SH_FAIL(err, SH_E_INVALID,
                       "\"%s\" has %" PRId64 " samples, the tensors before it %" PRId64, name,
                       t->dims[0], d->n_samples);
    d->n_samples = t->dims[0];
    c->staging = malloc(dst->bytes);
    if (!c->staging)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a batch of \"%s\"", name);
    d->n_columns++;
    return SH_OK;
}

static int bind_all(struct data *d, const struct program *p, const struct train_spec *t,
                    struct sh_err *err)
{
    int rc = SH_OK;

    d->columns = calloc(program_n_inputs(p) + 1, sizeof(*d->columns));
    if (!d->columns)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the dataset's columns");
    for (size_t i = 0; !rc && i < program_n_inputs(p); i++)
        rc = bind_column(d, program_input(p, i)->name, program_input(p, i), err);
    if (!rc)
        rc = bind_column(d, t->labels, program_label(p), err);
    return rc;
}

/* Found here, and not by the step that meets it: after hours, or by a device that cannot tell. */
static int check_classes(const struct data *d, const struct program *p, const struct train_spec *t,
                         struct sh_err *err)
{
    const struct sh_st_tensor *labels = d->columns[d->n_columns - 1].src;
    const struct program_io *out = program_output(p, 0);
    int64_t n, label;

    if (t->loss != PROGRAM_LOSS_XENT || !out || out->rank < 2 || labels->dtype != SH_I64)
        return SH_OK;
    n = out->dims[1]; /* training refuses outputs whose other dimensions are not 1 */
    for (int64_t i = 0; i < d->n_samples; i++) {
        memcpy(&label, (const char *)labels->data + (size_t)i * sizeof(label), sizeof(label));
        if (label < 0 || label >= n)
            return SH_FAIL(err, SH_E_INVALID,
                           "label %" PRId64 " of sample %" PRId64 " of the dataset is not a class "
                           "from 0 to %" PRId64 ", as many as the model has outputs",
                           label, i, n - 1);
    }
    return SH_OK;
}

int data_open(const char *path, const struct program *p, const struct train_spec *t,
              struct data **out, struct sh_err *err)
{
    struct data *d = calloc(1, sizeof(*d));
    struct sh_err why = {0};
    int rc;

    *out = NULL;
    if (!d)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a dataset");
    d->batch = t->batch;
    d->shuffle = t->shuffle;
    d->seed = t->seed;
    d->order_epoch = -1;
    rc = sh_st_open(path, &d->file, &why);
    if (rc) {
        SH_FAIL(err, rc, "the file of the dataset cannot be used: %s", why.msg);
        sh_err_detail(err, "%s", why.detail);
    }
    if (!rc)
        rc = bind_all(d, p, t, err);
    if (rc)
        goto out;
    rc = check_classes(d, p, t, err);
    if (rc)
        goto out;
    d->per_epoch = d->n_samples / d->batch;
    if (d->per_epoch < 1 || d->n_samples > UINT32_MAX) {
        rc = SH_FAIL(err, SH_E_INVALID, "%" PRId64 " samples do not fill one batch of %" PRId64,
                     d->n_samples, d->batch);
        goto out;
    }
    d->steps = t->steps > 0 ? t->steps : t->epochs * d->per_epoch;
    d->order = calloc((size_t)d->n_samples, sizeof(*d->order));
    if (!d->order) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the order of %" PRId64 " samples",
                     d->n_samples);
        goto out;
    }
    *out = d;
    d = NULL;
out:
    data_close(d);
    return rc;
}

void data_close(struct data *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->n_columns; i++)
        free(d->columns[i].staging);
    free(d->columns);
    free(d->order);
    sh_st_close(d->file);
    free(d);
}

int64_t data_steps(const struct data *d)
{
    return d->steps;
}

int data_load(struct data *d, struct dev *dev, size_t ws_off, int64_t step, struct sh_err *err)
{
    int64_t epoch = step / d->per_epoch, first = step % d->per_epoch * d->batch;

    if (d->order_epoch != epoch) {
        order_draw(d->seed, epoch, d->shuffle, d->order, d->n_samples);
        d->order_epoch = epoch;
    }
    for (size_t i = 0; i < d->n_columns; i++) {
        struct column *c = &d->columns[i];
        int rc;

        for (int64_t k = 0; k < d->batch; k++)
            memcpy(c->staging + (size_t)k * c->sample_bytes,
                   (const char *)c->src->data + d->order[first + k] * c->sample_bytes,
                   c->sample_bytes);
        rc = dev_upload(dev, ws_off + c->dst->offset, c->staging, c->dst->bytes, err);
        if (rc)
            return rc;
    }
    return SH_OK;
}
