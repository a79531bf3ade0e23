/* tables.c - see tables.h. */
#include "executor/models/tables.h"

#include "common/clock.h"
#include "common/life.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "executor/models/model_int.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static struct residency *places_of(const struct model *m)
{
    return space_residency(store__env(m->store)->space);
}

static void go_tables(struct model *m, enum tables_at to)
{
    if (m->tables.at != to)
        m->tables.at = (enum tables_at)sh_life_step(&TABLES_LIFE, m->tables.at, to, m->handle);
}

/* ------------------------------------------------------------------ making */

void tables__ask(struct model *m, struct msg_wk_model *to)
{
    const struct store_env *env = store__env(m->store);
    struct tables *t = &m->tables;

    /* Measurements that hand images to workers want them as they are; an evaluation is short. */
    to->tables =
        HOOK_ASK(env->hooks, maps_images, true) && m->handle > 0 ? env->tables : MSG_TABLES_NEVER;
    if (t->link_ns <= 0) { /* the link is measured again and again: all workers decide alike */
        t->copy_ns = tx_alpha_ns(env->tx);
        t->link_ns = tx_beta_ns(env->tx);
    }
    to->copy_ns = t->copy_ns;
    to->link_ns = t->link_ns;
}

uint64_t tables__at(const struct model *m)
{
    const uint32_t n = m->n_layers - m->tables.n;

    return m->tables.n == 0 ? m->image_bytes : m->layer_ends[n - 1];
}

int tables__read(struct model *m, uint32_t n, struct sh_err *err)
{
    m->tables.n = 0;
    if (n == 0)
        return SH_OK;
    if (n >= m->n_layers || m->handle <= 0 || m->layer_ends[m->n_layers - n - 1] % DEV_TABLES_ALIGN)
        return SH_FAIL(err, SH_E_PROTO, "%u of %u layers of a model are of tables", n, m->n_layers);
    m->tables.n = n;
    return SH_OK;
}

/* ------------------------------------------------------------------ host memory */

static uint64_t bit_of(const struct worker *w)
{
    return (uint64_t)1 << w->index;
}

/* Where they begin in the image in host memory: behind what is packed, from a page on. */
static uint64_t stored_at(const struct model *m)
{
    return SH_ALIGN_UP(tx_needed_bytes(&m->tx), (uint64_t)DEV_TABLES_ALIGN);
}

static uint64_t bytes_of(const struct model *m)
{
    return m->link_bytes - stored_at(m);
}

static void tell_worker(struct model *m, struct worker *w, bool has)
{
    struct sh_msg r = {.type = MSG_WK_TABLES};

    r.u.wk_tables = (struct msg_wk_tables){.handle = m->handle, .turn = m->tables.turn};
    if (has) {
        r.u.wk_tables.at = m->tables.file_at + stored_at(m);
        r.u.wk_tables.bytes = bytes_of(m);
    }
    m->tables.mapped_in &= ~bit_of(w);
    worker_send(w, &r, &m->tables.fd, has ? 1 : 0);
}

static void tell_all_workers(struct model *m, bool has)
{
    struct pool *p = store__env(m->store)->pool;

    for (size_t i = 0; i < pool_size(p); i++)
        if (worker_is_alive(pool_at(p, i)) && worker_has_model(pool_at(p, i), m->handle))
            tell_worker(m, pool_at(p, i), has);
}

/* The same file for reading only: who maps it cannot write to what others read. */
static int open_again(int fd)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, O_RDONLY | O_CLOEXEC);
}

void tables__open(struct model *m, int fd, uint64_t at)
{
    struct tables *t = &m->tables;

    if (t->n == 0 || t->fd >= 0)
        return;
    t->fd = open_again(fd);
    t->file_at = at;
    t->turn++;
    if (t->fd < 0) {
        SH_WARN("tables.open", "version=%" PRId64 " msg=\"its tables are copied: %m\"", m->handle);
        return;
    }
    tell_all_workers(m, true);
}

void tables__close(struct model *m)
{
    if (m->tables.fd < 0)
        return;
    tell_all_workers(m, false);
    close(m->tables.fd);
    m->tables.fd = -1;
}

void tables__forget(struct model *m)
{
    if (m->tables.fd >= 0)
        close(m->tables.fd);
    m->tables.fd = -1;
    m->tables.n = 0;
    m->tables.mapped_in = 0;
    m->tables.at = TABLES_AWAY; /* nor is the image on the device */
}

void tables__offer(struct model *m, struct worker *w)
{
    if (m->tables.fd >= 0)
        tell_worker(m, w, true);
}

