/* packed.c - images that travel packed (runtime/pack/pack.h). A packed layer on the device is of no
 * use until the worker of a run has unpacked it, and then it is gone: the layers before it lie
 * where it was. So the first layer that is still packed says what of the image can be used, and
 * what a run is told to unpack.
 *
 *   n_layers -> i         layers from i on are sent: to a run, or ahead of one       [packed__send]
 *   i -> j, j > i         a run has unpacked so many                            [model_on_unpacked]
 *   i -> n_layers         ... or all of them; or it has lost blocks, or a worker died or met
 *                         damage while it unpacked: layers from i on are forgotten
 *                                                                                [packed__settle]
 *
 * Where a packed copy lies apart (apart.h), it is unpacked from there, and nothing of that is lost
 * by it: a worker that dies leaves layers that are unpacked again.
 *
 * Nobody moves an image while packed layers are in it: only one that lost blocks is moved.
 */
#include "executor/models/packed.h"

#include "common/log.h"
#include "common/mem.h"
#include "executor/models/apart.h"
#include "executor/models/model_int.h"
#include "executor/models/tables.h"
#include "executor/models/tier.h"
#include "runtime/pack/layers.h"
#include "runtime/pack/pack.h"

#include <inttypes.h>
#include <stdlib.h>

/* To write a block of device memory; measured on an H200, and on one core. It only has to be about
 * right: layers are unpacked in a tenth of the time of their copies. */
#define QUEUED_NS_PER_BLOCK 1678.0
#define HOST_NS_PER_BLOCK 4.2e6

/* A launch may not write over what is still packed, so with the shortest range that will do, the
 * layers of a group take several launches. With so much more, they take one; it is given back when
 * they are unpacked. */
#define SPARE_MOST ((uint64_t)8 << 20)
#define SPARE_SHARE 8 /* of an image, at most one of so many parts */

static struct residency *places(const struct model *m)
{
    return space_residency(store__env(m->store)->space);
}

/* Tables never are: who reads them in host memory wants them as they are. */
static uint32_t n_packable(const struct model *m)
{
    return m->n_layers - m->tables.n;
}

static uint64_t least_shift(const struct model *m)
{
    return SH_ALIGN_UP(pack_shift(m->layer_ends, m->link_ends, n_packable(m)), (uint64_t)DEV_ALIGN);
}

/* Where the packed image lies in its range. */
static uint64_t shift_of(const struct model *m)
{
    return least_shift(m) + m->spare_bytes;
}

uint64_t packed__room(const struct model *m)
{
    return SH_MAX(m->image_bytes, shift_of(m) + m->link_bytes);
}

uint64_t packed__least_room(const struct model *m)
{
    return m->spare_bytes ? SH_MAX(m->image_bytes, least_shift(m) + m->link_bytes) : m->room_bytes;
}

static int check_link_ends(const struct model *m, struct sh_err *err)
{
    const uint64_t pool = dev_mem_bytes(store__env(m->store)->mem);
    uint64_t most, last = 0;

    if (m->image_bytes > pool) /* nor would what follows be sure to be a number */
        return SH_FAIL(err, SH_E_PROTO, "a packed image of %" PRIu64 " bytes does not fit",
                       m->image_bytes);
    most = pack_bound(m->image_bytes, 0) + m->n_layers * pack_bound(0, 0);
    for (uint32_t i = 0; i < m->n_layers; last = m->link_ends[i++])
        if (m->link_ends[i] < last || m->link_ends[i] % PACK_ALIGN)
            return SH_FAIL(err, SH_E_PROTO, "packed layer %u ends before it begins", i);
    for (uint32_t i = n_packable(m); i < m->n_layers; i++)
        if (m->link_ends[i] !=
            SH_ALIGN_UP(m->link_ends[n_packable(m) - 1], (uint64_t)DEV_TABLES_ALIGN) +
                (m->layer_ends[i] - m->layer_ends[n_packable(m) - 1]))
            return SH_FAIL(err, SH_E_PROTO, "layer %u of tables is packed", i);
    return last > 0 && last <= 2 * most + DEV_TABLES_ALIGN
               ? SH_OK
               : SH_FAIL(err, SH_E_PROTO, "the packed layers hold %" PRIu64 " bytes", last);
}

static double unpack_ns_per_byte(const struct store_env *env)
{
    return (dev_mem_is_queued(env->mem) ? QUEUED_NS_PER_BLOCK : HOST_NS_PER_BLOCK) / DEV_BLOCK;
}

