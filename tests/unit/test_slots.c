/* test_slots.c - when the state of a job is copied to host memory, and when it goes to disk.
 *
 * Without it: a host that fails could cost nearly two intervals of training, where the user has
 * asked for one; a disk that is full could be tried again all the time; or a job that only learns
 * its last layer could have all of its weights copied and written for each checkpoint. */
/* uses: executor/training/slots.o executor/training/interval.o executor/training/job_life.o executor/training/job_state.o executor/memory/locking.o runtime/device/lock.o */
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"
#include "executor/files/push.h"
#include "executor/training/job.h"
#include "runtime/device/lock.h"
#include "tests/unit/sh_test.h"

#include <stdlib.h>

#define GRAIN SH_MS(10)
#define TICK SH_MS(100)
#define MAX_STEPS 100000

/* A job whose lane, disk and worker take as long as it says. */
static struct world {
    struct job j;
    struct train_env env;
    struct files files;
    struct sh_loop *loop;
    const char *unlocked; /* why not; NULL: it is locked, or is about to be */
    unsigned n_done;      /* calls of its end */
    int64_t now, step_ns, copy_ns, write_ns, swap_every_ns;
    int64_t copied_at, written_at; /* 0: none is under way */
    tx_done_fn *copied;
    struct disk_task *task;
    bool is_full, is_wanted, is_leaving; /* leaving: its state goes after the step */
    int64_t committed_ns[MAX_STEPS];
    int n_copies, n_swaps, n_writes, n_saved, saved_rc;
    uint64_t out_bytes; /* copied from the device */
    unsigned n_locked;  /* pieces of host memory */
    unsigned n_refused; /* tries */
    bool refuses;       /* to lock any more */
    int64_t lock_ns, runs_until;
} W;

/* ------------------------------------------------------------------ the rest of the executor */

/* As the driver is, for so long as a test says; runs have had as much time before. */
static void be_slow(void)
{
    assert_true(W.now >= W.runs_until);
    W.now += W.lock_ns;
    sh_clock_fake(W.now, 0);
    W.runs_until = W.now + W.lock_ns;
}

int tx_out(struct tx *t, enum tx_purpose why, size_t off, void *host, size_t bytes,
           struct sh_err *err)
{
    (void)t, (void)off, (void)host, (void)err;
    W.out_bytes += bytes;
    *(why == TX_STATE ? &W.n_swaps : &W.n_copies) += 1;
    W.copied_at = W.now + W.copy_ns;
    return SH_OK;
}

int tx_mark(struct tx *t, uint32_t lane, tx_done_fn *fn, void *arg, struct sh_err *err)
{
    (void)t, (void)lane, (void)arg, (void)err;
    W.copied = fn;
    return SH_OK;
}

int disk_submit(struct disk *c, struct disk_task *t, struct sh_err *err)
{
    (void)c, (void)err;
    assert_null(W.task);
    W.task = t;
    W.written_at = W.now + W.write_ns;
    W.n_writes++;
    return SH_OK;
}

static char *some_path(void)
{
    char *p = strdup("/jobs/7/x.safetensors");

    assert_non_null(p);
    return p;
}

char *job_ckpt_path(const struct job *j, int64_t step)
{
    (void)j, (void)step;
    return some_path();
}

char *job_file(const struct job *j, const char *name)
{
    (void)j, (void)name;
    return some_path();
}

/* clang-format off */
bool job_has_state(const struct job *j) { (void)j; return true; }
void job_report_checkpoint(struct job *j) { (void)j; }
void job_report_saved(struct job *j, const struct sh_err *why)
{ W.n_saved++; W.saved_rc = why ? why->rc : SH_OK; j->save_asked = 0; }
void job_log_say(struct job_log *l, const char *fmt, ...) { (void)l, (void)fmt; }
int tx_ticket(struct tx *t, uint32_t lane, uint32_t slot, uint32_t value, struct sh_err *err)
{ (void)t, (void)lane, (void)slot, (void)value, (void)err; return SH_OK; }
double tx_lane_beta_ns(const struct tx *t) { (void)t; return 0.1; }
size_t space_offset(const struct space_range *r) { (void)r; return 0; }
int trials_text(const struct trials *t, char out[static SH_JOB_EVALUATION_BYTES],
                struct sh_err *err)
{ (void)t, (void)err; out[0] = '\0'; return SH_OK; }
int push_start(const struct files *f, const struct push_conf *c, push_done_fn *done, void *arg,
               struct push **out, struct sh_err *err)
{ (void)f, (void)c, (void)done, (void)arg, (void)out, (void)err; return SH_E_BUG; }
void push_cancel(struct push *p) { (void)p; }
/* clang-format on */

