/* pin.c - pins images, and reports where images are: see store.h. */
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"
#include "executor/models/apart.h"
#include "executor/models/host.h"
#include "executor/models/model_int.h"
#include "executor/models/packed.h"
#include "executor/models/seen.h"
#include "executor/models/share.h"
#include "executor/models/tables.h"
#include "executor/models/tier.h"

#include <inttypes.h>

#define MAX_TOLD 128u  /* messages a second; the rest has its turn in the next one */
#define SMALL_PART 16u /* a change of its part of what it shares by less than that of it waits */
#define USE_NS SH_S(5) /* a later use alone is told this much apart */

static struct residency *store_residency(struct store *s)
{
    return space_residency(store__env(s)->space);
}

void store_pin(struct store *s, int64_t handle, bool is_pinned)
{
    struct model *m = store_find(s, handle);

    if (!m || m->is_pinned == is_pinned)
        return;
    m->is_pinned = is_pinned;
    if (m->has_image)
        residency_stick(store_residency(s), m->res, is_pinned);
    SH_INFO("model.pin", "version=%" PRId64 " model=%s pinned=%d", m->handle, m->name, is_pinned);
}

bool store_yield_pins(struct store *s)
{
    bool had = residency_yield(store_residency(s), true);

    for (struct model *m = store_next(s, NULL); m; m = store_next(s, m)) {
        if (!m->has_image || !residency_is_sticky(store_residency(s), m->res))
            continue;
        residency_stick(store_residency(s), m->res, false);
        had |= model_resident_bytes(m) > 0 || model_is_apart(m);
    }
    if (had)
        SH_WARN("model.unpinned", "msg=\"pinned models and what gpu_memory_min_bytes keeps gave up "
                                  "their place for a while: a run or a job found no other\"");
    return had;
}

static void bring_back(struct model *m)
{
    const double *layer_ns;

    residency_stick(store_residency(m->store), m->res, true);
    if (model_resident_bytes(m) < m->image_bytes && model_batch(m, 1, &layer_ns))
        if (model_transmit(m, layer_ns, NULL) == SH_E_DEVMEM && model_yield_apart(m))
            model_transmit(m, layer_ns, NULL); /* no room: it waits, and the next second asks */
}

static enum msg_pin pin_of(const struct model *m)
{
    if (!m->is_pinned)
        return MSG_PIN_NONE;
    return m->has_image && model_resident_bytes(m) == m->image_bytes ? MSG_PIN_HELD
                                                                     : MSG_PIN_WAITING;
}

/* Until all that was put on its way is there; 0: it is. */
static int64_t arrives_in_ns(const struct model *m)
{
    const int64_t left_ns = sh_clock_until(m->tx.expected_ns);

    return m->has_image && tx_image_busy(&m->tx) ? SH_MAX(left_ns, 1) : 0;
}

/* Of it, what a run needs no link for. */
static uint64_t linkless_bytes(const struct model *m)
{
    return model_is_apart(m) ? m->image_bytes : model_told_bytes(m);
}

uint64_t store_say_place(struct model *m, int64_t *unpack_ns)
{
    m->told.device_bytes = linkless_bytes(m);
    m->told.unpack_ns = unpack_ns ? model_unpack_ns(m) : 0;
    if (unpack_ns)
        *unpack_ns = m->told.unpack_ns;
    return m->told.device_bytes;
}

/* Each that comes to share with others, or goes, changes the parts of all. */
static bool is_small(uint64_t was, uint64_t is)
{
    return (was > is ? was - is : is - was) <= was / SMALL_PART;
}

static bool holds_as_told(const struct model_place *was, const struct model_place *is)
{
    return was->host_bytes - was->image_part == is->host_bytes - is->image_part &&
           is_small(was->image_part, is->image_part) &&
           is_small(was->image_part - was->shared_bytes, is->image_part - is->shared_bytes);
}

