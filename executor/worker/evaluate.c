/* evaluate.c - see evaluate.h. */
#include "executor/worker/evaluate.h"

#include "common/mem.h"
#include "common/train_score.h"
#include "executor/worker/portion.h"
#include "runtime/model/program.h"

#include <inttypes.h>
#include <stdlib.h>

#define NO_STEP INT64_C(-1)
#define PIECE ((size_t)1 << 20) /* goes to the device at once: a stop waits for no more */

struct column { /* one input */
    const struct sh_st_tensor *src;
    const struct program_io *dst;
    size_t sample_bytes, offset; /* offset: in the batch on the host */
};

struct head {                     /* one output */
    const struct program_io *dst; /* the answer */
    const struct sh_st_tensor *labels;
    size_t label_bytes, offset; /* of one sample; offset: in `out` */
    struct train_score *score;
};

struct evaluation {
    struct dev *dev;         /* BORROWED */
    struct train_spec train; /* its weights are gone */
    struct program *program;
    struct sh_st *file;
    struct column *columns;
    size_t n_columns, batch_bytes, out_bytes;
    struct head heads[TRAIN_MAX_HEADS];
    char *in, *out; /* OWNED: a batch's inputs, and the answers */
    int64_t n, batch;
    double *op_ns; /* OWNED f64[n_ops], or NULL: not known */
    struct portions portions;

    int64_t step; /* whose state is being evaluated; NO_STEP: none */
    int64_t at;   /* first sample of the batch */
    /* How far the batch is. */
    int64_t n_copied, n_scored; /* samples in `in`; of the answer in `out` */
    size_t column, sent;        /* what goes to the workspace next: bytes of the column before */
    uint32_t op;                /* next operation for it */
    bool has_answer;
};

/* ------------------------------------------------------------------ opening */

static int bind_eval_column(struct evaluation *e, const struct program_io *dst, struct sh_err *err)
{
    const struct sh_st_tensor *t = sh_st_find(e->file, dst->name);
    struct column *c = &e->columns[e->n_columns];
    const size_t want = dst->bytes / (size_t)e->batch;

    if (!t || t->rank < 1 || t->dims[0] != e->n || t->bytes != want * (size_t)e->n ||
        t->dtype != dst->dtype)
        return SH_FAIL(err, SH_E_INVALID,
                       "the evaluation dataset has no tensor \"%s\" of %" PRId64
                       " samples, each %zu bytes of %s as in the dataset that is trained on",
                       dst->name, e->n, want, sh_dtype_v2(dst->dtype));
    *c = (struct column){.src = t, .dst = dst, .sample_bytes = want, .offset = e->batch_bytes};
    e->batch_bytes += SH_ALIGN_UP(dst->bytes, (size_t)DEV_ALIGN);
    e->n_columns++;
    return SH_OK;
}

static int bind_score_head(struct evaluation *e, uint32_t i, struct sh_err *err)
{
    const struct train_head *t = &e->train.heads[i];
    const struct program_io *y = program_output(e->program, i);
    struct sh_st_tensor out = {
        .name = y->name, .dtype = y->dtype, .rank = y->rank, .bytes = y->bytes / (size_t)e->batch};
    struct head *h = &e->heads[i];
    int rc;

    memcpy(out.dims, y->dims, sizeof(out.dims));
    *h = (struct head){.dst = y, .labels = sh_st_find(e->file, t->labels), .offset = e->out_bytes};
    if (!h->labels || h->labels->rank < 1 || h->labels->dims[0] < 1)
        return SH_FAIL(err, SH_E_INVALID, "the evaluation dataset has no tensor \"%s\"", t->labels);
    if (i > 0 && h->labels->dims[0] != e->n)
        return SH_FAIL(err, SH_E_INVALID,
                       "\"%s\" of the evaluation dataset has %" PRId64 " samples, \"%s\" %" PRId64,
                       t->labels, h->labels->dims[0], e->train.heads[0].labels, e->n);
    e->n = h->labels->dims[0];
    h->label_bytes = h->labels->bytes / (size_t)e->n;
    e->out_bytes += SH_ALIGN_UP(y->bytes, (size_t)DEV_ALIGN);
    rc = train_score_new(t, &out, h->labels, &h->score, err);
    return rc ? rc : train_score_check(h->score, h->labels, err);
}

