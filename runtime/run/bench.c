/* bench.c - shunt-run bench: how long a ready model takes, again and again.
 *
 * Everything is on the device before the clock starts: weights or state, inputs, labels. A sample
 * is the time from the call that enqueues a whole run (or training step) to its end, as seen by the
 * host. Then as many runs without a wait in between give the throughput. The values are those of a
 * file, because some operations are faster on zeros.
 */
#include "common/clock.h"
#include "common/mem.h"
#include "runtime/run/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define PROFILES 3 /* the best counts */

struct bench {
    struct session s;
    struct sh_st *in;
    struct train_spec spec;
    bool trains;
    int64_t n_samples, batch;
    int64_t *ns, total_ns; /* of each run; of all without a wait */
};

static int read_bench_spec(struct bench *b, const struct run_conf *c, struct sh_err *err)
{
    json_t *o = json_pack("{s:s, s:f}", "name", c->optimizer, "lr", c->lr), *spec;
    int bad = !o, rc;

    if (o && strcmp(c->optimizer, "sgd") == 0)
        bad |= json_object_set_new(o, "momentum", json_real(c->momentum));
    spec =
        json_pack("{s:s, s:o, s:I, s:i, s:s, s:s}", "loss", c->loss, "optimizer", o, "batch",
                  (json_int_t)b->batch, "steps", 1, "labels", c->labels, "precision", c->precision);
    if (!spec || bad)
        rc =
            SH_FAIL(err, SH_E_INVALID, "could not put the options together (is a name not UTF-8?)");
    else
        rc = train_spec_read(spec, &b->spec, err);
    json_decref(spec);
    return rc;
}

static int upload_input(struct bench *b, const struct run_conf *c, const struct program_io *io,
                        const char *name, const char *what, struct sh_err *err)
{
    const struct sh_st_tensor *t;
    int rc = tensors_bind(b->in, c->inputs, name, what, io->dtype, io->rank, io->dims, &t, err);

    if (!rc && io->rank && t->dims[0] < b->batch)
        rc = SH_FAIL(err, SH_E_INVALID, "%s has %lld samples, the batch size is %lld", c->inputs,
                     (long long)t->dims[0], (long long)b->batch);
    return rc ? rc : tensors_upload(&b->s, t, io, NULL, 0, io->rank ? b->batch : 1, err);
}

static int upload_all(struct bench *b, const struct run_conf *c, struct sh_err *err)
{
    const struct program *p = b->s.program;
    int rc = SH_OK;

    for (size_t i = 0; i < program_n_inputs(p) && rc == SH_OK; i++)
        rc = upload_input(b, c, program_input(p, i), program_input(p, i)->name, "input", err);
    if (!rc && b->trains)
        rc = upload_input(b, c, program_label(p, 0), c->labels, "label", err);
    return rc;
}

static int open_bench(struct bench *b, const struct run_conf *c, struct sh_err *err)
{
    int rc;

    if (!c->inputs)
        return SH_FAIL(err, SH_E_INVALID, "give --inputs FILE (safetensors)");
    b->trains = c->labels && c->labels[0];
    rc = session_open(c, &b->s, err);
    if (!rc)
        rc = sh_st_open(c->inputs, &b->in, err);
    if (!rc)
        rc = tensors_samples(b->s.graph, b->in, c->inputs, &b->n_samples, &b->s.sizes, err);
    if (!rc)
        rc = session_batch(&b->s, c, c->batch ? 0 : b->n_samples, &b->batch, err);
    if (!rc && b->trains)
        rc = read_bench_spec(b, c, err);
    if (!rc)
        rc = session_compile(&b->s, c, b->batch, b->trains ? &b->spec : NULL, err);
    b->s.bases.turn.lr = b->spec.lr;
    return rc ? rc : upload_all(b, c, err);
}

/* ------------------------------------------------------------------ the clock */

static int run_bench_once(struct bench *b, struct sh_err *err)
{
    int rc = program_run(b->s.program, &b->s.bases, 0, program_n_ops(b->s.program), err);

    b->s.bases.step += b->trains;
    b->s.bases.turn.update += b->trains;
    return rc;
}

