/* cuda_profile.c - what each operation of a plan takes on the device.
 *
 * Events between operations cost time themselves, more than a small kernel does. So the operations
 * are timed in one run with events, behind a delay that lets the host get ahead, and then scaled so
 * that their sum is what a run without events takes.
 *
 * An operation that launches nothing takes nothing: events around it would show what an event
 * takes, and hundreds of updates are done by the first of each batch (cuda_optim.c).
 */
#include "common/mem.h"
#include "runtime/device/cuda/cuda.h"
#include "runtime/device/cuda/cuda_record.h"

#include <stdlib.h>

#define DELAY_NS_PER_OP 12000u /* the host enqueues an operation in less */
#define DELAY_NS_MAX 50000000u
#define WARM_REPEAT 3u /* others may use the device meanwhile: the best counts */

struct stopwatch {
    cudaEvent_t *event; /* OWNED n */
    uint32_t n;
};

static void stopwatch_fini(struct stopwatch *w)
{
    for (uint32_t i = 0; w->event && i < w->n; i++)
        if (w->event[i])
            cudaEventDestroy(w->event[i]);
    free(w->event);
}

static int stopwatch_init(struct stopwatch *w, uint32_t n, struct sh_err *err)
{
    int rc = SH_OK;

    *w = (struct stopwatch){.event = calloc(n, sizeof(*w->event)), .n = n};
    if (!w->event)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %u events", n);
    for (uint32_t i = 0; i < n && !rc; i++)
        rc = cuda__check(cudaEventCreate(&w->event[i]), "create an event", err);
    return rc;
}

static int mark_op(const struct stopwatch *w, uint32_t i, cudaStream_t s, struct sh_err *err)
{
    return cuda__check(cudaEventRecord(w->event[i], s), "record an event", err);
}

static int between_marks(const struct stopwatch *w, uint32_t a, uint32_t b, double *ns,
                         struct sh_err *err)
{
    float ms = 0;
    int rc = cuda__check(cudaEventElapsedTime(&ms, w->event[a], w->event[b]), "read an event", err);

    *ns = (double)ms * 1e6;
    return rc;
}

static void delay(const struct cuda_plan *p)
{
    uint64_t ns = (uint64_t)p->base.g->n_ops * DELAY_NS_PER_OP;

    k_delay(cuda__dev(p)->stream, SH_MIN(ns, (uint64_t)DELAY_NS_MAX));
}

/* One run, an event after each operation that launches something. */
static int time_ops(struct cuda_plan *p, struct cuda_call *c, const struct stopwatch *w, double *ns,
                    bool first, struct sh_err *err)
{
    uint32_t n = p->base.g->n_ops;
    int rc;

    delay(p);
    rc = mark_op(w, 0, c->stream, err);
    for (uint32_t i = 0; i < n && !rc; i++) {
        rc = cuda__run_range(p, c, i, i + 1, err);
        if (!rc && p->ops[i].run)
            rc = mark_op(w, i + 1, c->stream, err);
    }
    if (!rc)
        rc = cuda__check(cudaStreamSynchronize(c->stream), "profile", err);
    for (uint32_t i = 0, last = 0; i < n && !rc; i++) {
        double took = 0;

        if (p->ops[i].run) {
            rc = between_marks(w, last, i + 1, &took, err);
            last = i + 1;
        }
        if (first || took < ns[i])
            ns[i] = took;
    }
    return rc;
}

static int time_whole(struct cuda_plan *p, struct cuda_call *c, const struct stopwatch *w,
                      double *best, struct sh_err *err)
{
    double took = 0;
    int rc;

    delay(p);
    rc = mark_op(w, 0, c->stream, err);
    if (!rc)
        rc = cuda__run_range(p, c, 0, p->base.g->n_ops, err);
    if (!rc)
        rc = mark_op(w, 1, c->stream, err);
    if (!rc)
        rc = cuda__check(cudaStreamSynchronize(c->stream), "profile", err);
    if (!rc)
        rc = between_marks(w, 0, 1, &took, err);
    *best = SH_MIN(*best, took);
    return rc;
}

