/* share.c - see share.h, and the states in model_int.h. */
#include "executor/models/share.h"

#include "common/clock.h"
#include "common/life.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/units.h"
#include "executor/files/disk.h"
#include "executor/models/model_int.h"
#include "executor/models/tables.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

#define LEAST_PART 8u /* of an image that is copied, one chunk in so many is the same, or more */
#define PATIENCE_NS SH_S(60) /* so long a change waits for one in which nobody reads the image */
#define AGAIN_NS SH_S(60)    /* then it is tried again; twice as long after each try */
#define MOST_TRIES 5u        /* that fail, and not for waiting */
#define MOST_RUNS 8u /* of chunks that are shared: each is a mapping, of 65,530 of a process */

struct trunk {
    struct trunk *next;
    uint32_t tag;             /* its tenant */
    uint32_t n, n_images;     /* chunks; who has some */
    uint32_t *n_users, *sums; /* OWNED [n]: of a chunk; 0 users: it has no memory */
    struct sh_shm memory;     /* OWNED */
};

static void go_share(struct store_share *w, enum share_at to)
{
    w->at = (enum share_at)sh_life_step(&SHARE_LIFE, w->at, to, w->model ? w->model->handle : 0);
}

/* ------------------------------------------------------------------ what is there */

/* Of an image, those that no table lies in. */
static uint32_t n_whole_chunks(const struct model *m)
{
    return (uint32_t)(tx_needed_bytes(&m->tx) / SHARE_CHUNK);
}

/* Of which is_there says whether they are the trunk's. */
static uint32_t n_chunks(const struct model *m)
{
    return m->share.trunk ? m->share.n : 0;
}

uint64_t share__bytes(const struct model *m)
{
    return m->image.bytes - m->share.less;
}

uint64_t share__shared(const struct model *m)
{
    return m->share.stays - m->share.less;
}

uint64_t share__frees(const struct model *m)
{
    return m->image.bytes - m->share.stays;
}

static void count_parts(struct model *m)
{
    m->share.less = m->share.stays = 0;
    for (uint32_t i = 0, end = n_chunks(m); i < end; i++) {
        const uint32_t n = m->share.is_there[i] ? m->share.trunk->n_users[i] : 1;

        m->share.less += SHARE_CHUNK - (SHARE_CHUNK + n - 1) / n;
        m->share.stays += n > 1 ? SHARE_CHUNK : 0;
    }
}

/* Somebody has come to it, or gone. */
static void count_all_parts(struct store *s, const struct trunk *t)
{
    for (struct model *m = store_next(s, NULL); m; m = store_next(s, m))
        if (m->share.trunk == t)
            count_parts(m);
}

uint64_t share__alike(const struct model *a, const struct model *b)
{
    const uint32_t n = SH_MIN(n_chunks(a), n_chunks(b));
    uint32_t i = 0;

    if (a->share.trunk != b->share.trunk)
        return 0;
    while (i < n && a->share.is_there[i] && b->share.is_there[i])
        i++;
    return i * (uint64_t)SHARE_CHUNK;
}

static uint64_t without_users(const struct model *m)
{
    uint64_t bytes = m->image.bytes;

    for (uint32_t i = 0, n = n_chunks(m); i < n; i++)
        bytes -= m->share.is_there[i] && --m->share.trunk->n_users[i] > 0 ? SHARE_CHUNK : 0;
    return bytes;
}

static void with_users(const struct model *m)
{
    for (uint32_t i = 0, n = n_chunks(m); i < n; i++)
        if (m->share.is_there[i]) /* the trunk may be shorter */
            m->share.trunk->n_users[i]++;
}

uint64_t share__free_bytes(const struct leave_image *v, size_t n)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        bytes += v[i].leaves ? without_users(v[i].owner) : 0;
    for (size_t i = 0; i < n; i++)
        if (v[i].leaves)
            with_users(v[i].owner);
    return bytes;
}