static int measure_runs(struct bench *b, const struct run_conf *c, struct sh_err *err)
{
    int64_t start;
    int rc = SH_OK;

    b->ns = calloc((size_t)c->runs, sizeof(*b->ns));
    if (!b->ns)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %lld samples", (long long)c->runs);
    for (int64_t i = 0; i < c->warm_runs && rc == SH_OK; i++)
        rc = run_bench_once(b, err);
    if (!rc && c->prepare) /* what runs first is loaded then, which a capture cannot do */
        rc = program_prepare(b->s.program, &b->s.bases, 0, program_n_ops(b->s.program), err);
    if (!rc)
        rc = run_bench_once(b, err);
    if (!rc)
        rc = dev_sync(b->s.dev, err);
    for (int64_t i = 0; i < c->runs && rc == SH_OK; i++) {
        start = sh_clock_ns();
        rc = run_bench_once(b, err);
        if (!rc)
            rc = dev_sync(b->s.dev, err);
        b->ns[i] = sh_clock_ns() - start;
    }
    start = sh_clock_ns();
    for (int64_t i = 0; i < c->runs && rc == SH_OK; i++)
        rc = run_bench_once(b, err);
    if (!rc)
        rc = dev_sync(b->s.dev, err);
    b->total_ns = sh_clock_ns() - start;
    return rc;
}

/* A step that computes nonsense is fast, too. */
static int check_bench_loss(struct bench *b, double *out, struct sh_err *err)
{
    size_t at = b->s.bases.workspace + program_loss_offset(b->s.program);
    float loss = 0;
    int rc = dev_download(b->s.dev, &loss, at, sizeof(loss), err);

    if (!rc)
        rc = dev_sync(b->s.dev, err);
    if (!rc && !isfinite(loss))
        rc = SH_FAIL(err, SH_E_NAN, "the loss is not a number; try a smaller --lr");
    *out = (double)loss;
    return rc;
}

/* ------------------------------------------------------------------ the report */

/* [{"name", "us"}] of every operation, in order. */
static json_t *bench_ops_json(struct bench *b, struct sh_err *err)
{
    struct program *p = b->s.program;
    double *ns = calloc(program_n_ops(p) + 1u, sizeof(*ns));
    json_t *list = json_array();
    int rc = ns && list ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not list the operations");

    if (!rc)
        rc = program_profile(p, &b->s.bases, PROFILES, ns, err);
    for (uint32_t i = 0; i < program_n_ops(p) && rc == SH_OK; i++)
        json_array_append_new(list, json_pack("{s:s, s:f}", "name", program_op_label(p, i), "us",
                                              round(ns[i] / 10) / 100));
    free(ns);
    if (rc)
        json_decref(list);
    return rc ? NULL : list;
}

static int report_bench(struct bench *b, const struct run_conf *c, struct sh_err *err)
{
    json_t *ms = json_array(), *j;
    size_t n = (size_t)c->runs;
    double loss = 0;
    int rc = b->trains ? check_bench_loss(b, &loss, err) : SH_OK;

    for (size_t i = 0; ms && i < n; i++)
        json_array_append_new(ms, json_real(round((double)b->ns[i] / 1e2) / 1e4));
    sh_sort_i64(b->ns, n);
    j = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:b, s:o, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:s, "
        "s:f}",
        "what", b->trains ? "train" : "infer", "device", c->device, "precision", c->precision,
        "batch", (json_int_t)b->batch, "runs", (json_int_t)c->runs, "warm_runs",
        (json_int_t)c->warm_runs, "deterministic", (int)c->deterministic, "prepare",
        (int)c->prepare, "ms", ms, "median_ms", (double)(b->ns[(n - 1) / 2] + b->ns[n / 2]) / 2e6,
        "p99_ms", (double)b->ns[SH_MIN(n * 99 / 100, n - 1)] / 1e6, "samples_per_s",
        (double)(b->batch * c->runs) * 1e9 / (double)SH_MAX(b->total_ns, 1), "operations",
        (json_int_t)program_n_ops(b->s.program), "image_bytes",
        (json_int_t)program_image_bytes(b->s.program), "state_bytes",
        (json_int_t)program_state_bytes(b->s.program), "workspace_bytes",
        (json_int_t)program_workspace_bytes(b->s.program), "replay",
        dev_replay_name(program_replay(b->s.program)), "warm_ms", (double)b->s.warm_ns / 1e6);
    if (!rc && j && b->trains)
        json_object_set_new(j, "loss", json_real(loss));
    if (!rc && j && c->ops)
        rc = json_object_set_new(j, "ops", bench_ops_json(b, err)) ? err->rc : SH_OK;
    if (!rc && (!j || json_dumpf(j, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9)) != 0))
        rc = SH_FAIL(err, SH_E_IO, "could not print the report");
    if (!rc)
        putchar('\n');
    json_decref(j);
    return rc;
}

int bench_run(const struct run_conf *c, struct sh_err *err)
{
    struct bench b = {0};
    int rc = open_bench(&b, c, err);

    if (!rc)
        rc = measure_runs(&b, c, err);
    if (!rc)
        rc = report_bench(&b, c, err);
    free(b.ns);
    sh_st_close(b.in);
    session_close(&b.s);
    return rc;
}
