/* model.c - one model of the store: its image, its tables, and its way to the device. */
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"
#include "executor/models/apart.h"
#include "executor/models/fetch.h"
#include "executor/models/model_int.h"
#include "executor/models/packed.h"
#include "executor/models/seen.h"
#include "executor/models/share.h"
#include "executor/models/sibling.h"
#include "executor/models/tables.h"
#include "executor/models/tier.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_LAYERS 65536u

void model__keep_fd(struct model *m, int fd)
{
    if (m->kept_fd >= 0)
        close(m->kept_fd);
    m->kept_fd = fd;
}

void model__drop_tables(struct model *m)
{
    model_unlock(m);
    tables__forget(m);
    share__forget(m);
    sh_shm_fini(&m->image);
    tx_image_fini(&m->tx);
    tx_image_replan(&m->base->tx); /* perhaps for times of this shape */
    free(m->layer_ends);
    free(m->link_ends);
    free(m->batches);
    free(m->layer_ns);
    free(m->input_offs);
    m->layer_ends = m->link_ends = NULL;
    m->batches = NULL;
    m->layer_ns = NULL;
    m->input_offs = NULL;
    m->n_batches = 0;
}

void model__free(struct model *m)
{
    const struct store_env *env;

    if (!m)
        return;
    env = store__env(m->store);
    if (m->has_image) {
        tx_forget(env->tx, m);
        tx_forget(env->tx, &m->tx);
        while (residency_pins(space_residency(env->space), m->res))
            residency_unpin(space_residency(env->space), m->res);
        while (m->apart.n_held)
            model_let_apart_go(m);
        apart__lose(m);
        residency_remove(space_residency(env->space), m->res);
        sh_metric_drop(M_shunt_resident_bytes, SH_LABELS(env->executor, m->name));
    }
    model__drop_tables(m);
    tier_free(m);
    fetch_free(m);
    blob_set_drop(&m->blobs);
    model__keep_fd(m, -1);
    free(m->tenant);
    free(m->name);
    free(m->package);
    free(m->source);
    free(m->seen.shapes);
    kept_dir_drop(&m->kept);
    free(m->precision);
    free(m);
}

/* ------------------------------------------------------------------ tables */

/* In place of what a try that failed has left there. */
static int copy_blob(struct sh_blob b, void *out, struct sh_err *err)
{
    void *p = malloc(b.len + 1);

    if (!p)
        return SH_FAIL(err, SH_E_NOMEM, "could not keep the tables of a model");
    if (b.len)
        memcpy(p, b.data, b.len);
    free(*(void **)out);
    *(void **)out = p;
    return SH_OK;
}

/* Of all batch sizes: a run of any of them gets as much. */
static uint64_t most_workspace(const struct msg_batch *b, size_t n)
{
    uint64_t most = 0;

    for (size_t i = 0; i < n; i++)
        most = SH_MAX(most, b[i].ws_bytes);
    return most;
}

static int check_tables(const struct model *m, struct sh_err *err)
{
    uint64_t last = 0;

    for (uint32_t i = 0; i < m->n_layers; i++) {
        if (m->layer_ends[i] < last)
            return SH_FAIL(err, SH_E_PROTO, "layer %u of the image ends before it begins", i);
        last = m->layer_ends[i];
    }
    if (last != m->image_bytes)
        return SH_FAIL(err, SH_E_PROTO, "the layers hold %" PRIu64 " bytes, the image %" PRIu64,
                       last, m->image_bytes);
    for (size_t i = 0; i < (size_t)m->n_batches * m->n_layers; i++)
        if (!isfinite(m->layer_ns[i]) || m->layer_ns[i] < 0 || m->layer_ns[i] > 1e15)
            return SH_FAIL(err, SH_E_PROTO, "the profile of the model holds an impossible time");
    return SH_OK;
}

uint64_t model__most_workspace(const struct model *m)
{
    return most_workspace(m->batches, m->n_batches);
}

/* One that is named twice may stand for another: how much its runs need would not be known. */
static int check_batch_order(const struct msg_batch *b, size_t n, struct sh_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (b[i].batch == 0 || (i > 0 && b[i].batch <= b[i - 1].batch))
            return SH_FAIL(err, SH_E_PROTO, "the batch sizes of the model are out of order");
    return SH_OK;
}