/* For nobody it is more than a piece at a time, and runs have had as much time before. */
int dev_mem_host_lock(struct dev_mem *m, void *base, size_t bytes, struct sh_err *err)
{
    (void)m, (void)base;
    assert_true(bytes <= DEV_LOCK_PIECE);
    if (W.refuses) {
        W.n_refused++;
        return SH_FAIL(err, SH_E_NOMEM, "as the test wants it");
    }
    W.n_locked++;
    be_slow();
    return SH_OK;
}

void dev_mem_host_unlock(struct dev_mem *m, void *base)
{
    (void)m, (void)base;
    W.n_locked--;
    be_slow();
}

/* ------------------------------------------------------------------ a life */

static void go_to(int64_t ns)
{
    W.now = ns;
    sh_clock_fake(ns, 0);
}

static void on_locked(struct job *j, const struct sh_err *why)
{
    assert_ptr_equal(j, &W.j);
    W.unlocked = why ? "refused" : NULL;
    W.n_done++;
}

/* One turn of the loop, the clock where the next piece may be. */
static void turn(void)
{
    go_to(SH_MAX(W.now, W.runs_until));
    assert_ok(sh_loop_once(W.loop, 0, NULL));
}

static void lock_all(void)
{
    const unsigned was = W.n_done;

    slots_lock(&W.j, on_locked);
    for (int i = 0; i < 100 && W.n_done == was; i++)
        turn();
    assert_int_equal(W.n_done, was + 1);
}

static int begin(void **state)
{
    (void)state;
    sh_log_set_level(SH_LOG_ERROR);
    memset(&W, 0, sizeof(W));
    go_to(SH_S(1000));
    W.step_ns = SH_MS(250);
    W.copy_ns = SH_MS(50);
    W.write_ns = SH_MS(400);
    assert_ok(sh_loop_new(&W.loop, NULL));
    W.env = (struct train_env){.executor = "e0", .files = &W.files};
    assert_ok(locking_new(W.loop, NULL, &W.env.locking, NULL));
    W.j = (struct job){.env = &W.env,
                       .id = 7,
                       .state_bytes = 4096,
                       .written_bytes = 4096,
                       .interval_ns = SH_S(10),
                       .taken_ns = W.now,
                       .disk_taken_ns = W.now,
                       .given_ns = W.now,
                       .since_ns = W.now,
                       .disk_step = -1,
                       .disk_prev_step = -1,
                       .disk_failed_step = -1,
                       .save_step = -1};
    for (int i = 0; i < JOB_N_SLOTS; i++)
        W.j.slots[i].mem.fd = -1;
    W.j.fixed.fd = -1;
    assert_ok(slots_init(&W.j, NULL));
    lock_all();
    slots_begin(&W.j);
    W.committed_ns[0] = W.now;
    return 0;
}

static int end(void **state)
{
    (void)state;
    if (W.task)
        W.task->done(W.task);
    slots_fini(&W.j);
    W.lock_ns = W.runs_until = 0;
    locking_free(W.env.locking);
    sh_loop_free(W.loop);
    assert_int_equal(W.n_locked, 0);
    return 0;
}

static void commit(int64_t at)
{
    W.j.step++;
    assert_true(W.j.step < MAX_STEPS);
    W.committed_ns[W.j.step] = at;
    if (W.j.filling || !(W.is_wanted || (W.is_leaving && slots_have_room(&W.j))))
        return;
    assert_ok(slots_copy_out(&W.j, W.j.step, W.is_wanted ? 0 : TX_NO_TICKET, 1, NULL));
    W.is_wanted = W.is_leaving = false;
}

static void tick(void)
{
    if (!W.j.filling && slots_copy_is_due(&W.j) && slots_have_room(&W.j))
        W.is_wanted = true;
    slots_write_due(&W.j);
}

static void end_copy(void)
{
    tx_done_fn *fn = W.copied;

    W.copied_at = 0;
    fn(&W.j);
}

static void end_write(void)
{
    struct disk_task *t = W.task;

    W.task = NULL;
    t->took_ns = W.write_ns;
    if (W.is_full)
        SH_FAIL(&t->err, SH_E_DISKFULL, "no space is left");
    t->done(t);
}

static bool is_time(int64_t every)
{
    return every && (W.now - W.j.since_ns) % every == 0;
}