void packed__ask(const struct model *m, struct msg_wk_model *to)
{
    const struct store_env *env = store__env(m->store);

    /* Measurements that hand images to workers want them as they are. */
    to->pack = HOOK_ASK(env->hooks, maps_images, true) ? env->packs : MSG_PACK_NEVER;
    if (m->has_image) /* it is made again for its file: as it is */
        to->pack = m->link_ends ? MSG_PACK_ALWAYS : MSG_PACK_NEVER;
    to->unpack_ns = unpack_ns_per_byte(env);
}

uint64_t packed__stored(const struct model *m, const struct msg_wk_model_done *d)
{
    const size_t n = d->link_ends.len / sizeof(uint64_t);

    if (m->base != m)
        return 0;
    return n ? ((const uint64_t *)d->link_ends.data)[n - 1] : d->image_bytes;
}

int packed__read(struct model *m, struct sh_blob link_ends, struct sh_err *err)
{
    int rc;

    free(m->link_ends);
    m->link_ends = NULL;
    m->link_bytes = m->room_bytes = m->image_bytes;
    m->spare_bytes = 0;
    m->gives_spare = false;
    m->packed_from = n_packable(m);
    if (link_ends.len == 0)
        return SH_OK;
    if (link_ends.len != m->n_layers * sizeof(*m->link_ends))
        return SH_FAIL(err, SH_E_PROTO, "the tables of a model have the wrong size");
    m->link_ends = malloc(link_ends.len);
    if (!m->link_ends)
        return SH_FAIL(err, SH_E_NOMEM, "could not keep the tables of a model");
    memcpy(m->link_ends, link_ends.data, link_ends.len);
    rc = check_link_ends(m, err);
    if (rc)
        return rc;
    m->link_bytes = m->link_ends[m->n_layers - 1];
    m->room_bytes = packed__room(m);
    return SH_OK;
}

/* Packed layers begin right behind the image at the latest: what lies further away lies apart, as a
 * worker sees it. */
static uint64_t longest_spare(const struct model *m)
{
    const uint64_t shift = least_shift(m);
    const uint64_t most = m->image_bytes > shift ? m->image_bytes - shift : 0;

    return SH_MIN(most, SH_MIN(SPARE_MOST, m->image_bytes / SPARE_SHARE)) / DEV_ALIGN * DEV_ALIGN;
}

void packed__take_spare(struct model *m, uint64_t ws)
{
    if (!m->link_ends)
        return;
    m->spare_bytes = longest_spare(m);
    m->room_bytes = packed__room(m);
    if (model_check_fits(m, ws, NULL) == SH_OK)
        return;
    m->spare_bytes = 0;
    m->room_bytes = packed__room(m);
    model_check_fits(m, ws, NULL);
}

void packed__give_spare(struct model *m)
{
    m->gives_spare = m->spare_bytes > 0;
    packed__tick(m);
}

void packed__tick(struct model *m)
{
    if (!m->gives_spare || m->is_broken || tx_image_busy(&m->tx) ||
        residency_pins(places(m), m->res))
        return;
    residency_forget(places(m), m->res, 0); /* another range */
    tables__settle(m);
    packed__forget(m);
    m->gives_spare = false;
    m->spare_bytes = 0;
    m->room_bytes = packed__room(m);
    m->tx.shift = shift_of(m);
    residency_set_range(places(m), m->res, packed__blocks(m->room_bytes), packed__short_blocks(m));
}

uint32_t packed__blocks(uint64_t bytes)
{
    return (uint32_t)((bytes + DEV_BLOCK - 1) / DEV_BLOCK);
}

uint32_t packed__short_blocks(const struct model *m)
{
    return m->tables.n == 0
               ? 0
               : packed__blocks(SH_MAX(tables__at(m), m->tx.shift + tx_needed_bytes(&m->tx)));
}

struct tx_image packed__tx(const struct model *m)
{
    struct tx_image im = {.host = m->image.base,
                          .bytes = m->link_bytes,
                          .n_layers = m->n_layers,
                          .n_tables = m->tables.n,
                          .layer_ends = m->layer_ends};

    if (!m->link_ends)
        return im;
    im.layer_ends = m->link_ends;
    im.device_ends = m->layer_ends;
    im.shift = shift_of(m);
    im.unpack_ns_per_byte = unpack_ns_per_byte(store__env(m->store));
    return im;
}

/* Are its packed layers of no use any more? */
static bool has_lost_packed(const struct model *m)
{
    return m->packed_from < n_packable(m) &&
           (m->is_spoiled || apart__has_lost_source(m) ||
            residency_held(places(m), m->res) < residency_blocks(places(m), m->res));
}