uint64_t share_saved_bytes(struct store *s)
{
    uint64_t bytes = 0;

    for (const struct trunk *t = store__share(s)->trunks; t; t = t->next)
        for (uint32_t i = 0; i < t->n; i++)
            bytes += t->n_users[i] ? (t->n_users[i] - 1) * (uint64_t)SHARE_CHUNK : 0;
    return bytes;
}

uint64_t share_trunk_bytes(struct store *s)
{
    uint64_t bytes = 0;
    struct stat st;

    for (const struct trunk *t = store__share(s)->trunks; t; t = t->next)
        bytes += fstat(t->memory.fd, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
    return bytes;
}

/* ------------------------------------------------------------------ trunks */

static void free_trunk(struct trunk *t)
{
    if (!t)
        return;
    sh_shm_fini(&t->memory);
    free(t->n_users);
    free(t->sums);
    free(t);
}

static int new_trunk(uint32_t tag, uint32_t n, struct trunk **out, struct sh_err *err)
{
    struct trunk *t = calloc(1, sizeof(*t));
    int rc;

    *out = NULL;
    if (!t)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate what images share");
    *t = (struct trunk){.tag = tag, .n = n, .memory = {.fd = -1}};
    t->n_users = calloc(n, sizeof(*t->n_users));
    t->sums = calloc(n, sizeof(*t->sums));
    rc = t->n_users && t->sums ? sh_shm_create("shunt-trunk", n * SHARE_CHUNK, &t->memory, err)
                               : SH_FAIL(err, SH_E_NOMEM, "could not allocate what images share");
    if (rc) {
        free_trunk(t);
        return rc;
    }
    *out = t;
    return SH_OK;
}

/* Nobody is being copied to it: what nobody has goes, and perhaps all of it. */
static void sweep_trunk(struct store_share *w, struct trunk *t)
{
    struct trunk **p = &w->trunks;

    for (uint32_t i = 0; i < t->n; i++)
        if (t->n_users[i] == 0)
            sh_shm_clear(&t->memory, i * SHARE_CHUNK, SHARE_CHUNK);
    if (t->n_images)
        return;
    while (*p != t)
        p = &(*p)->next;
    *p = t->next;
    free_trunk(t);
}

void share__leave(struct model *m)
{
    struct store_share *w = store__share(m->store);
    struct trunk *t = m->share.trunk;

    if (t) {
        without_users(m);
        t->n_images--;
        m->share.trunk = NULL;
        count_parts(m);
        count_all_parts(m->store, t);
        if (t != w->trunk)
            sweep_trunk(w, t);
    }
    free(m->share.is_there);
    m->share.is_there = NULL;
    m->share.is_compared = false;
}

void share__forget(struct model *m)
{
    if (m->share.sums) /* else it never had anything */
        share__leave(m);
    free(m->share.sums);
    m->share = (struct share){.n = 0};
}

/* ------------------------------------------------------------------ the present image */

bool share__is_at(const struct model *m)
{
    return store__share(m->store)->model == m;
}

static void forget_image(struct store_share *w)
{
    struct trunk *t = w->trunk;

    free(w->sums);
    free(w->is_there);
    w->sums = NULL;
    w->is_there = NULL;
    w->trunk = NULL;
    if (t)
        sweep_trunk(w, t);
    w->model = NULL;
}

/* Whatever is under way comes to nothing, or has come to its end. Nobody reads the memory that is
 * left (but tables: change_over): what is kept of it has been written, for the disk thread works in
 * order. */
static void end_image(struct store_share *w)
{
    struct locking *k = store__env(w->store)->locking;

    locking_stop(k, &w->lock);
    locking_let_go(k, &w->memory, w->lock.locked);
    w->lock.locked = 0;
    go_share(w, SHARE_REST);
    forget_image(w);
}

static void put_off(struct model *m)
{
    m->share.again_ns = sh_clock_ns() + (AGAIN_NS << SH_MIN(m->share.n_tries, MOST_TRIES));
    m->share.n_tries++;
    m->share.is_compared = false;
}

/* It may go well another time. */
static void note_failure(struct model *m, const struct sh_err *why)
{
    put_off(m);
    m->share.is_alone = m->share.n_tries >= MOST_TRIES;
    SH_WARN("image.share",
            "version=%" PRId64 " model=%s code=%s again=%d msg=\"it shares nothing: "
            "%s\"",
            m->handle, m->name, sh_rc_name(why->rc), !m->share.is_alone, why->msg);
}

static void give_up_sharing(struct store_share *w, const struct sh_err *why)
{
    note_failure(w->model, why);
    end_image(w);
}

/* On the thread. The old memory may be written to by who made it, the new one is ours alone. */
static int work_on_chunk(struct disk_task *t, struct sh_err *err)
{
    struct share_piece *p = (struct share_piece *)t;

    (void)err;
    p->is_shared = p->there && (!p->is_taken || memcmp(p->there, p->from, p->bytes) == 0);
    if (p->is_shared && !p->is_taken)
        memcpy(p->there, p->from, p->bytes);
    else if (p->own && !p->is_shared)
        memcpy(p->own, p->from, p->bytes);
    if (!p->own || (p->is_shared && !p->is_taken))
        p->sum = sh_crc32c(0, p->own ? p->there : p->from, p->bytes);
    return SH_OK;
}

static void on_chunk(struct disk_task *t);

/* What a queue that is full refuses, the next tick asks for. */
static void ask_for_chunk(struct store_share *w)
{
    const struct model *m = w->model;
    struct share_piece *p = &w->piece;
    const size_t off = w->i * SHARE_CHUNK;
    const struct trunk *in = w->trunk;

    *p = (struct share_piece){.task = {.work = work_on_chunk, .done = on_chunk},
                              .share = w,
                              .is_out = true,
                              .from = (const char *)m->image.base + off,
                              .bytes = SH_MIN(SHARE_CHUNK, m->image.bytes - off)};
    if (w->at == SHARE_COPIES)
        p->own = (char *)w->memory.base + off;
    if (in && w->i < SH_MIN(w->n, in->n) &&
        (w->n_runs < MOST_RUNS || (w->i > 0 && w->is_there[w->i - 1]))) {
        p->there = (char *)in->memory.base + off;
        p->is_taken = in->n_users[w->i] > 0;
    }
    p->is_out = disk_submit(store__env(m->store)->files->disk, &p->task, NULL) == SH_OK;
}

static void begin_image(struct store_share *w, struct model *m, enum share_at at, struct trunk *t)
{
    struct sh_err err = {0};
    int rc = SH_OK;

    w->model = m;
    w->trunk = t;
    w->n = n_whole_chunks(m);
    w->i = w->n_runs = 0;
    w->sums = calloc(w->n + 1, sizeof(*w->sums));
    w->is_there = calloc(w->n + 1, sizeof(*w->is_there));
    if (!w->sums || !w->is_there)
        rc = SH_FAIL(&err, SH_E_NOMEM, "could not allocate what an image shares");
    if (!rc && at == SHARE_COPIES)
        rc = sh_shm_create("shunt-image", m->image.bytes, &w->memory, &err);
    go_share(w, at);
    if (rc)
        give_up_sharing(w, &err);
    else
        ask_for_chunk(w);
}

/* ------------------------------------------------------------------ sums */

static bool may_share(const struct model *m)
{
    return m->phase == MODEL_READY && m->handle > 0 && m->has_image && m->tier.at == TIER_HOST &&
           m->image.fd >= 0 && !m->share.trunk && !m->share.is_alone &&
           sh_clock_ns() >= m->share.again_ns;
}

static bool begin_sums(struct store_share *w, struct model *m)
{
    if (!may_share(m) || m->share.sums)
        return false;
    m->share.is_alone = n_whole_chunks(m) == 0;
    if (m->share.is_alone)
        return false;
    begin_image(w, m, SHARE_SUMS, NULL);
    return true;
}

static void end_sums(struct store_share *w)
{
    struct model *m = w->model;

    m->share.sums = w->sums;
    m->share.n = w->n;
    w->sums = NULL;
    end_image(w);
}

/* users NULL: each place is taken. */
static uint32_t n_alike(const struct model *m, const uint32_t *sums, const uint32_t *users,
                        uint32_t n)
{
    uint32_t same = 0;

    for (uint32_t i = 0; i < SH_MIN(m->share.n, n); i++)
        same += m->share.sums[i] == sums[i] && (!users || users[i]);
    return same * LEAST_PART >= m->share.n ? same : 0;
}

static struct trunk *best_trunk(const struct store_share *w, const struct model *m)
{
    struct trunk *best = NULL;
    uint32_t most = 0;

    for (struct trunk *t = w->trunks; t; t = t->next) {
        const uint32_t n = t->tag == m->tag ? n_alike(m, t->sums, t->n_users, t->n) : 0;

        best = n > most ? t : best;
        most = SH_MAX(most, n);
    }
    return best;
}

static bool has_like(struct store *s, const struct model *m)
{
    for (const struct model *o = store_next(s, NULL); o; o = store_next(s, o))
        if (o != m && o->tag == m->tag && may_share(o) && o->share.sums &&
            n_alike(m, o->share.sums, NULL, o->share.n))
            return true;
    return false;
}

/* ------------------------------------------------------------------ copies */

static bool begin_copies(struct store_share *w, struct model *m)
{
    struct trunk *t;
    struct sh_err err = {0};
    int rc;

    if (!may_share(m) || !m->share.sums || m->share.is_compared)
        return false;
    m->share.is_compared = true;
    t = best_trunk(w, m);
    if (!t && !has_like(m->store, m))
        return false;
    if (!t) {
        rc = new_trunk(m->tag, m->share.n, &t, &err);
        if (rc) {
            note_failure(m, &err);
            return false;
        }
        t->next = w->trunks;
        w->trunks = t;
    }
    begin_image(w, m, SHARE_COPIES, t);
    return true;
}

static void note_chunk(struct store_share *w)
{
    const struct share_piece *p = &w->piece;

    if (w->i >= w->n)
        return;
    w->is_there[w->i] = p->is_shared;
    w->n_runs += p->is_shared && (w->i == 0 || !w->is_there[w->i - 1]);
    if (p->is_shared && !p->is_taken)
        w->trunk->sums[w->i] = p->sum;
}

/* Its own part, and that of the trunk in its places. */
static int show_trunk(struct store_share *w, struct sh_err *err)
{
    int rc = sh_shm_close_to_writes(&w->memory, err);

    for (uint32_t i = 0, end; !rc && i < w->n; i = end) {
        for (end = i + 1; end < w->n && w->is_there[end] == w->is_there[i];)
            end++;
        if (w->is_there[i])
            rc = sh_shm_show(&w->memory, &w->trunk->memory, i * SHARE_CHUNK,
                             (end - i) * SHARE_CHUNK, err);
    }
    return rc;
}

static void wait_for_change(struct store_share *w)
{
    go_share(w, SHARE_WAITS);
    w->since_ns = sh_clock_ns();
}

static void on_locked(struct lock_task *t, const struct sh_err *why)
{
    struct store_share *w = t->arg;

    if (why)
        give_up_sharing(w, why);
    else
        wait_for_change(w);
}

/* As its present memory is, which may not be locked. */
static void lock_memory(struct store_share *w)
{
    if (!w->model->locked) {
        wait_for_change(w);
        return;
    }
    w->lock = (struct lock_task){
        .base = w->memory.base, .bytes = w->memory.bytes, .done = on_locked, .arg = w};
    go_share(w, SHARE_LOCKS);
    locking_begin(store__env(w->store)->locking, &w->lock);
}

static void end_copies(struct store_share *w)
{
    struct sh_err err = {0};
    uint32_t n_same = 0;
    int rc = SH_OK;

    for (uint32_t i = 0; i < SH_MIN(w->n, w->trunk->n); i++)
        n_same += w->is_there[i] && w->trunk->n_users[i] > 0;
    if (n_same == 0 && w->trunk->n_images > 0) /* who had what it has is gone, or sums mislead */
        rc = SH_FAIL(&err, SH_E_NOTFOUND, "no chunk is what its sum says");
    if (!rc)
        rc = show_trunk(w, &err);
    if (rc)
        give_up_sharing(w, &err);
    else
        lock_memory(w);
}

/* Does anybody read it where it is, or is about to? */
static bool is_copied_from(const struct model *m)
{
    return tx_image_busy(&m->tx) || m->rest != MODEL_REST_NONE || m->is_placed || m->is_broken ||
           (m->tables.n && m->n_users);
}

static void note_like(struct model *of)
{
    for (struct model *m = store_next(of->store, NULL); m; m = store_next(of->store, m))
        m->share.is_compared &= m->tag != of->tag;
}

static void change_over(struct store_share *w)
{
    struct model *m = w->model;
    const struct sh_shm old = m->image;
    const size_t old_locked = m->locked;

    tables__close(m);
    m->image = w->memory;
    m->locked = w->lock.locked;
    w->memory = old;
    w->lock.locked = old_locked;
    m->tx.host = m->image.base;
    m->share.trunk = w->trunk;
    m->share.is_there = w->is_there;
    w->is_there = NULL;
    m->share.n_tries = 0;
    with_users(m);
    count_all_parts(m->store, w->trunk);
    if (w->trunk->n_images++ == 0)
        note_like(m);
    tables__open(m, m->image.fd, 0);
    SH_INFO("image.share", "version=%" PRId64 " model=%s images=%u bytes=%zu saved_bytes=%" PRIu64,
            m->handle, m->name, m->share.trunk->n_images, m->image.bytes,
            share_saved_bytes(m->store));
    if (m->tables.n) /* a worker that has not heard of the new ones yet may map them, and read */
        sh_shm_forget_file(&w->memory);
    end_image(w);
}

/* ------------------------------------------------------------------ steps */

static void begin_next(struct store *s);

static void on_chunk(struct disk_task *t)
{
    struct share_piece *p = (struct share_piece *)t;
    struct store_share *w = p->share;

    p->is_out = false;
    if (t->err.rc == SH_E_CANCELLED) /* the executor stops */
        return;
    if (w->model->phase != MODEL_READY) {
        end_image(w);
        return;
    }
    if (w->at == SHARE_SUMS)
        w->sums[w->i] = p->sum;
    else
        note_chunk(w);
    w->i++;
    if (w->at == SHARE_SUMS && w->i == w->n)
        end_sums(w);
    else if (w->at == SHARE_COPIES && w->i * SHARE_CHUNK >= w->model->image.bytes)
        end_copies(w);
    else
        ask_for_chunk(w);
    begin_next(w->store);
}

static void look_for_change(struct store_share *w)
{
    if (!is_copied_from(w->model)) {
        change_over(w);
    } else if (sh_clock_ns() - w->since_ns > PATIENCE_NS) {
        put_off(w->model);
        end_image(w);
    }
    begin_next(w->store);
}

void share__tick(struct store *s)
{
    struct store_share *w = store__share(s);

    if (w->at == SHARE_REST || w->piece.is_out)
        return;
    if (w->model->phase != MODEL_READY)
        end_image(w);
    else if (w->at == SHARE_WAITS)
        look_for_change(w);
    else if (w->at != SHARE_LOCKS)
        ask_for_chunk(w);
}

/* All are summed before any are compared: sums are the thread's work alone. */
static void begin_next(struct store *s)
{
    const struct store_env *env = store__env(s);
    struct store_share *w = store__share(s);

    w->store = s;
    /* Measurements hand images to workers. */
    if (w->at != SHARE_REST || !env->shares || !env->files->disk ||
        !HOOK_ASK(env->hooks, maps_images, true))
        return;
    for (struct model *m = store_next(s, NULL); m; m = store_next(s, m))
        if (begin_sums(w, m))
            return;
    for (struct model *m = store_next(s, NULL); m; m = store_next(s, m))
        if (begin_copies(w, m))
            return;
}

void share_second(struct store *s)
{
    begin_next(s);
}

void share__stop(struct store *s)
{
    struct store_share *w = store__share(s);

    if (w->at != SHARE_REST)
        end_image(w);
}
