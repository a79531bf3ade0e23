/* data.c - see worker.h. An epoch takes every sample once, in whole batches; a remainder that does
 * not fill a batch is left out of that epoch. The order of epoch e is drawn from (seed, e):
 * runtime/model/order.h.
 *
 * The batch of step k + 1 travels while the device computes step k. A thread collects its samples
 * in the other of two page-locked buffers. From there it is prefetched, a piece at a time, into the
 * tail of the workspace, and when step k + 1 begins the device moves it to its places. When step k
 * + 1 is loaded the buffer of step k is free: reading the loss of step k in between implied that
 * its batch had arrived.
 *
 * A stop waits for the pieces under way and shares the link with them. So they are small, and there
 * is one for each portion of operations enqueued: the pieces under way take about as long as those
 * operations. */
#include "common/log.h"
#include "common/mem.h"
#include "executor/worker/ahead.h"
#include "executor/worker/worker.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#define NO_STEP INT64_MIN
#define PAGE ((size_t)4096)
#define PIECE ((size_t)1 << 20) /* some 20 microseconds, at nine tenths of the link's speed */

struct column { /* one input, or the labels */
    const struct sh_st_tensor *src;
    const struct program_io *dst;
    size_t sample_bytes;
    size_t offset; /* in a batch */
};

struct data {
    struct sh_st *file;
    struct column *columns;
    size_t n_columns;
    int64_t n_samples, batch, per_epoch, steps;
    struct order drawn;
    int64_t order_epoch; /* which epoch `order` is for; -1 = none. Of the thread only */
    uint32_t *order;
    struct ahead_column *in_file; /* OWNED: the columns */
    struct ahead disk;            /* of the thread only */
    struct dev *dev;              /* BORROWED */
    char *batches[2]; /* OWNED, page-locked if possible; that of step k is batches[k % 2] */
    size_t batch_bytes;
    size_t tail;    /* where one lies in the workspace: behind what the program needs */
    int64_t ahead;  /* the step whose batch the tail holds, or will; NO_STEP: of none */
    size_t n_ahead; /* bytes of it that are there or on their way */

    pthread_t thread;
    bool has_thread, has_lock;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    int64_t want, ready; /* steps; the thread makes ready = want */
    bool stop;
};

/* `name` in the file is `dst->name`, except for labels, which the spec names. */
static int bind_data_column(struct data *d, const char *name, const struct program_io *dst,
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
    if (c->sample_bytes * (size_t)d->batch != dst->bytes)
        return SH_FAIL(err, SH_E_INVALID,
                       "a sample of \"%s\" has %zu bytes in the dataset, the model wants %zu", name,
                       c->sample_bytes, dst->bytes / (size_t)d->batch);
    if (d->n_samples && t->dims[0] != d->n_samples)
        return SH_FAIL(err, SH_E_INVALID,
                       "\"%s\" has %" PRId64 " samples, the tensors before it %" PRId64, name,
                       t->dims[0], d->n_samples);
    d->n_samples = t->dims[0];
    d->n_columns++;
    c->offset = d->batch_bytes;
    d->batch_bytes += SH_ALIGN_UP(dst->bytes, (size_t)DEV_ALIGN);
    return SH_OK;
}

static int bind_columns(struct data *d, const struct program *p, const struct train_spec *t,
                        struct sh_err *err)
{
    int rc = SH_OK;

    d->columns = calloc(program_n_inputs(p) + TRAIN_MAX_HEADS, sizeof(*d->columns));
    if (!d->columns)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the dataset's columns");
    for (size_t i = 0; !rc && i < program_n_inputs(p); i++)
        rc = bind_data_column(d, program_input(p, i)->name, program_input(p, i), err);
    for (uint32_t i = 0; !rc && i < t->n_heads; i++)
        if (program_label(p, i))
            rc = bind_data_column(d, t->heads[i].labels, program_label(p, i), err);
    d->tail = SH_ALIGN_UP(program_workspace_bytes(p), (size_t)DEV_ALIGN);
    return rc;
}

static int make_batches(struct data *d, struct sh_err *err)
{
    const size_t bytes = SH_ALIGN_UP(d->batch_bytes, PAGE);

    for (int k = 0; k < 2; k++) {
        struct sh_err why = {0};

        d->batches[k] = aligned_alloc(PAGE, bytes);
        if (!d->batches[k])
            return SH_FAIL(err, SH_E_NOMEM, "could not allocate a batch of %zu bytes", bytes);
        memset(d->batches[k], 0, bytes); /* what lies between the columns travels too */
        if (dev_host_lock(d->dev, d->batches[k], bytes, &why))
            sh_log_err(SH_LOG_WARN, "data.lock", &why); /* uploads are slower, nothing else */
    }
    return SH_OK;
}

