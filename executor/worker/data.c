/* data.c - see worker.h. An epoch takes every sample once, in whole batches; what does not fill a
 * batch is left out of that epoch. With shuffle, the order of epoch e is a Fisher-Yates permutation
 * drawn from SplitMix64 seeded with (seed, e).
 *
 * A thread collects the samples of the next step while the device computes this one, into the other
 * of two page-locked buffers; the upload of step k - 1 is over when step k is loaded, since a step
 * commits in between. */
#include "common/log.h"
#include "common/mem.h"
#include "executor/model/order.h"
#include "executor/worker/worker.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#define NO_STEP INT64_MIN

struct column { /* one input, or the labels */
    const struct sh_st_tensor *src;
    const struct program_io *dst;
    size_t sample_bytes;
    char *staging[2]; /* OWNED: one batch each; that of step k is staging[k % 2] */
};

struct data {
    struct sh_st *file;
    struct column *columns;
    size_t n_columns;
    int64_t n_samples, batch, per_epoch, steps;
    bool shuffle;
    uint64_t seed;
    int64_t order_epoch; /* which epoch `order` is for; -1 = none. Of the thread only */
    uint32_t *order;
    struct dev *dev; /* BORROWED: locks the buffers */

    pthread_t thread;
    bool has_thread, has_lock;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    int64_t want, ready; /* steps; the thread makes ready = want */
    bool stop;
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
    d->n_columns++;
    for (int k = 0; k < 2; k++) {
        struct sh_err why = {0};

        c->staging[k] = aligned_alloc(4096, SH_ALIGN_UP(dst->bytes, (size_t)4096));
        if (!c->staging[k])
            return SH_FAIL(err, SH_E_NOMEM, "could not allocate a batch of \"%s\"", name);
        if (dev_host_lock(d->dev, c->staging[k], SH_ALIGN_UP(dst->bytes, (size_t)4096), &why))
            sh_log_err(SH_LOG_WARN, "data.lock", &why); /* uploads are slower, nothing else */
    }
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

/* ------------------------------------------------------------------ collecting */

static void collect(struct data *d, int64_t step)
{
    int64_t epoch = step / d->per_epoch, first = step % d->per_epoch * d->batch;

    if (d->order_epoch != epoch) {
        order_draw(d->seed, epoch, d->shuffle, d->order, d->n_samples);
        d->order_epoch = epoch;
    }
    for (size_t i = 0; i < d->n_columns; i++) {
        const struct column *c = &d->columns[i];

        for (int64_t k = 0; k < d->batch; k++)
            memcpy(c->staging[step % 2] + (size_t)k * c->sample_bytes,
                   (const char *)c->src->data + d->order[first + k] * c->sample_bytes,
                   c->sample_bytes);
    }
}

static void *collect_ahead(void *arg)
{
    struct data *d = arg;

    pthread_mutex_lock(&d->lock);
    while (!d->stop) {
        int64_t step = d->want;

        if (step == d->ready || step == NO_STEP) {
            pthread_cond_wait(&d->changed, &d->lock);
            continue;
        }
        pthread_mutex_unlock(&d->lock);
        collect(d, step);
        pthread_mutex_lock(&d->lock);
        d->ready = step;
        pthread_cond_broadcast(&d->changed);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static int start_thread(struct data *d, struct sh_err *err)
{
    int e;

    d->want = d->ready = NO_STEP;
    e = pthread_mutex_init(&d->lock, NULL);
    if (!e)
        e = pthread_cond_init(&d->changed, NULL);
    d->has_lock = !e;
    if (!e)
        e = pthread_create(&d->thread, NULL, collect_ahead, d);
    d->has_thread = !e;
    return e ? SH_FAIL(err, SH_E_NOMEM, "could not start the thread that reads the dataset (%s)",
                       strerror(e))
             : SH_OK;
}

static void want_step(struct data *d, int64_t step, bool wait)
{
    pthread_mutex_lock(&d->lock);
    d->want = step;
    pthread_cond_broadcast(&d->changed);
    while (wait && d->ready != step)
        pthread_cond_wait(&d->changed, &d->lock);
    pthread_mutex_unlock(&d->lock);
}

/* ------------------------------------------------------------------ the contract */

int data_open(const char *path, const struct program *p, const struct train_spec *t,
              struct dev *dev, struct data **out, struct sh_err *err)
{
    struct data *d = calloc(1, sizeof(*d));
    struct sh_err why = {0};
    int rc;

    *out = NULL;
    if (!d)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a dataset");
    d->dev = dev;
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
    rc = start_thread(d, err);
    if (rc)
        goto out;
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
    if (d->has_thread) {
        pthread_mutex_lock(&d->lock);
        d->stop = true;
        pthread_cond_broadcast(&d->changed);
        pthread_mutex_unlock(&d->lock);
        pthread_join(d->thread, NULL);
    }
    if (d->has_lock) {
        pthread_cond_destroy(&d->changed);
        pthread_mutex_destroy(&d->lock);
    }
    for (size_t i = 0; i < 2 * d->n_columns; i++) {
        char *staging = d->columns[i / 2].staging[i % 2];

        dev_host_unlock(d->dev, staging);
        free(staging);
    }
    free(d->columns);
    free(d->order);
    sh_st_close(d->file);
    free(d);
}

int64_t data_steps(const struct data *d)
{
    return d->steps;
}

int data_load(struct data *d, size_t ws_off, int64_t step, struct sh_err *err)
{
    int rc = SH_OK;

    want_step(d, step, true);
    for (size_t i = 0; i < d->n_columns && !rc; i++) {
        const struct column *c = &d->columns[i];

        rc = dev_upload(d->dev, ws_off + c->dst->offset, c->staging[step % 2], c->dst->bytes, err);
    }
    if (step + 1 < d->steps)
        want_step(d, step + 1, false);
    return rc;
}
