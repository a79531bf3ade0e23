/* test_tier.c - images leave host memory for the disk, and come back. Without it: an image that a
 * run or a copy still needs could lose its memory, a device could wait for bytes that nobody reads
 * or copy some that are not there yet, and one damaged file could be given up twice. */
/* uses: executor/models/tier.o executor/models/lock.o executor/memory/leave.o runtime/device/lock.o */
/* link: -Wl,--wrap=sh_metric_add */
#include "common/metrics.h"
#include "executor/files/disk.h"
#include "executor/memory/leave.h"
#include "executor/models/host.h"
#include "executor/models/keep.h"
#include "executor/models/model_int.h"
#include "executor/models/share.h"
#include "executor/models/tables.h"
#include "executor/models/tier.h"
#include "tests/unit/sh_test.h"

#define N_PIECES 5u
#define IMAGE ((N_PIECES - 1) * (uint64_t)KEPT_PIECE + 7)
#define KEY "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

/* What the others would say, and what they were told. */
static struct world {
    struct model m, sibling;
    struct msg_group group; /* m's copies are under way */
    bool has_file, is_unfit, is_full, refuses_disk, maps, is_costly;
    struct disk_task *out[4]; /* what the disk was given, in this order */
    uint32_t piece[4];
    size_t n_out;
    uint32_t next_piece; /* what the disk reads */
    int read_rc;
    unsigned n_told, n_unloads, n_reports, n_given_up, n_used, n_sent, n_unlocked, n_asked_for_room,
        n_opened, n_closed, n_shared_left;
    bool is_shared_now;
    double ns_per_byte;
} w;

static struct kept_dir kept;
static struct files files;
static struct store_env env = {.executor = "x", .kept = &kept, .files = &files};

const struct store_env *store__env(const struct store *s)
{
    (void)s;
    return &env;
}

struct model *store_next(struct store *s, const struct model *m)
{
    (void)s;
    if (!m)
        return &w.m;
    return m == &w.m && w.sibling.handle ? &w.sibling : NULL;
}

size_t store_size(const struct store *s)
{
    (void)s;
    return 2;
}

double *store__disk_ns_per_byte(struct store *s)
{
    (void)s;
    return &w.ns_per_byte;
}

void store_tell_place(struct model *m)
{
    (void)m;
    w.n_told++;
}

void store_unload(struct store *s, int64_t handle)
{
    (void)s;
    assert_int_equal(handle, 7);
    w.n_unloads++;
}

void model_report(struct model *m)
{
    (void)m;
    w.n_reports++;
}

void model__give_up_copy(struct model *m)
{
    (void)m;
    w.n_given_up++;
}

int model_transmit_rest(struct model *m, struct sh_err *err)
{
    (void)m, (void)err;
    w.n_sent++;
    return SH_OK;
}

uint64_t host_limit(const struct store *s)
{
    (void)s;
    return IMAGE;
}

bool host_make_room(const struct model *m, uint64_t image, uint64_t program)
{
    (void)m, (void)program;
    assert_int_equal(image, IMAGE);
    w.n_asked_for_room++;
    return !w.is_full;
}

struct kept_about keep_about(const struct model *m, uint32_t batches[static MODEL_MAX_BATCHES])
{
    (void)batches;
    return (struct kept_about){.image_bytes = m->image_bytes};
}

/* Siblings are all alike. */
static uint64_t shared_by(unsigned n, const struct model *m)
{
    return n ? m->image.bytes / n : 0;
}

static unsigned n_sharing(void)
{
    return (w.m.image.base != NULL) + (w.sibling.image.base != NULL);
}

uint64_t share__bytes(const struct model *m)
{
    return shared_by(n_sharing(), m);
}

uint64_t share__frees(const struct model *m)
{
    return n_sharing() == 1 ? m->image.bytes : 0;
}

uint64_t share__free_bytes(const struct leave_image *v, size_t n)
{
    unsigned leave = 0;

    for (size_t i = 0; i < n; i++)
        leave += v[i].leaves;
    return leave == n_sharing() ? w.m.image.bytes : 0;
}

bool share__is_at(const struct model *m)
{
    return m == &w.m && w.is_shared_now;
}

