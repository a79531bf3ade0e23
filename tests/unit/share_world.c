/* share_world.c - see share_world.h. */
#include "tests/unit/share_world.h"

#include "common/clock.h"
#include "common/units.h"
#include "executor/memory/locking.h"
#include "executor/models/tables.h"

#include <sys/mman.h>

struct world w;
static struct files files;
struct store_env env = {.executor = "x", .files = &files, .shares = true};

const struct store_env *store__env(const struct store *s)
{
    (void)s;
    return &env;
}

struct store_share *store__share(struct store *s)
{
    (void)s;
    return &w.share;
}

struct model *store_next(struct store *s, const struct model *m)
{
    size_t i = m ? (size_t)(m - w.m) + 1 : 0;

    (void)s;
    while (i < N_MODELS && !w.m[i].handle)
        i++;
    return i < N_MODELS ? &w.m[i] : NULL;
}

uint64_t tx_needed_bytes(const struct tx_image *im)
{
    return im->bytes;
}

bool tx_image_busy(const struct tx_image *im)
{
    (void)im;
    return w.is_busy;
}

/* What is locked is locked once. */
int dev_mem_host_lock(struct dev_mem *m, void *base, size_t bytes, struct sh_err *err)
{
    const char *at = base;

    (void)m;
    assert_true(w.is_turn && bytes > 0 && w.n_locked < MOST_PIECES);
    if (w.refuses_lock || (w.most_locks && w.n_locks == w.most_locks))
        return SH_FAIL(err, SH_E_NOMEM, "as the test wants it");
    for (size_t i = 0; i < w.n_locked; i++)
        assert_true(at + bytes <= w.locked[i].at || w.locked[i].at + w.locked[i].bytes <= at);
    w.locked[w.n_locked].at = at;
    w.locked[w.n_locked++].bytes = bytes;
    w.n_locks++;
    w.n_calls++;
    return SH_OK;
}

/* And unlocked once, while it is still there. */
void dev_mem_host_unlock(struct dev_mem *m, void *base)
{
    size_t i = 0;

    (void)m;
    assert_true(w.is_turn);
    while (i < w.n_locked && w.locked[i].at != base)
        i++;
    assert_true(i < w.n_locked);
    assert_int_equal(msync(base, 1, MS_ASYNC), 0); /* fails where nothing is mapped */
    w.locked[i] = w.locked[--w.n_locked];
    w.n_calls++;
}

static size_t locked_in(const void *base, size_t bytes)
{
    const char *at = base;
    size_t sum = 0;

    for (size_t i = 0; i < w.n_locked; i++)
        sum += w.locked[i].at >= at && w.locked[i].at < at + bytes ? w.locked[i].bytes : 0;
    return sum;
}

void tables__open(struct model *m, int fd, uint64_t at)
{
    assert_int_equal(fd, m->image.fd);
    assert_int_equal(at, 0);
    w.n_opened++;
}

void tables__close(struct model *m)
{
    (void)m;
    w.n_closed++;
}

int disk_submit(struct disk *d, struct disk_task *t, struct sh_err *err)
{
    (void)d;
    if (w.is_full)
        return SH_FAIL(err, SH_E_QUEUEFULL, "full");
    assert_null(w.out);
    w.out = t;
    return SH_OK;
}

/* ------------------------------------------------------------------ the world */

size_t w_bytes_of(const char *chunks)
{
    return strlen(chunks) * SHARE_CHUNK + TAIL;
}

/* An image of one letter a chunk; every word of it says where it is. */
static uint64_t word_at(const char *chunks, char tail, size_t at)
{
    const size_t chunk = at / SHARE_CHUNK;

    return (uint64_t)(uint8_t)(chunk < strlen(chunks) ? chunks[chunk] : tail) << 56 | at;
}

void w_fill(void *base, const char *chunks, char tail)
{
    for (size_t at = 0; at + 8 <= w_bytes_of(chunks); at += 8) {
        const uint64_t word = word_at(chunks, tail, at);

        memcpy((char *)base + at, &word, sizeof(word));
    }
}

void w_check(const struct model *m, const char *chunks, char tail)
{
    assert_ptr_equal(m->tx.host, m->image.base);
    for (size_t at = 0; at + 8 <= w_bytes_of(chunks); at += 8) {
        const uint64_t want = word_at(chunks, tail, at);

        if (memcmp((char *)m->image.base + at, &want, sizeof(want)) != 0)
            fail_msg("%s: the word at %zu (chunk %zu) is another", chunks, at, at / SHARE_CHUNK);
    }
}

static char name[] = "m";

static void lock(struct model *m)
{
    const unsigned n_locks = w.n_locks, n_calls = w.n_calls;

    w.is_turn = true;
    while (m->locked < m->image.bytes)
        assert_ok(dev_mem_host_lock_next(NULL, m->image.base, m->image.bytes, &m->locked, NULL));
    w.is_turn = false;
    w.n_locks = n_locks;
    w.n_calls = n_calls;
}

struct model *w_put(size_t i, uint32_t tag, const char *chunks, char tail)
{
    struct model *m = &w.m[i];

