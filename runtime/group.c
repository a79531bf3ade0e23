/* group.c - see group.h, also for the notation: T(e) and C(e) are prefix sums of copy and compute
 * times, D is the makespan being tested.
 *
 * A group without bytes to copy costs no alpha and has arrived at time 0. Only the front of an
 * image can be resident (residency.h), so such layers form at most one leading run; zero-byte
 * layers elsewhere travel with their neighbours. */
#include "runtime/group.h"

#include "common/mem.h"

#include <stdlib.h>

#define MOST_ALPHA (INT64_MAX / 8)
#define MOST_SUM (INT64_MAX / 4)

struct way {
    int64_t alpha, *t; /* n + 1 */
};

struct sums {
    int64_t *c;        /* n + 1 */
    uint32_t n, first; /* layers [0, first) need no copy */
    uint32_t n_ways;
    struct way ways[GROUP_MAX_WAYS];
};

/* ------------------------------------------------------------------ one way */

/* Is there a grouping that ends by D? Greedy: each group as long as its arrival allows. By
 * induction no feasible grouping's g-th cut lies beyond the greedy one's. Returns the number of
 * groups, 0 if there is none. ends may be NULL. */
static uint32_t greedy(const struct sums *s, const struct way *w, int64_t deadline, uint32_t *ends)
{
    const int64_t *t = w->t, slack = deadline - s->c[s->n];
    const uint32_t n = s->n;
    uint32_t e = s->first, k = 0, g = 0;

    if (slack < 0)
        return 0;
    if (s->first > 0) {
        if (ends)
            ends[k] = s->first;
        k++;
    }
    while (e < n) {
        const int64_t last = slack + s->c[e] - (int64_t)++g * w->alpha;
        const uint32_t from = e;

        while (e < n && t[e + 1] <= last)
            e++;
        if (e == from)
            return 0;
        if (ends)
            ends[k] = e;
        k++;
    }
    return k;
}

static int64_t best_of_way(const struct sums *s, const struct way *w)
{
    /* One group for all that is missing is always feasible at the upper end. */
    int64_t lo = s->c[s->n], hi = s->c[s->n] + w->t[s->n] + w->alpha;

    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;

        if (greedy(s, w, mid, NULL))
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* ------------------------------------------------------------------ several ways */

/* best[j]: the earliest that the first j layers can have arrived, in groups that all can still end
 * by D. The last of them begins at layer from[j]. Where there are none for j there are none for
 * more layers: a last group can lack its last one.
 *
 * best[j] is the least of best[i] + alpha + T(j) - T(i) over all ways and all i < j for which it
 * does not exceed D - C(n) + C(i). In one way that is alpha + T(j) plus the least key best[i] -
 * T(i) of an i whose group still arrives in time. Of two i the later one is also in time whenever
 * the earlier one is, if its key is no larger: C ascends. So a queue holds what can still win, with
 * ascending keys; and who comes too late for j does for all behind it. */
struct candidate {
    int64_t key, room; /* room: C(i) less the key */
    uint32_t i;
};

struct chain {
    struct candidate *of; /* n + 1 */
    uint32_t head, tail;
};

#define NEVER INT64_MAX

struct search {
    int64_t *best;  /* n + 1 */
    uint32_t *from; /* n + 1 */
    struct chain chains[GROUP_MAX_WAYS];
};

static void offer(struct chain *q, const struct candidate *c)
{
    while (q->tail > q->head && q->of[q->tail - 1].key >= c->key)
        q->tail--;
    q->of[q->tail++] = *c;
}

/* The best that can still be in time for a group that ends with T(j) = t; NULL: none. */
static const struct candidate *first_in_time(struct chain *q, int64_t t)
{
    while (q->head < q->tail && t > q->of[q->head].room)
        q->head++;
    return q->head < q->tail ? &q->of[q->head] : NULL;
}

/* Is there a grouping that ends by D? */
static bool reach(const struct sums *s, int64_t deadline, struct search *x)
{
    const int64_t slack = deadline - s->c[s->n];

    if (slack < 0)
        return false;
    for (uint32_t k = 0; k < s->n_ways; k++)
        x->chains[k].head = x->chains[k].tail = 0;
    x->best[s->first] = 0;
    for (uint32_t j = s->first + 1; j <= s->n; j++) {
        int64_t best = NEVER;

        for (uint32_t k = 0; k < s->n_ways; k++) {
            const struct way *w = &s->ways[k];
            const int64_t key = x->best[j - 1] - w->t[j - 1], t = w->alpha + w->t[j];
            const struct candidate *c;

            offer(&x->chains[k], &(struct candidate){key, s->c[j - 1] - key, j - 1});
            c = first_in_time(&x->chains[k], t - slack);
            if (c && c->key + t < best) {
                best = c->key + t;
                x->from[j] = c->i;
            }
        }
        if (best == NEVER)
            return false;
        x->best[j] = best;
    }
    return true;
}

static int search_init(struct search *x, const struct sums *s, struct sh_err *err)
{
    const size_t n = (size_t)s->n + 1;
    bool has_all;

    x->best = calloc(n, sizeof(*x->best));
    x->from = calloc(n, sizeof(*x->from));
    has_all = x->best && x->from;
    for (uint32_t k = 0; k < s->n_ways; k++) {
        x->chains[k].of = calloc(n, sizeof(*x->chains[k].of));
        has_all = has_all && x->chains[k].of;
    }
    return has_all ? SH_OK
                   : SH_FAIL(err, SH_E_NOMEM, "could not allocate the grouping of %u layers", s->n);
}

static void search_fini(struct search *x)
{
    free(x->best);
    free(x->from);
    for (uint32_t k = 0; k < GROUP_MAX_WAYS; k++)
        free(x->chains[k].of);
}

static uint32_t cuts_of(const struct sums *s, const struct search *x, uint32_t *ends)
{
    uint32_t k = s->first > 0;

    for (uint32_t j = s->n; j > s->first; j = x->from[j])
        k++;
    if (s->first > 0)
        ends[0] = s->first;
    for (uint32_t j = s->n, at = k; j > s->first; j = x->from[j])
        ends[--at] = j;
    return k;
}

/* All by the best way alone is feasible; nothing is faster than the least of each. */
static int solve_several(const struct sums *s, struct group_plan *out, struct sh_err *err)
{
    struct way least = {.alpha = s->ways[0].alpha};
    struct search x = {0};
    int64_t lo, hi = INT64_MAX;
    int rc = search_init(&x, s, err);

    least.t = calloc((size_t)s->n + 1, sizeof(*least.t));
    if (!rc && !least.t)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the grouping of %u layers", s->n);
    if (rc)
        goto out;
    for (uint32_t k = 0; k < s->n_ways; k++) {
        least.alpha = SH_MIN(least.alpha, s->ways[k].alpha);
        hi = SH_MIN(hi, best_of_way(s, &s->ways[k]));
    }
    for (uint32_t i = 0; i < s->n; i++) {
        int64_t t = s->ways[0].t[i + 1] - s->ways[0].t[i];

        for (uint32_t k = 1; k < s->n_ways; k++)
            t = SH_MIN(t, s->ways[k].t[i + 1] - s->ways[k].t[i]);
        least.t[i + 1] = least.t[i] + t;
    }
    lo = best_of_way(s, &least);
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;

        if (reach(s, mid, &x))
            hi = mid;
        else
            lo = mid + 1;
    }
    reach(s, lo, &x);
    out->n = cuts_of(s, &x, out->ends);
    out->finish_ns = lo;
out:
    search_fini(&x);
    free(least.t);
    return rc;
}