void share__leave(struct model *m)
{
    assert_non_null(m->image.base);
    w.n_shared_left++;
}

bool kept_dir_has(const struct kept_file *f)
{
    return w.has_file && f->path;
}

int kept_dir_open(const struct kept_file *f)
{
    return w.has_file ? open(f->path, O_RDWR | O_CLOEXEC) : -1;
}

bool kept_dir_is_still(int fd)
{
    assert_true(fd >= 0);
    return true;
}

void tables__open(struct model *m, int fd, uint64_t at)
{
    (void)m, (void)at;
    assert_true(fd >= 0);
    w.n_opened++;
}

void tables__close(struct model *m)
{
    assert_non_null(m->image.base); /* workers are told before it goes */
    w.n_closed++;
}

void kept_dir_used(const struct kept_file *f)
{
    (void)f;
    w.n_used++;
}

int kept_open_pieces(int fd, const struct kept_about *a, struct kept_pieces *out,
                     struct sh_err *err)
{
    assert_int_equal(a->key[1], 0x11);
    if (w.is_unfit)
        return SH_FAIL(err, SH_E_INVALID, "another format");
    *out = (struct kept_pieces){
        .fd = fd, .at = 4096, .bytes = a->image_bytes, .n = N_PIECES, .crc = malloc(4)};
    return SH_OK;
}

int kept_read_piece(const struct kept_pieces *p, uint32_t piece, void *image, struct sh_err *err)
{
    const size_t off = piece * KEPT_PIECE;

    assert_int_equal(image == NULL, w.maps); /* a mapped one is only checked */
    if (image)
        memset((char *)image + off, (int)piece + 1, SH_MIN(KEPT_PIECE, (size_t)p->bytes - off));
    w.next_piece = piece;
    return w.read_rc ? SH_FAIL(err, w.read_rc, "as the test wants it") : SH_OK;
}

int disk_submit(struct disk *d, struct disk_task *t, struct sh_err *err)
{
    (void)d;
    if (w.refuses_disk)
        return SH_FAIL(err, SH_E_QUEUEFULL, "full");
    assert_true(w.n_out < SH_ARRAY_LEN(w.out));
    w.out[w.n_out++] = t;
    return SH_OK;
}

void residency_set_costly(struct residency *r, uint32_t id, bool is_costly)
{
    (void)r, (void)id;
    w.is_costly = is_costly;
}

struct residency *space_residency(struct space *s)
{
    (void)s;
    return NULL;
}

struct residency_quota residency_quota(const struct residency *r, uint32_t tag)
{
    (void)r, (void)tag;
    return (struct residency_quota){.share = 1};
}

uint64_t tx_link_bytes(const struct tx_image *im, uint64_t device_bytes)
{
    (void)im;
    return device_bytes;
}

bool tx_image_busy(const struct tx_image *im)
{
    return im->groups != NULL;
}

bool dev_mem_is_queued(const struct dev_mem *m)
{
    (void)m;
    return !w.maps;
}

int dev_mem_host_lock(struct dev_mem *m, void *base, size_t bytes, struct sh_err *err)
{
    (void)m, (void)base, (void)bytes, (void)err;
    return SH_OK;
}

void dev_mem_host_unlock(struct dev_mem *m, void *base)
{
    (void)m;
    w.n_unlocked += base == w.m.image.base || base == w.sibling.image.base; /* its last piece */
}

void __wrap_sh_metric_add(enum sh_metric m, const char *const *labels, double v);

void __wrap_sh_metric_add(enum sh_metric m, const char *const *labels, double v)
{
    (void)m, (void)labels, (void)v;
}

static char name[] = "m";

static int set_up(void **state)
{
    char *dir = malloc(SH_TEST_DIR_BYTES);
    static char path[SH_TEST_DIR_BYTES + 8];

    w = (struct world){.has_file = true, .ns_per_byte = 1};
    sh_test_dir_make(dir);
    snprintf(path, sizeof(path), "%s/kept", dir);
    sh_test_write_file(path, "", 0);
    assert_int_equal(truncate(path, 4096 + (off_t)IMAGE), 0);
    files.disk = (struct disk *)&w;
    w.m = (struct model){.handle = 7,
                         .name = name,
                         .phase = MODEL_READY,
                         .has_image = true,
                         .image_bytes = IMAGE,
                         .link_bytes = IMAGE,
                         .locked = IMAGE,
                         .kept = {.path = path, .key = KEY}};
    assert_ok(sh_shm_create("image", IMAGE, &w.m.image, NULL));
    w.m.tx.host = w.m.image.base;
    *state = dir;
    return 0;
}

