/* past.c - see past.h. */
#include "scheduler/decide/past.h"

#include "common/mem.h"

#include <math.h>

#define NEW_PART 0.3   /* of the mean, that the last one makes */
#define MOST_NS 9.2e15 /* a hundred days: sums of a few do not overflow */

static bool is_like(const struct past_like *a, const struct past_like *b)
{
    return a->model_id == b->model_id && a->step_samples == b->step_samples &&
           a->is_batch == b->is_batch;
}

static const struct past_kind *find_kind(const struct past *p, const struct past_like *like)
{
    for (size_t i = 0; i < p->n; i++)
        if (is_like(&p->kinds[i].like, like))
            return &p->kinds[i];
    return NULL;
}

static size_t oldest_kind(const struct past *p)
{
    size_t old = 0;

    for (size_t i = 1; i < p->n; i++)
        if (p->kinds[i].at < p->kinds[old].at)
            old = i;
    return old;
}

static void mix_mean(double *mean, double value, bool is_first)
{
    *mean = is_first ? value : (1 - NEW_PART) * *mean + NEW_PART * value;
}

void past_add(struct past *p, const struct past_like *like, int64_t steps, int64_t busy_ns,
              int64_t whole_ns)
{
    const struct past_kind *known = find_kind(p, like);
    struct past_kind *k;
    double in_steps = (double)(busy_ns > 0 ? busy_ns : whole_ns);
    bool is_first = !known;

    if (steps <= 0 || in_steps <= 0)
        return;
    k = &p->kinds[known ? (size_t)(known - p->kinds) : p->n < PAST_MAX ? p->n++ : oldest_kind(p)];
    if (is_first)
        *k = (struct past_kind){.like = *like};
    k->at = ++p->clock;
    mix_mean(&k->step_ns, in_steps / (double)steps, is_first);
    if (whole_ns > 0)
        mix_mean(&k->start_ns, fmax((double)whole_ns - in_steps, 0), k->start_ns <= 0);
    mix_mean(&p->whole_ns, fmax(in_steps, (double)whole_ns), p->whole_ns <= 0);
}

int64_t past_expect_ns(const struct past *p, const struct past_like *like, int64_t steps)
{
    const struct past_kind *k = find_kind(p, like);

    if (!k)
        return 0;
    return (int64_t)SH_MAX(
        fmin(k->start_ns + k->step_ns * (double)SH_MAX(steps, (int64_t)0), MOST_NS), 1.0);
}
