/* apart.c - see apart.h.
 *
 *   NONE -> COMING    the image is copied, and there is more of use than fits     [apart__place]
 *   COMING -> WHOLE   it has come                                               [apart__arrived]
 *   COMING -> NONE    it has not, and will not                     [apart__arrived, apart__lose]
 *   WHOLE -> NONE     others have its blocks, the model goes, or it is pinned and unpacked
 *                                                      [apart__look, apart__lose, apart__second]
 *
 * It is an image of residency.h by itself, which leaves as a whole. While it comes, and while a
 * worker unpacks from it, it is pinned. */
#include "executor/models/apart.h"

#include "common/clock.h"
#include "common/life.h"
#include "common/mem.h"
#include "executor/models/model_int.h"

#define MOST_SHARE 0.5 /* of the time of a copy, for unpacking: else two places are no gain */

static struct residency *device_images(const struct model *m)
{
    return space_residency(store__env(m->store)->space);
}

static void apart_go(struct model *m, enum model_apart to)
{
    m->apart.at = (enum model_apart)sh_life_step(&APART_LIFE, m->apart.at, to, m->handle);
}

static bool has_all_blocks(const struct model *m)
{
    return m->apart.has_res && residency_held(device_images(m), m->apart.res) ==
                                   residency_blocks(device_images(m), m->apart.res);
}

bool model_is_apart(const struct model *m)
{
    return m->apart.at == APART_WHOLE && has_all_blocks(m);
}

static double link_ns_per_byte(const struct model *m)
{
    return tx_beta_ns(store__env(m->store)->tx);
}

/* The next run waits for the one or for the other: what a copy brings is unpacked while the rest
 * comes, but for a few layers. */
static bool is_unpacked_quickly(const struct model *m)
{
    const double unpack_ns = (double)m->image_bytes * m->tx.unpack_ns_per_byte;

    return unpack_ns < MOST_SHARE * (double)m->link_bytes * link_ns_per_byte(m);
}

bool apart__is_wanted(const struct model *m)
{
    const struct store_env *env = store__env(m->store);

    return env->keep_packed_percent < APART_NEVER && m->link_ends && m->handle > 0 &&
           !m->apart.has_res && !m->is_pinned && m->tables.n == 0 && is_unpacked_quickly(m) &&
           residency_demand(device_images(m), m->res, sh_clock_ns()) * 100 >
               (uint64_t)arena_blocks(residency_arena(device_images(m))) * env->keep_packed_percent;
}

/* Once nobody holds it. Who unpacks from it when it is lost finds out, or has all that he needs. */
static void give_back(struct model *m)
{
    if (!m->apart.has_res || m->apart.at != APART_NONE ||
        residency_pins(device_images(m), m->apart.res))
        return;
    residency_forget(device_images(m), m->apart.res, 0);
    residency_remove(device_images(m), m->apart.res);
    m->apart.has_res = false;
}

bool apart__place(struct model *m, bool may_evict)
{
    const struct residency_image im = {
        .n_blocks = (uint32_t)((m->link_bytes + DEV_BLOCK - 1) / DEV_BLOCK),
        .keep_blocks = (uint32_t)((m->link_bytes + DEV_BLOCK - 1) / DEV_BLOCK),
        .tag = m->tag,
        .is_whole = true};
    struct tx_place at;

    if (!may_evict && !space_has_spare(store__env(m->store)->space, m->link_bytes))
        return false; /* what is kept free for runs stays so */
    if (residency_add(device_images(m), &im, &m->apart.res, NULL))
        return false;
    m->apart.has_res = true;
    if (space_place(store__env(m->store)->space, m->apart.res, m->link_bytes, may_evict, &at,
                    NULL)) {
        give_back(m);
        return false;
    }
    residency_pin(device_images(m), m->apart.res);
    m->apart.off = at.off;
    m->apart.is_proven = false;
    apart_go(m, APART_COMING);
    return true;
}

void apart__arrived(struct model *m, bool is_lost)
{
    if (m->apart.at != APART_COMING)
        return;
    residency_unpin(device_images(m), m->apart.res);
    apart_go(m, is_lost ? APART_NONE : APART_WHOLE);
    if (!is_lost)
        residency_back(device_images(m), m->res, m->apart.res,
                       m->tx.unpack_ns_per_byte / link_ns_per_byte(m));
    give_back(m);
}

void apart__lose(struct model *m)
{
    if (m->apart.at == APART_COMING)
        residency_unpin(device_images(m), m->apart.res);
    if (m->apart.at != APART_NONE)
        apart_go(m, APART_NONE);
    give_back(m);
}

void apart__look(struct model *m)
{
    if (m->apart.at == APART_WHOLE && !has_all_blocks(m))
        apart__lose(m);
    if (m->apart.at == APART_WHOLE)
        residency_touch(device_images(m), m->apart.res, sh_clock_ns());
}

bool apart__has_lost_source(const struct model *m)
{
    return m->apart.is_source && m->apart.at != APART_COMING && !model_is_apart(m);
}

bool model_waits_for_place(const struct model *m)
{
    return m->apart.is_source && !tx_image_busy(&m->tx) &&
           !space_is_settled(store__env(m->store)->space, m->at.off, m->image_bytes);
}

bool model_hold_apart(struct model *m)
{
    if (!m->apart.is_source || !m->apart.has_res)
        return false;
    residency_pin(device_images(m), m->apart.res);
    m->apart.n_held++;
    return true;
}

void model_let_apart_go(struct model *m)
{
    if (m->apart.n_held == 0)
        return;
    m->apart.n_held--;
    residency_unpin(device_images(m), m->apart.res);
    give_back(m);
}

bool model_yield_apart(struct model *m)
{
    if (!model_is_apart(m) || m->apart.n_held || model_resident_bytes(m) == m->image_bytes)
        return false;
    apart__lose(m);
    return true;
}

void apart__second(struct model *m)
{
    if (m->is_pinned && m->apart.at == APART_WHOLE && !m->apart.is_source && !m->apart.n_held &&
        model_resident_bytes(m) == m->image_bytes)
        apart__lose(m);
}

uint64_t store_apart_bytes(struct store *s)
{
    uint64_t bytes = 0;

    for (const struct model *m = store_next(s, NULL); m; m = store_next(s, m))
        bytes += model_is_apart(m) ? m->link_bytes : 0;
    return bytes;
}
