/* tenure.c - see tenure.h. */
#include "executor/memory/tenure.h"

#include "common/mem.h"
#include "common/units.h"

/* Whatever is said, a sum of costs fits its type. */
#define MAX_COPY_NS SH_S(60)
#define MAX_BEHIND ((size_t)100000)
#define MAX_SUM_NS (INT64_MAX / 8)

static int64_t change_ns(const struct tenure *t)
{
    return TENURE_MISSES * t->weight * t->claim.copy_ns + t->claim.step_ns;
}

static int64_t wait_of(const struct tenure *t)
{
    return t->wait_ns ? t->wait_ns : TENURE_WAIT_NS;
}

static void change(struct tenure *t, bool holds_off, int64_t now_ns)
{
    t->holds_off = holds_off;
    t->sum_ns = t->try_ns = 0;
    t->since_ns = now_ns;
}

static void begin_try(struct tenure *t, int64_t now_ns)
{
    t->wait_ns = SH_MIN(2 * wait_of(t), TENURE_WAIT_MAX_NS);
    change(t, false, now_ns);
    t->try_ns = t->claim.step_ns ? TENURE_TRY_STEPS * t->claim.step_ns : change_ns(t);
}

/* A state that has cost too much ends, but not within a try. */
static void settle_tenure(struct tenure *t, int64_t now_ns)
{
    const int64_t stood_ns = now_ns - t->since_ns;

    if (!t->claim.job)
        return;
    if (stood_ns >= SH_MAX(TENURE_TRY_NS, 2 * TENURE_TRY_STEPS * t->claim.step_ns))
        t->try_ns = 0;
    if (t->try_ns)
        return;
    if (t->sum_ns >= change_ns(t) && t->sum_ns) {
        if (t->holds_off)
            t->wait_ns = 0;
        change(t, !t->holds_off, now_ns);
    } else if (t->holds_off && stood_ns >= wait_of(t)) {
        begin_try(t, now_ns);
    }
}

/* in_training: of that state; else of the other one. */
static void add_cost(struct tenure *t, int64_t ns, bool in_training)
{
    const int64_t less_or_more = t->holds_off == in_training ? -ns : ns;

    t->sum_ns = SH_MIN(SH_MAX(t->sum_ns + less_or_more, INT64_C(0)), MAX_SUM_NS);
}

static void count_free(struct tenure *t, int64_t now_ns)
{
    const int64_t ns = now_ns - t->free_ns;

    if (!t->is_free || ns <= 0)
        return;
    t->free_ns = now_ns;
    if (!t->claim.job)
        return;
    add_cost(t, ns, false);
    t->try_ns = SH_MAX(t->try_ns - ns, INT64_C(0));
}

uint32_t tenure_displaced(const struct tenure_room *room, uint32_t blocks, uint32_t distance)
{
    const uint32_t lacks = distance > room->beside ? distance - room->beside : 0;
    const uint32_t would = distance > room->without ? distance - room->without : 0;

    return SH_MIN(lacks, blocks) - SH_MIN(would, blocks);
}

void tenure_init(struct tenure *t, int64_t weight, int64_t now_ns)
{
    t->weight = weight;
    t->since_ns = now_ns;
    tenure_end_run(t, now_ns);
}

void tenure_want(struct tenure *t, const struct tenure_claim *c, int64_t now_ns)
{
    tenure_look(t, now_ns);
    t->claim = *c;
    if (!c->job || c->job == t->last_job)
        return;
    t->last_job = c->job;
    t->wait_ns = 0;
    change(t, false, now_ns);
}

void tenure_begin_run(struct tenure *t, int64_t now_ns)
{
    tenure_look(t, now_ns);
    t->is_free = false;
}

void tenure_end_run(struct tenure *t, int64_t now_ns)
{
    t->is_free = true;
    t->free_ns = now_ns + TENURE_RESUME_NS;
}

void tenure_pay(struct tenure *t, int64_t copy_ns, size_t n_behind, int64_t now_ns)
{
    const int64_t waits = 1 + (int64_t)SH_MIN(n_behind, MAX_BEHIND);

    if (t->claim.job)
        add_cost(t, t->weight * waits * SH_MIN(copy_ns, MAX_COPY_NS), true);
    settle_tenure(t, now_ns);
}

void tenure_lose(struct tenure *t, int64_t now_ns)
{
    if (t->claim.job && t->weight && !t->holds_off)
        add_cost(t, t->claim.step_ns, true);
    settle_tenure(t, now_ns);
}

void tenure_look(struct tenure *t, int64_t now_ns)
{
    count_free(t, now_ns);
    settle_tenure(t, now_ns);
}

int64_t tenure_due_ns(const struct tenure *t)
{
    if (!t->holds_off || !t->is_free || !t->claim.job)
        return INT64_MAX;
    return SH_MIN(t->free_ns + change_ns(t) - t->sum_ns, t->since_ns + wait_of(t));
}