/* True: a message went out. */
static bool tell_model_place(struct store *s, struct model *m, bool is_asked)
{
    const struct model_place now = {.device_bytes = linkless_bytes(m),
                                    .host_bytes = host_held(m),
                                    .image_part = share__bytes(m),
                                    .shared_bytes = share__shared(m),
                                    .disk_bytes = tier_disk_bytes(m),
                                    .unpack_ns = model_unpack_ns(m),
                                    .pin = pin_of(m),
                                    .last_use_ns = m->last_use_ns};
    const struct model_place *old = &m->told;
    struct sh_msg msg = {.type = MSG_MODEL_PLACE};

    if (m->handle < 0 || m->phase == MODEL_GOING ||
        (!is_asked && now.device_bytes == old->device_bytes && holds_as_told(old, &now) &&
         now.disk_bytes == old->disk_bytes && now.unpack_ns == old->unpack_ns &&
         now.pin == old->pin && now.last_use_ns - old->last_use_ns < USE_NS))
        return false;
    m->told = now;
    msg.u.model_place =
        (struct msg_model_place){.version_id = m->handle,
                                 .device_bytes = now.device_bytes,
                                 .host_bytes = now.host_bytes,
                                 .shared_bytes = now.shared_bytes,
                                 .disk_bytes = now.disk_bytes,
                                 .unpack_ns = now.unpack_ns,
                                 .pin = now.pin,
                                 .arrives_ns = arrives_in_ns(m),
                                 .idle_ns = m->last_use_ns ? sh_clock_ns() - m->last_use_ns : -1};
    uplink_send(store__env(s)->up, &msg);
    return true;
}

static void update_pin_metrics(struct store *s)
{
    const char *executor = store__env(s)->executor;
    double held = 0, all = 0;

    for (struct model *m = store_next(s, NULL); m; m = store_next(s, m)) {
        if (!m->is_pinned)
            continue;
        held += (double)model_resident_bytes(m);
        all += (double)m->image_bytes;
    }
    sh_metric_set(M_shunt_pinned_bytes, SH_LABELS(executor, "held"), held);
    sh_metric_set(M_shunt_pinned_bytes, SH_LABELS(executor, "waiting"), all - held);
}

static void tell_loading(struct store *s)
{
    for (struct model *m = store_next(s, NULL); m; m = store_next(s, m))
        if (m->phase == MODEL_BUILDING && m->handle > 0)
            model_report(m);
}

/* From the one behind the last that was told: each has its turn. */
static void tell_places(struct store *s)
{
    int64_t *last = &store__told(s)->last;
    const struct model *const from = store_find(s, *last);
    struct model *m = NULL;
    uint32_t n = 0;

    for (m = store_next(s, from); n < MAX_TOLD; m = store_next(s, m)) {
        if (!m && from)
            m = store_next(s, NULL);
        if (m && tell_model_place(s, m, false)) {
            *last = m->handle;
            n++;
        }
        if (m == from)
            return;
    }
}

void store_second(struct store *s)
{
    const struct store_users *u = store__users(s);
    const bool is_idle = u->is_idle(u->arg);

    if (is_idle)
        residency_yield(store_residency(s), false);
    for (struct model *m = store_next(s, NULL); m; m = store_next(s, m))
        if (is_idle && m->is_pinned && m->phase == MODEL_READY && m->has_image)
            bring_back(m);
    for (struct model *m = store_next(s, NULL); m; m = store_next(s, m)) {
        tables__second(m);
        apart__second(m);
    }
    tell_places(s);
    update_pin_metrics(s);
    seen_second(s);
    tell_loading(s);
}

void store_tell_place(struct model *m)
{
    tell_model_place(m->store, m, true);
}

void store_tell_evicted(struct store *s)
{
    const uint64_t n = space_n_evicted(store__env(s)->space);
    uint64_t *n_told = &store__told(s)->n_evicted;
    uint32_t told = 0;

    if (n == *n_told)
        return;
    for (struct model *m = store_next(s, NULL); m && told < MAX_TOLD; m = store_next(s, m))
        if (linkless_bytes(m) < m->told.device_bytes || model_unpack_ns(m) > m->told.unpack_ns)
            told += tell_model_place(s, m, false);
    if (told < MAX_TOLD)
        *n_told = n;
}

void store_told_nothing(struct store *s)
{
    for (struct model *m = store_next(s, NULL); m; m = store_next(s, m)) {
        m->told = (struct model_place){0};
        m->wait_told_ns = 0;
    }
    for (struct model *m = store_next_shape(s, NULL); m; m = store_next_shape(s, m))
        m->wait_told_ns = 0;
}
