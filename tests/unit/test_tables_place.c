/* test_tables_place.c - where runs find tables, and what workers are told of them.
 *
 * Without it: a run could read in place in a worker that has not mapped the tables, or no longer
 * has; wait for tables that it reads elsewhere; or workers could disagree about the image. */
/* uses: executor/models/tables.o executor/models/model_life.o executor/memory/residency.o executor/memory/replacement.o executor/memory/arena.o */
#include "common/clock.h"
#include "common/life.h"
#include "common/mem.h"
#include "common/shm.h"
#include "executor/models/model_int.h"
#include "executor/models/tables.h"
#include "tests/unit/sh_test.h"

#include <fcntl.h>
#include <unistd.h>

#define N_WORKERS 3u
#define N_LAYERS 5u
#define N_TABLES 2u
#define NEEDED (3 * DEV_BLOCK)
#define IMAGE (5 * DEV_BLOCK)

struct space {
    struct residency *res;
};

static struct {
    struct store_env env;
    struct space space;
    struct model m, other;
    struct worker workers[N_WORKERS];
    uint64_t ends[N_LAYERS];
    bool has[N_WORKERS];
    struct {
        struct msg_wk_tables m;
        uint32_t worker;
        char first; /* byte of the tables in the file that came; 0: none came */
        bool may_write;
    } sent[8];
    uint32_t n_sent, n_brought;
    double alpha_ns, beta_ns;
    struct sh_shm image;
} T;

const struct store_env *store__env(const struct store *s)
{
    (void)s;
    return &T.env;
}

struct residency *space_residency(struct space *s)
{
    return s->res;
}

struct model *store_find(struct store *s, int64_t handle)
{
    (void)s;
    return handle == T.m.handle ? &T.m : NULL;
}

struct model *store_next(struct store *s, const struct model *m)
{
    (void)s;
    return !m ? &T.m : m == &T.m ? &T.other : NULL;
}

size_t pool_size(const struct pool *p)
{
    (void)p;
    return N_WORKERS;
}

struct worker *pool_at(struct pool *p, size_t i)
{
    (void)p;
    return &T.workers[i];
}

bool worker_is_alive(const struct worker *w)
{
    (void)w;
    return true;
}

bool worker_has_model(const struct worker *w, int64_t handle)
{
    return handle == T.m.handle && T.has[w->index];
}

void worker_send(struct worker *w, const struct sh_msg *m, const int *fds, size_t n_fds)
{
    assert_int_equal(m->type, MSG_WK_TABLES);
    assert_true(T.n_sent < SH_ARRAY_LEN(T.sent) && n_fds <= 1);
    T.sent[T.n_sent].m = m->u.wk_tables;
    T.sent[T.n_sent].worker = w->index;
    T.sent[T.n_sent].first = 0;
    if (n_fds) {
        assert_int_equal(pread(fds[0], &T.sent[T.n_sent].first, 1, (off_t)m->u.wk_tables.at), 1);
        T.sent[T.n_sent].may_write = (fcntl(fds[0], F_GETFL) & O_ACCMODE) != O_RDONLY;
    }
    T.n_sent++;
}

uint64_t tx_needed_bytes(const struct tx_image *im)
{
    return im->n_tables ? im->layer_ends[im->n_layers - im->n_tables - 1] : im->bytes;
}

double tx_alpha_ns(const struct tx *t)
{
    (void)t;
    return T.alpha_ns;
}

double tx_beta_ns(const struct tx *t)
{
    (void)t;
    return T.beta_ns;
}

uint64_t model_resident_bytes(const struct model *m)
{
    return SH_MIN(m->at.resident, IMAGE);
}

void model__bring(struct model *m, bool may_evict_stale)
{
    assert_ptr_equal(m, &T.m);
    assert_false(may_evict_stale);
    T.n_brought++;
}

/* ------------------------------------------------------------------ */

