/* test_slabs.c - an API's memory comes and goes: it is page-locked between runs, once, and stays
 * until nothing reads it. Without it: runs of all tenants could wait while the memory of an API
 * that has come is made and locked; the copy lane could read memory that is not locked, or is gone;
 * memory could be locked for ever. */
/* uses: executor/requests/slabs.o */
#include "common/mem.h"
#include "executor/requests/slabs.h"
#include "tests/unit/sh_test.h"

#include <dirent.h>
#include <sys/mman.h>
#include <unistd.h>

#define API 77u
#define BYTES ((size_t)1 << 20)
#define MAX_APIS 2u

static struct {
    struct slabs *s;
    struct sh_shm of_api[MAX_APIS];
    bool is_queued;            /* the device has memory of its own */
    struct disk_task *on_disk; /* submitted, not done */
    bool is_disk_full;
    struct lock_task *waits;
    unsigned n_begun, n_stopped, n_unlocked, n_told;
    unsigned n_open; /* descriptors before any came: one that is left keeps its memory */
    tx_done_fn *mark;
    void *mark_arg;
} W;

/* ------------------------------------------------------------------ what it stands on */

size_t pool_size(const struct pool *p)
{
    (void)p;
    return 1;
}

struct worker *pool_at(struct pool *p, size_t i)
{
    (void)p, (void)i;
    return NULL;
}

bool worker_is_alive(const struct worker *w)
{
    (void)w;
    return true;
}

void worker_send(struct worker *w, const struct sh_msg *m, const int *fds, size_t n_fds)
{
    (void)w, (void)fds;
    assert_int_equal(n_fds, m->type == MSG_WK_SLAB);
    W.n_told++;
}

struct dev_mem *tx_mem(struct tx *t)
{
    (void)t;
    return NULL;
}

int tx_mark(struct tx *t, uint32_t lane, tx_done_fn *fn, void *arg, struct sh_err *err)
{
    (void)t, (void)err;
    assert_int_equal(lane, TX_LANE_IN);
    assert_null(W.mark);
    W.mark = fn;
    W.mark_arg = arg;
    return SH_OK;
}

bool dev_mem_is_queued(const struct dev_mem *m)
{
    (void)m;
    return W.is_queued;
}

void dev_mem_host_unlock_last(struct dev_mem *m, void *base, size_t *locked)
{
    (void)m, (void)base;
    *locked = 0;
    W.n_unlocked++;
}

void locking_begin(struct locking *k, struct lock_task *t)
{
    (void)k;
    assert_null(W.waits);
    assert_int_equal(t->locked, 0);
    W.waits = t;
    W.n_begun++;
}

void locking_stop(struct locking *k, struct lock_task *t)
{
    (void)k;
    W.n_stopped += W.waits == t;
    if (W.waits == t)
        W.waits = NULL;
}

int disk_submit(struct disk *c, struct disk_task *t, struct sh_err *err)
{
    (void)c;
    if (W.is_disk_full)
        return SH_FAIL(err, SH_E_QUEUEFULL, "as the test wants it");
    assert_null(W.on_disk);
    W.on_disk = t;
    return SH_OK;
}

/* ------------------------------------------------------------------ what happens */

static unsigned n_open(void)
{
    DIR *d = opendir("/proc/self/fd");
    unsigned n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static int begin(void **state)
{
    (void)state;
    memset(&W, 0, sizeof(W));
    W.is_queued = true;
    W.n_open = n_open();
    for (size_t i = 0; i < MAX_APIS; i++)
        assert_ok(sh_shm_create("api", BYTES, &W.of_api[i], NULL));
    assert_ok(slabs_new(NULL, NULL, NULL, NULL, MAX_APIS, &W.s, NULL));
    return 0;
}

static int end(void **state)
{
    (void)state;
    slabs_free(W.s);
    for (size_t i = 0; i < MAX_APIS; i++)
        sh_shm_fini(&W.of_api[i]);
    assert_int_equal(n_open(), W.n_open);
    return 0;
}

static void come(uint64_t api_id, size_t i)
{
    struct sh_err err = {0};

    assert_ok_err(slabs_add(W.s, api_id, W.of_api[i].fd, BYTES, &err), &err);
}

static void disk_does(void)
{
    struct disk_task *t = W.on_disk;

    assert_non_null(t);
    W.on_disk = NULL;
    assert_ok(t->work(t, &t->err));
    t->done(t);
}

/* `bytes` of it; less than all of it: the rest was refused. */
static void lock(size_t bytes)
{
    struct lock_task *t = W.waits;
    const struct sh_err why = {.rc = SH_E_NOMEM, .msg = "as the test wants it"};

    assert_non_null(t);
    W.waits = NULL;
    t->locked = bytes;
    t->done(t, bytes == t->bytes ? NULL : &why);
}

static void lane_passes(void)
{
    tx_done_fn *fn = W.mark;

    assert_non_null(fn);
    W.mark = NULL;
    fn(W.mark_arg);
}

/* Of its pages, those that are there; not those that who touches them first has to wait for, until
 * they are zeroed. */
static size_t bytes_there(const struct sh_shm *m)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n = m->bytes / page;
    unsigned char is_there[BYTES / 4096];
    size_t bytes = 0;

    assert_true(n <= sizeof(is_there));
    assert_int_equal(mincore(m->base, m->bytes, is_there), 0);
    for (size_t i = 0; i < n; i++)
        bytes += is_there[i] & 1 ? page : 0;
    return bytes;
}