uint64_t packed__usable(const struct model *m, uint64_t held)
{
    return has_lost_packed(m) ? SH_MIN(held, layer_begin(m->layer_ends, m->packed_from)) : held;
}

int packed__settle(struct model *m, struct sh_err *err)
{
    const uint32_t blocks = (uint32_t)(layer_begin(m->layer_ends, m->packed_from) / DEV_BLOCK);

    if (!m->has_image || !has_lost_packed(m))
        return SH_OK;
    model_unkeep(m, INT64_MAX);
    if (residency_pins(places(m), m->res))
        return SH_FAIL(err, SH_E_DEVMEM, "the model's memory is being recovered; try again");
    residency_forget(places(m), m->res, blocks); /* where it was not unpacked, it is not ours */
    packed__forget(m);
    return SH_OK;
}

void packed__send(struct model *m)
{
    uint32_t i = 0;

    if (!m->link_ends)
        return;
    while (i < n_packable(m) && m->layer_ends[i] <= m->at.resident)
        i++;
    m->packed_from = m->tables.n ? SH_MIN(m->packed_from, i) : i; /* some may wait to be unpacked */
    m->apart.is_source = m->apart.at == APART_COMING;
    m->tx.shift = m->apart.is_source ? 0 : shift_of(m);
    residency_set_packed(places(m), m->res, m->packed_from < n_packable(m));
}

void packed__take_apart(struct model *m)
{
    m->packed_from = 0;
    m->apart.is_source = true;
    residency_set_packed(places(m), m->res, m->n_layers > 0);
}

void packed__forget(struct model *m)
{
    m->packed_from = n_packable(m);
    m->is_spoiled = m->apart.is_source = false;
    residency_set_packed(places(m), m->res, false);
}

/* ------------------------------------------------------------------ runs */

uint64_t model_link_bytes(const struct model *m, uint64_t from)
{
    const uint64_t all = m->at.with_tables ? m->link_bytes : tx_needed_bytes(&m->tx);

    return all - SH_MIN(all, tx_link_bytes(&m->tx, from));
}

int64_t model_unpack_ns(const struct model *m)
{
    const uint64_t done = m->has_image ? layer_begin(m->layer_ends, m->packed_from) : 0;

    if (model_is_apart(m) && model_resident_bytes(m) < m->image_bytes)
        return (int64_t)((double)m->image_bytes * m->tx.unpack_ns_per_byte);
    if (!m->has_image || m->is_broken || m->packed_from == n_packable(m) || has_lost_packed(m))
        return 0;
    return (int64_t)((double)(tables__at(m) - done) * m->tx.unpack_ns_per_byte);
}

bool model_tell_packed(const struct model *m, struct msg_wk_run *r)
{
    if (m->packed_from == n_packable(m) || !m->link_ends)
        return false;
    r->packed_from = m->packed_from;
    r->packed_at = m->apart.is_source ? m->apart.off : m->at.off + m->tx.shift;
    r->link_ends = (struct sh_blob){m->link_ends, m->n_layers * sizeof(*m->link_ends)};
    return true;
}

static void note_unpacked(struct model *m, uint32_t unpacked)
{
    if (m->is_spoiled)
        return;
    m->packed_from = SH_MAX(m->packed_from, SH_MIN(unpacked, n_packable(m)));
    m->apart.is_proven |= m->apart.is_source && m->packed_from == n_packable(m);
    m->apart.is_source &= m->packed_from < n_packable(m);
    residency_set_packed(places(m), m->res, m->packed_from < n_packable(m));
}

/* What lies apart is as it was: it is unpacked again. */
void model_spoil(struct model *m)
{
    m->is_spoiled = m->packed_from < n_packable(m) && !m->apart.is_source;
}

bool model_is_spoiled(const struct model *m)
{
    return m->is_spoiled;
}

/* What was to be unpacked is not what was packed: the version unloads itself. */
static void give_up_damaged(struct model *m)
{
    struct sh_err err = {0};

    SH_FAIL(&err, SH_E_UNAVAILABLE, "the weights of version %" PRId64 " are damaged in host memory",
            m->handle);
    tier_lose(m, &err);
}

void model_on_unpacked(struct model *m, const struct msg_wk_run_done *d, bool is_sure)
{
    if (d->packed != MSG_PACKED_DAMAGED)
        note_unpacked(m, d->unpacked);
    if (d->packed != MSG_PACKED_KNOWN)
        model_spoil(m);
    if (d->packed != MSG_PACKED_DAMAGED || !is_sure)
        return;
    if (m->apart.is_source && m->apart.is_proven)
        apart__lose(m); /* it was sound once: what host memory has is copied again */
    else
        give_up_damaged(m);
}
