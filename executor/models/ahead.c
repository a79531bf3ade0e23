/* ahead.c - images that come to the device before somebody asks for them: see store.h.
 *
 *   NONE -> AHEAD             the scheduler says so, and nothing else is to be done
 *                                                                          [model_bring_ahead]
 *   AHEAD -> GIVEN_UP         training needs the memory                    [store_drop_ahead]
 *   AHEAD, GIVEN_UP -> NONE   all of it is there, or something else is to be done: what has come
 *                             stays, unless it is packed                   [on_group]
 *   AHEAD, GIVEN_UP -> ASKED  a run or a request wants it                  [model__place]
 *
 * Each group has a mark behind it, and the next one is sent when that comes back. So whoever comes
 * meanwhile waits for one group at most. */
#include "common/clock.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "executor/models/apart.h"
#include "executor/models/model_int.h"
#include "executor/models/packed.h"
#include "executor/models/tables.h"

static struct tx *tx_of(const struct model *m)
{
    return store__env(m->store)->tx;
}

/* Is nothing else to be done? Runs of the model that read its tables in place do not matter. */
static bool is_free_for(const struct model *m, uint64_t has)
{
    const struct store_users *u = store__users(m->store);

    return u->is_quiet(u->arg) ||
           (m->tables.n && has >= tables__at(m) && !tables__are_others_busy(m));
}

static bool is_ahead(const struct model *m)
{
    return m->rest == MODEL_REST_AHEAD || m->rest == MODEL_REST_GIVEN_UP;
}

static struct model *find_ahead(struct store *s)
{
    struct model *m = store_next(s, NULL);

    while (m && !is_ahead(m))
        m = store_next(s, m);
    return m;
}

static void count_ahead(const struct model *m, uint64_t bytes, const char *outcome)
{
    sh_metric_add(M_shunt_ahead_bytes_total, SH_LABELS(store__env(m->store)->executor, outcome),
                  (double)bytes);
}

static void stop_coming(struct model *m)
{
    /* Packed layers lie at the end of the range, which has to be whole for them. */
    const uint64_t stays = m->link_ends ? m->at.resident : m->tx.sent_bytes;
    const uint64_t gone = model_link_bytes(m, stays);
    const bool is_whole = m->tables.n && stays >= tables__at(m); /* but for them */

    m->rest = MODEL_REST_NONE;
    count_ahead(m, model_link_bytes(m, m->at.resident) - gone, "brought");
    count_ahead(m, gone, "given_up");
    tx_image_fini(&m->tx);
    model__unpin_part(m);
    tables__end(m, false);
    if (!is_whole) {
        residency_forget(space_residency(store__env(m->store)->space), m->res,
                         (uint32_t)(stays / DEV_BLOCK));
        packed__forget(m);
    }
    apart__lose(m);
    store_tell_place(m);
}

static void on_group(void *arg);

/* rc: of sending the group. */
static void await_group(struct model *m, int rc)
{
    if (!rc)
        rc = tx_load_mark(tx_of(m), &m->tx, on_group, m, NULL);
    if (!rc)
        return;
    m->rest = MODEL_REST_NONE;
    tx_image_force(tx_of(m), &m->tx);
    model__break(m);
}

/* All that was sent is there. */
static void on_group(void *arg)
{
    struct model *m = arg;

    if (!is_ahead(m))
        return; /* somebody else has sent the rest */
    if (!tx_load_waits(&m->tx)) {
        m->rest = MODEL_REST_NONE;
        count_ahead(m, model_link_bytes(m, m->at.resident), "brought");
        model__arrived(m);
        store_tell_place(m);
        return;
    }
    if (m->rest == MODEL_REST_GIVEN_UP || m->phase != MODEL_READY ||
        !is_free_for(m, m->link_ends ? m->at.resident : m->tx.sent_bytes) ||
        !tx_load_is_last(tx_of(m), &m->tx))
        stop_coming(m);
    else
        await_group(m, tx_load_next(tx_of(m), &m->tx, NULL));
}

/* What is kept free for runs stays so. */
static bool place_ahead(struct model *m, bool may_evict_stale)
{
    struct space *space = store__env(m->store)->space;
    const uint64_t bytes = m->room_bytes - model_resident_bytes(m);
    uint64_t hit;

    if (may_evict_stale && !space_has_spare(space, bytes))
        space_clear(space, m->res, bytes, RESIDENCY_STALE_NS);
    return space_has_spare(space, bytes) && !model__place(m, true, false, &hit, NULL) &&
           m->is_placed;
}

void model__bring(struct model *m, bool may_evict_stale)
{
    const struct store_env *env = store__env(m->store);
    const double *layer_ns;

    if (m->phase != MODEL_READY || !m->has_image || m->tier.at != TIER_HOST || model_is_apart(m) ||
        tx_image_busy(&m->tx) || find_ahead(m->store) || !is_free_for(m, model_resident_bytes(m)) ||
        tx_backlog_ns(env->tx) > 0 || !model_batch(m, 1, &layer_ns) ||
        !HOOK_ASK(env->hooks, has_memory, true) || !place_ahead(m, may_evict_stale))
        return;
    if (model_transmit_begin(m, layer_ns, NULL))
        return;
    m->rest = MODEL_REST_AHEAD;
    await_group(m, SH_OK);
}

void model_bring_ahead(struct model *m, bool may_evict_stale)
{
    model__bring(m, may_evict_stale);
    store_tell_place(m);
}

bool store_drop_ahead(struct store *s)
{
    struct model *m = find_ahead(s);

    if (m)
        m->rest = MODEL_REST_GIVEN_UP;
    return m != NULL;
}