static int tear_down(void **state)
{
    if (w.m.tier.at != TIER_HOST)
        tier_free(&w.m);
    sh_shm_fini(&w.m.image);
    if (w.sibling.handle)
        sh_shm_fini(&w.sibling.image);
    if (w.sibling.tier.at != TIER_HOST)
        tier_free(&w.sibling);
    sh_test_dir_remove(*state);
    free(*state);
    return 0;
}

static void leave(void)
{
    const uint64_t bytes = w.m.image.bytes;

    assert_int_equal(tier_room(NULL, LEAVE_ANY, NULL), bytes);
    assert_int_equal(tier_make_room(NULL, 1, LEAVE_ANY, NULL), bytes);
    assert_int_equal(w.m.tier.at, TIER_DISK);
    assert_true(w.is_costly);
    assert_null(w.m.image.base);
    assert_null(w.m.tx.host);
}

/* The disk thread does what it was given first; the loop hears of it. */
static void disk_works(int rc)
{
    struct disk_task *t = w.out[0];

    assert_true(w.n_out > 0);
    memmove(w.out, w.out + 1, --w.n_out * sizeof(w.out[0]));
    w.read_rc = rc;
    t->err = (struct sh_err){0};
    t->took_ns = 2 * (int64_t)KEPT_PIECE;
    t->work(t, &t->err);
    t->done(t);
}

static uint64_t lacks(uint64_t from)
{
    tier_needs(&w.m, from);
    return w.m.tx.lacks;
}

/* Both count for half of what they share, and the first that leaves frees nothing. */
static void siblings_leave_until_there_is_room(void **state)
{
    (void)state;
    w.sibling = w.m;
    w.sibling.handle = 8;
    assert_ok(sh_shm_create("image", IMAGE, &w.sibling.image, NULL));
    w.m.last_use_ns = 1; /* the sibling goes first */
    w.is_shared_now = true;
    assert_int_equal(tier_room(NULL, LEAVE_ANY, NULL), 0);
    w.is_shared_now = false;
    assert_int_equal(tier_room(NULL, LEAVE_ANY, NULL), w.m.image.bytes);
    assert_int_equal(tier_room(NULL, LEAVE_ANY, &w.m), 0);
    assert_true(tier_make_room(NULL, IMAGE / 2, LEAVE_ANY, NULL) >= IMAGE / 2);
    assert_int_equal(w.sibling.tier.at, TIER_DISK);
    assert_int_equal(w.m.tier.at, TIER_DISK);
    assert_int_equal(w.n_shared_left, 2);
}

