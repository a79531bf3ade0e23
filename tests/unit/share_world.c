/* share_world.c - see share_world.h. */
#include "tests/unit/share_world.h"

#include "common/clock.h"
#include "common/units.h"
#include "executor/models/tables.h"

#include <sys/mman.h>

struct world w;
static struct files files;
struct store_env env = {.executor = "x", .files = &files, .shares = true};

static bool is_quiet(void *arg)
{
    (void)arg;
    return !w.is_loud;
}

static const struct store_users users = {.is_quiet = is_quiet};

const struct store_env *store__env(const struct store *s)
{
    (void)s;
    return &env;
}

const struct store_users *store__users(const struct store *s)
{
    (void)s;
    return &users;
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

size_t *w_locked_at(const void *base)
{
    size_t free = N_MODELS + 2;

    for (size_t i = 0; i < N_MODELS + 2; i++) {
        if (w.locked[i].bytes && w.locked[i].base == base)
            return &w.locked[i].bytes;
        free = w.locked[i].bytes ? free : i;
    }
    assert_true(free < N_MODELS + 2);
    w.locked[free].base = base;
    return &w.locked[free].bytes;
}

/* A piece is a chunk. */
int dev_mem_host_lock_next(struct dev_mem *m, void *base, size_t bytes, size_t *locked,
                           struct sh_err *err)
{
    size_t *is = w_locked_at(base);

    (void)m;
    assert_int_equal(*is, *locked);
    assert_true(*locked < bytes);
    if (w.refuses_lock || (w.most_pieces && w.n_pieces == w.most_pieces))
        return SH_FAIL(err, SH_E_NOMEM, "as the test wants it");
    w.n_locks += *locked == 0;
    w.n_pieces++;
    *is = *locked = SH_MIN(*locked + SHARE_CHUNK, bytes);
    return SH_OK;
}

void dev_mem_host_unlock_last(struct dev_mem *m, void *base, size_t *locked)
{
    size_t *is = w_locked_at(base);

    (void)m;
    assert_true(*is == *locked && *locked > 0);
    *is = *locked = (*locked - 1) / SHARE_CHUNK * SHARE_CHUNK;
    w.n_unlocks += *locked == 0;
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
    m->locked = *w_locked_at(m->image.base) = m->image.bytes;
    return m;
}

void w_drop(struct model *m)
{
    assert_false(share__is_at(m));
    share__forget(m);
    assert_int_equal(*w_locked_at(m->image.base), m->locked);
    *w_locked_at(m->image.base) = 0;
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

bool w_goes_on(void)
{
    const enum share_at at = w.share.at;
    const size_t locked = w.share.locked;

    if (w.out)
        w_thread_works();
    else
        share__tick(NULL);
    return w.out || w.share.at != at || w.share.locked != locked;
}

void w_all_rests(void)
{
    share_second(NULL);
    while (w_goes_on())
        ;
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
    sh_clock_real();
    for (size_t i = 0; i < N_MODELS; i++)
        if (w.m[i].handle)
            w_drop(&w.m[i]);
    assert_null(w.share.trunks);
    for (size_t i = 0; i < N_MODELS + 2; i++)
        assert_int_equal(w.locked[i].bytes, 0);
    if (w.maker)
        munmap(w.maker, SHARE_CHUNK);
    assert_int_equal(w_held_bytes(), 0);
    return 0;
}