/* Batch sizes, and where inputs lie in the workspace of each. */
int model__read_batches(struct model *m, const struct msg_wk_model_done *d, struct sh_err *err)
{
    size_t n = d->batches.len / sizeof(struct msg_batch);
    int rc;

    if (d->batches.len % sizeof(struct msg_batch) || n < 1 || n > MODEL_MAX_BATCHES ||
        d->input_offs.len % (n * sizeof(uint64_t)))
        return SH_FAIL(err, SH_E_PROTO, "the tables of a model have the wrong size");
    m->n_batches = (uint32_t)n;
    m->n_inputs = (uint32_t)(d->input_offs.len / (n * sizeof(uint64_t)));
    rc = copy_blob(d->batches, &m->batches, err);
    if (!rc)
        rc = copy_blob(d->input_offs, &m->input_offs, err);
    return rc ? rc : check_batch_order(m->batches, n, err);
}

static int read_model_tables(struct model *m, const struct msg_wk_model_done *d, struct sh_err *err)
{
    size_t layers = d->layer_ends.len / sizeof(uint64_t);
    int rc = model__read_batches(m, d, err);

    if (rc)
        return rc;
    if (d->layer_ends.len % sizeof(uint64_t) || layers > MAX_LAYERS ||
        d->layer_ns.len != layers * m->n_batches * sizeof(double))
        return SH_FAIL(err, SH_E_PROTO, "the tables of a model have the wrong size");
    m->image_bytes = d->image_bytes;
    m->n_layers = (uint32_t)layers;
    rc = copy_blob(d->layer_ends, &m->layer_ends, err);
    if (!rc)
        rc = copy_blob(d->layer_ns, &m->layer_ns, err);
    if (!rc)
        rc = shapes__read_sizes(d->sizes, &m->sizes, err);
    if (!rc)
        rc = check_tables(m, err);
    if (!rc)
        rc = tables__read(m, d->n_tables, err);
    return rc ? rc : packed__read(m, d->link_ends, err);
}

static int take_image(struct model *m, const struct msg_wk_model_done *d, int *fds, size_t n_fds,
                      struct sh_err *err)
{
    const struct store_env *env = store__env(m->store);
    int rc = SH_OK;

    if (n_fds == 0 && d->was_kept && m->kept_fd >= 0)
        return sh_shm_map_file(m->kept_fd, d->image_at, (size_t)m->link_bytes, &m->image, err);
    if (n_fds != 1)
        return SH_FAIL(err, SH_E_PROTO, "a built model came without its image");
    if (!m->image.base)
        rc = sh_shm_map(fds[0], (size_t)SH_MAX(m->link_bytes, (uint64_t)1), false, &m->image, err);
    if (rc)
        return rc;
    fds[0] = -1;
    return HOOK_ASK(env->hooks, locks_images, true) ? model_lock(m, err) : SH_OK;
}

int model_check_fits(struct model *m, uint64_t ws, struct sh_err *err)
{
    const struct store_env *env = store__env(m->store);
    uint64_t need = SH_ALIGN_UP(m->room_bytes, DEV_BLOCK) + SH_ALIGN_UP(ws, DEV_BLOCK);
    int rc = dev_check_fits(dev_mem_bytes(env->mem), m->room_bytes, ws,
                            m->batches[m->n_batches - 1].batch, false, err);

    if (!rc)
        rc = space_check_max(env->space, m->tag, need, "the model", err);
    m->need_bytes = rc ? need : 0;
    return rc;
}

int model_check_more(struct model *m, uint64_t ws, struct sh_err *err)
{
    struct model *b = m->base;
    struct sh_err why = {0};
    int rc;

    m->room_bytes = b->room_bytes;
    rc = model_check_fits(m, ws, &why);
    if (rc && b->spare_bytes) {
        m->room_bytes = packed__least_room(b);
        why = (struct sh_err){0};
        rc = model_check_fits(m, ws, &why);
        b->room_bytes = packed__room(b); /* it may be m */
        if (!rc)
            packed__give_spare(b);
    }
    return rc ? sh_err_copy(err, &why) : SH_OK;
}

