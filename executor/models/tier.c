/* tier.c - see tier.h. */
#include "executor/models/tier.h"

#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "executor/files/disk.h"
#include "executor/memory/leave.h"
#include "executor/models/host.h"
#include "executor/models/keep.h"
#include "executor/models/model_int.h"
#include "executor/models/share.h"
#include "executor/models/tables.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define TIER_READS 2u /* pieces asked for at a time: the disk never waits for the loop */

struct tier_read {
    struct disk_task task;
    struct model *model;
    uint32_t piece;
    bool is_out;
};

/* ------------------------------------------------------------------ leaving */

/* Of which a file is kept, and which nobody is about to copy from. */
static bool may_image_leave(const struct model *m)
{
    return m->phase == MODEL_READY && m->has_image && m->link_bytes && !m->n_users &&
           !m->is_pinned && !m->is_kept && !m->is_broken && !m->is_placed &&
           m->rest == MODEL_REST_NONE && !tx_image_busy(&m->tx) && m->tier.at == TIER_HOST &&
           !m->is_unkept && !share__is_at(m) && kept_dir_has(&m->kept);
}

/* Of all images in host memory, but that of spare. *n_out 0: no memory for the list. */
static struct leave_image *list_images(struct store *s, const struct model *spare, size_t *n_out)
{
    struct residency *res = space_residency(store__env(s)->space);
    struct leave_image *v = calloc(store_size(s) + 1, sizeof(*v));

    *n_out = 0;
    for (struct model *m = store_next(s, NULL); v && m; m = store_next(s, m)) {
        const struct residency_quota q = residency_quota(res, m->tag);

        if (m == spare || !m->image.base || m->handle < 0)
            continue;
        v[(*n_out)++] = (struct leave_image){.tag = m->tag,
                                             .min_bytes = (uint64_t)q.min_blocks * DEV_BLOCK,
                                             .share = q.share,
                                             .bytes = share__bytes(m),
                                             .frees = share__frees(m),
                                             .last_use_ns = SH_MAX(m->last_use_ns, m->build_ns),
                                             .may_leave = may_image_leave(m),
                                             .owner = m};
    }
    return v;
}

static void choose_images(struct store *s, struct leave_image *v, size_t n, uint32_t only_tag,
                          uint64_t bytes)
{
    /* Measurements hand images to workers. */
    if (n && HOOK_ASK(store__env(s)->hooks, maps_images, true))
        leave_choose(v, n, host_limit(s), only_tag, bytes);
}

uint64_t tier_room(struct store *s, uint32_t only_tag, const struct model *spare)
{
    size_t n;
    struct leave_image *v = list_images(s, spare, &n);
    uint64_t bytes;

    choose_images(s, v, n, only_tag, LEAVE_ALL);
    bytes = share__free_bytes(v, n);
    free(v);
    return bytes;
}

static int open_kept_image(struct model *m, struct sh_err *err)
{
    uint32_t batches[MODEL_MAX_BATCHES];
    struct kept_about about = keep_about(m, batches);
    int fd = kept_dir_open(&m->kept);
    int rc = fd < 0 ? SH_FAIL_ERRNO(err, SH_E_IO, "could not open what is kept of a model")
                    : sh_unhex(m->kept.key, about.key, sizeof(about.key), err);

    if (!rc)
        rc = kept_open_pieces(fd, &about, &m->tier.pieces, err);
    if (rc && fd >= 0)
        close(fd);
    return rc;
}

static void let_memory_go(struct model *m)
{
    share__leave(m);
    model_unlock(m);
    sh_shm_fini(&m->image);
    m->image = (struct sh_shm){.fd = -1};
    m->tx.host = NULL;
}

/* What of it the device has would come back from disk. */
static void set_costly(const struct model *m, bool is_costly)
{
    residency_set_costly(space_residency(store__env(m->store)->space), m->res, is_costly);
}

/* False: it stays. */
static bool leave_memory(struct model *m, uint64_t *freed)
{
    const uint64_t bytes = share__frees(m);
    const char *executor = store__env(m->store)->executor;
    struct sh_err err = {0};

    if (open_kept_image(m, &err)) {
        sh_log_err(SH_LOG_WARN, "image.stays", &err);
        m->is_unkept = true; /* it is made once more, to be kept */
        return false;
    }
    tables__close(m);
    let_memory_go(m);
    m->tier.at = TIER_DISK;
    set_costly(m, true);
    m->tier.is_over = false;
    m->tier.first = m->tier.n_read = 0;
    sh_metric_add(M_shunt_evicted_bytes_total, SH_LABELS(executor, "hostmemory"), (double)bytes);
    SH_INFO("image.disk", "version=%" PRId64 " model=%s bytes=%" PRIu64 " rule=hostmemory",
            m->handle, m->name, bytes);
    store_tell_place(m);
    *freed += bytes;
    return true;
}

