/* fetch.c - see fetch.h. */
#include "executor/models/fetch.h"

#include "common/clock.h"
#include "common/life.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "executor/models/host.h"
#include "executor/models/keep.h"
#include "executor/models/model_int.h"
#include "runtime/model/kept.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define PIECE ((uint64_t)1 << 20)
#define AHEAD 4u             /* pieces asked for at a time */
#define MOST_NS_PER_BYTE 100 /* 10 MB/s, after FETCH_SILENT_NS */

struct fetch {
    struct model *model;
    enum fetch_state state;
    struct sh_link *link;      /* NULL: nothing is asked any more */
    struct sh_shm whole;       /* unset: its size is not known */
    uint64_t asked, got;       /* bytes, in order */
    int64_t began_ns, word_ns; /* word_ns: of the last answer */
};

static void set_fetch_state(struct fetch *f, enum fetch_state to)
{
    f->state = (enum fetch_state)sh_life_step(&FETCH_LIFE, f->state, to, f->model->handle);
}

/* ------------------------------------------------------------------ asking */

static void end_fetch(struct fetch *f)
{
    sh_link_free(f->link);
    f->link = NULL;
    sh_shm_fini(&f->whole);
    f->whole = (struct sh_shm){.fd = -1};
}

static void give_up_fetch(struct fetch *f, const char *why)
{
    SH_WARN("image.fetch", "version=%" PRId64 " model=%s bytes=%" PRIu64 " msg=\"%s\"",
            f->model->handle, f->model->name, f->got, why);
    end_fetch(f);
    set_fetch_state(f, FETCH_OVER);
}

static void ask_for_piece(struct fetch *f, struct sh_wire *w)
{
    const uint64_t all = f->whole.base ? f->whole.bytes : PIECE;

    while (f->asked < all && f->asked - f->got < AHEAD * PIECE) {
        struct sh_msg m = {.type = MSG_IMAGE_GET};
        const uint64_t n = SH_MIN(PIECE, all - f->asked);

        m.u.image_get = (struct msg_image_get){
            .key = f->model->kept.key, .off = f->asked, .bytes = (uint32_t)n};
        if (sh_wire_send(w, &m, NULL))
            return; /* the link comes up again, or there is no word */
        f->asked += n;
    }
}

static void on_up(struct sh_wire *w, void *arg)
{
    struct fetch *f = arg;

    if (f->state != FETCH_ASKING)
        return;
    f->asked = f->got; /* what was on the way is lost */
    ask_for_piece(f, w);
}

static void on_down(struct sh_wire *w, const struct sh_err *why, void *arg)
{
    (void)w, (void)why, (void)arg;
}

/* It is in kept/, or could not be put there: the load goes on in any case. */
static void on_kept(void *arg)
{
    struct fetch *f = arg;

    set_fetch_state(f, FETCH_OVER);
    f->model->is_looked_at = false;
}

static void keep_image(struct fetch *f)
{
    struct model *m = f->model;
    const double s = (double)(sh_clock_ns() - f->began_ns) / 1e9;
    struct sh_err err = {0};

    SH_INFO("image.fetch", "version=%" PRId64 " model=%s bytes=%zu ms=%.0f mb_per_s=%.0f",
            m->handle, m->name, f->whole.bytes, s * 1e3,
            (double)f->whole.bytes / 1e6 / SH_MAX(s, 1e-6));
    if (kept_dir_adopt(store__env(m->store)->kept, &m->kept, &f->whole, on_kept, f, &err)) {
        give_up_fetch(f, err.msg);
        return;
    }
    end_fetch(f);
    set_fetch_state(f, FETCH_KEEPING);
}

/* The size comes with the first piece. What host memory has no room for would not be loaded. */
static int make_fetch_memory(struct fetch *f, uint64_t total, struct sh_err *err)
{
    int rc;

    if (total == 0 || total - SH_MIN(total, KEPT_PIECE) > host_left(f->model))
        return SH_FAIL(err, SH_E_PROTO, "an image of %" PRIu64 " bytes", total);
    rc = sh_shm_create("shunt-fetch", (size_t)total, &f->whole, err);
    if (!rc)
        f->whole.bytes = (size_t)total; /* not rounded up */
    return rc;
}

static int take_image_piece(struct fetch *f, const struct msg_image_piece *p, struct sh_err *err)
{
    int rc = SH_OK;

    if (p->rc)
        return SH_FAIL(err, (int)p->rc, "it is not in the memory of the other executor any more");
    if (!f->whole.base)
        rc = make_fetch_memory(f, p->total, err);
    if (rc)
        return rc;
    if (p->total != f->whole.bytes || p->off != f->got || p->bytes.len == 0 ||
        p->bytes.len != SH_MIN(PIECE, p->total - f->got))
        return SH_FAIL(err, SH_E_PROTO, "a piece came that was not asked for");
    memcpy((char *)f->whole.base + f->got, p->bytes.data, p->bytes.len);
    f->got += p->bytes.len;
    f->word_ns = sh_clock_ns();
    sh_metric_add(M_shunt_image_read_bytes_total,
                  SH_LABELS(store__env(f->model->store)->executor, "host"), (double)p->bytes.len);
    return SH_OK;
}

