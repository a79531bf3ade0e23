/* test_share.c - chunks that images of one tenant have alike are held once. Without it: an image
 * could get bytes of another one, or lose them when that one goes; a tenant could learn from its
 * own limit what another one has; and who made one image could write to all that share with it. */
/* uses: executor/models/share.o executor/models/model_life.o */
#include "common/clock.h"
#include "common/units.h"
#include "executor/files/disk.h"
#include "executor/models/model_int.h"
#include "executor/models/share.h"
#include "executor/models/tables.h"
#include "tests/unit/sh_test.h"

#include <sys/mman.h>

#define N_MODELS 4u
#define TAIL 4711u /* bytes of an image behind its last chunk */

static struct world {
    struct model m[N_MODELS];
    struct store_share share;
    struct disk_task *out; /* what the thread has */
    bool is_full, is_loud, is_busy, refuses_lock;
    unsigned n_locks, n_unlocks, n_opened, n_closed;
    void *maker; /* of m[0]: how it can still write there */
} w;

static struct files files;
static struct store_env env = {.executor = "x", .files = &files, .shares = true};

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

int dev_mem_host_lock(struct dev_mem *m, void *base, size_t bytes, struct sh_err *err)
{
    (void)m;
    assert_true(base && bytes);
    if (w.refuses_lock)
        return SH_FAIL(err, SH_E_NOMEM, "as the test wants it");
    w.n_locks++;
    return SH_OK;
}