static int setup(void **state)
{
    const struct residency_conf conf = {.policy = RESIDENCY_CLOCK};
    const struct residency_image im = {.n_blocks = 5, .short_blocks = 3, .tag = 1};

    (void)state;
    memset(&T, 0, sizeof(T));
    T.env = (struct store_env){.executor = "e", .space = &T.space, .tables = MSG_TABLES_GAIN};
    for (uint32_t i = 0; i < N_LAYERS; i++)
        T.ends[i] = (i + 1) * DEV_BLOCK;
    for (uint32_t i = 0; i < N_WORKERS; i++)
        T.workers[i].index = i;
    T.has[0] = T.has[1] = true;
    T.other = (struct model){.handle = 8};
    T.m = (struct model){.handle = 7,
                         .phase = MODEL_READY,
                         .n_layers = N_LAYERS,
                         .layer_ends = T.ends,
                         .image_bytes = IMAGE,
                         .link_bytes = IMAGE,
                         .has_image = true,
                         .tables.fd = -1};
    T.m.base = &T.m;
    assert_ok(tables__read(&T.m, N_TABLES, NULL));
    T.m.packed_from = N_LAYERS - N_TABLES;
    T.m.tx = (struct tx_image){
        .bytes = IMAGE, .n_layers = N_LAYERS, .n_tables = N_TABLES, .layer_ends = T.ends};
    assert_ok(residency_new(8, &conf, &T.space.res, NULL));
    assert_ok(residency_add(T.space.res, &im, &T.m.res, NULL));
    residency_set_short(T.space.res, T.m.res, true);
    assert_ok(sh_shm_create("image", IMAGE, &T.image, NULL));
    memset((char *)T.image.base + NEEDED, 'x', IMAGE - NEEDED);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tables__forget(&T.m);
    residency_free(T.space.res);
    sh_shm_fini(&T.image);
    return 0;
}

static void says_to(uint64_t turn, uint32_t worker, int rc)
{
    const struct msg_wk_tables_done d = {.handle = 7, .turn = turn, .rc = rc, .msg = ""};

    store_on_tables(NULL, &T.workers[worker], &d);
}

/* To what it was told last. */
static void says(uint32_t worker, int rc)
{
    uint32_t i = T.n_sent;

    while (T.sent[i - 1].worker != worker)
        i--;
    says_to(T.sent[i - 1].m.turn, worker, rc);
}

static void place(void)
{
    struct residency_place p;

    assert_ok(residency_place(T.space.res, T.m.res, true, &p, NULL));
    T.m.at.resident = (uint64_t)residency_held(T.space.res, T.m.res) * DEV_BLOCK;
}

static void all_workers_are_asked_the_same(void **state)
{
    struct msg_wk_model first = {0}, later = {0};

    (void)state;
    T.alpha_ns = 3000;
    T.beta_ns = 0.02;
    tables__ask(&T.m, &first);
    T.beta_ns = 0.03; /* measured again */
    tables__ask(&T.m, &later);
    assert_int_equal(later.tables, MSG_TABLES_GAIN);
    assert_true(later.link_ns == first.link_ns && later.copy_ns == first.copy_ns);
    T.m.handle = -4; /* of an evaluation */
    tables__ask(&T.m, &later);
    assert_int_equal(later.tables, MSG_TABLES_NEVER);
}

static void what_cannot_be_tables_is_refused(void **state)
{
    struct sh_err err = {0};

    (void)state;
    assert_fails(tables__read(&T.m, N_LAYERS, &err), SH_E_PROTO, &err, "layers");
    T.ends[2] += 8; /* no page begins there */
    assert_int_equal(tables__read(&T.m, N_TABLES, NULL), SH_E_PROTO);
    assert_int_equal(T.m.tables.n, 0);
    assert_int_equal(tables__at(&T.m), IMAGE);
    assert_ok(tables__read(&T.m, 0, NULL));
}

static void a_run_reads_in_place_once_all_workers_can(void **state)
{
    (void)state;
    assert_false(model_reads_in_place(&T.m));
    tables__open(&T.m, T.image.fd, 0);
    assert_int_equal(T.n_sent, 2); /* to those that have the model */
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(T.sent[i].worker, i);
        assert_int_equal(T.sent[i].m.at, NEEDED);
        assert_int_equal(T.sent[i].m.bytes, IMAGE - NEEDED);
        assert_int_equal(T.sent[i].first, 'x');
        assert_false(T.sent[i].may_write);
    }
    says(0, 0);
    assert_false(model_reads_in_place(&T.m));
    assert_int_equal(model_run_bytes(&T.m), IMAGE);
    says(1, 0);
    assert_true(model_reads_in_place(&T.m));
    assert_int_equal(model_run_bytes(&T.m), NEEDED);
    T.has[2] = true; /* one more has compiled it */
    assert_false(model_reads_in_place(&T.m));
    tables__offer(&T.m, &T.workers[2]);
    says(2, SH_E_NOMEM);
    assert_false(model_reads_in_place(&T.m));
    says(2, 0);
    assert_true(model_reads_in_place(&T.m));
}

