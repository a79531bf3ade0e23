/* cpu_loop.c - threads and strided loop nests for the operations that oneDNN does not have.
 *
 * Threads are those of libgomp, the runtime that oneDNN itself uses: two pools would fight for the
 * cores. Its entry point is called directly, so that clang, whose own OpenMP needs another runtime,
 * builds the same thing.
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"

void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
void omp_set_num_threads(int n);
void omp_set_dynamic(int on);

struct work {
    int64_t n;
    cpu_range_fn *fn;
    void *ctx;
};

static void run_share(void *arg)
{
    const struct work *w = arg;
    int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
    int64_t from = w->n / threads * me + SH_MIN(w->n % threads, me);
    int64_t to = from + w->n / threads + (me < w->n % threads);

    if (from < to)
        w->fn(w->ctx, from, to);
}

void cpu__parallel(unsigned threads, int64_t n, int64_t grain, cpu_range_fn *fn, void *ctx)
{
    struct work w = {.n = n, .fn = fn, .ctx = ctx};
    int64_t most = n / SH_MAX(grain, 1);

    if (n <= 0)
        return;
    if (most < 2 || threads < 2)
        fn(ctx, 0, n);
    else
        GOMP_parallel(run_share, &w, (unsigned)SH_MIN((int64_t)threads, most), 0);
}

void cpu__set_threads(unsigned threads)
{
    omp_set_dynamic(0); /* the number of threads decides the order of sums: it must not drift */
    omp_set_num_threads((int)threads);
}

/* ------------------------------------------------------------------ loop nests */

void cpu__strides(uint32_t rank, const int64_t *dims, int64_t *out)
{
    int64_t s = 1;

    for (uint32_t i = rank; i-- > 0;) {
        out[i] = s;
        s *= dims[i];
    }
}

void cpu__nd_init(struct cpu_nd *nd, uint32_t rank, const int64_t *dims, uint32_t n)
{
    *nd = (struct cpu_nd){.rank = rank, .n = n, .total = 1};
    for (uint32_t i = 0; i < rank; i++) {
        nd->dims[i] = dims[i];
        nd->total *= dims[i];
    }
    if (rank == 0) { /* one element: one axis of one */
        nd->rank = 1;
        nd->dims[0] = 1;
    }
}

bool cpu__nd_broadcast(struct cpu_nd *nd, uint32_t k, const struct dev_tensor *t)
{
    int64_t own[SH_MAX_RANK];
    uint32_t lead;

    if (t->rank > nd->rank)
        return false;
    lead = nd->rank - t->rank;
    cpu__strides(t->rank, t->dims, own);
    for (uint32_t i = 0; i < nd->rank; i++) {
        int64_t d = i < lead ? 1 : t->dims[i - lead];

        if (d != 1 && d != nd->dims[i])
            return false;
        nd->stride[k][i] = d == 1 ? 0 : own[i - lead];
    }
    return true;
}

static bool can_merge(const struct cpu_nd *nd, uint32_t outer, uint32_t inner)
{
    for (uint32_t k = 0; k < nd->n; k++)
        if (nd->stride[k][outer] != nd->stride[k][inner] * nd->dims[inner])
            return false;
    return true;
}

void cpu__nd_merge(struct cpu_nd *nd)
{
    uint32_t w = 0; /* axes [0, w] are done */

    for (uint32_t i = 1; i < nd->rank; i++) {
        bool swallow = nd->dims[w] == 1 || nd->dims[i] == 1 || can_merge(nd, w, i);

        if (!swallow) {
            w++;
            nd->dims[w] = nd->dims[i];
            for (uint32_t k = 0; k < nd->n; k++)
                nd->stride[k][w] = nd->stride[k][i];
        } else if (nd->dims[i] != 1) { /* else: an axis of one adds nothing */
            nd->dims[w] *= nd->dims[i];
            for (uint32_t k = 0; k < nd->n; k++)
                nd->stride[k][w] = nd->stride[k][i];
        }
    }
    nd->rank = nd->rank ? w + 1 : 0;
}

void cpu__nd_run(const struct cpu_nd *nd, int64_t from, int64_t to, cpu_row_fn *fn, void *ctx)
{
    const uint32_t last = nd->rank - 1;
    int64_t at[SH_MAX_RANK], off[CPU_ND_OPERANDS], rest = from;

    for (uint32_t i = nd->rank; i-- > 0;) {
        at[i] = rest % nd->dims[i];
        rest /= nd->dims[i];
    }
    while (from < to) {
        int64_t n = SH_MIN(nd->dims[last] - at[last], to - from);

        for (uint32_t k = 0; k < nd->n; k++) {
            off[k] = nd->base[k];
            for (uint32_t i = 0; i < nd->rank; i++)
                off[k] += at[i] * nd->stride[k][i];
        }
        fn(ctx, nd, n, off);
        from += n;
        at[last] += n;
        for (uint32_t i = last; i > 0 && at[i] == nd->dims[i]; i--) {
            at[i] = 0;
            at[i - 1]++;
        }
    }
}