void dev_mem_host_unlock(struct dev_mem *m, void *base)
{
    (void)m;
    assert_non_null(base);
    w.n_unlocks++;
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

static size_t bytes_of(const char *chunks)
{
    return strlen(chunks) * SHARE_CHUNK + TAIL;
}

/* An image of one letter a chunk; every word of it says where it is. */
static uint64_t word_at(const char *chunks, char tail, size_t at)
{
    const size_t chunk = at / SHARE_CHUNK;

    return (uint64_t)(uint8_t)(chunk < strlen(chunks) ? chunks[chunk] : tail) << 56 | at;
}

static void fill(void *base, const char *chunks, char tail)
{
    for (size_t at = 0; at + 8 <= bytes_of(chunks); at += 8) {
        const uint64_t word = word_at(chunks, tail, at);

        memcpy((char *)base + at, &word, sizeof(word));
    }
}

static void check(const struct model *m, const char *chunks, char tail)
{
    assert_ptr_equal(m->tx.host, m->image.base);
    for (size_t at = 0; at + 8 <= bytes_of(chunks); at += 8) {
        const uint64_t want = word_at(chunks, tail, at);

        if (memcmp((char *)m->image.base + at, &want, sizeof(want)) != 0)
            fail_msg("%s: the word at %zu (chunk %zu) is another", chunks, at, at / SHARE_CHUNK);
    }
}

static char name[] = "m";

static struct model *put(size_t i, uint32_t tag, const char *chunks, char tail)
{
    struct model *m = &w.m[i];

    *m = (struct model){.handle = (int64_t)i + 1,
                        .name = name,
                        .tag = tag,
                        .phase = MODEL_READY,
                        .has_image = true,
                        .is_locked = true,
                        .tx = {.bytes = bytes_of(chunks)},
                        .link_bytes = bytes_of(chunks)};
    assert_ok(sh_shm_create("shunt-image", bytes_of(chunks), &m->image, NULL));
    fill(m->image.base, chunks, tail);
    m->tx.host = m->image.base;
    return m;
}

static void drop(struct model *m)
{
    assert_false(share__is_at(m));
    share__forget(m);
    sh_shm_fini(&m->image);
    m->handle = 0;
}

static void thread_works(void)
{
    struct disk_task *t = w.out;

    assert_non_null(t);
    w.out = NULL;
    assert_ok(t->work(t, &t->err));
    t->done(t);
}

static void all_rests(void)
{
    share_second(NULL);
    while (w.out)
        thread_works();
}

static void later(int64_t s)
{
    sh_clock_fake(sh_clock_ns() + SH_S(s), 0);
}

/* Until the thread has so many chunks of the image behind it that is copied. */
static void copy_chunks(uint32_t n)
{
    share_second(NULL);
    while (w.share.at != SHARE_COPIES || w.share.i < n)
        thread_works();
}

/* Memory that images and trunks really have. */
static uint64_t held_bytes(void)
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

static uint64_t counted_bytes(void)
{
    uint64_t bytes = 0;

    for (const struct model *m = store_next(NULL, NULL); m; m = store_next(NULL, m))
        bytes += share__bytes(m);
    return bytes;
}

#define TAIL_PAGES ((uint64_t)8192)
#define CHUNKS(n) ((n) * (uint64_t)SHARE_CHUNK)

static int set_up(void **state)
{
    (void)state;
    w = (struct world){.share.memory.fd = -1};
    env.shares = true;
    files.disk = (struct disk *)&w;
    assert_int_equal(held_bytes(), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    while (w.out) { /* it goes on with the next one */
        env.shares = false;
        thread_works();
    }
    share__stop(NULL);
    sh_clock_real();
    for (size_t i = 0; i < N_MODELS; i++)
        if (w.m[i].handle)
            drop(&w.m[i]);
    assert_null(w.share.trunks);
    if (w.maker)
        munmap(w.maker, SHARE_CHUNK);
    assert_int_equal(held_bytes(), 0);
    return 0;
}

/* ------------------------------------------------------------------ tests */

static void versions_of_which_the_head_differs_hold_the_rest_once(void **state)
{
    const char *const is[] = {"abcdefgX", "abcdefgY", "abcdefgZ"};
    (void)state;

    for (size_t i = 0; i < 3; i++)
        put(i, 1, is[i], (char)('0' + i));
    assert_int_equal(held_bytes(), 3 * (CHUNKS(8) + TAIL_PAGES));
    all_rests();
    for (size_t i = 0; i < 3; i++)
        check(&w.m[i], is[i], (char)('0' + i));
    assert_int_equal(held_bytes(), CHUNKS(7) + 3 * (CHUNKS(1) + TAIL_PAGES));
    assert_int_equal(share_saved_bytes(NULL), 2 * CHUNKS(7));
    assert_in_range(counted_bytes(), held_bytes(), held_bytes() + 3 * 8);
    assert_int_equal(w.n_locks, 3);
    assert_int_equal(w.n_unlocks, 3);
    assert_int_equal(w.n_opened, 3);
    assert_int_equal(w.n_closed, 3);
    all_rests(); /* and nothing more is to be done */
    assert_int_equal(w.n_locks, 3);
}

static void another_tenant_with_the_same_image_shares_nothing(void **state)
{
    const uint64_t alone = CHUNKS(3) + TAIL_PAGES;
    (void)state;

    put(0, 1, "abc", 't');
    put(1, 2, "abc", 't');
    all_rests();
    assert_int_equal(held_bytes(), 2 * alone);
    assert_int_equal(w.n_locks, 0); /* nor is anything copied, which would take time */
    put(2, 1, "abc", 'u');          /* tenant 1 shares; others see nothing of it */
    all_rests();
    put(3, 3, "abc", 't');
    all_rests();
    assert_int_equal(share__bytes(&w.m[3]), alone);
    assert_int_equal(share__bytes(&w.m[1]), alone);
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(3));
    assert_int_equal(w.n_locks, 2);
    for (size_t i = 0; i < N_MODELS; i++)
        check(&w.m[i], "abc", i == 2 ? 'u' : 't');
}

/* What is added is a multiple of the polynomial of CRC-32C: the sum stays the same. */
static void forge(uint8_t *p)
{
    const uint64_t polynomial = UINT64_C(0x11edc6f41);

    for (unsigned i = 0; i <= 32; i++)
        if (polynomial >> (32 - i) & 1)
            p[i / 8] ^= (uint8_t)(1u << i % 8);
}

static void bytes_are_compared_not_only_sums(void **state)
{
    const size_t chunk = 2 * SHARE_CHUNK, at = chunk + 100;
    const struct model *m = put(0, 1, "abcdef", 't'), *o = put(1, 1, "abcdef", 't');
    uint8_t forged[8];
    (void)state;

    forge((uint8_t *)o->image.base + at);
    memcpy(forged, (uint8_t *)o->image.base + at, sizeof(forged));
    assert_int_equal(sh_crc32c(0, (char *)m->image.base + chunk, SHARE_CHUNK),
                     sh_crc32c(0, (char *)o->image.base + chunk, SHARE_CHUNK));
    all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(5));
    check(m, "abcdef", 't');
    assert_memory_equal((uint8_t *)o->image.base + at, forged, sizeof(forged));
    forge(forged);
    assert_memory_equal((uint8_t *)m->image.base + at, forged, sizeof(forged));
}