static int make_epoch_order(struct data *d, const struct train_spec *t, struct sh_err *err)
{
    size_t sample_bytes = 0;

    d->order = calloc((size_t)d->n_samples, sizeof(*d->order));
    d->in_file = calloc(d->n_columns, sizeof(*d->in_file));
    if (!d->order || !d->in_file)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the order of %" PRId64 " samples",
                       d->n_samples);
    for (size_t i = 0; i < d->n_columns; i++) {
        d->in_file[i] = (struct ahead_column){d->columns[i].src->data, d->columns[i].sample_bytes};
        sample_bytes += d->columns[i].sample_bytes;
    }
    d->drawn = order_of(t->seed, t->shuffle, t->shuffle_window, d->n_samples, sample_bytes);
    return ahead_init(&d->disk, &d->drawn, d->in_file, d->n_columns,
                      (d->steps - 1) / d->per_epoch * d->n_samples +
                          ((d->steps - 1) % d->per_epoch + 1) * d->batch,
                      err);
}

/* Found here, and not by the step that meets it: after hours, or by a device that cannot tell. */
static int check_classes(const struct data *d, const struct program *p, uint32_t head,
                         const struct train_head *h, struct sh_err *err)
{
    const struct sh_st_tensor *labels = sh_st_find(d->file, h->labels);
    const int64_t n = program_n_classes(p, head);
    const int64_t each = (int64_t)(labels->bytes / sizeof(int64_t) / (size_t)d->n_samples);
    int64_t label;

    if (n == 0)
        return SH_OK;
    for (int64_t i = 0; i < d->n_samples * each; i++) {
        memcpy(&label, (const char *)labels->data + (size_t)i * sizeof(label), sizeof(label));
        if ((label < 0 || label >= n) && label != h->ignore_index)
            return SH_FAIL(err, SH_E_INVALID,
                           "label %" PRId64 " of sample %" PRId64 " of the dataset is not a class "
                           "from 0 to %" PRId64 ", as many as the model has outputs, nor the "
                           "\"ignore_index\" %" PRId64 " of the loss",
                           label, i / each, n - 1, h->ignore_index);
    }
    return SH_OK;
}

/* ------------------------------------------------------------------ collecting */