int model__take_tables(struct model *m, const struct msg_wk_model_done *d, int *fds, size_t n_fds,
                       struct sh_err *err)
{
    const struct store_env *env = store__env(m->store);
    struct residency_image im = {.tag = m->tag};
    int rc = read_model_tables(m, d, err);

    if (!rc)
        rc = model_check_fits(m, model__most_workspace(m), err);
    if (!rc) {
        packed__take_spare(m, model__most_workspace(m));
        rc = take_image(m, d, fds, n_fds, err);
    }
    if (rc)
        goto fail;
    m->tx = packed__tx(m);
    im.n_blocks = packed__blocks(m->room_bytes);
    im.unpacked_blocks = packed__blocks(tables__at(m));
    im.short_blocks = packed__short_blocks(m);
    im.keep_blocks = packed__blocks(tx_keep_bytes(env->tx, &m->tx, m->layer_ns));
    rc = residency_add(space_residency(env->space), &im, &m->res, err);
    if (rc)
        goto fail;
    m->tx.slot = TX_SLOT_IMAGE + m->res;
    /* The slot may have served another image: go on from its value. */
    m->tx.value = dev_ticket_value(env->mem, m->tx.slot);
    m->has_image = true;
    residency_set_short(space_residency(env->space), m->res, m->tables.n > 0);
    if (m->image.fd >= 0)
        tables__open(m, m->image.fd, 0);
    else
        tables__open(m, m->kept_fd, d->image_at);
    return SH_OK;
fail: /* it may be built again */
    model__drop_tables(m);
    return rc;
}

static struct msg_batch *batch_row(const struct model *m, uint32_t batch)
{
    for (uint32_t i = 0; i < m->n_batches; i++)
        if (m->batches[i].batch == batch)
            return &m->batches[i];
    return NULL;
}

int model__agree(struct model *m, const struct msg_wk_model_done *d, struct sh_err *err)
{
    size_t n = d->batches.len / sizeof(struct msg_batch);
    struct msg_batch theirs[MODEL_MAX_BATCHES];
    int rc;

    if (d->image_bytes != m->image_bytes || d->n_tables != m->base->tables.n ||
        d->layer_ends.len != m->n_layers * sizeof(uint64_t) ||
        (m->n_layers && memcmp(d->layer_ends.data, m->base->layer_ends, d->layer_ends.len) != 0))
        return SH_FAIL(err, SH_E_BUG, "a worker compiled the model to another image");
    if (d->batches.len % sizeof(theirs[0]) || n < 1 || n > m->n_batches)
        return SH_FAIL(err, SH_E_PROTO, "the table of batch sizes of a model has the wrong size");
    memcpy(theirs, d->batches.data, d->batches.len);
    for (size_t i = 0; i < n; i++)
        if (!batch_row(m, theirs[i].batch))
            return SH_FAIL(err, SH_E_BUG, "a worker compiled the model for a batch of %u",
                           theirs[i].batch);
    rc = check_batch_order(theirs, n, err);
    if (!rc)
        rc = model_check_more(m, most_workspace(theirs, n), err);
    for (size_t i = 0; !rc && i < n; i++) {
        struct msg_batch *b = batch_row(m, theirs[i].batch);

        b->ws_bytes = SH_MAX(b->ws_bytes, theirs[i].ws_bytes);
        if (d->input_offs.len != n * m->n_inputs * sizeof(uint64_t) ||
            memcmp((const uint64_t *)d->input_offs.data + i * m->n_inputs,
                   m->input_offs + (size_t)(b - m->batches) * m->n_inputs,
                   m->n_inputs * sizeof(uint64_t)) != 0)
            m->n_inputs = 0; /* it chose other kernels: each brings them itself */
    }
    return rc;
}

const struct msg_batch *model_batch(const struct model *m, uint32_t batch, const double **layer_ns)
{
    for (uint32_t i = 0; i < m->n_batches; i++)
        if (m->batches[i].batch >= batch) {
            *layer_ns = m->layer_ns + (size_t)i * m->n_layers;
            return &m->batches[i];
        }
    return NULL;
}

/* ------------------------------------------------------------------ on the device */

static struct residency *residency_of(const struct model *m)
{
    return space_residency(store__env(m->store)->space);
}