static void it_is_of_use_at_once_and_to_the_lane_when_all_is_locked(void **state)
{
    (void)state;
    ((char *)W.of_api[0].base)[4096] = 'a';
    come(API, 0);
    assert_int_equal(W.n_told, 1);
    assert_non_null(slabs_find(W.s, API));
    assert_null(slabs_find_locked(W.s, API));
    assert_int_equal(W.n_begun, 0);
    assert_true(bytes_there(&W.of_api[0]) < BYTES);
    disk_does();
    assert_int_equal(bytes_there(&W.of_api[0]), BYTES);
    assert_int_equal(((char *)W.of_api[0].base)[4096], 'a');
    assert_int_equal(W.waits->bytes, BYTES);
    assert_ptr_equal(W.waits->base, slabs_find(W.s, API)->base);
    W.waits->locked = BYTES / 2;
    assert_null(slabs_find_locked(W.s, API));
    lock(BYTES);
    assert_ptr_equal(slabs_find_locked(W.s, API), slabs_find(W.s, API));
    slabs_drop(W.s, API);
    assert_null(slabs_find(W.s, API));
    assert_int_equal(W.n_unlocked, 0); /* the lane reads it, perhaps */
    lane_passes();
    assert_int_equal(W.n_unlocked, 1);
}

static void one_that_is_not_locked_is_left_to_the_workers(void **state)
{
    (void)state;
    come(API, 0);
    disk_does();
    lock(BYTES / 2);
    assert_non_null(slabs_find(W.s, API));
    assert_null(slabs_find_locked(W.s, API));
    slabs_drop(W.s, API);
    lane_passes();
    assert_int_equal(W.n_unlocked, 1); /* that half */
}

static void one_that_goes_meanwhile_is_locked_no_more(void **state)
{
    (void)state;
    come(API, 0);
    slabs_drop(W.s, API);
    lane_passes();
    disk_does();
    assert_int_equal(W.n_begun, 0);
    come(API, 0);
    disk_does();
    slabs_drop(W.s, API);
    assert_int_equal(W.n_stopped, 1);
    lane_passes();
    assert_int_equal(W.n_unlocked, 0);
}

/* An API that has lost its connection has the same number when it comes again. */
static void one_that_comes_again_is_locked_once(void **state)
{
    struct disk_task *first;

    (void)state;
    come(API, 0);
    first = W.on_disk;
    W.on_disk = NULL;
    slabs_drop(W.s, API);
    lane_passes();
    come(API, 0);
    assert_ok(first->work(first, &first->err));
    first->done(first);
    disk_does();
    lock(BYTES);
    assert_int_equal(W.n_begun, 1);
    assert_non_null(slabs_find_locked(W.s, API));
    slabs_drop(W.s, API);
    lane_passes();
    assert_int_equal(W.n_unlocked, 1);
}

static void each_has_its_own_place(void **state)
{
    (void)state;
    come(API, 0);
    disk_does();
    lock(BYTES);
    come(API + 1, 1);
    slabs_drop(W.s, API); /* the other one takes its place in the list */
    lane_passes();
    disk_does();
    lock(BYTES);
    assert_null(slabs_find(W.s, API));
    assert_non_null(slabs_find_locked(W.s, API + 1));
}

/* The thread has few places, and jobs that begin or end fail where there is none. */
static void many_that_come_take_one_place_of_the_thread(void **state)
{
    (void)state;
    come(API, 0);
    come(API + 1, 1); /* W.on_disk is for one */
    disk_does();
    lock(BYTES);
    assert_true(bytes_there(&W.of_api[1]) < BYTES);
    assert_null(slabs_find_locked(W.s, API + 1));
    disk_does();
    lock(BYTES);
    assert_non_null(slabs_find_locked(W.s, API + 1));
    assert_null(W.on_disk);
}

static void one_that_goes_before_its_turn_is_not_made(void **state)
{
    (void)state;
    come(API, 0);
    come(API + 1, 1);
    slabs_drop(W.s, API + 1);
    lane_passes();
    disk_does();
    assert_null(W.on_disk);
    assert_true(bytes_there(&W.of_api[1]) < BYTES);
    assert_int_equal(W.n_begun, 1);
}

/* Where it has one for the first, and none for the second. */
static void a_thread_that_becomes_full_keeps_nobody_waiting(void **state)
{
    struct disk_task *first;

    (void)state;
    come(API, 0);
    come(API + 1, 1);
    slabs_drop(W.s, API);
    lane_passes();
    first = W.on_disk;
    W.on_disk = NULL;
    W.is_disk_full = true;
    assert_ok(first->work(first, &first->err));
    first->done(first);
    lock(BYTES);
    assert_non_null(slabs_find_locked(W.s, API + 1));
}

static void without_the_thread_pages_are_made_as_they_are_locked(void **state)
{
    (void)state;
    W.is_disk_full = true;
    come(API, 0);
    lock(BYTES);
    assert_non_null(slabs_find_locked(W.s, API));
    W.is_queued = W.is_disk_full = false; /* a device whose memory is the host's locks nothing */
    come(API + 1, 1);
    assert_null(W.on_disk);
    lock(BYTES);
    assert_non_null(slabs_find_locked(W.s, API + 1));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(it_is_of_use_at_once_and_to_the_lane_when_all_is_locked),
        TEST(one_that_is_not_locked_is_left_to_the_workers),
        TEST(one_that_goes_meanwhile_is_locked_no_more),
        TEST(one_that_comes_again_is_locked_once),
        TEST(each_has_its_own_place),
        TEST(many_that_come_take_one_place_of_the_thread),
        TEST(one_that_goes_before_its_turn_is_not_made),
        TEST(a_thread_that_becomes_full_keeps_nobody_waiting),
        TEST(without_the_thread_pages_are_made_as_they_are_locked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