static void what_the_device_lacks_is_read_first(void **state)
{
    const uint64_t piece = KEPT_PIECE, from = 2 * piece + 9;
    const uint64_t order[] = {2, 3, 4, 0, 1};
    /* after so many pieces: behind `from`, all of it, and behind the first */
    const uint64_t left[][3] = {
        {IMAGE - from, IMAGE, IMAGE - piece},      {IMAGE - 3 * piece, IMAGE, IMAGE - piece},
        {IMAGE - 4 * piece, IMAGE, IMAGE - piece}, {0, IMAGE, IMAGE - piece},
        {0, IMAGE - piece, IMAGE - piece},         {0, 0, 0}};
    struct model *m = &w.m;

    (void)state;
    leave();
    assert_int_equal(w.n_told, 1);
    assert_int_equal(w.n_unlocked, 1);
    assert_int_equal(w.n_closed, 1);
    assert_int_equal(tier_disk_bytes(m), IMAGE);
    tier_tick(m); /* nobody needs it */
    assert_int_equal(w.n_out, 0);
    assert_false(tier_is_reading(m));
    m->at.resident = from;
    assert_ok(tier_bring(m, from, false, NULL));
    assert_int_equal(m->tx.lacks, IMAGE - from);
    assert_int_equal(w.n_used, 1);
    for (size_t i = 0; i < N_PIECES; i++) {
        assert_int_equal(lacks(from), left[i][0]);
        assert_int_equal(lacks(0), left[i][1]);
        assert_int_equal(lacks(piece), left[i][2]);
        assert_int_equal(tier_disk_bytes(m), IMAGE - i * piece);
        assert_int_equal(w.n_out, SH_MIN(2, N_PIECES - i)); /* the disk never waits for us */
        assert_true(tier_is_reading(m));
        assert_int_equal(m->tier.at, TIER_COMING);
        disk_works(0);
        assert_int_equal(w.next_piece, order[i]);
        assert_int_equal(w.n_sent, i + 1);
    }
    assert_int_equal(lacks(0), 0);
    assert_int_equal(m->tier.at, TIER_HOST);
    assert_false(w.is_costly);
    assert_int_equal(tier_disk_bytes(m), 0);
    assert_false(tier_is_reading(m));
    assert_int_equal(w.n_told, 2);
    assert_int_equal(w.n_opened, 1); /* not before all of it is there */
    for (size_t i = 0; i < IMAGE; i++)
        if (((const char *)m->image.base)[i] != (char)(i / KEPT_PIECE + 1))
            fail_msg("byte %zu", i);
    assert_true(w.ns_per_byte > 1 && w.ns_per_byte < 2); /* all but the short one are measured */
    assert_int_equal((int64_t)tier_bytes_per_s(NULL), (int64_t)(1e9 / w.ns_per_byte));
    assert_ok(tier_bring(m, 0, false, NULL)); /* it is there */
    assert_int_equal(w.n_out, 0);
}

static void a_file_that_lies_still_is_mapped_and_only_checked(void **state)
{
    (void)state;
    w.maps = true;
    leave();
    assert_ok(tier_bring(&w.m, IMAGE, false, NULL)); /* pinned: the device has all of it */
    assert_true(w.m.tier.maps);
    assert_ptr_equal(w.m.tx.host, w.m.image.base);
    assert_int_equal(w.m.locked, 0);
    for (size_t i = 0; i < N_PIECES; i++) {
        disk_works(0);
        assert_int_equal(w.next_piece, i == 0 ? N_PIECES - 1 : i - 1);
    }
    assert_int_equal(w.m.tier.at, TIER_HOST);
}

static void a_damaged_piece_loses_the_image_once(void **state)
{
    struct sh_err err = {0};

    (void)state;
    leave();
    assert_ok(tier_bring(&w.m, 0, false, NULL));
    disk_works(0);
    disk_works(SH_E_INVALID);
    assert_int_equal(access(w.m.kept.path, F_OK), -1); /* nobody reads it again */
    assert_int_equal(w.n_out, 1);
    tier_tick(&w.m);
    assert_int_equal(w.n_out, 1); /* no more of it */
    assert_fails(tier_bring(&w.m, 0, true, &err), SH_E_UNAVAILABLE, &err, "damaged");
    disk_works(SH_E_INVALID);
    assert_int_equal(w.n_unloads, 1);
    assert_int_equal(w.n_given_up, 1);
    assert_int_equal(w.n_reports, 1);
    assert_false(tier_is_reading(&w.m));
}

static void a_piece_behind_a_damaged_one_changes_nothing(void **state)
{
    (void)state;
    leave();
    assert_ok(tier_bring(&w.m, 0, false, NULL));
    w.m.kept.path = NULL; /* of a trained model: nothing is kept of it any more */
    disk_works(SH_E_IO);
    disk_works(0);
    assert_int_equal(w.m.tier.n_read, 0);
    assert_int_equal(w.n_sent, 0);
}

static void the_end_of_the_executor_loses_nothing(void **state)
{
    (void)state;
    leave();
    assert_ok(tier_bring(&w.m, 0, false, NULL));
    disk_works(SH_E_CANCELLED);
    disk_works(SH_E_CANCELLED);
    assert_int_equal(w.n_unloads, 0);
    assert_int_equal(access(w.m.kept.path, F_OK), 0);
}