static int profile_ops(struct cuda_plan *p, struct cuda_call *c, uint32_t repeat, double *ns,
                       struct sh_err *err)
{
    uint32_t n = p->base.g->n_ops;
    double whole = 1e300, sum = 0;
    struct stopwatch w = {0};
    int rc = stopwatch_init(&w, n + 2, err);

    for (uint32_t k = 0; k < repeat && !rc; k++) {
        rc = time_ops(p, c, &w, ns, k == 0, err);
        if (!rc)
            rc = time_whole(p, c, &w, &whole, err);
    }
    for (uint32_t i = 0; i < n && !rc; i++)
        sum += ns[i];
    for (uint32_t i = 0; i < n && !rc && sum > whole; i++)
        ns[i] *= whole / sum;
    stopwatch_fini(&w);
    return rc;
}

int cuda__plan_profile(struct dev_plan *base, const struct dev_bases *b, uint32_t repeat,
                       double *ns, struct sh_err *err)
{
    struct cuda_plan *p = (struct cuda_plan *)base;
    struct cuda_call c = {.step = 0};
    int rc = cuda__begin(p, b, &c, err);

    if (!rc) /* loads modules and fills caches */
        rc = cuda__run_range(p, &c, 0, base->g->n_ops, err);
    if (!rc)
        rc = profile_ops(p, &c, repeat, ns, err);
    if (rc) /* a part of it may be under way, in memory that the caller takes back */
        cudaStreamSynchronize(cuda__dev(p)->stream);
    return rc;
}

static int take_profile_memory(const struct cuda_dev *d, size_t bytes, unsigned char **out,
                               struct sh_err *err)
{
    size_t all;
    int rc = sh_add_size(bytes, CUDA_RECORD_SLACK, &all, err);
    cudaError_t e = rc ? cudaSuccess : cudaMalloc((void **)out, all);

    if (e == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return cuda__no_memory(all, err);
    }
    if (!rc)
        rc = cuda__check(e, "allocate memory to warm a plan up", err);
    return rc ? rc
              : cuda__check(cudaMemsetAsync(*out, 0, bytes, d->stream),
                            "clear memory to warm a plan up", err);
}

int cuda__plan_warm(struct dev_plan *base, double *ns, struct sh_err *err)
{
    struct cuda_plan *p = (struct cuda_plan *)base;
    struct cuda_dev *d = cuda__dev(p);
    struct cuda_call c = {.dev = d, .plan = p, .stream = d->stream};
    int rc = p->is_finished ? SH_OK : SH_FAIL(err, SH_E_BUG, "the plan is not finished"), late;

    for (int i = 0; i < CUDA_N_SPACES && !rc; i++)
        if (p->extent[i] > 0)
            rc = take_profile_memory(d, p->extent[i], &c.base[i], err);
    cuda__records_free(p); /* of a time before: what is loaded shall be what they are made from */
    if (!rc)
        rc = cuda__run_range(p, &c, 0, base->g->n_ops, err);
    if (!rc)
        cuda__records_make(p, &c);
    if (!rc && p->base.replay == DEV_REPLAY_VERIFIED)
        rc = cuda__verify_results(p, &c, err);
    if (!rc && ns)
        rc = profile_ops(p, &c, WARM_REPEAT, ns, err);
    /* After a failure too: what is under way uses the memory. */
    late = cuda__check(cudaStreamSynchronize(d->stream), "warm a plan up", rc ? NULL : err);
    for (int i = 0; i < CUDA_N_SPACES; i++)
        if (c.base[i])
            cudaFree(c.base[i]);
    (void)cuda__fault_check(d, NULL); /* zeros as indices: the next run must not answer for it */
    return rc ? rc : late;
}