/* Of what a host that fails now would leave: the time since it was committed. */
static int64_t age_on_disk(void)
{
    return W.now - W.committed_ns[SH_MAX(W.j.disk_step, (int64_t)0)];
}

/* Returns the greatest age. */
static int64_t live(int64_t ns)
{
    const int64_t until = W.now + ns;
    int64_t oldest = 0;

    while (W.now < until) {
        go_to(W.now + GRAIN);
        assert_ok(sh_loop_once(W.loop, 0, NULL));
        oldest = SH_MAX(oldest, age_on_disk());
        if (W.copied_at && W.now >= W.copied_at)
            end_copy();
        if (W.task && W.now >= W.written_at)
            end_write();
        W.is_leaving |= is_time(W.swap_every_ns);
        if (is_time(W.step_ns))
            commit(W.now);
        if (is_time(TICK))
            tick();
    }
    return oldest;
}

/* How old what is on disk may become, with a disk that works. One that takes longer than half an
 * interval may still be busy with an older state when a newer one is due. */
static int64_t bound(void)
{
    const int n_writes = 2 * W.write_ns > W.j.interval_ns ? 2 : 1;

    return W.j.interval_ns + 2 * TICK + W.step_ns + W.copy_ns + n_writes * W.write_ns + 2 * GRAIN;
}

static void the_disk_is_never_further_behind_than_an_interval(void **state)
{
    static const int SWAP_EVERY_MS[] = {0,    500,   1000,  3000,  7000,  9000,  9900,
                                        9990, 10010, 11000, 13000, 19000, 21000, 33000};

    for (size_t i = 0; i < SH_ARRAY_LEN(SWAP_EVERY_MS); i++) {
        const int64_t life = SH_S(1000);
        int64_t oldest;

        begin(state);
        W.swap_every_ns = SH_MS((int64_t)SWAP_EVERY_MS[i]);
        oldest = live(life);
        if (oldest > bound())
            fail_msg("with a swap every %d ms the disk was %.2f s behind, not %.2f s",
                     SWAP_EVERY_MS[i], (double)oldest / 1e9, (double)bound() / 1e9);
        assert_true(oldest > W.j.interval_ns / 2); /* nor is it written all the time */
        assert_true(W.n_copies <= life / W.j.interval_ns + 1);
        assert_true(W.n_writes <= 2 * (life / W.j.interval_ns) + 1);
        if (!SWAP_EVERY_MS[i])
            assert_int_equal(W.n_writes, W.n_copies);
        end(state);
    }
}

/* As it begins: what a copy and a write cost is not known, so the first comes sooner. */
static void an_interval_that_grows_leaves_no_lag_behind(void **state)
{
    (void)state;
    W.j.interval_ns = SH_S(4);
    live(SH_S(4) - GRAIN);
    live(SH_MS(200)); /* the first copy is asked for */
    W.j.interval_ns = SH_S(10);
    live(SH_S(10) + W.write_ns);
    assert_true(live(SH_S(500)) <= bound());
    assert_true(W.n_copies <= 52);
    assert_true(W.n_writes <= 53);
}

static void what_takes_long_is_added_and_nothing_else(void **state)
{
    static const struct {
        int64_t step_ms, copy_ms, write_ms;
    } CASES[] = {{10, 10, 10}, {3000, 50, 400}, {250, 3000, 400}, {250, 50, 8000}, {900, 900, 900}};

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        for (int64_t swap = 700; swap < 25000; swap += 1900) {
            int64_t oldest;

            begin(state);
            W.step_ns = SH_MS(CASES[i].step_ms);
            W.copy_ns = SH_MS(CASES[i].copy_ms);
            W.write_ns = SH_MS(CASES[i].write_ms);
            W.swap_every_ns = SH_MS(swap);
            oldest = live(SH_S(300));
            if (oldest > bound())
                fail_msg("case %zu, a swap every %d ms: the disk was %.2f s behind, not %.2f s", i,
                         (int)swap, (double)oldest / 1e9, (double)bound() / 1e9);
            end(state);
        }
    }
}

/* The old one stays, and it is tried again, but not at once. */
static void a_full_disk_is_tried_again_after_an_interval(void **state)
{
    (void)state;
    W.is_full = true;
    live(SH_S(300));
    assert_int_equal(W.j.disk_step, -1);
    assert_true(W.n_writes >= 25 && W.n_writes <= 30);
    W.is_full = false;
    live(2 * bound());
    assert_true(age_on_disk() <= bound());
}