uint64_t model_resident_bytes(const struct model *m)
{
    uint64_t held;

    if (!m->has_image || m->is_broken)
        return 0;
    held = (uint64_t)residency_held(residency_of(m), m->res) * DEV_BLOCK;
    if (m->tables.at != TABLES_HERE ||
        residency_held(residency_of(m), m->res) < residency_blocks(residency_of(m), m->res))
        held = SH_MIN(held, tables__at(m));
    return packed__usable(m, SH_MIN(held, m->image_bytes));
}

/* What a pin holds cannot be given up: until the last one goes the image is there, with who knows
 * what in it, and nobody may take it for whole. */
static void forget_lost_image(struct model *m)
{
    struct residency *res = residency_of(m);

    if (!m->is_lost || residency_pins(res, m->res))
        return;
    m->is_lost = m->is_broken = false;
    tables__end(m, false);
    residency_forget(res, m->res, 0);
    tables__settle(m);
    packed__forget(m);
}

static bool loses_last_pin(struct model *m)
{
    struct residency *res = residency_of(m);

    residency_unpin(res, m->res);
    forget_lost_image(m);
    return HOOK_ASK(store__env(m->store)->hooks, drops_idle, false) &&
           residency_pins(res, m->res) == 0;
}

void model_unpin(struct model *m)
{
    if (loses_last_pin(m))
        residency_truncate(residency_of(m), m->res, 0);
}

void model__unpin_part(struct model *m)
{
    if (loses_last_pin(m))
        residency_forget(residency_of(m), m->res, 0);
}

void model__arrived(void *arg)
{
    struct model *m = arg;

    m->has_mark = false;
    tx_image_arrived(store__env(m->store)->tx, &m->tx);
    m->is_lost = m->is_broken;
    apart__arrived(m, m->is_lost);
    tables__end(m, !m->is_broken);
    model_unpin(m);
    if (m->is_lost) /* PREPARE has announced what will not be there */
        model_unkeep(m, INT64_MAX);
}

/* Copies that were enqueued before the failure still write to the range: it stays pinned until the
 * lane has passed them. If even that cannot be asked for, the next tick asks again. */
static void ask_mark(struct model *m)
{
    if (m->is_broken && !m->is_lost && !m->has_mark)
        m->has_mark = !tx_mark(store__env(m->store)->tx, TX_LANE_IN, model__arrived, m, NULL);
}

void model__break(struct model *m)
{
    m->is_broken = true;
    ask_mark(m);
    if (!m->has_mark)
        SH_ERROR("model.broken", "version=%" PRId64 " msg=\"the device takes no copies\"",
                 m->handle);
}

void model__give_up_copy(struct model *m)
{
    if (m->rest == MODEL_REST_NONE)
        return;
    m->rest = MODEL_REST_NONE;
    tx_image_force(store__env(m->store)->tx, &m->tx);
    tx_image_fini(&m->tx);
    model__break(m);
}

/* Nothing of it needs the link: a run unpacks all of it from its packed copy. */
static int place_unpacked(struct model *m, bool may_evict, struct sh_err *err)
{
    struct residency *res = residency_of(m);
    int rc;

    residency_forget(res, m->res, 0);
    residency_pin(res, m->apart.res);
    rc = space_place(store__env(m->store)->space, m->res, m->image_bytes, may_evict, &m->at, err);
    residency_unpin(res, m->apart.res);
    if (rc)
        return rc;
    m->is_placed = false;
    m->tx.lacks = 0;
    packed__take_apart(m);
    return SH_OK;
}

/* Copies of it are under way: of all that it needs? Those of tables that nobody waits for go on as
 * they do. */
static int join_copies(struct model *m, bool with_tables, struct sh_err *err)
{
    const bool needs_all = with_tables || m->tx.sent_bytes < tx_needed_bytes(&m->tx);

    if (with_tables && m->tables.n && m->tables.at == TABLES_AWAY)
        return SH_FAIL(err, SH_E_DEVMEM, "the model's memory is being filled; try again");
    if (m->rest != MODEL_REST_NONE && needs_all)
        m->rest = MODEL_REST_ASKED;
    residency_touch(residency_of(m), m->res, sh_clock_ns());
    return SH_OK;
}

/* As many bytes of the image, as they lie on the device, as it has memory for. */
static uint64_t place_bytes(const struct model *m)
{
    return m->tables.n == 0 ? m->image_bytes : m->at.with_tables ? m->room_bytes : tables__at(m);
}

