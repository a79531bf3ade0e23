/* group.c - see group.h, also for the notation: T(e) and C(e) are prefix sums of copy and compute
 * times, D is the makespan being tested.
 *
 * A group without bytes to copy costs no alpha and has arrived at time 0. Only the front of an
 * image can be resident (residency.h), so such layers form at most one leading run; zero-byte
 * layers elsewhere travel with their neighbours. */
#include "runtime/group.h"

#include "common/mem.h"

#include <stdlib.h>

struct sums {
    int64_t *t, *c;    /* n + 1 each */
    uint32_t n, first; /* layers [0, first) need no copy */
    int64_t alpha;
};

/* Is there a grouping that ends by D? Greedy: each group as long as its arrival allows. By
 * induction no feasible grouping's g-th cut lies beyond the greedy one's. Returns the number of
 * groups, 0 if there is none. ends may be NULL. */
static uint32_t greedy(const struct sums *s, int64_t deadline, uint32_t *ends)
{
    int64_t slack = deadline - s->c[s->n];
    uint32_t e = s->first, k = 0, g = 0;

    if (slack < 0)
        return 0;
    if (s->first > 0) {
        if (ends)
            ends[k] = s->first;
        k++;
    }
    while (e < s->n) {
        int64_t latest = slack + s->c[e];
        uint32_t from = e;

        g++;
        while (e < s->n && (int64_t)g * s->alpha + s->t[e + 1] <= latest)
            e++;
        if (e == from)
            return 0;
        if (ends)
            ends[k] = e;
        k++;
    }
    return k;
}

static int sums_init(struct sums *s, const int64_t *copy_ns, const int64_t *compute_ns, uint32_t n,
                     struct sh_err *err)
{
    s->t = calloc((size_t)n + 1, sizeof(*s->t));
    s->c = calloc((size_t)n + 1, sizeof(*s->c));
    if (!s->t || !s->c)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the grouping of %u layers", n);
    for (uint32_t i = 0; i < n; i++) {
        if (copy_ns[i] < 0 || compute_ns[i] < 0 || copy_ns[i] > INT64_MAX / 4 - s->t[i] ||
            compute_ns[i] > INT64_MAX / 4 - s->c[i])
            return SH_FAIL(err, SH_E_INVALID, "layer %u has an impossible time", i);
        s->t[i + 1] = s->t[i] + copy_ns[i];
        s->c[i + 1] = s->c[i] + compute_ns[i];
    }
    while (s->first < n && s->t[s->first + 1] == 0)
        s->first++;
    return SH_OK;
}

int group_solve(const int64_t *copy_ns, const int64_t *compute_ns, uint32_t n, int64_t alpha_ns,
                struct group_plan *out, struct sh_err *err)
{
    struct sums s = {.n = n, .alpha = alpha_ns};
    uint32_t *ends = NULL;
    int64_t lo, hi;
    int rc;

    *out = (struct group_plan){0};
    if (n == 0 || n > GROUP_MAX_LAYERS || alpha_ns < 0 || alpha_ns > INT64_MAX / 8)
        return SH_FAIL(err, SH_E_INVALID, "cannot group %u layers", n);
    rc = sums_init(&s, copy_ns, compute_ns, n, err);
    if (rc)
        goto out;
    ends = calloc(n, sizeof(*ends));
    if (!ends) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate %u groups", n);
        goto out;
    }
    /* One group for all that is missing is always feasible at the upper end. */
    lo = s.c[n];
    hi = s.c[n] + s.t[n] + alpha_ns;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;

        if (greedy(&s, mid, NULL))
            hi = mid;
        else
            lo = mid + 1;
    }
    out->n = greedy(&s, lo, ends);
    out->ends = ends;
    out->finish_ns = lo;
    ends = NULL;
out:
    free(ends);
    free(s.t);
    free(s.c);
    return rc;
}

int64_t group_evaluate(const int64_t *copy_ns, const int64_t *compute_ns, uint32_t n,
                       int64_t alpha_ns, const uint32_t *ends, uint32_t n_groups)
{
    int64_t arrival = 0, finish = 0;
    uint32_t i = 0;

    for (uint32_t g = 0; g < n_groups; g++) {
        int64_t copy = 0, compute = 0;

        for (; i < ends[g] && i < n; i++) {
            copy += copy_ns[i];
            compute += compute_ns[i];
        }
        if (copy > 0)
            arrival += alpha_ns + copy;
        if (copy > 0 && arrival > finish)
            finish = arrival;
        finish += compute;
    }
    return finish;
}

void group_plan_fini(struct group_plan *p)
{
    free(p->ends);
    *p = (struct group_plan){0};
}