static double shown(const char *kind)
{
    return (double)(W.now - (kind[0] == 'h' ? W.j.taken_ns : W.j.disk_taken_ns)) / 1e9;
}

/* shunt_checkpoint_age_seconds and its alert are of these. */
/* What could not be written before somebody wished for it is written for who does. */
static void an_earlier_failure_answers_no_wish(void **state)
{
    (void)state;
    for (int is_full = 1; is_full >= 0; is_full--) {
        W.is_full = true;
        W.is_wanted = true;
        commit(W.now);
        end_copy();
        slots_write_newest(&W.j);
        end_write();
        assert_int_equal(W.n_saved, 0);
        W.is_full = is_full;
        W.j.save_asked = 1;
        assert_ok(slots_copy_out(&W.j, W.j.step, TX_NO_TICKET, 0, NULL)); /* of the same step */
        end_copy();
        assert_int_equal(W.n_saved, 0);
        assert_non_null(W.task);
        end_write();
        assert_int_equal(W.n_saved, 1);
        assert_int_equal(W.saved_rc, is_full ? SH_E_DISKFULL : SH_OK);
        W.n_saved = 0;
        W.j.save_step = -1;
    }
    assert_int_equal(W.j.disk_step, W.j.step);
}

static void the_age_that_is_shown_is_that_of_the_state(void **state)
{
    (void)state;
    W.swap_every_ns = SH_S(13);
    for (int i = 0; i < 2000; i++) {
        live(TICK);
        if (W.j.disk_step >= 0)
            assert_true(llabs((int64_t)(shown("disk") * 1e9) - age_on_disk()) <= W.step_ns + GRAIN);
        assert_true(shown("host") * 1e9 <=
                    (double)(W.j.interval_ns + 2 * TICK + W.step_ns + W.copy_ns));
    }
}

/* ------------------------------------------------------------------ what steps write */

#define HEAD 4096 /* bytes that steps write, of ALL */
#define ALL 16384

/* Parameters, of which one learns, with its momentum. */
static void only_the_head_learns(void)
{
    static const char TABLE[] =
        "[{\"name\":\"head\",\"dtype\":\"F32\",\"kind\":\"param\",\"shape\":[512],"
        "\"off\":0,\"bytes\":2048},"
        "{\"name\":\"body\",\"dtype\":\"F32\",\"kind\":\"param\",\"shape\":[3072],"
        "\"off\":4096,\"bytes\":12288},"
        "{\"name\":\"head#momentum\",\"dtype\":\"F32\",\"kind\":\"optim\",\"shape\":[512],"
        "\"off\":2048,\"bytes\":2048}]";

    slots_fini(&W.j);
    for (int i = 0; i < JOB_N_SLOTS; i++)
        W.j.slots[i] = (struct slot){.mem.fd = -1};
    W.j.state_bytes = ALL;
    W.j.written_bytes = HEAD;
    W.j.trials.best_by = TRAIN_BY_LOSS;
    assert_ok(job_read_table(&W.j, TABLE, NULL));
    assert_ok(slots_init(&W.j, NULL));
    lock_all();
    slots_begin(&W.j);
}

static void forget_table(void)
{
    for (size_t i = 0; i < W.j.n_tensors; i++)
        free(W.j.best_names[i]);
    free(W.j.best_names);
    free(W.j.tensors);
    json_decref(W.j.table);
}

static void what_no_step_writes_is_neither_copied_nor_written(void **state)
{
    const struct slot *s;
    const char *kept;

    (void)state;
    only_the_head_learns();
    live(SH_S(30));
    assert_true(W.n_copies >= 2);
    assert_int_equal(W.out_bytes, (uint64_t)W.n_copies * HEAD);
    while (!W.task)
        live(TICK);
    s = slots_newest(&W.j);
    assert_int_equal(s->mem.bytes, HEAD);
    assert_int_equal(W.task->n_tensors, 2);
    assert_string_equal(W.task->tensors[0].name, "head");
    assert_ptr_equal(W.task->tensors[0].data, s->mem.base);
    assert_string_equal(W.task->tensors[1].name, "head#momentum");
    assert_ptr_equal(W.task->tensors[1].data, (const char *)s->mem.base + HEAD / 2);
    /* host memory has the rest once, for whichever copy is asked for */
    kept = job_tensor(&W.j, s, 1);
    assert_ptr_equal(kept, W.j.fixed.base);
    assert_ptr_equal(job_tensor(&W.j, &W.j.slots[1], 1), kept);
    assert_int_equal(W.j.fixed.bytes, ALL - HEAD);
    /* the best weights so far lie beside the newest, without what is the same in both */
    assert_string_equal(W.j.best_names[0], "head#best");
    assert_null(W.j.best_names[1]);
    assert_null(W.j.best_names[2]);
    forget_table();
}