static void an_image_whose_sums_mislead_is_left_alone(void **state)
{
    (void)state;
    put(0, 1, "abc", 't');
    put(1, 1, "abc", 'u');
    all_rests();
    put(2, 1, "abc", 'v');
    for (size_t i = 0; i < 3; i++)
        forge((uint8_t *)w.m[2].image.base + i * SHARE_CHUNK);
    for (int i = 0; i < 12 && !w.m[2].share.is_alone; i++) {
        all_rests();
        later(3600);
    }
    assert_true(w.m[2].share.is_alone);
    assert_null(w.m[2].share.trunk);
    assert_int_equal(held_bytes(), CHUNKS(6) + 3 * TAIL_PAGES);
    all_rests();
    assert_int_equal(w.n_locks, 2);
}

static void who_made_an_image_cannot_change_what_others_share(void **state)
{
    (void)state;
    put(0, 1, "abX", 't');
    put(1, 1, "abY", 'u');
    w.maker = mmap(NULL, SHARE_CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED, w.m[0].image.fd, 0);
    assert_ptr_not_equal(w.maker, MAP_FAILED);
    all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2));
    memset(w.maker, 'E', SHARE_CHUNK);
    check(&w.m[0], "abX", 't');
    check(&w.m[1], "abY", 'u');
}

static void one_goes_and_the_others_stay_whole(void **state)
{
    (void)state;
    put(0, 1, "abcX", 't');
    put(1, 1, "abcY", 'u');
    put(2, 1, "abQZ", 'v');
    all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2 * 2 + 1));
    drop(&w.m[0]);
    assert_int_equal(held_bytes(), CHUNKS(3 + 1 + 2) + 2 * TAIL_PAGES);
    check(&w.m[1], "abcY", 'u');
    drop(&w.m[1]); /* what only that had of the trunk is free */
    assert_int_equal(held_bytes(), CHUNKS(4) + TAIL_PAGES);
    assert_int_equal(share__bytes(&w.m[2]), CHUNKS(4) + TAIL_PAGES);
    check(&w.m[2], "abQZ", 'v');
    put(0, 1, "abQX", 'w'); /* and its place is taken again */
    put(1, 1, "abQY", 'x');
    all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2 * 2 + 1));
    check(&w.m[0], "abQX", 'w');
    check(&w.m[1], "abQY", 'x');
    check(&w.m[2], "abQZ", 'v');
}

static void what_becomes_free_is_known_before_they_leave(void **state)
{
    struct leave_image v[] = {{.owner = &w.m[0]}, {.owner = &w.m[1]}, {.owner = &w.m[2]}};
    (void)state;

    put(0, 1, "abcX", 't');
    put(1, 1, "abcY", 'u');
    put(2, 1, "QRST", 'v');
    all_rests();
    for (unsigned set = 0; set < 8; set++) {
        const bool both = (set & 3) == 3;
        uint64_t want = both ? CHUNKS(3) : 0;

        for (unsigned i = 0; i < 3; i++) {
            v[i].leaves = set >> i & 1;
            want += v[i].leaves ? CHUNKS(i == 2 ? 4 : 1) : 0;
            want += v[i].leaves ? w.m[i].image.bytes - CHUNKS(4) : 0;
        }
        assert_int_equal(share__free_bytes(v, 3), want);
    }
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(3)); /* nobody has left */
    assert_int_equal(share__frees(&w.m[0]), w.m[0].image.bytes - CHUNKS(3));
    assert_int_equal(share__frees(&w.m[2]), w.m[2].image.bytes);
    drop(&w.m[1]);
    assert_int_equal(share__frees(&w.m[0]), w.m[0].image.bytes);
    assert_int_equal(share__bytes(&w.m[0]), w.m[0].image.bytes);
}