static void nobody_reads_what_leaves_host_memory(void **state)
{
    (void)state;
    tables__open(&T.m, T.image.fd, 0);
    says(0, 0);
    says(1, 0);
    tables__close(&T.m);
    assert_int_equal(T.n_sent, 4);
    assert_int_equal(T.sent[2].m.bytes + T.sent[3].m.bytes, 0);
    assert_int_equal(T.sent[2].first + T.sent[3].first, 0);
    assert_false(model_reads_in_place(&T.m));
    says(0, 0); /* of another time */
    says(1, 0);
    tables__open(&T.m, T.image.fd, 0);
    assert_false(model_reads_in_place(&T.m));
    T.m.tier.at = TIER_COMING;
    says(0, 0);
    says(1, 0);
    assert_false(model_reads_in_place(&T.m));
    T.m.tier.at = TIER_HOST;
    assert_true(model_reads_in_place(&T.m));
}

/* A worker that was busy answers all that it was asked meanwhile, in order. */
static void an_answer_is_to_the_last_question(void **state)
{
    (void)state;
    tables__open(&T.m, T.image.fd, 0);
    tables__close(&T.m);
    tables__open(&T.m, T.image.fd, 0);
    assert_int_equal(T.n_sent, 6);
    says_to(T.sent[0].m.turn, 0, 0);
    says_to(T.sent[1].m.turn, 1, 0);
    assert_false(model_reads_in_place(&T.m)); /* they have let it go again by now */
    says(0, 0);
    says(1, SH_E_NOMEM); /* it cannot this time */
    says_to(T.sent[1].m.turn, 1, 0);
    assert_false(model_reads_in_place(&T.m));
}

static struct msg_wk_run told(bool *ok)
{
    static struct msg_group groups[4];
    struct msg_wk_run r = {.groups = {groups, sizeof(groups)}};

    for (uint32_t i = 0; i < 4; i++)
        groups[i].end_layer = i + 2; /* the last two are of tables */
    *ok = model_tell_tables(&T.m, &r);
    return r;
}

static void a_run_waits_for_no_table_that_it_reads_in_place(void **state)
{
    struct msg_wk_run r;
    bool ok;

    (void)state;
    T.m.at.off = 7 * DEV_BLOCK;
    told(&ok);
    assert_false(ok); /* they are nowhere: it has to be given its memory with them */
    tables__open(&T.m, T.image.fd, 0);
    says(0, 0);
    says(1, 0);
    r = told(&ok);
    assert_true(ok);
    assert_int_equal(r.tables, MSG_TABLES_IN_HOST);
    assert_int_equal(r.groups.len, 2 * sizeof(struct msg_group));
    place();
    assert_ok(tables__begin(&T.m, true, NULL)); /* they are brought meanwhile */
    assert_int_equal(T.m.tables.at, TABLES_COMING);
    r = told(&ok);
    assert_int_equal(r.tables, MSG_TABLES_IN_HOST);
    tables__close(&T.m);
    r = told(&ok);
    assert_true(ok);
    assert_int_equal(r.tables, MSG_TABLES_ON_DEVICE);
    assert_int_equal(r.tables_off, 7 * DEV_BLOCK + NEEDED);
    assert_int_equal(r.groups.len, 4 * sizeof(struct msg_group));
}

static void they_are_on_the_device_as_long_as_the_image_is_whole(void **state)
{
    struct residency *r = T.space.res;
    struct sh_err err = {0};

    (void)state;
    place();
    assert_int_equal(residency_held(r, T.m.res), 3);
    residency_pin(r, T.m.res); /* of a run */
    assert_fails(tables__begin(&T.m, true, &err), SH_E_DEVMEM, &err, "in use");
    assert_ok(tables__begin(&T.m, false, NULL));
    assert_int_equal(T.m.tables.at, TABLES_AWAY);
    residency_unpin(r, T.m.res);
    assert_ok(tables__begin(&T.m, true, NULL));
    place();
    assert_int_equal(residency_held(r, T.m.res), 5);
    tables__end(&T.m, false); /* given up */
    assert_int_equal(residency_held(r, T.m.res), 3);
    assert_ok(tables__begin(&T.m, true, NULL));
    place();
    tables__end(&T.m, true);
    assert_int_equal(T.m.tables.at, TABLES_HERE);
    tables__settle(&T.m);
    assert_int_equal(T.m.tables.at, TABLES_HERE);
    residency_truncate(r, T.m.res, 4); /* somebody needed the memory */
    tables__settle(&T.m);
    assert_int_equal(T.m.tables.at, TABLES_AWAY);
    assert_int_equal(residency_held(r, T.m.res), 3);
}