/* ------------------------------------------------------------------ both */

/* *out: n + 1 sums. */
static int sum_up(const int64_t *ns, uint32_t n, int64_t **out, struct sh_err *err)
{
    int64_t *t = calloc((size_t)n + 1, sizeof(*t));

    *out = t;
    if (!t)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the grouping of %u layers", n);
    for (uint32_t i = 0; i < n; i++) {
        if (ns[i] < 0 || ns[i] > MOST_SUM - t[i])
            return SH_FAIL(err, SH_E_INVALID, "layer %u has an impossible time", i);
        t[i + 1] = t[i] + ns[i];
    }
    return SH_OK;
}

static int sums_init(struct sums *s, const struct group_way *ways, const int64_t *compute_ns,
                     struct sh_err *err)
{
    int rc = sum_up(compute_ns, s->n, &s->c, err);

    for (uint32_t k = 0; !rc && k < s->n_ways; k++) {
        s->ways[k].alpha = ways[k].alpha_ns;
        if (ways[k].alpha_ns < 0 || ways[k].alpha_ns > MOST_ALPHA)
            rc = SH_FAIL(err, SH_E_INVALID, "a group cannot take that long to begin");
        else
            rc = sum_up(ways[k].copy_ns, s->n, &s->ways[k].t, err);
    }
    while (!rc && s->first < s->n && s->ways[0].t[s->first + 1] == 0)
        s->first++;
    return rc;
}

static void sums_fini(struct sums *s)
{
    free(s->c);
    for (uint32_t k = 0; k < GROUP_MAX_WAYS; k++)
        free(s->ways[k].t);
}

int group_solve(const struct group_way *ways, uint32_t n_ways, const int64_t *compute_ns,
                uint32_t n, struct group_plan *out, struct sh_err *err)
{
    struct sums s = {.n = n, .n_ways = n_ways};
    int rc;

    *out = (struct group_plan){0};
    if (n == 0 || n > GROUP_MAX_LAYERS || n_ways == 0 || n_ways > GROUP_MAX_WAYS)
        return SH_FAIL(err, SH_E_INVALID, "cannot group %u layers", n);
    rc = sums_init(&s, ways, compute_ns, err);
    if (!rc && !(out->ends = calloc(n, sizeof(*out->ends))))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate %u groups", n);
    if (!rc && n_ways == 1) {
        out->finish_ns = best_of_way(&s, &s.ways[0]);
        out->n = greedy(&s, &s.ways[0], out->finish_ns, out->ends);
    } else if (!rc) {
        rc = solve_several(&s, out, err);
    }
    if (rc)
        group_plan_fini(out);
    sums_fini(&s);
    return rc;
}

int64_t group_evaluate(const struct group_way *ways, uint32_t n_ways, const int64_t *compute_ns,
                       uint32_t n, const uint32_t *ends, uint32_t n_groups)
{
    int64_t arrival = 0, finish = 0;
    uint32_t i = 0;

    for (uint32_t g = 0; g < n_groups; g++) {
        int64_t copy[GROUP_MAX_WAYS] = {0}, compute = 0, took = INT64_MAX;

        for (; i < ends[g] && i < n; i++) {
            for (uint32_t k = 0; k < n_ways; k++)
                copy[k] += ways[k].copy_ns[i];
            compute += compute_ns[i];
        }
        for (uint32_t k = 0; k < n_ways; k++)
            took = SH_MIN(took, ways[k].alpha_ns + copy[k]);
        if (copy[0] > 0)
            arrival += took;
        if (copy[0] > 0 && arrival > finish)
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