static void collect_samples(struct data *d, int64_t step)
{
    int64_t epoch = step / d->per_epoch, first = step % d->per_epoch * d->batch;

    if (d->order_epoch != epoch) {
        order_draw(&d->drawn, epoch, ahead_runs(&d->disk, epoch), d->order);
        d->order_epoch = epoch;
    }
    for (size_t i = 0; i < d->n_columns; i++) {
        const struct column *c = &d->columns[i];

        for (int64_t k = 0; k < d->batch; k++)
            memcpy(d->batches[step % 2] + c->offset + (size_t)k * c->sample_bytes,
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
        collect_samples(d, step);
        pthread_mutex_lock(&d->lock);
        d->ready = step;
        pthread_cond_broadcast(&d->changed);
        pthread_mutex_unlock(&d->lock);
        ahead_step(&d->disk, step / d->per_epoch, step % d->per_epoch * d->batch, d->batch);
        pthread_mutex_lock(&d->lock);
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
    errno = e;
    return e ? SH_FAIL_ERRNO(err, SH_E_NOMEM, "could not start the thread that reads the dataset")
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

static bool is_collected(struct data *d, int64_t step)
{
    bool is_ready;

    pthread_mutex_lock(&d->lock);
    is_ready = d->ready == step;
    pthread_mutex_unlock(&d->lock);
    return is_ready;
}

/* ------------------------------------------------------------------ the contract */

static int open_data_file(int fd, struct sh_st **out, struct sh_err *err)
{
    struct sh_err why = {0};
    int rc = sh_st_open_fd(fd, out, &why);

    if (rc) {
        SH_FAIL(err, rc, "the file of the dataset cannot be used: %s", why.msg);
        sh_err_detail(err, "%s", why.detail);
    }
    return rc;
}

int data_note(int fd, const struct graph *g, struct train_spec *t, struct sh_err *err)
{
    struct sh_st *file;
    int rc = open_data_file(fd, &file, err);

    if (rc)
        return rc;
    for (uint32_t i = 0; i < t->n_heads; i++) {
        struct train_head *h = &t->heads[i];
        const struct sh_st_tensor *labels =
            augment_makes_labels(&t->augment, h->labels) ? NULL : sh_st_find(file, h->labels);

        h->label_rank = labels ? labels->rank : 0; /* that there is none, data_open() says */
        if (labels)
            memcpy(h->label_dims, labels->dims, sizeof(h->label_dims));
    }
    for (uint32_t i = 0; i < g->n_inputs && i < TRAIN_MAX_INPUTS; i++) {
        const struct graph_value *v = &g->values[g->inputs[i]];
        const struct sh_st_tensor *x = sh_st_find(file, v->name);

        if (x && x->dtype == SH_U8 && augment_is_picture(v->dtype, (size_t)v->rank))
            t->byte_inputs |= UINT64_C(1) << i;
    }
    sh_st_close(file);
    return SH_OK;
}

int data_open(int fd, const struct program *p, const struct train_spec *t, struct dev *dev,
              struct data **out, struct sh_err *err)
{
    struct data *d = calloc(1, sizeof(*d));
    int rc;

    *out = NULL;
    if (!d)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a dataset");
    d->dev = dev;
    d->batch = t->batch;
    d->order_epoch = -1;
    d->ahead = NO_STEP;
    rc = open_data_file(fd, &d->file, err);
    if (!rc)
        rc = bind_columns(d, p, t, err);
    if (rc)
        goto out;
    for (uint32_t i = 0; i < t->n_heads && !rc; i++)
        if (program_label(p, i))
            rc = check_classes(d, p, i, &t->heads[i], err);
    if (rc)
        goto out;
    d->per_epoch = d->n_samples / d->batch;
    if (d->per_epoch < 1)
        rc = SH_FAIL(err, SH_E_INVALID, "%" PRId64 " samples do not fill one batch of %" PRId64,
                     d->n_samples, d->batch);
    else if (d->n_samples > UINT32_MAX)
        rc = SH_FAIL(err, SH_E_TOOBIG, "%" PRId64 " samples are more than the %u of a dataset",
                     d->n_samples, UINT32_MAX);
    if (rc)
        goto out;
    d->steps = t->steps > 0 ? t->steps : t->epochs * d->per_epoch;
    rc = make_epoch_order(d, t, err);
    if (!rc)
        rc = make_batches(d, err);
    if (!rc)
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
    for (int k = 0; k < 2; k++) {
        dev_host_unlock(d->dev, d->batches[k]);
        free(d->batches[k]);
    }
    free(d->columns);
    free(d->order);
    free(d->in_file);
    ahead_fini(&d->disk);
    sh_st_close(d->file);
    free(d);
}

int64_t data_steps(const struct data *d)
{
    return d->steps;
}

size_t data_ws_bytes(const struct data *d)
{
    return d->tail + d->batch_bytes;
}

void data_forget(struct data *d)
{
    d->ahead = NO_STEP;
}

static int send_data_piece(struct data *d, size_t ws_off, size_t max, struct sh_err *err)
{
    size_t n = SH_MIN(d->batch_bytes - d->n_ahead, max);
    int rc = dev_prefetch(d->dev, ws_off + d->tail + d->n_ahead,
                          d->batches[d->ahead % 2] + d->n_ahead, n, err);

    d->n_ahead += n;
    return rc;
}

int data_prefetch(struct data *d, size_t ws_off, struct sh_err *err)
{
    if (d->ahead == NO_STEP || d->n_ahead == d->batch_bytes || !is_collected(d, d->ahead))
        return SH_OK;
    return send_data_piece(d, ws_off, PIECE, err);
}

static int take_tail(struct data *d, size_t ws_off, struct sh_err *err)
{
    int rc = send_data_piece(d, ws_off, SIZE_MAX, err); /* what a short step had no portions for */

    if (!rc)
        rc = dev_prefetch_join(d->dev, err);
    for (size_t i = 0; i < d->n_columns && !rc; i++) {
        const struct column *c = &d->columns[i];

        rc = dev_move(d->dev, ws_off + c->dst->offset, ws_off + d->tail + c->offset, c->dst->bytes,
                      err);
    }
    return rc;
}

static int upload_columns(struct data *d, size_t ws_off, int64_t step, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; i < d->n_columns && !rc; i++) {
        const struct column *c = &d->columns[i];

        rc = dev_upload(d->dev, ws_off + c->dst->offset, d->batches[step % 2] + c->offset,
                        c->dst->bytes, err);
    }
    return rc;
}

int data_load(struct data *d, size_t ws_off, int64_t step, struct sh_err *err)
{
    bool is_last = step + 1 >= d->steps;
    int rc;

    want_step(d, step, true);
    rc = d->ahead == step ? take_tail(d, ws_off, err) : upload_columns(d, ws_off, step, err);
    if (rc)
        return rc;
    d->ahead = is_last ? NO_STEP : step + 1;
    d->n_ahead = 0;
    if (is_last)
        return SH_OK;
    want_step(d, step + 1, false);
    /* The tail is free behind the moves; and the first time the workspace is ours, ticket waited
     * for. */
    return dev_prefetch_fence(d->dev, err);
}