static void they_are_brought_where_that_is_worth_it(void **state)
{
    (void)state;
    T.m.at.resident = NEEDED;
    model_bring_tables(&T.m, NEEDED - 1); /* a cold run: who knows whether there is another */
    assert_int_equal(T.n_brought, 0);
    model_bring_tables(&T.m, NEEDED);
    assert_int_equal(T.n_brought, 1);
    tables__second(&T.m); /* nobody has used it */
    assert_int_equal(T.n_brought, 1);
    T.m.last_use_ns = sh_clock_ns();
    tables__second(&T.m);
    assert_int_equal(T.n_brought, 2);
    T.m.packed_from = 0; /* the rest is not unpacked yet */
    tables__second(&T.m);
    T.m.packed_from = N_LAYERS - N_TABLES;
    T.m.at.resident = NEEDED - 1;
    tables__second(&T.m);
    T.m.at.resident = NEEDED;
    T.m.tables.at = TABLES_HERE;
    tables__second(&T.m);
    assert_int_equal(T.n_brought, 2);
    assert_false(tables__are_others_busy(&T.m));
    T.m.n_users = 1;
    assert_false(tables__are_others_busy(&T.m));
    T.other.n_users = 1;
    assert_true(tables__are_others_busy(&T.m));
}

static void the_scheduler_is_told_what_runs_find(void **state)
{
    (void)state;
    T.m.at.resident = NEEDED;
    assert_int_equal(model_told_bytes(&T.m), NEEDED);
    tables__open(&T.m, T.image.fd, 0);
    says(0, 0);
    says(1, 0);
    assert_int_equal(model_told_bytes(&T.m), IMAGE);
    T.m.at.resident = DEV_BLOCK;
    assert_int_equal(model_told_bytes(&T.m), DEV_BLOCK);
    T.m.at.resident = 0;
    assert_int_equal(model_told_bytes(&T.m), 0);
}

/* Its last three blocks, or four while it is packed, nobody waits for. */
static void a_short_image_has_no_memory_for_what_nobody_waits_for(void **state)
{
    const struct residency_image im = {
        .n_blocks = 7, .keep_blocks = 1, .short_blocks = 4, .unpacked_blocks = 3, .tag = 1};
    struct residency *r = T.space.res;
    struct residency_place p;
    uint32_t a = 0;

    (void)state;
    assert_ok(residency_add(r, &im, &a, NULL));
    residency_set_short(r, a, true);
    assert_ok(residency_place(r, a, true, &p, NULL));
    assert_int_equal(residency_held(r, a), 4);
    residency_pin(r, a);
    residency_unpin(r, a); /* nothing of it was packed */
    assert_int_equal(residency_held(r, a), 3);
    assert_int_equal(arena_seg_at(residency_arena(r), 3).tag, 1); /* a next run need not scrub it */
    assert_ok(residency_check(r, NULL));
    residency_set_short(r, a, false); /* now somebody brings the rest ... */
    assert_int_equal(residency_blocks(r, a), 7);
    assert_ok(residency_place(r, a, true, &p, NULL));
    assert_int_equal(residency_held(r, a), 7);
    residency_pin(r, a);
    residency_set_short(r, a, true); /* ... and gives up: what was to be filled is not its own */
    assert_int_equal(residency_held(r, a), 7);
    residency_unpin(r, a);
    assert_int_equal(residency_held(r, a), 3);
    assert_true(arena_seg_at(residency_arena(r), 3).tag == ARENA_FOREIGN);
    residency_set_short(r, a, false);
    assert_ok(residency_place(r, a, true, &p, NULL));
    residency_set_packed(r, a, true);
    assert_int_equal(residency_blocks(r, a), 7);
    residency_set_packed(r, a, false);
    residency_set_short(r, a, true);
    assert_int_equal(residency_held(r, a), 3);
    assert_ok(residency_check(r, NULL));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(all_workers_are_asked_the_same),
        TEST(what_cannot_be_tables_is_refused),
        TEST(a_run_reads_in_place_once_all_workers_can),
        TEST(nobody_reads_what_leaves_host_memory),
        TEST(an_answer_is_to_the_last_question),
        TEST(a_run_waits_for_no_table_that_it_reads_in_place),
        TEST(they_are_on_the_device_as_long_as_the_image_is_whole),
        TEST(they_are_brought_where_that_is_worth_it),
        TEST(the_scheduler_is_told_what_runs_find),
        TEST(a_short_image_has_no_memory_for_what_nobody_waits_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