static void on_msg(struct sh_wire *w, const struct sh_msg *m, int *fds, size_t n_fds, void *arg)
{
    struct fetch *f = arg;
    struct sh_err err = {0};

    (void)fds, (void)n_fds;
    if (f->state != FETCH_ASKING)
        return;
    if (m->type != MSG_IMAGE_PIECE)
        SH_FAIL(&err, SH_E_PROTO, "%s is no answer", sh_msg_name(m->type));
    else
        take_image_piece(f, &m->u.image_piece, &err);
    if (err.rc)
        set_fetch_state(f, FETCH_WRONG);
    else
        ask_for_piece(f, w);
}

static unsigned n_under_way(struct store *s)
{
    unsigned n = 0;

    for (const struct model *m = store_next(s, NULL); m; m = store_next(s, m))
        n += fetch_is_under_way(m);
    return n;
}

static bool begin_fetch(struct model *m)
{
    const struct store_env *env = store__env(m->store);
    struct sh_err err = {0};
    struct fetch *f = m->fetch = calloc(1, sizeof(*f));
    const struct sh_link_handler h = {
        .on_up = on_up, .on_msg = on_msg, .on_down = on_down, .arg = f, .keys = env->link_keys};

    if (!f)
        return false;
    *f = (struct fetch){.model = m, .whole = {.fd = -1}};
    if (sh_link_new(env->loop, m->source, &h, &f->link, &err)) {
        give_up_fetch(f, err.msg);
        return false;
    }
    f->began_ns = f->word_ns = sh_clock_ns();
    return true;
}

bool fetch_is_under_way(const struct model *m)
{
    return m->fetch && m->fetch->state != FETCH_OVER;
}

bool fetch_delays(struct model *m)
{
    if (m->fetch)
        return fetch_is_under_way(m);
    return !m->is_quick && m->kept.path && m->source && m->source[0] &&
           n_under_way(m->store) < FETCH_MOST && begin_fetch(m);
}

void fetch_tick(struct model *m, int64_t now_ns)
{
    struct fetch *f = m->fetch;

    if (!f || !f->link)
        return;
    if (f->state == FETCH_WRONG)
        give_up_fetch(f, "the other executor does not have it any more, or what came was wrong");
    else if (f->whole.base && f->got == f->whole.bytes)
        keep_image(f);
    else if (now_ns - f->word_ns > FETCH_SILENT_NS)
        give_up_fetch(f, "the other executor does not answer");
    else if (now_ns - f->began_ns > FETCH_SILENT_NS + (int64_t)f->got * MOST_NS_PER_BYTE)
        give_up_fetch(f, "it comes too slowly");
}

bool fetch_is_keeping(const struct model *m)
{
    return m->fetch && m->fetch->state == FETCH_KEEPING;
}

void fetch_free(struct model *m)
{
    if (m->fetch)
        end_fetch(m->fetch);
    free(m->fetch);
    m->fetch = NULL;
}

/* ------------------------------------------------------------------ answering */

static struct model *find_kept_image(struct store *s, const char *key)
{
    for (struct model *m = store_next(s, NULL); m; m = store_next(s, m))
        if (m->phase == MODEL_READY && m->handle > 0 && m->tier.at == TIER_HOST && m->image.base &&
            !m->is_unkept && m->kept.path && strcmp(m->kept.key, key) == 0)
            return m;
    return NULL;
}

/* What lies before the image comes from the file, the image from memory. *n: bytes from off on; 0:
 * the file is gone. head: room for PIECE. */
static const char *read_image_at(const struct model *m, uint64_t at, uint64_t off, size_t *n,
                                 char *head)
{
    const size_t before = off < at ? (size_t)SH_MIN((uint64_t)*n, at - off) : 0;
    int fd;

    *n = (size_t)SH_MIN((uint64_t)*n, at + m->link_bytes - off);
    if (!before)
        return (const char *)m->image.base + (off - at);
    fd = kept_dir_open(&m->kept);
    if (fd < 0 || pread(fd, head, before, (off_t)off) != (ssize_t)before)
        *n = 0;
    else if (*n > before)
        memcpy(head + before, m->image.base, *n - before);
    if (fd >= 0)
        close(fd);
    return head;
}

void fetch_answer(struct store *s, struct sh_wire *w, const struct msg_image_get *get)
{
    static char head[PIECE];
    const struct model *m = find_kept_image(s, get->key);
    struct sh_msg r = {.type = MSG_IMAGE_PIECE};
    struct msg_image_piece *p = &r.u.image_piece;
    uint32_t batches[MODEL_MAX_BATCHES];
    struct kept_about about;
    uint64_t at;

    *p = (struct msg_image_piece){.rc = SH_E_NOTFOUND, .off = get->off};
    if (m) {
        about = keep_about(m, batches);
        at = kept_image_at(&about);
        p->total = at + m->link_bytes;
        p->bytes.len = (size_t)SH_MIN((uint64_t)get->bytes, PIECE);
        if (get->off < p->total)
            p->bytes.data = read_image_at(m, at, get->off, &p->bytes.len, head);
        else
            p->bytes.len = 0;
        p->rc = p->bytes.len ? 0 : SH_E_NOTFOUND;
    }
    if (sh_wire_send(w, &r, NULL) == SH_OK)
        sh_metric_add(M_shunt_image_sent_bytes_total, SH_LABELS(store__env(s)->executor),
                      (double)p->bytes.len);
}