static void a_full_queue_of_the_disk_is_tried_again(void **state)
{
    (void)state;
    leave();
    w.refuses_disk = true;
    assert_ok(tier_bring(&w.m, 0, false, NULL));
    assert_false(tier_is_reading(&w.m));
    w.refuses_disk = false;
    tier_tick(&w.m);
    assert_int_equal(w.n_out, 2);
    disk_works(0);
    assert_int_equal(w.next_piece, 0); /* none was left out */
    disk_works(0);
    assert_int_equal(w.next_piece, 1);
    files.disk = NULL; /* it has ended */
    tier_tick(&w.m);
    assert_int_equal(w.n_out, 2);
}

static void without_room_it_comes_only_for_who_has_to_have_it(void **state)
{
    struct sh_err err = {0};

    (void)state;
    leave();
    w.is_full = true;
    assert_fails(tier_bring(&w.m, 0, false, &err), SH_E_QUOTA, &err, "no room");
    assert_int_equal(w.m.tier.at, TIER_DISK);
    assert_ok(tier_bring(&w.m, 0, true, NULL));
    assert_int_equal(w.m.tier.at, TIER_COMING);
    w.n_asked_for_room = 0;
    tier_tick(&w.m); /* who could not leave then may be able to by now */
    assert_int_equal(w.n_asked_for_room, 1);
    w.is_full = false;
    tier_tick(&w.m);
    tier_tick(&w.m);
    assert_int_equal(w.n_asked_for_room, 2);
}

static void assert_stays(void)
{
    assert_int_equal(tier_room(NULL, LEAVE_ANY, NULL), 0);
    assert_int_equal(tier_make_room(NULL, 1, LEAVE_ANY, NULL), 0);
    assert_non_null(w.m.image.base);
}

static bool no_maps(void *arg)
{
    (void)arg;
    return false;
}

static void what_is_needed_here_stays(void **state)
{
    static const struct store_hooks HOOKS = {.maps_images = no_maps};
    struct model *m = &w.m;
    const struct model was = *m;

    (void)state;
    assert_int_equal(tier_make_room(NULL, 1, LEAVE_ANY, m), 0); /* it is for this one */
#define STAYS(change)   \
    do {                \
        change;         \
        assert_stays(); \
        *m = was;       \
    } while (0)
    STAYS(m->phase = MODEL_GOING);
    STAYS(m->has_image = false);
    STAYS(m->link_bytes = 0);
    STAYS(m->n_users = 1);
    STAYS(m->is_pinned = true);
    STAYS(m->is_kept = true);
    STAYS(m->is_broken = true);
    STAYS(m->is_placed = true);
    STAYS(m->rest = MODEL_REST_AHEAD);
    STAYS(m->tx.groups = &w.group);
    STAYS(m->is_unkept = true);
    STAYS(m->handle = -1); /* of a job, to evaluate it */
    STAYS(m->kept.path = NULL);
    env.hooks = &HOOKS;
    assert_stays();
    env.hooks = NULL;
    leave();
}

/* What was kept of it is gone or of another build: it is made once more, to be kept. */
static void without_a_good_file_it_stays(void **state)
{
    struct model *m = &w.m;

    (void)state;
    w.is_unfit = true;
    assert_int_equal(tier_make_room(NULL, 1, LEAVE_ANY, NULL), 0);
    assert_true(m->is_unkept);
    assert_non_null(m->image.base);
    w.is_unfit = m->is_unkept = false;
    snprintf(m->kept.key, sizeof(m->kept.key), "no key");
    assert_int_equal(tier_make_room(NULL, 1, LEAVE_ANY, NULL), 0);
    assert_true(m->is_unkept);
    assert_int_equal(m->tier.at, TIER_HOST);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(siblings_leave_until_there_is_room),
        TEST(what_the_device_lacks_is_read_first),
        TEST(a_file_that_lies_still_is_mapped_and_only_checked),
        TEST(a_damaged_piece_loses_the_image_once),
        TEST(a_piece_behind_a_damaged_one_changes_nothing),
        TEST(the_end_of_the_executor_loses_nothing),
        TEST(a_full_queue_of_the_disk_is_tried_again),
        TEST(without_room_it_comes_only_for_who_has_to_have_it),
        TEST(what_is_needed_here_stays),
        TEST(without_a_good_file_it_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
