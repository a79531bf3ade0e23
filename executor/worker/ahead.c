/* ahead.c - see ahead.h. */
#include "executor/worker/ahead.h"

#include "common/mem.h"

#include <stdlib.h>
#include <sys/mman.h>

#define PAGE ((uintptr_t)4096)
#define PIECE ((size_t)128 << 10) /* of a longer one Linux may read no more than this */
#define PACE 4                    /* so many samples are asked for, for each that is given */

int ahead_init(struct ahead *out, const struct order *o, const struct ahead_column *columns,
               size_t n_columns, int64_t end, struct sh_err *err)
{
    const size_t n = (size_t)order_n_runs(o);

    *out = (struct ahead){.order = *o,
                          .columns = columns,
                          .n_columns = n_columns,
                          .end = end,
                          .runs_epoch = {-1, -1}};
    for (int i = 0; i < 2; i++) {
        out->runs[i] = calloc(n, sizeof(*out->runs[i]));
        if (!out->runs[i])
            return SH_FAIL(err, SH_E_NOMEM, "could not allocate the order of %zu runs", n);
    }
    return SH_OK;
}

void ahead_fini(struct ahead *a)
{
    free(a->runs[0]);
    free(a->runs[1]);
}

const uint32_t *ahead_runs(struct ahead *a, int64_t epoch)
{
    uint32_t *runs = a->runs[epoch % 2];

    if (a->runs_epoch[epoch % 2] == epoch)
        return runs;
    order_draw_runs(&a->order, epoch, runs);
    a->runs_epoch[epoch % 2] = epoch;
    for (int64_t at = 0; at < order_n_runs(&a->order); at++)
        if (runs[at] == order_n_runs(&a->order) - 1)
            a->last_at[epoch % 2] = at;
    return runs;
}

static void advise(const char *from, size_t bytes, int advice)
{
    const uintptr_t first = (uintptr_t)from & ~(PAGE - 1), end = (uintptr_t)from + bytes;
    const size_t piece = advice == MADV_WILLNEED ? PIECE : SIZE_MAX;

    for (uintptr_t at = first; at < end; at += SH_MIN(piece, end - at))
        (void)madvise((void *)at, SH_MIN(piece, end - at), advice);
}

/* Up to max samples, the first of which is given as number `at`. Returns how many. */
static int64_t advise_samples(struct ahead *a, int64_t at, int64_t max, int advice)
{
    const struct order *o = &a->order;
    const uint32_t *runs = ahead_runs(a, at / o->n);
    const int64_t n_runs = order_n_runs(o), n_last = o->n - (n_runs - 1) * o->run;
    int64_t in_epoch = at % o->n, place = a->last_at[at / o->n % 2], sample, n;

    if (in_epoch >= place * o->run + n_last)
        in_epoch += o->run - n_last;
    sample = runs[in_epoch / o->run] * o->run + in_epoch % o->run;
    n = SH_MIN(o->run - in_epoch % o->run, o->n - sample);
    n = SH_MIN(n, max);
    for (size_t i = 0; i < a->n_columns; i++)
        advise(a->columns[i].data + (size_t)sample * a->columns[i].sample_bytes,
               (size_t)n * a->columns[i].sample_bytes, advice);
    return n;
}

void ahead_step(struct ahead *a, int64_t epoch, int64_t first, int64_t n)
{
    const struct order *o = &a->order;
    const int64_t window = epoch * o->n + first / o->window * o->window;
    const int64_t next_epoch = (epoch + 1) * o->n;
    int64_t want = window + o->window, pace = PACE * n;

    if (o->window >= o->n)
        return;
    want = SH_MIN(want, next_epoch) + o->window; /* the last window of an epoch may be shorter */
    want = SH_MIN(want, a->end);
    if (a->asked < window || a->asked > want)
        a->asked = window; /* at the start, or at a step that was not the next */
    if (a->let_go > window || a->let_go < window - 2 * o->window)
        a->let_go = window;
    while (a->let_go < window)
        a->let_go += advise_samples(a, a->let_go, window - a->let_go, MADV_DONTNEED);
    while (a->asked < want && pace > 0) {
        const int64_t k = advise_samples(a, a->asked, SH_MIN(pace, want - a->asked), MADV_WILLNEED);

        a->asked += k;
        pace -= k;
    }
}