static int bind_evaluation(struct evaluation *e, struct sh_err *err)
{
    int rc = SH_OK;

    for (uint32_t i = 0; !rc && i < e->train.n_heads; i++)
        rc = bind_score_head(e, i, err);
    if (rc)
        return rc;
    e->columns = calloc(program_n_inputs(e->program) + 1, sizeof(*e->columns));
    if (!e->columns)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the evaluation dataset's columns");
    for (size_t i = 0; !rc && i < program_n_inputs(e->program); i++)
        rc = bind_eval_column(e, program_input(e->program, i), err);
    if (rc)
        return rc;
    e->in = calloc(1, e->batch_bytes + 1);
    e->out = calloc(1, e->out_bytes + 1);
    return e->in && e->out ? SH_OK
                           : SH_FAIL(err, SH_E_NOMEM, "could not allocate a batch of %zu bytes",
                                     e->batch_bytes + e->out_bytes);
}

/* What each operation takes; a device that does not say evaluates all the same. */
static int warm_evaluation(struct evaluation *e, struct sh_err *err)
{
    const uint32_t n = program_n_ops(e->program);
    double *op_ns = calloc(n + 1u, sizeof(*op_ns)), sum = 0;
    struct sh_err why = {0};

    if (!op_ns)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the times of %u operations", n);
    if (program_warm(e->program, op_ns, &why) == SH_OK)
        for (uint32_t i = 0; i < n; i++)
            sum += op_ns[i];
    if (sum > 0)
        e->op_ns = op_ns;
    else
        free(op_ns);
    return why.rc == SH_E_DEVLOST ? sh_err_copy(err, &why) : SH_OK;
}

int evaluation_open(int fd, const struct evaluation_conf *c, struct evaluation **out,
                    struct sh_err *err)
{
    struct evaluation *e = calloc(1, sizeof(*e));
    int rc;

    *out = NULL;
    if (!e)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an evaluation");
    e->dev = c->dev;
    e->batch = c->train->batch;
    e->step = NO_STEP;
    e->train = *c->train;
    e->train.augment = augment_fixed(&c->train->augment);
    e->train.byte_inputs = 0; /* as this dataset has them, not that of the training */
    rc = data_note(fd, c->graph, &e->train, err);
    if (!rc)
        rc = program_evaluate(c->dev, c->graph, &e->train, c->trained, &e->program, err);
    if (!rc)
        rc = warm_evaluation(e, err);
    if (!rc)
        rc = sh_st_open_fd(fd, &e->file, err);
    if (!rc)
        rc = bind_evaluation(e, err);
    if (rc) {
        evaluation_close(e);
        return rc;
    }
    *out = e;
    return SH_OK;
}

void evaluation_close(struct evaluation *e)
{
    if (!e)
        return;
    program_free(e->program);
    for (uint32_t i = 0; i < TRAIN_MAX_HEADS; i++)
        train_score_free(e->heads[i].score);
    sh_st_close(e->file);
    free(e->columns);
    free(e->in);
    free(e->out);
    free(e->op_ns);
    free(e);
}

const struct program *evaluation_program(const struct evaluation *e)
{
    return e->program;
}

int evaluation_write_state(struct evaluation *e, void *state, struct sh_err *err)
{
    return program_write_state(e->program, state, err);
}

/* ------------------------------------------------------------------ running */

static void begin_batch(struct evaluation *e)
{
    e->n_copied = e->n_scored = 0;
    e->column = e->sent = 0;
    e->op = 0;
    e->has_answer = false;
}

/* What is missing in the last batch is its last sample again; nobody looks at those answers. */
static void copy_sample(struct evaluation *e)
{
    const size_t k = (size_t)e->n_copied++;

    for (size_t i = 0; i < e->n_columns; i++) {
        const struct column *c = &e->columns[i];

        memcpy(e->in + c->offset + k * c->sample_bytes,
               (const char *)c->src->data +
                   (size_t)SH_MIN(e->at + (int64_t)k, e->n - 1) * c->sample_bytes,
               c->sample_bytes);
    }
}