static void a_first_interval_follows_from_what_is_copied(void **state)
{
    int64_t whole;

    (void)state;
    W.j.interval_ns = 0;
    W.j.state_bytes = W.j.written_bytes = UINT64_C(4) << 30;
    whole = slots_interval_ns(&W.j);
    W.j.written_bytes /= 64;
    assert_true(slots_interval_ns(&W.j) < whole / 7); /* Young: by the root */
}

static void a_table_that_cannot_be_is_refused(void **state)
{
    static const struct {
        int off, bytes;
        bool is_good;
    } CASES[] = {
        {0, HEAD, true},    {HEAD, ALL - HEAD, true}, {0, HEAD + 1, false}, {HEAD - 4, 8, false},
        {HEAD, ALL, false}, {ALL - 4, 8, false},      {ALL + 1, 0, false},  {-1, 4, false}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct sh_err err = {0};
        char text[160];
        int rc;

        snprintf(text, sizeof(text),
                 "[{\"name\":\"a\",\"dtype\":\"F32\",\"kind\":\"param\",\"shape\":[1],"
                 "\"off\":%d,\"bytes\":%d}]",
                 CASES[i].off, CASES[i].bytes);
        W.j.state_bytes = ALL;
        W.j.written_bytes = HEAD;
        rc = job_read_table(&W.j, text, &err);
        if ((rc == SH_OK) != CASES[i].is_good)
            fail_msg("case %zu: %s", i, rc ? err.msg : "it was taken");
        free(W.j.tensors);
        json_decref(W.j.table);
        W.j.tensors = NULL;
        W.j.table = NULL;
    }
}

/* ------------------------------------------------------------------ page-locked */

#define LARGE (2 * DEV_LOCK_PIECE + 4096)

/* As a job comes: with another state than that of begin(). */
static void of_a_large_state(void)
{
    slots_fini(&W.j);
    for (int i = 0; i < 10; i++)
        turn();
    assert_int_equal(W.n_locked, 0);
    for (int i = 0; i < JOB_N_SLOTS; i++)
        W.j.slots[i] = (struct slot){.mem.fd = -1};
    W.lock_ns = SH_MS(10);
    W.j.written_bytes = LARGE;
    W.j.state_bytes = 2 * LARGE;
    assert_ok(slots_init(&W.j, NULL));
    assert_int_equal(W.n_locked, 0);
}

static void its_memory_is_locked_piece_by_piece(void **state)
{
    unsigned n = 0;

    (void)state;
    of_a_large_state();
    W.n_done = 0;
    slots_lock(&W.j, on_locked);
    assert_int_equal(W.n_locked, 0);
    for (int i = 0; i < 100 && W.n_done == 0; i++) {
        assert_int_equal(W.n_locked, n);
        turn();
        assert_in_range(W.n_locked, n, n + 1);
        n = W.n_locked;
        assert_ok(sh_loop_once(W.loop, 0, NULL)); /* runs have as much time */
        assert_int_equal(W.n_locked, n);
    }
    assert_int_equal(W.n_done, 1);
    assert_true(n >= 9); /* two slots, and what no step writes */
    assert_null(W.unlocked);
    /* and so they are unlocked */
    slots_fini(&W.j);
    for (int i = 0; i < 100 && W.n_locked; i++) {
        turn();
        assert_in_range(W.n_locked, n - 1, n);
        n = W.n_locked;
    }
    assert_int_equal(W.n_locked, 0);
}

static void a_lock_that_is_refused_is_said_once(void **state)
{
    (void)state;
    of_a_large_state();
    W.n_done = 0;
    slots_lock(&W.j, on_locked);
    turn();
    turn();
    W.refuses = true;
    for (int i = 0; i < 100; i++)
        turn();
    assert_int_equal(W.n_done, 1);
    assert_string_equal(W.unlocked, "refused");
}

static void what_goes_while_it_is_locked_leaves_nothing(void **state)
{
    (void)state;
    for (int n = 0; n < 4; n++) {
        of_a_large_state();
        W.n_done = 0;
        slots_lock(&W.j, on_locked);
        for (int i = 0; i < n; i++)
            turn();
        assert_int_equal(W.n_locked, n);
        slots_fini(&W.j);
        for (int i = 0; i < 100 && W.n_locked; i++) /* what is not locked goes in pieces, too */
            turn();
        assert_int_equal(W.n_locked, 0);
        assert_int_equal(W.n_done, 0);
    }
}