void store_on_tables(struct store *s, struct worker *w, const struct msg_wk_tables_done *d)
{
    struct model *m = store_find(s, d->handle);

    if (!m || m->base != m || !m->has_image || m->tables.fd < 0 ||
        !worker_has_model(w, m->handle) || d->turn != m->tables.turn)
        return; /* of another time */
    if (d->rc == 0) {
        m->tables.mapped_in |= bit_of(w);
        SH_INFO("tables.mapped", "version=%" PRId64 " worker=%u bytes=%" PRIu64, m->handle,
                w->index, bytes_of(m));
        return;
    }
    m->tables.mapped_in &= ~bit_of(w);
    SH_WARN("tables.copied",
            "version=%" PRId64 " worker=%u code=%s msg=\"runs copy its tables: %s\"", m->handle,
            w->index, sh_rc_name((int)d->rc), d->msg);
}

bool model_reads_in_place(const struct model *m)
{
    struct pool *p = store__env(m->store)->pool;
    const struct tables *t = &m->tables;

    if (t->n == 0 || t->fd < 0 || m->tier.at != TIER_HOST)
        return false;
    for (size_t i = 0; i < pool_size(p); i++)
        if (worker_is_alive(pool_at(p, i)) && worker_has_model(pool_at(p, i), m->handle) &&
            !(t->mapped_in & bit_of(pool_at(p, i))))
            return false;
    return true;
}

/* ------------------------------------------------------------------ on the device */

uint64_t model_run_bytes(const struct model *m)
{
    return model_reads_in_place(m) ? tables__at(m) : m->image_bytes;
}

uint64_t model_told_bytes(const struct model *m)
{
    const uint64_t has = model_resident_bytes(m);

    return has && has >= model_run_bytes(m) ? m->image_bytes : has;
}

void tables__settle(struct model *m)
{
    struct residency *res = places_of(m);

    if (m->tables.n == 0 || m->tables.at != TABLES_HERE ||
        residency_held(res, m->res) >= residency_blocks(res, m->res))
        return;
    go_tables(m, TABLES_AWAY);
    residency_set_short(res, m->res, true);
}

int tables__begin(struct model *m, bool with, struct sh_err *err)
{
    struct residency *res = places_of(m);

    if (m->tables.n == 0 || m->tables.at == TABLES_HERE || !with)
        return SH_OK;
    if (residency_pins(res, m->res)) /* it may have to move */
        return SH_FAIL(err, SH_E_DEVMEM, "the model's memory is in use; try again");
    residency_set_short(res, m->res, false);
    go_tables(m, TABLES_COMING);
    return SH_OK;
}

void tables__end(struct model *m, bool are_here)
{
    if (m->tables.at != TABLES_COMING)
        return;
    go_tables(m, are_here ? TABLES_HERE : TABLES_AWAY);
    if (!are_here)
        residency_set_short(places_of(m), m->res, true);
}

static void count_run_by(const struct model *m, const char *place)
{
    sh_metric_add(M_shunt_table_runs_total, SH_LABELS(store__env(m->store)->executor, place), 1);
}

bool model_tell_tables(const struct model *m, struct msg_wk_run *r)
{
    const struct tables *t = &m->tables;
    uint32_t n = 0;

    r->tables_off = m->at.off + m->tx.shift + stored_at(m);
    r->tables = MSG_TABLES_ON_DEVICE;
    if (t->n == 0)
        return true;
    if (t->at == TABLES_HERE || (t->at == TABLES_COMING && !model_reads_in_place(m))) {
        count_run_by(m, "device");
        return true;
    }
    if (!model_reads_in_place(m))
        return false;
    count_run_by(m, "host");
    r->tables = MSG_TABLES_IN_HOST;
    for (size_t i = 0; i < r->groups.len / sizeof(struct msg_group); i++)
        n += ((const struct msg_group *)r->groups.data)[i].end_layer <= m->n_layers - t->n;
    if (n > 0) /* else it is the one that names all layers */
        r->groups.len = n * sizeof(struct msg_group);
    return true;
}

bool tables__are_others_busy(const struct model *m)
{
    for (const struct model *o = store_next(m->store, NULL); o; o = store_next(m->store, o))
        if (o != m && o->n_users)
            return true;
    return false;
}

static bool are_wanted(const struct model *m)
{
    return m->tables.n && m->tables.at == TABLES_AWAY && m->phase == MODEL_READY && m->has_image &&
           model_resident_bytes(m) >= tables__at(m) &&
           m->packed_from == m->n_layers - m->tables.n && !residency_pins(places_of(m), m->res);
}

void model_bring_tables(struct model *m, uint64_t found)
{
    if (are_wanted(m) && found >= tables__at(m))
        model__bring(m, false);
}

void tables__second(struct model *m)
{
    if (are_wanted(m) && m->last_use_ns && sh_clock_ns() - m->last_use_ns < RESIDENCY_STALE_NS)
        model__bring(m, false);
}