static int send_eval_piece(struct evaluation *e, size_t ws_off, struct sh_err *err)
{
    const struct column *c = &e->columns[e->column];
    const size_t n = SH_MIN(c->dst->bytes - e->sent, PIECE);
    int rc =
        dev_upload(e->dev, ws_off + c->dst->offset + e->sent, e->in + c->offset + e->sent, n, err);

    e->sent += n;
    if (e->sent == c->dst->bytes) {
        e->column++;
        e->sent = 0;
    }
    return rc ? rc : dev_throttle(e->dev, 0, err);
}

static int take_answer(struct evaluation *e, size_t ws_off, struct sh_err *err)
{
    int rc = SH_OK;

    for (uint32_t i = 0; i < e->train.n_heads && !rc; i++)
        rc = dev_download(e->dev, e->out + e->heads[i].offset, ws_off + e->heads[i].dst->offset,
                          e->heads[i].dst->bytes, err);
    if (!rc)
        rc = dev_sync(e->dev, err);
    e->has_answer = rc == SH_OK;
    return rc;
}

static void score_sample(struct evaluation *e)
{
    const int64_t k = e->n_scored++;

    for (uint32_t i = 0; i < e->train.n_heads; i++) {
        const struct head *h = &e->heads[i];

        train_score_add(h->score,
                        e->out + h->offset + (size_t)k * (h->dst->bytes / (size_t)e->batch),
                        (const char *)h->labels->data + (size_t)(e->at + k) * h->label_bytes, 1);
    }
    if (e->n_scored < SH_MIN(e->batch, e->n - e->at))
        return;
    e->at += e->batch;
    begin_batch(e);
}

static void begin_evaluation(struct evaluation *e, const struct msg_wk_train_go *go)
{
    if (e->step != go->step) {
        for (uint32_t i = 0; i < e->train.n_heads; i++)
            train_score_clear(e->heads[i].score);
        e->step = go->step;
        e->at = 0;
        begin_batch(e);
    }
    if (!go->resume) { /* the workspace is not what it was; what lies on the host stays */
        e->column = e->sent = 0;
        e->op = 0;
    }
}

static int run_portion(struct worker *w, struct evaluation *e, const struct dev_bases *b,
                       struct sh_err *err)
{
    const uint32_t n_ops = program_n_ops(e->program);
    double ns;
    const uint32_t end = portion_end(e->op_ns, e->op, n_ops, &ns);
    uint32_t queued = PORTIONS_FEW;
    int rc = SH_OK;

    if (portions_apart(&e->portions, ns, w->stop_bound_ns))
        rc = dev_throttle(w->dev, 0, err);
    if (!rc)
        rc = program_run(e->program, b, e->op, end, err);
    if (!rc && e->op_ns)
        queued = portions_add(&e->portions, ns, w->stop_bound_ns);
    if (!rc)
        rc = dev_throttle(w->dev, queued, err);
    e->op = end;
    return rc;
}

/* The next thing that the batch needs, none of which takes long. */
static int go_on_evaluating(struct worker *w, struct evaluation *e, const struct dev_bases *b,
                            struct sh_err *err)
{
    atomic_fetch_add(&w->ctl->progress, 1);
    if (e->has_answer)
        score_sample(e);
    else if (e->n_copied < e->batch)
        copy_sample(e);
    else if (e->column < e->n_columns)
        return send_eval_piece(e, b->workspace, err);
    else if (e->op < program_n_ops(e->program))
        return run_portion(w, e, b, err);
    else
        return take_answer(e, b->workspace, err);
    return SH_OK;
}

void evaluation_forget(struct evaluation *e)
{
    if (e)
        e->step = NO_STEP;
}

int evaluation_run(struct worker *w, struct evaluation *e, const struct msg_wk_train_go *go,
                   struct train_scores *scores, bool *done, struct sh_err *err)
{
    const struct dev_bases b = {.state = go->state_off, .workspace = go->ws_off};
    struct train_scores each[TRAIN_MAX_HEADS];
    int rc = SH_OK;

    begin_evaluation(e, go);
    *done = false;
    while (!rc && e->at < e->n) {
        if (worker_must_stop(w))
            return SH_OK;
        rc = go_on_evaluating(w, e, &b, err);
    }
    if (rc)
        return rc;
    for (uint32_t i = 0; i < e->train.n_heads; i++)
        train_score_end(e->heads[i].score, &each[i]);
    train_scores_join(&e->train, each, scores);
    e->step = NO_STEP;
    *done = true;
    return SH_OK;
}
