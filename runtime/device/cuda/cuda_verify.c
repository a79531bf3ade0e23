/* cuda_verify.c - does a plan give with its records, elsewhere, the bits that it gives without?
 *
 * Three runs on the same made-up numbers: without records; without them at another place; with them
 * at that other place. All memory is zero before each run, so nothing is left at a place that was
 * not patched. If the first two differ, the plan's kernels do not give the same bits each time, and
 * a third that differs would say nothing. What counts is what a caller sees: outputs, losses, and
 * the whole state after a step of training.
 *
 * Integers are 0: any of them may be an index. Weights are as small as rows of them are long, so
 * that sums stay within what F16 holds.
 */
#include "common/mem.h"
#include "runtime/device/cuda/cuda_record.h"
#include "runtime/device/cuda/kernels_verify.h"

/* The other place; none that records are made from. */
static const size_t SHIFT[CUDA_N_SPACES] = {1021 * DEV_ALIGN, 1531 * DEV_ALIGN, 2039 * DEV_ALIGN,
                                            863 * DEV_ALIGN};

static int clear_results(const struct cuda_plan *p, const struct cuda_call *c, struct sh_err *err)
{
    int rc = SH_OK;

    for (int s = 0; s < CUDA_N_SPACES && !rc; s++)
        if (p->extent[s])
            rc = cuda__check(
                cudaMemsetAsync(c->base[s], 0, p->extent[s] + CUDA_RECORD_SLACK, c->stream),
                "clear memory to verify a plan", err);
    return rc;
}

static void fill_operands(const struct cuda_plan *p, const struct cuda_call *c)
{
    for (uint32_t i = 0; i < p->base.g->n_tensors; i++) {
        const struct dev_tensor *t = &p->base.g->tensors[i];
        const bool is_kept =
            t->role == DEV_ROLE_WEIGHT || t->role == DEV_ROLE_STATE || t->role == DEV_ROLE_TABLE;
        const int64_t n = dev_tensor_elements(t);
        const bool is_matrix = is_kept && t->rank > 1 && n > 0;

        if (t->alias_of == DEV_NONE &&
            (is_kept || t->role == DEV_ROLE_INPUT || t->role == DEV_ROLE_LABEL))
            k_pattern(c->stream, (int)p->tensors[i].form.type, n, i,
                      is_matrix ? (float)t->dims[0] / (float)n : 1, cuda__ptr(c, i));
    }
}

static void digest(const struct cuda_plan *p, const struct cuda_call *c, uint64_t *sum)
{
    for (uint32_t i = 0; i < p->base.g->n_tensors; i++) {
        const struct dev_tensor *t = &p->base.g->tensors[i];

        if (t->alias_of == DEV_NONE &&
            (t->role == DEV_ROLE_OUTPUT || t->role == DEV_ROLE_KEEP || t->role == DEV_ROLE_STATE))
            k_digest(c->stream, cuda__ptr(c, i), t->bytes, i, sum);
    }
}

/* *out: of what comes out; sum: where the device adds it up. */
static int run_shifted(struct cuda_plan *p, const struct cuda_call *c, const size_t *shift,
                       uint64_t *sum, uint64_t *out, struct sh_err *err)
{
    struct cuda_call at = *c;
    int rc = clear_results(p, c, err);

    for (int s = 0; s < CUDA_N_SPACES; s++)
        at.base[s] = c->base[s] && shift ? c->base[s] + shift[s] : c->base[s];
    at.turn.lr = 1; /* what comes of gradients shows in the state */
    if (!rc)
        rc = cuda__check(cudaMemsetAsync(sum, 0, sizeof(*sum), c->stream), "clear a digest", err);
    if (!rc) {
        fill_operands(p, &at);
        rc = cuda__run_range(p, &at, 0, p->base.g->n_ops, err);
    }
    if (rc)
        return rc;
    digest(p, &at, sum);
    rc = cuda__check(cudaMemcpyAsync(out, sum, sizeof(*out), cudaMemcpyDeviceToHost, c->stream),
                     "read a digest", err);
    return rc ? rc : cuda__check(cudaStreamSynchronize(c->stream), "verify a plan", err);
}

int cuda__verify_results(struct cuda_plan *p, const struct cuda_call *c, struct sh_err *err)
{
    struct cuda_record *records = p->records;
    uint64_t *sum = NULL, here = 0, there = 0, got = 0;
    int rc = cuda__check(cudaMalloc((void **)&sum, sizeof(*sum)), "allocate a digest", err);

    p->records = NULL;
    if (!rc)
        rc = run_shifted(p, c, NULL, sum, &here, err);
    if (!rc)
        rc = run_shifted(p, c, SHIFT, sum, &there, err);
    p->records = records;
    if (!rc && here != there) {
        p->base.replay = DEV_REPLAY_UNSTEADY;
    } else if (rc || run_shifted(p, c, SHIFT, sum, &got, NULL) || got != there) {
        cuda__records_free(p);
        p->base.replay = rc ? DEV_REPLAY_NONE : DEV_REPLAY_RESULTS;
    }
    cudaFree(sum);
    return rc ? rc : clear_results(p, c, err);
}