/* Tables lie behind where packed layers lie, or lay: nothing comes there any more once they are
 * unpacked, and the memory may be another one than then. had: so many blocks came along. */
static int scrub_before_tables(struct model *m, uint32_t had, struct sh_err *err)
{
    const uint64_t from = SH_MAX(tables__at(m), (uint64_t)had * DEV_BLOCK);
    const uint64_t to = m->tx.shift + tx_needed_bytes(&m->tx);

    if (m->tables.at != TABLES_COMING || from >= to)
        return SH_OK;
    return space_scrub(store__env(m->store)->space, m->res, from, to - from, err);
}

int model__place(struct model *m, bool with_tables, bool may_evict, uint64_t *hit_out,
                 struct sh_err *err)
{
    uint64_t held, wanted;
    uint32_t had;
    bool goes_apart;
    int rc = SH_OK;

    *hit_out = m->image_bytes;
    ask_mark(m);
    if (m->is_broken)
        return SH_FAIL(err, SH_E_UNAVAILABLE, "the model's memory is being recovered; try again");
    rc = packed__settle(m, err);
    if (rc)
        return rc;
    if (tx_image_busy(&m->tx))
        return join_copies(m, with_tables, err);
    tables__settle(m);
    apart__look(m);
    held = model_resident_bytes(m);
    with_tables |= m->tables.at == TABLES_HERE;
    wanted = with_tables ? m->image_bytes : tables__at(m);
    if (held < wanted && model_is_apart(m))
        return place_unpacked(m, may_evict, err);
    goes_apart = held < wanted && apart__is_wanted(m);
    if (held < wanted)
        rc = tier_bring(m, goes_apart ? 0 : held, may_evict, err);
    if (!rc)
        rc = tables__begin(m, with_tables, err);
    had = residency_held(residency_of(m), m->res);
    if (!rc) {
        m->at.with_tables = with_tables;
        rc = space_place(store__env(m->store)->space, m->res, place_bytes(m), may_evict, &m->at,
                         err);
        m->at.with_tables = with_tables;
    }
    if (!rc)
        rc = scrub_before_tables(m, had, err);
    if (rc) {
        tables__end(m, false);
        return rc;
    }
    if (m->tables.at != TABLES_HERE) /* what else may lie there */
        m->at.resident = SH_MIN(m->at.resident, held);
    m->at.resident = SH_MIN(m->at.resident, wanted);
    m->is_placed = m->at.resident < wanted || m->at.moved;
    if (m->is_placed)
        residency_pin(residency_of(m), m->res);
    goes_apart = goes_apart && apart__place(m, may_evict); /* else in place, as without it */
    if (goes_apart)
        m->at.resident = 0; /* a packed copy has all layers, or is none */
    *hit_out = m->at.resident;
    if (!goes_apart && m->at.resident < wanted)
        sibling__bring(m, wanted);
    tier_needs(m, m->at.resident);
    return SH_OK;
}

int model_place(struct model *m, uint64_t *hit_out, struct sh_err *err)
{
    const bool with_tables = !model_reads_in_place(m);

    if (with_tables && m->tables.at == TABLES_AWAY && m->tables.n)
        model_unkeep(m, INT64_MAX); /* it may have to move */
    return model__place(m, with_tables, true, hit_out, err);
}

int model_transmit_begin(struct model *m, const double *layer_ns, struct sh_err *err)
{
    struct tx_place at = m->at;
    int rc;

    if (!m->is_placed)
        return SH_OK;
    m->is_placed = false;
    packed__send(m);
    if (m->apart.is_source)
        at.off = m->apart.off;
    rc = tx_load_begin(store__env(m->store)->tx, &m->tx, &at, layer_ns, err);
    m->rest = rc ? MODEL_REST_NONE : MODEL_REST_ASKED;
    if (rc)
        model__break(m);
    return rc;
}

int model_transmit_rest(struct model *m, struct sh_err *err)
{
    const struct store_env *env = store__env(m->store);
    int rc;

    if (m->rest == MODEL_REST_NONE)
        return SH_OK;
    rc = tx_load_rest(env->tx, &m->tx, model__arrived, m, err);
    m->rest = !rc && tx_load_waits(&m->tx) ? MODEL_REST_ASKED : MODEL_REST_NONE;
    m->has_mark = !rc && m->rest == MODEL_REST_NONE;
    if (rc) {
        tx_image_force(env->tx, &m->tx);
        model__break(m);
    }
    return rc;
}