/* False: none left. */
static bool make_some_room(struct store *s, uint64_t bytes, uint32_t only_tag,
                           const struct model *spare, uint64_t *freed)
{
    size_t n;
    struct leave_image *v = list_images(s, spare, &n);
    bool any = false;

    choose_images(s, v, n, only_tag, bytes);
    for (size_t i = n; i-- > 0;)
        any |= v[i].leaves && leave_memory(v[i].owner, freed);
    free(v);
    return any;
}

uint64_t tier_make_room(struct store *s, uint64_t bytes, uint32_t only_tag,
                        const struct model *spare)
{
    uint64_t freed = 0;

    while (freed < bytes && make_some_room(s, bytes - freed, only_tag, spare, &freed))
        ;
    return freed;
}

/* ------------------------------------------------------------------ coming back */

/* What of the image is not there yet if the device has its first bytes. */
static uint64_t lacks(const struct model *m, uint64_t on_device)
{
    const struct tier *t = &m->tier;
    const uint64_t from = tx_link_bytes(&m->tx, on_device);
    const uint32_t behind = t->pieces.n - t->first; /* pieces that are read before the first ones */
    uint32_t whole = t->first + t->n_read;          /* from `first`, or else from 0 */
    uint64_t to;

    if (t->at == TIER_HOST || t->n_read == t->pieces.n)
        return 0;
    if (t->n_read >= behind && from / KEPT_PIECE >= t->first)
        return 0;
    if (from / KEPT_PIECE < t->first)
        whole = t->n_read > behind ? t->n_read - behind : 0;
    to = SH_MAX((uint64_t)whole * KEPT_PIECE, from);
    return m->link_bytes - SH_MIN(to, m->link_bytes);
}

void tier_needs(struct model *m, uint64_t from)
{
    m->tx.lacks = lacks(m, from);
    m->tx.lacks_ns_per_byte = *store__disk_ns_per_byte(m->store);
}

/* On the thread. */
static int read_kept_piece(struct disk_task *t, struct sh_err *err)
{
    const struct tier_read *r = (const struct tier_read *)t;
    const struct model *m = r->model;

    return kept_read_piece(&m->tier.pieces, r->piece, m->tier.maps ? NULL : m->image.base, err);
}

static void on_read(struct disk_task *t);

static void ask_for_reads(struct model *m)
{
    struct tier *t = &m->tier;
    struct disk *disk = store__env(m->store)->files->disk;

    for (uint32_t i = 0; i < TIER_READS && t->at == TIER_COMING && !t->is_lost; i++) {
        struct tier_read *r = &t->reads[i];

        if (r->is_out || t->n_asked == t->pieces.n || !disk)
            continue;
        *r = (struct tier_read){
            .task = {.work = read_kept_piece, .reads = KEPT_PIECE, .done = on_read},
            .model = m,
            .piece = (t->first + t->n_asked) % t->pieces.n,
            .is_out = true};
        if (disk_submit(disk, &r->task, NULL)) { /* the next tick asks again */
            r->is_out = false;
            return;
        }
        t->n_asked++;
    }
}

bool tier_is_reading(const struct model *m)
{
    for (uint32_t i = 0; m->tier.reads && i < TIER_READS; i++)
        if (m->tier.reads[i].is_out)
            return true;
    return false;
}

static void forget_file(struct tier *t)
{
    if (t->at != TIER_HOST)
        close(t->pieces.fd);
    free(t->pieces.crc);
    free(t->reads);
    t->pieces = (struct kept_pieces){0};
    t->reads = NULL;
}

void tier_lose(struct model *m, const struct sh_err *why)
{
    if (m->tier.is_lost)
        return;
    m->tier.is_lost = true;
    sh_log_err(SH_LOG_ERROR, "image.lost", why);
    if (m->kept.path)
        unlink(m->kept.path);
    model__give_up_copy(m);
    store_unload(m->store, m->handle);
    model_report(m);
}

/* So much of what was read has come at this rate. */
static void learn_disk_rate(struct model *m, uint64_t bytes, int64_t took_ns)
{
    double *ns = store__disk_ns_per_byte(m->store);

    sh_metric_add(M_shunt_image_read_bytes_total, SH_LABELS(store__env(m->store)->executor, "disk"),
                  (double)bytes);
    if (bytes == KEPT_PIECE && took_ns > 0)
        *ns += ((double)took_ns / (double)bytes - *ns) / 8;
}

