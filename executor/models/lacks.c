/* lacks.c - which models a worker should compile that another one has. Asked several times in each
 * turn of the loop, when there is mostly nothing: whether there is, is looked for again only when
 * something has changed, so that a turn costs the same with one model and with hundreds. */
#include "common/clock.h"
#include "executor/models/loading.h"
#include "executor/models/model_int.h"

bool lacks__is_compiled_now(struct store *s, int64_t handle)
{
    struct pool *p = store__env(s)->pool;

    for (size_t i = 0; i < pool_size(p); i++)
        if (pool_at(p, i)->preparing == handle)
            return true;
    return false;
}

bool lacks__is_orphan(struct store *s, const struct model *m)
{
    struct pool *p = store__env(s)->pool;

    if (!m->n_users || !m->has_image || lacks__is_compiled_now(s, m->handle))
        return false;
    for (size_t i = 0; i < pool_size(p); i++)
        if (worker_has_model(pool_at(p, i), m->handle))
            return false;
    return true;
}

bool lacks__any_idle(struct store *s)
{
    struct pool *p = store__env(s)->pool;

    for (size_t i = 0; i < pool_size(p); i++)
        if (worker_is_idle(pool_at(p, i)) && lacks__any(s, pool_at(p, i)))
            return true;
    return false;
}

/* Its last compilation failed a moment ago. The clock is read only then. */
static bool is_put_off(const struct model *m)
{
    return m->retry_ns && sh_clock_ns() < m->retry_ns;
}

/* A run waits for it, and only workers have it which take no runs now: they train, or hang. It is
 * compiled elsewhere at once, as one that nobody has. */
static bool is_model_waited_for(struct store *s, const struct model *m)
{
    const struct store_users *u = store__users(s);

    return m->phase == MODEL_READY && m->n_users && u->has_waiting(u->arg, m) &&
           !served__is_taken(m) && !is_put_off(m);
}

bool lacks__is_due(struct store *s, const struct model *m, bool asked)
{
    return (m->phase == MODEL_BUILDING ? m->is_asked >= asked
                                       : asked && is_model_waited_for(s, m)) &&
           !lacks__is_compiled_now(s, m->handle);
}

/* Every worker should have it; else one alone, if it is an orphan. */
static bool is_for_all(const struct model *m)
{
    return m->phase == MODEL_READY && m->handle > 0;
}

/* It may compile it, when its time has come. */
static bool could_have(const struct model *m, const struct worker *w)
{
    return (m->phase == MODEL_READY || m->phase == MODEL_GOING) &&
           !worker_has_model(w, m->handle) &&
           (m->base == m || worker_has_model(w, m->base->handle));
}

static bool wants_model(struct store *s, const struct model *m, const struct worker *w)
{
    return could_have(m, w) && !is_put_off(m) && (is_for_all(m) || lacks__is_orphan(s, m));
}

/* What nobody serves comes first. */
static bool is_model_before(const struct model *a, const struct model *b)
{
    return a->is_served == b->is_served ? loading_is_before(a, b) : b->is_served;
}

/* Looks at one, and notes how long what it finds will hold. */
static void look_at_model(struct store *s, const struct model *m, const struct worker *w,
                          struct lacks_seen *seen)
{
    if (!could_have(m, w))
        return;
    seen->any = seen->any || wants_model(s, m, w);
    if (!is_for_all(m))
        seen->until_ns = 0; /* whether it is an orphan depends on its runs */
    else if (m->retry_ns < seen->until_ns && is_put_off(m))
        seen->until_ns = m->retry_ns;
}

bool lacks__any(struct store *s, const struct worker *w)
{
    struct lacks_seen *seen = &store__lacks(s)->seen[w->index];
    const uint64_t n_changes = store__counts(s)->n_changes;

    if (seen->n_changes == n_changes && seen->n_own_changes == w->n_model_changes &&
        (seen->until_ns == INT64_MAX || sh_clock_ns() < seen->until_ns))
        return seen->any;
    *seen = (struct lacks_seen){
        .n_changes = n_changes, .n_own_changes = w->n_model_changes, .until_ns = INT64_MAX};
    for (const struct model *m = store_next(s, NULL); m; m = store_next(s, m))
        look_at_model(s, m, w, seen);
    for (const struct model *m = store_next_shape(s, NULL); m; m = store_next_shape(s, m))
        look_at_model(s, m, w, seen);
    return seen->any;
}

struct model *lacks__next(struct store *s, const struct worker *w)
{
    struct model *best = NULL;

    if (!lacks__any(s, w))
        return NULL;
    for (struct model *m = store_next(s, NULL); m; m = store_next(s, m))
        if (wants_model(s, m, w) && (!best || is_model_before(m, best)))
            best = m;
    for (struct model *m = store_next_shape(s, NULL); m && !best; m = store_next_shape(s, m))
        if (wants_model(s, m, w))
            best = m;
    return best;
}

bool lacks_are_known(struct store *s)
{
    struct pool *p = store__env(s)->pool;

    for (size_t i = 0; i < pool_size(p); i++) {
        const struct worker *w = pool_at(p, i);
        bool any = false;

        for (const struct model *m = store_next(s, NULL); m; m = store_next(s, m))
            any = any || wants_model(s, m, w);
        for (const struct model *m = store_next_shape(s, NULL); m; m = store_next_shape(s, m))
            any = any || wants_model(s, m, w);
        if (any != lacks__any(s, w))
            return false;
    }
    return true;
}