    *m = (struct model){.handle = (int64_t)i + 1,
                        .name = name,
                        .tag = tag,
                        .phase = MODEL_READY,
                        .has_image = true,
                        .tx = {.bytes = w_bytes_of(chunks)},
                        .link_bytes = w_bytes_of(chunks)};
    assert_ok(sh_shm_create("shunt-image", w_bytes_of(chunks), &m->image, NULL));
    w_fill(m->image.base, chunks, tail);
    m->tx.host = m->image.base;
    lock(m);
    return m;
}

void w_unlock(struct model *m)
{
    w.is_turn = true;
    dev_mem_host_unlock_all(NULL, m->image.base, &m->locked);
    w.is_turn = false;
}

void w_drop(struct model *m)
{
    assert_false(share__is_at(m));
    share__forget(m);
    assert_int_equal(locked_in(m->image.base, m->image.bytes), m->locked);
    w_unlock(m);
    sh_shm_fini(&m->image);
    m->handle = 0;
}

void w_thread_works(void)
{
    struct disk_task *t = w.out;

    assert_non_null(t);
    w.out = NULL;
    assert_ok(t->work(t, &t->err));
    t->done(t);
}

void w_thread_drops(void)
{
    struct disk_task *t = w.out;

    w.out = NULL;
    SH_FAIL(&t->err, SH_E_CANCELLED, "the executor stops");
    t->done(t);
}

void w_turn(void)
{
    const unsigned was = w.n_calls;

    w.is_turn = true;
    assert_ok(sh_loop_once(w.loop, 0, NULL));
    w.is_turn = false;
    assert_in_range(w.n_calls, was, was + 1);
}

bool w_goes_on(void)
{
    const enum share_at at = w.share.at;
    const unsigned calls = w.n_calls;

    if (w.out) {
        w_thread_works();
    } else {
        share__tick(NULL);
        w_turn();
    }
    return w.out || w.share.at != at || w.n_calls != calls;
}

void w_all_rests(void)
{
    size_t locked, is = 0;

    share_second(NULL);
    for (unsigned idle = 0; idle < MOST_PIECES; idle++) /* what is not locked goes unseen */
        if (w_goes_on())
            idle = 0;
    locked = w.share.lock.locked;
    for (const struct model *m = store_next(NULL, NULL); m; m = store_next(NULL, m)) {
        assert_int_equal(locked_in(m->image.base, m->image.bytes), m->locked);
        locked += m->locked;
    }
    for (size_t i = 0; i < w.n_locked; i++)
        is += w.locked[i].bytes;
    assert_int_equal(is, locked);
}

void w_end_queue(void)
{
    w.is_turn = true;
    locking_free(env.locking);
    w.is_turn = false;
    assert_ok(locking_new(w.loop, NULL, &env.locking, NULL));
}

void w_go_to(enum share_at at)
{
    share_second(NULL);
    while (w.share.at != at)
        assert_true(w_goes_on());
}

void w_later(int64_t s)
{
    sh_clock_fake(sh_clock_ns() + SH_S(s), 0);
}

void w_copy_chunks(uint32_t n)
{
    share_second(NULL);
    while (w.share.at != SHARE_COPIES || w.share.i < n)
        w_thread_works();
}

uint64_t w_held_bytes(void)
{
    char path[300], is[64];
    DIR *d = opendir("/proc/self/fd");
    uint64_t bytes = 0;
    struct stat st;

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
        n = readlink(path, is, sizeof(is) - 1);
        is[n > 0 ? n : 0] = '\0';
        if (strncmp(is, "/memfd:shunt-", 13) == 0 && stat(path, &st) == 0)
            bytes += (uint64_t)st.st_blocks * 512;
    }
    closedir(d);
    return bytes;
}

uint64_t w_counted_bytes(void)
{
    uint64_t bytes = 0;

    for (const struct model *m = store_next(NULL, NULL); m; m = store_next(NULL, m))
        bytes += share__bytes(m);
    return bytes;
}

int w_set_up(void **state)
{
    (void)state;
    w = (struct world){.share.memory.fd = -1};
    sh_clock_fake(SH_S(1000), 0);
    assert_ok(sh_loop_new(&w.loop, NULL));
    assert_ok(locking_new(w.loop, NULL, &env.locking, NULL));
    env.shares = true;
    files.disk = (struct disk *)&w;
    assert_int_equal(w_held_bytes(), 0);
    return 0;
}

int w_tear_down(void **state)
{
    (void)state;
    while (w.out) { /* it goes on with the next one */
        env.shares = false;
        w_thread_works();
    }
    share__stop(NULL);
    for (size_t i = 0; i < N_MODELS; i++)
        if (w.m[i].handle)
            w_drop(&w.m[i]);
    assert_null(w.share.trunks);
    w_end_queue();
    locking_free(env.locking);
    sh_loop_free(w.loop);
    sh_clock_real();
    assert_int_equal(w.n_locked, 0);
    if (w.maker)
        munmap(w.maker, SHARE_CHUNK);
    assert_int_equal(w_held_bytes(), 0);
    return 0;
}