/* While a slow disk has the older slot. */
static void a_third_slot_counts_once_it_is_locked(void **state)
{
    struct sh_err err = {0};

    (void)state;
    of_a_large_state();
    lock_all();
    slots_begin(&W.j);
    W.j.slots[1].is_writing = true;
    for (int is_refused = 1; is_refused >= 0; is_refused--) {
        const unsigned was = W.n_locked;

        assert_int_equal(slots_copy_out(&W.j, 1, TX_NO_TICKET, 0, &err), SH_E_CONFLICT);
        assert_int_equal(W.n_locked, was);
        turn();
        assert_int_equal(W.n_locked, was + 1);
        assert_false(slots_have_room(&W.j));
        assert_int_equal(slots_copy_out(&W.j, 1, TX_NO_TICKET, 0, &err), SH_E_CONFLICT);
        W.refuses = is_refused;
        for (int i = 0; i < 10; i++)
            turn();
        assert_true(slots_have_room(&W.j)); /* or the copy says why not */
        assert_int_equal(slots_copy_out(&W.j, 1, TX_NO_TICKET, 0, &err),
                         is_refused ? SH_E_NOMEM : SH_OK);
        W.refuses = false;
        go_to(W.now + SH_S(1)); /* it is not tried again at once */
    }
    assert_ptr_equal(W.j.filling, &W.j.slots[2]);
    W.j.slots[1].is_writing = false;
}

/* A job that has to leave the device asks in every turn, and each try makes memory that is to go
 * again: without a pause the loop would do nothing else. */
static void a_slot_that_was_refused_is_not_tried_again_at_once(void **state)
{
    const int64_t from = W.now;
    unsigned n_said = 0;
    struct sh_err err = {0};

    (void)state;
    W.j.slots[0].is_writing = W.j.slots[1].is_writing = true;
    W.refuses = true;
    while (W.now < from + SH_S(1)) {
        n_said += slots_copy_out(&W.j, 1, TX_NO_TICKET, 0, &err) == SH_E_NOMEM;
        turn();
        go_to(W.now + SH_MS(1));
    }
    assert_in_range(W.n_refused, 5, 12);
    assert_in_range(n_said, W.n_refused - 1, W.n_refused);
    W.refuses = false;
    go_to(W.now + SH_S(1));
    assert_int_equal(slots_copy_out(&W.j, 1, TX_NO_TICKET, 0, &err),
                     n_said < W.n_refused ? SH_E_NOMEM : SH_E_CONFLICT);
    assert_int_equal(slots_copy_out(&W.j, 1, TX_NO_TICKET, 0, &err), SH_E_CONFLICT);
    for (int i = 0; i < 10; i++)
        turn();
    assert_ok(slots_copy_out(&W.j, 1, TX_NO_TICKET, 0, &err));
    W.j.slots[0].is_writing = W.j.slots[1].is_writing = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_disk_is_never_further_behind_than_an_interval),
        cmocka_unit_test_setup_teardown(an_interval_that_grows_leaves_no_lag_behind, begin, end),
        cmocka_unit_test(what_takes_long_is_added_and_nothing_else),
        cmocka_unit_test_setup_teardown(a_full_disk_is_tried_again_after_an_interval, begin, end),
        cmocka_unit_test_setup_teardown(an_earlier_failure_answers_no_wish, begin, end),
        cmocka_unit_test_setup_teardown(the_age_that_is_shown_is_that_of_the_state, begin, end),
        cmocka_unit_test_setup_teardown(what_no_step_writes_is_neither_copied_nor_written, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_first_interval_follows_from_what_is_copied, begin, end),
        cmocka_unit_test_setup_teardown(its_memory_is_locked_piece_by_piece, begin, end),
        cmocka_unit_test_setup_teardown(a_lock_that_is_refused_is_said_once, begin, end),
        cmocka_unit_test_setup_teardown(what_goes_while_it_is_locked_leaves_nothing, begin, end),
        cmocka_unit_test_setup_teardown(a_third_slot_counts_once_it_is_locked, begin, end),
        cmocka_unit_test_setup_teardown(a_slot_that_was_refused_is_not_tried_again_at_once, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_table_that_cannot_be_is_refused, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