static void an_image_that_is_read_changes_over_later(void **state)
{
    const void *base[2];
    (void)state;

    put(0, 1, "abX", 't');
    put(1, 1, "abY", 'u');
    base[0] = w.m[0].image.base;
    base[1] = w.m[1].image.base;
    w.is_busy = true;
    all_rests();
    share__tick(&w.m[0]);
    share__tick(&w.m[1]);
    assert_int_equal(w.share.at, SHARE_WAITS);
    assert_ptr_equal(w.m[0].image.base, base[0]);
    assert_ptr_equal(w.m[1].image.base, base[1]);
    w.is_busy = false;
    w.share.model->rest = MODEL_REST_AHEAD;
    share__tick(w.share.model);
    assert_int_equal(w.share.at, SHARE_WAITS);
    w.share.model->rest = MODEL_REST_NONE;
    w.share.model->is_placed = true;
    share__tick(w.share.model);
    assert_int_equal(w.share.at, SHARE_WAITS);
    w.share.model->is_placed = false;
    w.share.model->tables.n = 1; /* a run reads them in place */
    w.share.model->n_users = 1;
    share__tick(w.share.model);
    assert_int_equal(w.share.at, SHARE_WAITS);
    w.share.model->tables.n = 0;
    w.is_loud = true; /* a run of another one would wait while pages are locked ... */
    share__tick(w.share.model);
    assert_int_equal(w.share.at, SHARE_WAITS);
    sh_clock_fake(sh_clock_ns() + SH_S(11), 0); /* ... but not for ever */
    share__tick(w.share.model);
    sh_clock_real();
    w.is_loud = false;
    assert_int_equal(w.share.at, SHARE_FREES);
    all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2));
    check(&w.m[0], "abX", 't');
    check(&w.m[1], "abY", 'u');
}

static void who_goes_meanwhile_takes_its_new_memory_along(void **state)
{
    (void)state;
    for (unsigned steps = 0; steps < 40; steps++) {
        struct model *m;

        put(0, 1, "abX", 't');
        put(1, 1, "abY", 'u');
        w.is_busy = steps % 2;
        share_second(NULL);
        for (unsigned i = 0; i < steps / 2 && w.out; i++)
            thread_works();
        env.shares = false; /* it goes on with no other one */
        if (w.share.at == SHARE_FREES)
            thread_works();
        m = w.share.model;
        if (!m) {
            assert_true(steps >= 20);
            m = &w.m[0];
        }
        assert_int_equal(share__is_at(m), w.share.model == m);
        m->phase = MODEL_GOING;
        share__tick(m); /* while the thread has a chunk it stays */
        assert_int_equal(share__is_at(m), w.out != NULL);
        if (w.out)
            thread_works();
        env.shares = true;
        drop(m);
        w.is_busy = false;
        all_rests();
        m = m == &w.m[0] ? &w.m[1] : &w.m[0];
        check(m, m == &w.m[0] ? "abX" : "abY", m == &w.m[0] ? 't' : 'u');
        assert_int_equal(held_bytes(), CHUNKS(3) + TAIL_PAGES);
        assert_int_equal(share__bytes(m), m->image.bytes);
        drop(m);
        assert_int_equal(held_bytes(), 0);
    }
}

/* What it was the last to have is not given back under who has been compared with it. */
static void a_sibling_leaves_while_one_is_compared_with_it(void **state)
{
    (void)state;
    put(0, 1, "abcX", 't');
    put(1, 1, "abQY", 'u');
    all_rests();
    put(2, 1, "abcZ", 'v');
    copy_chunks(3); /* a and b are of both, c of the first alone */
    drop(&w.m[0]);
    drop(&w.m[1]);
    all_rests();
    assert_non_null(w.m[2].share.trunk);
    check(&w.m[2], "abcZ", 'v');
    assert_int_equal(held_bytes(), CHUNKS(4) + TAIL_PAGES);
    assert_int_equal(share__bytes(&w.m[2]), w.m[2].image.bytes);
}