static void on_whole(struct model *m)
{
    struct tier *t = &m->tier;

    t->at = TIER_HOST;
    tables__open(m, t->maps ? t->pieces.fd : m->image.fd, t->maps ? t->pieces.at : 0);
    close(t->pieces.fd);
    forget_file(t);
    set_costly(m, false);
    SH_INFO("image.host", "version=%" PRId64 " model=%s bytes=%" PRIu64 " disk_mb_per_s=%.0f",
            m->handle, m->name, m->link_bytes, tier_bytes_per_s(m->store) / 1e6);
    store_tell_place(m);
}

static void on_read(struct disk_task *task)
{
    struct tier_read *r = (struct tier_read *)task;
    struct model *m = r->model;
    struct tier *t = &m->tier;

    r->is_out = false;
    if (task->err.rc == SH_E_CANCELLED) /* the executor stops */
        return;
    if (task->err.rc) {
        tier_lose(m, &task->err);
        return;
    }
    if (t->is_lost)
        return;
    learn_disk_rate(m,
                    SH_MIN((uint64_t)KEPT_PIECE, m->link_bytes - (uint64_t)r->piece * KEPT_PIECE),
                    task->took_ns);
    t->n_read++;
    m->tx.lacks = lacks(m, m->at.resident);
    model_transmit_rest(m, NULL); /* what fails ends with the run (switch.c) */
    if (t->n_read == t->pieces.n)
        on_whole(m);
    else
        ask_for_reads(m);
}

static int make_tier_memory(struct model *m, struct sh_err *err)
{
    const struct store_env *env = store__env(m->store);
    struct tier *t = &m->tier;
    int rc;

    t->reads = calloc(TIER_READS, sizeof(*t->reads));
    if (!t->reads)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the image of a model");
    /* A file that has become too short is not mapped: reading finds it damaged. */
    t->maps = !dev_mem_is_queued(env->mem) && kept_dir_is_still(t->pieces.fd) &&
              !sh_shm_map_file(t->pieces.fd, t->pieces.at, (size_t)m->link_bytes, &m->image, NULL);
    rc = t->maps ? SH_OK : sh_shm_create("shunt-image", (size_t)m->link_bytes, &m->image, err);
    if (rc) {
        free(t->reads);
        t->reads = NULL;
        return rc;
    }
    if (!t->maps && HOOK_ASK(env->hooks, locks_images, true)) /* else its copies take longer */
        (void)model_lock(m, NULL);
    m->tx.host = m->image.base;
    return SH_OK;
}

int tier_bring(struct model *m, uint64_t from, bool must, struct sh_err *err)
{
    struct tier *t = &m->tier;
    bool is_over;
    int rc;

    if (t->is_lost)
        return SH_FAIL(err, SH_E_UNAVAILABLE,
                       "what was kept of the model is damaged; it is loaded again");
    if (t->at == TIER_DISK) {
        is_over = !host_make_room(m, m->link_bytes, m->program_bytes);
        if (is_over && !must)
            return SH_FAIL(err, SH_E_QUOTA, "host memory has no room for the image");
        rc = make_tier_memory(m, err);
        if (rc)
            return rc;
        kept_dir_used(&m->kept);
        t->is_over = is_over;
        t->at = TIER_COMING;
        t->first = (uint32_t)(SH_MIN(tx_link_bytes(&m->tx, from), m->link_bytes - 1) / KEPT_PIECE);
        t->n_read = t->n_asked = 0;
    }
    ask_for_reads(m);
    tier_needs(m, from);
    return SH_OK;
}

void tier_tick(struct model *m)
{
    struct tier *t = &m->tier;

    if (t->at == TIER_COMING)
        ask_for_reads(m);
    if (t->is_over)
        t->is_over = !host_make_room(m, m->link_bytes, m->program_bytes);
}

void tier_free(struct model *m)
{
    forget_file(&m->tier);
}

/* ------------------------------------------------------------------ for others */

uint64_t tier_disk_bytes(const struct model *m)
{
    const struct tier *t = &m->tier;
    const uint64_t read = (uint64_t)t->n_read * KEPT_PIECE;

    return t->at == TIER_HOST || read > m->link_bytes ? 0 : m->link_bytes - read;
}

double tier_bytes_per_s(struct store *s)
{
    return 1e9 / *store__disk_ns_per_byte(s);
}
