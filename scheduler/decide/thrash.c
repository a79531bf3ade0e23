/* thrash.c - see thrash.h. */
#include "scheduler/decide/thrash.h"

#include "common/mem.h"
#include "common/msg.h"

#include <math.h>
#include <stdlib.h>

#define MOST_AT_ONCE 32 /* models that close in one window: each takes a look at all */

void thrash_fini(struct thrash *t)
{
    free(t->of);
    *t = (struct thrash){.of = NULL};
}

static struct thrash_model *find_tracked(const struct thrash *t, int64_t version)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (t->of[i].version == version)
            return &t->of[i];
    return NULL;
}

bool thrash_is_shut(const struct thrash *t, int64_t version)
{
    const struct thrash_model *m = t->n_shut ? find_tracked(t, version) : NULL;

    return m && m->shut_ns;
}

static void drop_tracked(struct thrash *t, uint32_t i)
{
    t->n_shut -= t->of[i].shut_ns != 0;
    t->of[i] = t->of[--t->n];
}

static void forget_old(struct thrash *t, int64_t now_ns)
{
    for (uint32_t i = 0; i < t->n;)
        if (now_ns - t->of[i].last_ns > SH_WORKING_SET_NS)
            drop_tracked(t, i);
        else
            i++;
}

static uint64_t working_set(const struct thrash *t)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < t->n; i++)
        bytes += t->of[i].shut_ns ? 0 : t->of[i].bytes;
    return bytes;
}

/* What its tenant has open, for its share; 0: it is the only one of it. */
static double weight_of(const struct thrash *t, const struct thrash_model *m)
{
    uint64_t bytes = 0;
    uint32_t n = 0;

    for (uint32_t i = 0; i < t->n; i++)
        if (t->of[i].tenant == m->tenant && !t->of[i].shut_ns) {
            bytes += t->of[i].bytes;
            n++;
        }
    return n > 1 ? (double)bytes / SH_MAX(m->share, 1e-9) : 0;
}

/* Of the tenant with the largest working set for its share the newest; NULL: none can close. */
static struct thrash_model *next_to_shut(const struct thrash *t)
{
    struct thrash_model *best = NULL;
    int64_t heaviest = 0;
    double most = 0;

    for (uint32_t i = 0; i < t->n; i++) {
        struct thrash_model *m = &t->of[i];
        double weight;

        if (m->shut_ns)
            continue;
        if (best && m->tenant == heaviest) {
            if (m->n_asked * (double)best->bytes < best->n_asked * (double)m->bytes)
                best = m;
            continue;
        }
        weight = weight_of(t, m);
        if (weight <= most)
            continue;
        most = weight;
        heaviest = m->tenant;
        best = m;
    }
    return best;
}

static void shut(struct thrash *t, uint64_t too_much, int64_t now_ns)
{
    uint64_t done = 0;

    for (int k = 0; k < MOST_AT_ONCE && done < too_much / 2 + 1; k++) {
        struct thrash_model *m = next_to_shut(t);

        if (!m)
            return;
        m->shut_ns = now_ns;
        t->n_shut++;
        done += m->bytes;
    }
}

static void open_one(struct thrash *t, uint64_t memory, bool is_idle, int64_t now_ns)
{
    struct thrash_model *m = NULL;

    for (uint32_t i = 0; i < t->n; i++)
        if (t->of[i].shut_ns && (!m || t->of[i].shut_ns < m->shut_ns))
            m = &t->of[i];
    if (!m || !(is_idle || now_ns - m->shut_ns > THRASH_TRY_NS ||
                (double)(working_set(t) + m->bytes) <= THRASH_FULL * (double)memory))
        return;
    m->shut_ns = 0;
    t->n_shut--;
}

static void fade(struct thrash *t, double by)
{
    t->ns *= by;
    t->run_ns *= by;
    t->stall_ns *= by;
    t->n_asked *= by;
    t->n_late *= by;
    for (uint32_t i = 0; i < t->n; i++)
        t->of[i].n_asked *= by;
}

static void judge_pressure(struct thrash *t, uint64_t memory, int64_t now_ns)
{
    /* What is half done is worse than nothing: some are kept out, and the others still fault. */
    const double late = t->n_shut ? THRASH_CALM : THRASH_LATE;
    const bool is_bad = t->stall_ns > THRASH_STALL * t->run_ns && t->n_late > late * t->n_asked;
    const bool is_calm = t->n_late <= THRASH_CALM * t->n_asked && t->run_ns < THRASH_BUSY * t->ns;
    uint64_t bytes;

    t->in_row = is_bad ? t->in_row + t->was_asked : 0;
    if (!t->of && is_bad)
        t->of = calloc(THRASH_MAX, sizeof(*t->of)); /* NULL: the next look tries again */
    if (!t->of)
        return;
    forget_old(t, now_ns);
    bytes = working_set(t);
    if (t->was_asked && t->in_row > 1 && bytes > memory)
        shut(t, bytes - memory, now_ns);
    else if (t->n_shut)
        open_one(t, memory, is_calm, now_ns);
    else if (is_calm && bytes <= memory)
        thrash_fini(t);
}

static void note_asked(struct thrash *t, const struct thrash_model *m, int64_t now_ns)
{
    struct thrash_model *x = find_tracked(t, m->version);
    uint32_t oldest = 0;

    if (!x && t->n == THRASH_MAX) {
        for (uint32_t i = 1; i < t->n; i++)
            if (t->of[i].last_ns < t->of[oldest].last_ns)
                oldest = i;
        drop_tracked(t, oldest);
    }
    if (!x) {
        x = &t->of[t->n++];
        *x = *m;
        x->n_asked = 0;
        x->shut_ns = 0;
    }
    x->bytes = m->bytes;
    x->share = m->share;
    x->n_asked++;
    x->last_ns = now_ns;
}

void thrash_look(struct thrash *t, uint64_t memory, int64_t now_ns)
{
    const double ns = t->looked_ns ? (double)(now_ns - t->looked_ns) : 0;

    if (!t->looked_ns)
        t->looked_ns = now_ns;
    if (ns < (double)THRASH_LOOK_NS)
        return;
    t->ns += ns;
    judge_pressure(t, memory, now_ns);
    t->was_asked = false;
    fade(t, exp2(-ns / (double)THRASH_HALF_NS));
    t->looked_ns = now_ns;
}

void thrash_ask(struct thrash *t, const struct thrash_model *m, uint64_t memory, int64_t now_ns)
{
    thrash_look(t, memory, now_ns);
    t->was_asked = true;
    if (t->of)
        note_asked(t, m, now_ns);
    t->n_asked += !thrash_is_shut(t, m->version);
}

void thrash_late(struct thrash *t)
{
    t->n_late++;
}

void thrash_ran(struct thrash *t, int64_t run_ns, int64_t stall_ns)
{
    t->run_ns += (double)run_ns;
    t->stall_ns += (double)SH_MIN(SH_MAX(stall_ns, INT64_C(0)), run_ns);
}