static void memory_that_cannot_be_locked_is_not_changed_over_to(void **state)
{
    (void)state;
    put(0, 1, "abX", 't');
    put(1, 1, "abY", 'u');
    w.refuses_lock = true;
    all_rests();
    assert_int_equal(w.n_unlocks, 0);
    assert_int_equal(share_saved_bytes(NULL), 0);
    assert_int_equal(held_bytes(), 2 * (CHUNKS(3) + TAIL_PAGES));
    check(&w.m[0], "abX", 't');
    w.refuses_lock = false;
    all_rests();
    assert_int_equal(w.n_locks, 0); /* not at once ... */
    later(61);
    all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2)); /* ... but another time */
    check(&w.m[0], "abX", 't');
    check(&w.m[1], "abY", 'u');
}

static void it_is_not_tried_for_ever(void **state)
{
    (void)state;
    put(0, 1, "abX", 't');
    put(1, 1, "abY", 'u');
    w.refuses_lock = true;
    for (int i = 0; i < 12; i++) {
        all_rests();
        later(3600);
    }
    assert_true(w.m[0].share.is_alone || w.m[1].share.is_alone); /* then none is like it */
    w.refuses_lock = false;
    all_rests();
    assert_int_equal(w.n_locks, 0);
}

/* Others of its tenant wait for the place where one is copied. */
static void an_image_that_is_always_read_does_not_hold_up_others(void **state)
{
    (void)state;
    put(0, 1, "abX", 't');
    put(1, 1, "abY", 'u');
    w.m[0].is_broken = true;
    put(2, 2, "cdX", 'v');
    put(3, 2, "cdY", 'w');
    all_rests();
    assert_int_equal(w.share.at, SHARE_WAITS);
    assert_ptr_equal(w.share.model, &w.m[0]);
    later(59);
    share__tick(&w.m[0]);
    assert_int_equal(w.share.at, SHARE_WAITS);
    later(2);
    share__tick(&w.m[0]);
    assert_int_equal(w.share.at, SHARE_REST);
    w.m[0].phase = MODEL_READY;
    all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2));
    w.m[0].is_broken = false;
    later(200);
    all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(4));
    check(&w.m[0], "abX", 't');
}

/* Memory that no thread takes goes at once, and none is left when the executor ends meanwhile. */
static void old_memory_goes_in_any_case(void **state)
{
    (void)state;
    put(0, 1, "abX", 't');
    put(1, 1, "abY", 'u');
    w.is_busy = true;
    all_rests();
    w.is_busy = false;
    w.is_full = true;
    share__tick(w.share.model);
    assert_int_equal(w.share.at, SHARE_REST);
    assert_int_equal(held_bytes(), 2 * (CHUNKS(3) + TAIL_PAGES));
    w.is_full = false;
    share_second(NULL);
    while (w.share.at != SHARE_FREES)
        thread_works();
    SH_FAIL(&w.out->err, SH_E_CANCELLED, "the executor stops");
    w.out->done(w.out);
    w.out = NULL;
    assert_int_equal(w.share.at, SHARE_FREES);
    share__stop(NULL);
    assert_int_equal(held_bytes(), CHUNKS(2) + 2 * (CHUNKS(1) + TAIL_PAGES));
}

static void an_image_has_few_mappings(void **state)
{
    const char *const all = "abcdefghijklmnopqrstuv", *const odd = "aBcDeFgHiJkLmNoPqRsTuV";
    (void)state;

    put(0, 1, all, 't');
    put(1, 1, all, 'u');
    all_rests();
    put(2, 1, odd, 'v');
    all_rests();
    check(&w.m[0], all, 't');
    check(&w.m[2], odd, 'v');
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(22 + 8));
    assert_int_equal(held_bytes(), CHUNKS(22 + 22 - 8) + 3 * TAIL_PAGES);
}

static void images_of_other_lengths_share_what_both_have(void **state)
{
    (void)state;
    put(0, 1, "abc", 't');
    put(1, 1, "abcdefg", 'u');
    put(2, 1, "ab", 'v');
    put(3, 1, "", 'w'); /* less than a chunk */
    all_rests();
    check(&w.m[0], "abc", 't');
    check(&w.m[1], "abcdefg", 'u');
    check(&w.m[2], "ab", 'v');
    check(&w.m[3], "", 'w');
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(3 + 2));
    assert_null(w.m[3].share.trunk);
}