static int transmit(struct model *m, const double *layer_ns, bool with_tables, bool may_evict,
                    struct sh_err *err)
{
    uint64_t hit;
    int rc = model__place(m, with_tables, may_evict, &hit, err);

    if (!rc)
        rc = model_transmit_begin(m, layer_ns, err);
    return rc ? rc : model_transmit_rest(m, err);
}

int model_transmit(struct model *m, const double *layer_ns, struct sh_err *err)
{
    return transmit(m, layer_ns, true, true, err);
}

double model_tail_ns(const struct model *m, const double *layer_ns)
{
    return m->has_image ? tx_tail_ns(store__env(m->store)->tx, &m->tx, layer_ns) : 0;
}

static void prepare_image(struct model *m, bool may_evict)
{
    const struct store_users *u = store__users(m->store);
    const struct store_env *env = store__env(m->store);
    const uint64_t held = m->has_image ? model_resident_bytes(m) : 0;
    const double *layer_ns;

    if (m->phase != MODEL_READY || !m->has_image || !model_batch(m, 1, &layer_ns) ||
        u->wants_memory(u->arg) || !HOOK_ASK(env->hooks, has_memory, true))
        return;
    /* Nobody may have been let in for it: it takes no more host memory than there is. */
    if (held < m->image_bytes && model_is_apart(m))
        return; /* it needs no link, and memory only when it runs */
    if (!m->is_broken && !tx_image_busy(&m->tx) && held < model_run_bytes(m) &&
        tier_bring(m, held, false, NULL)) /* what comes already has been asked for */
        return;
    if (transmit(m, layer_ns, !model_reads_in_place(m), may_evict, NULL))
        return; /* no room without hurting others: the run will make it */
    m->keep_until_ns = sh_clock_ns() + RESIDENCY_KEEP_NS;
    if (!m->is_kept)
        residency_pin(residency_of(m), m->res);
    m->is_kept = true;
}

void model_prepare(struct model *m, bool may_evict)
{
    const bool was_whole = m->has_image && model_resident_bytes(m) >= model_run_bytes(m);

    prepare_image(m, may_evict);
    if (!was_whole)
        store_tell_place(m);
}

void model_unkeep(struct model *m, int64_t now_ns)
{
    if (!m->is_kept || now_ns < m->keep_until_ns)
        return;
    m->is_kept = false;
    residency_unpin(residency_of(m), m->res);
    forget_lost_image(m);
}

bool store_unkeep_all(struct store *s)
{
    bool any = false;

    for (struct model *m = store_next(s, NULL); m; m = store_next(s, m)) {
        any |= m->is_kept;
        model_unkeep(m, INT64_MAX);
    }
    return any;
}

void store_tick(struct store *s, int64_t now_ns)
{
    for (struct model *m = store_next(s, NULL); m; m = store_next(s, m)) {
        model_unkeep(m, now_ns);
        ask_mark(m);
        tier_tick(m);
        packed__tick(m);
        fetch_tick(m, now_ns);
    }
    share__tick(s);
}

void model_force(struct model *m)
{
    const struct store_env *env = store__env(m->store);

    if (!tx_image_busy(&m->tx))
        return;
    SH_ERROR("switch.stuck", "version=%" PRId64 " ms=%lld", m->handle,
             (long long)((sh_clock_ns() - m->tx.sent_ns) / SH_MS(1)));
    tx_image_force(env->tx, &m->tx);
    m->is_broken = true; /* its mark, should it ever come, gives the range back */
}

/* ------------------------------------------------------------------ who uses them */

void store_hold(struct model *version, struct model *shape)
{
    version->n_users++;
    if (shape != version)
        shape->n_users++;
    shape->is_asked = true;
    seen_count(version, &shape->sizes);
}

void store_let_go(struct model *version, struct model *shape)
{
    if (shape && shape != version)
        shape->n_users--;
    if (version)
        version->n_users--;
}

void store_note_use(struct model *version, struct model *shape)
{
    version->last_use_ns = shape->last_use_ns = sh_clock_ns();
}