static void what_is_hardly_alike_is_not_copied(void **state)
{
    (void)state;
    put(0, 1, "abcdefghi", 't');
    put(1, 1, "aBCDEFGHI", 'u');
    all_rests();
    assert_int_equal(w.n_locks, 0);
    put(2, 1, "aXCDEFGHI", 'v');
    all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(8)); /* with the one it is like */
}

static void it_begins_in_a_quiet_moment_and_only_if_it_may(void **state)
{
    (void)state;
    put(0, 1, "abX", 't');
    put(1, 1, "abY", 'u');
    env.shares = false;
    share_second(NULL);
    assert_null(w.out);
    env.shares = true;
    w.m[0].tier.at = w.m[1].tier.at = TIER_COMING;
    share_second(NULL);
    assert_null(w.out);
    w.m[0].tier.at = w.m[1].tier.at = TIER_HOST;
    w.is_full = true; /* the thread's queue */
    share_second(NULL);
    assert_null(w.out);
    w.is_full = false;
    share_second(NULL); /* it is at one already, whose next tick asks again */
    assert_null(w.out);
    share__tick(w.share.model);
    assert_non_null(w.out);
    w.is_loud = true; /* sums are no business of runs */
    all_rests();
    assert_true(w.m[0].share.sums && w.m[1].share.sums);
    assert_null(w.out);
    w.is_loud = false;
    all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2));
}

static void it_begins_some_time_on_a_busy_executor(void **state)
{
    (void)state;
    put(0, 1, "abX", 't');
    put(1, 1, "abY", 'u');
    w.is_loud = true;
    for (int i = 0; i < 4; i++) {
        all_rests();
        later(11);
        if (w.share.model)
            share__tick(w.share.model);
    }
    all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2));
}

static void an_image_that_was_away_shares_again(void **state)
{
    (void)state;
    put(0, 1, "abX", 't');
    put(1, 1, "abY", 'u');
    all_rests();
    share__leave(&w.m[1]);
    sh_shm_fini(&w.m[1].image);
    w.m[1].tier.at = TIER_DISK;
    all_rests();
    assert_int_equal(held_bytes(), CHUNKS(3) + TAIL_PAGES);
    assert_int_equal(share__bytes(&w.m[1]), 0);
    assert_ok(sh_shm_create("shunt-image", bytes_of("abY"), &w.m[1].image, NULL));
    fill(w.m[1].image.base, "abY", 'u');
    w.m[1].tx.host = w.m[1].image.base;
    w.m[1].tier.at = TIER_HOST;
    all_rests();
    assert_int_equal(share_saved_bytes(NULL), CHUNKS(2));
    check(&w.m[1], "abY", 'u');
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(versions_of_which_the_head_differs_hold_the_rest_once),
        TEST(another_tenant_with_the_same_image_shares_nothing),
        TEST(bytes_are_compared_not_only_sums),
        TEST(an_image_whose_sums_mislead_is_left_alone),
        TEST(who_made_an_image_cannot_change_what_others_share),
        TEST(one_goes_and_the_others_stay_whole),
        TEST(what_becomes_free_is_known_before_they_leave),
        TEST(an_image_that_is_read_changes_over_later),
        TEST(who_goes_meanwhile_takes_its_new_memory_along),
        TEST(a_sibling_leaves_while_one_is_compared_with_it),
        TEST(memory_that_cannot_be_locked_is_not_changed_over_to),
        TEST(old_memory_goes_in_any_case),
        TEST(an_image_has_few_mappings),
        TEST(images_of_other_lengths_share_what_both_have),
        TEST(what_is_hardly_alike_is_not_copied),
        TEST(it_begins_in_a_quiet_moment_and_only_if_it_may),
        TEST(it_begins_some_time_on_a_busy_executor),
        TEST(it_is_not_tried_for_ever),
        TEST(an_image_that_is_always_read_does_not_hold_up_others),
        TEST(an_image_that_was_away_shares_again),
    };

    return cmocka_run_group_tests_name("share", tests, NULL, NULL);
}
