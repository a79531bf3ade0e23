/* test_worker_pool.c - workers that end, at any moment and in any way, and what they say of
 * themselves. Processes are real; what runs in them is a line of shell.
 *
 * Without it: the death of a worker at the wrong moment could end the executor, an executor on a
 * host whose driver wants more than a fence leaves could never start, or one without trouble could
 * go without fences. */
/* uses: executor/pool/pool.o executor/pool/kernels_dir.o executor/pool/waits.o executor/pool/worker_log.o executor/pool/worker_life.o */
#include "common/clock.h"
#include "common/life.h"
#include "common/mem.h"
#include "common/wire.h"
#include "executor/pool/pool.h"
#include "tests/unit/sh_test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)
#define STEP_NS (10 * MS) /* of time, in each turn of the loop */
#define MAX_TURNS 50000   /* a machine may be busy */
#define N_WORKERS 4
#define STAYS "exec sleep 600"

static struct rig {
    struct sh_loop *loop;
    struct pool *pool;
    struct pool_conf conf;
    char dir[SH_TEST_DIR_BYTES], path[SH_TEST_DIR_BYTES + 16];
    int64_t now;
    uint32_t fences; /* of the last WK_INIT */
    int n_ready, n_dead, n_msgs;
    int64_t preparing;
    bool takes_msgs;
} R;

/* ------------------------------------------------------------------ the rest of the executor */

int dev_mem_export(const struct dev_mem *m, int fds[static DEV_MAX_FDS], size_t *n_fds,
                   struct sh_err *err)
{
    (void)m, (void)fds, (void)err;
    *n_fds = 0;
    return SH_OK;
}

size_t dev_mem_bytes(const struct dev_mem *m)
{
    (void)m;
    return 1 << 20;
}

const char *dev_spins(int64_t workers, int64_t threads)
{
    (void)workers, (void)threads;
    return "GOMP_SPINCOUNT=0";
}

const char *dev_replay_name(enum dev_replay r)
{
    (void)r;
    return "none";
}

static bool on_msg(void *arg, struct worker *w, const struct sh_msg *m, int *fds, size_t n_fds)
{
    (void)arg, (void)w, (void)m, (void)fds, (void)n_fds;
    R.n_msgs++;
    return R.takes_msgs;
}

static void on_ready(void *arg, struct worker *w)
{
    (void)arg, (void)w;
    R.n_ready++;
}

static void on_dead(void *arg, struct worker *w, int64_t preparing)
{
    (void)arg, (void)w;
    R.n_dead++;
    R.preparing = preparing;
}

static bool may_run(void *arg, const struct worker *w)
{
    (void)arg, (void)w;
    return true;
}

static bool is_held(void *arg, const struct worker *w)
{
    (void)arg, (void)w;
    return false;
}

static void fill_init(void *arg, const struct worker *w, struct msg_wk_init *m)
{
    (void)arg, (void)w;
    R.fences = m->fences;
}

static int64_t restart_ns(void *arg, struct worker *w, int64_t wait_ns)
{
    (void)arg, (void)w;
    return wait_ns;
}

/* ------------------------------------------------------------------ processes */

static void write_file(const char *name, const void *bytes, size_t n, mode_t mode)
{
    char path[SH_TEST_DIR_BYTES + 32], tmp[SH_TEST_DIR_BYTES + 32];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", R.dir, name);
    snprintf(tmp, sizeof(tmp), "%s/tmp", R.dir);
    fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
    assert_int_equal(rename(tmp, path), 0);
}

/* What those that start from now on say, and then do. */
static void script(const struct sh_msg *says, size_t n, const char *does)
{
    const struct sh_wire_handler nobody = {.on_msg = NULL};
    char text[256], bytes[4096];
    struct sh_wire *wire;
    size_t len = 0;
    int sv[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
    assert_ok(sh_wire_new(R.loop, sv[0], &nobody, &wire, NULL));
    for (size_t i = 0; i < n; i++) {
        ssize_t got;

        assert_ok(sh_wire_send(wire, &says[i], NULL));
        got = recv(sv[1], bytes + len, sizeof(bytes) - len, MSG_DONTWAIT);
        assert_true(got > 0);
        len += (size_t)got;
    }
    sh_wire_close(wire);
    close(sv[1]);
    write_file("says", bytes, len, 0644);
    snprintf(text, sizeof(text), "#!/bin/sh\ncat %s/says >&3\n%s\n", R.dir, does);
    write_file("shunt-worker", text, strlen(text), 0755);
}

static struct sh_msg ready(uint32_t fences, const char *why)
{
    return (struct sh_msg){
        .type = MSG_WK_READY,
        .u.wk_ready = {.pid = 1, .fences = fences, .why = why, .identity = "here"}};
}

static void a_turn(void)
{
    sh_clock_fake(R.now += STEP_NS, 0);
    assert_ok(sh_loop_once(R.loop, MS, NULL));
}

/* With less to look at on the way. */
static void wait_s(int64_t seconds)
{
    for (int64_t end = R.now + seconds * SECOND; R.now < end;) {
        sh_clock_fake(R.now += 100 * MS, 0);
        assert_ok(sh_loop_once(R.loop, 0, NULL));
    }
}

#define UNTIL(what)                                 \
    for (int n_turns = 0; !(what); n_turns++) {     \
        assert_in_range(n_turns, 0, MAX_TURNS - 1); \
        a_turn();                                   \
    }

static int begin(void **state)
{
    static const struct pool_hooks hooks = {
        .may_run = may_run, .is_held = is_held, .fill_init = fill_init, .restart_ns = restart_ns};

    (void)state;
    memset(&R, 0, sizeof(R));
    sh_test_dir_make(R.dir);
    sh_clock_fake(R.now = 1000 * SECOND, 0);
    assert_ok(sh_loop_new(&R.loop, NULL));
    snprintf(R.path, sizeof(R.path), "%s:/usr/bin:/bin", R.dir);
    assert_int_equal(setenv("PATH", R.path, 1), 0);
    R.conf = (struct pool_conf){.executor = "e",
                                .max_models = 8,
                                .device = "cpu",
                                .state_dir = R.dir,
                                .n_workers = 1,
                                .hang_ms = 3000,
                                .compile_ms = INT64_C(1000000000),
                                .hooks = &hooks};
    return 0;
}

static struct worker *first(void)
{
    return pool_at(R.pool, 0);
}

static void start(void)
{
    const struct pool_handler h = {.on_msg = on_msg, .on_ready = on_ready, .on_dead = on_dead};

    assert_ok(pool_new(&R.conf, R.loop, NULL, &h, &R.pool, NULL));
    assert_ok(pool_start(R.pool, NULL));
}

static int end(void **state)
{
    (void)state;
    if (R.pool)
        pool_stop(R.pool);
    for (size_t i = 0; R.pool && i < pool_size(R.pool); i++)
        worker_kill(pool_at(R.pool, i), WORKER_KILL_RENEW);
    for (size_t i = 0; R.pool && i < pool_size(R.pool); i++)
        UNTIL(pool_at(R.pool, i)->pid == 0);
    pool_free(R.pool);
    sh_loop_free(R.loop);
    sh_test_dir_remove(R.dir);
    sh_clock_real();
    return 0;
}

/* ------------------------------------------------------------------ ends */

static void a_worker_may_die_in_any_state(void **state)
{
    static const enum worker_state WAY[] = {WORKER_STANDBY, WORKER_ACTIVE, WORKER_PARKED,
                                            WORKER_CLEANING};

    (void)state;
    script(NULL, 0, STAYS);
    start();
    for (size_t n = 0; n <= SH_ARRAY_LEN(WAY); n++) {
        struct worker *w = first();

        assert_int_equal(w->state, WORKER_STARTING);
        for (size_t i = 0; i < n; i++)
            pool_set_state(w, WAY[i]);
        assert_ok(worker_note_model(w, 5, NULL));
        worker_begin_model(w, 9);
        assert_int_equal(kill(w->pid, n % 2 ? SIGKILL : SIGTERM), 0);
        UNTIL(R.n_dead == (int)n + 1);
        assert_int_equal(w->state, WORKER_DEAD);
        assert_string_equal(w->exit_cause, n % 2 ? "killed" : "crash");
        assert_int_equal(R.preparing, 9);
        assert_false(worker_has_model(w, 5) || w->preparing || w->pid || worker_page(w));
        UNTIL(w->state == WORKER_STARTING);
    }
}

/* One that lived long is started again at once; others wait for each other's deaths. */
static void who_dies_again_and_again_is_started_more_and_more_seldom(void **state)
{
    int64_t waits[4];

    (void)state;
    script(NULL, 0, STAYS);
    start();
    for (size_t i = 0; i < SH_ARRAY_LEN(waits); i++) {
        struct worker *w = first();

        if (i == 3)
            sh_clock_fake(R.now += 11 * SECOND, 0);
        assert_int_equal(kill(w->pid, SIGKILL), 0);
        UNTIL(w->state == WORKER_DEAD);
        waits[i] = R.now;
        UNTIL(w->state == WORKER_STARTING);
        waits[i] = R.now - waits[i];
    }
    assert_true(waits[0] < waits[1] && waits[1] < waits[2]);
    assert_int_equal(waits[3], waits[0]);
}

static void what_it_ended_of_is_told_apart(void **state)
{
    static const struct {
        const char *does, *cause;
    } CASES[] = {
        {"exit 0", "exit"},
        {"exit 1", "error"},
        {"kill -SEGV $$", "crash"},
        {"kill -KILL $$", "killed"},
        {"exec 3>&-; " STAYS, "killed"},
    };
    char device[16];

    (void)state;
    for (size_t i = 0; i <= SH_ARRAY_LEN(CASES); i++) {
        const bool is_device = i == SH_ARRAY_LEN(CASES);

        snprintf(device, sizeof(device), "exit %d", WORKER_EXIT_DEVLOST);
        script(NULL, 0, is_device ? device : CASES[i].does);
        if (i == 0)
            start();
        else
            UNTIL(first()->state == WORKER_STARTING);
        UNTIL(R.n_dead == (int)i + 1);
        assert_string_equal(first()->exit_cause, is_device ? "device" : CASES[i].cause);
    }
}

static void one_that_is_silent_at_work_is_killed(void **state)
{
    const struct sh_msg says = ready(MSG_FENCES, "");

    (void)state;
    script(&says, 1, STAYS);
    start();
    UNTIL(R.n_ready == 1);
    pool_set_state(first(), WORKER_STANDBY);
    wait_s(100); /* nothing to do: silence is right */
    assert_int_equal(R.n_dead, 0);
    pool_set_state(first(), WORKER_ACTIVE);
    wait_s(2);
    atomic_fetch_add(&worker_page(first())->progress, 1);
    wait_s(2);
    assert_int_equal(R.n_dead, 0);
    UNTIL(R.n_dead == 1);
    assert_string_equal(first()->exit_cause, "hang");
}

/* It holds the device then, as long as one that is compiling may be silent. */
static void one_that_does_not_come_to_a_run_from_a_load_is_killed(void **state)
{
    const struct sh_msg says = ready(MSG_FENCES, "");

    (void)state;
    script(&says, 1, STAYS);
    start();
    UNTIL(R.n_ready == 1);
    pool_set_state(first(), WORKER_STANDBY);
    worker_begin_model(first(), 7);
    wait_s(100); /* a piece of a load may take long */
    assert_int_equal(R.n_dead, 0);
    pool_set_state(first(), WORKER_ACTIVE);
    wait_s(2); /* since it has the run, not since it was heard of */
    assert_int_equal(R.n_dead, 0);
    UNTIL(R.n_dead == 1);
    assert_string_equal(first()->exit_cause, "hang");
    assert_int_equal(R.preparing, 7);
}

static void a_pool_that_stops_starts_nobody(void **state)
{
    (void)state;
    script(NULL, 0, STAYS);
    start();
    assert_int_equal(kill(first()->pid, SIGKILL), 0);
    UNTIL(R.n_dead == 1);
    pool_stop(R.pool); /* its timer is set */
    for (int i = 0; i < 100; i++)
        a_turn();
    assert_int_equal(first()->state, WORKER_DEAD);
    worker_kill(first(), WORKER_KILL_RENEW); /* there is no process any more */
    worker_send(first(), &(struct sh_msg){.type = MSG_WK_MODEL_DROP}, NULL, 0);
    worker_cork(first());
    worker_uncork(first());
    assert_int_equal(first()->kill, WORKER_KILL_NONE);
}

/* ------------------------------------------------------------------ what they say */

static void one_is_ready_once(void **state)
{
    const struct sh_msg says[] = {ready(MSG_FENCES, ""), ready(MSG_FENCES, "")};
    const char *why;

    (void)state;
    script(says, 2, STAYS);
    start();
    UNTIL(R.n_dead == 1);
    assert_string_equal(first()->exit_cause, "protocol");
    assert_int_equal(R.n_ready, 1);
    assert_int_equal(R.n_msgs, 1);
    assert_int_equal(pool_fences(R.pool, &why), MSG_FENCES);
    assert_string_equal(why, "");
}

/* Runs go to it between two pieces of a load, so that it is never silent for long: it could stand
 * so for ever. */
static void one_that_says_that_another_model_is_ready_is_killed(void **state)
{
    const struct sh_msg says = ready(MSG_FENCES, "");
    uint64_t turn;

    (void)state;
    script(&says, 1, STAYS);
    start();
    UNTIL(R.n_ready == 1);
    pool_set_state(first(), WORKER_STANDBY);
    turn = worker_begin_model(first(), 7);
    assert_true(worker_end_model(first(), 7, turn));
    assert_true(worker_is_idle(first()));
    turn = worker_begin_model(first(), 8);
    assert_false(worker_end_model(first(), 7, turn));
    UNTIL(R.n_dead == 1);
    assert_string_equal(first()->exit_cause, "protocol");
    assert_int_equal(R.preparing, 8); /* who gave it hears that nothing comes of it */
}

/* The second time it would be taken for the end of what it was told next. */
static void one_that_says_twice_that_it_has_compiled_is_killed(void **state)
{
    const struct sh_msg says = ready(MSG_FENCES, "");

    (void)state;
    script(&says, 1, STAYS);
    start();
    for (int n = 0; n < 4; n++) {
        const bool is_job = n % 2 != 0, goes_on = n / 2 != 0; /* with the same once more */
        uint64_t turn;

        UNTIL(R.n_ready == n + 1);
        pool_set_state(first(), WORKER_STANDBY);
        turn = is_job ? worker_begin_job(first()) : worker_begin_model(first(), 7);
        assert_true(is_job ? worker_end_job(first(), 3, turn) : worker_end_model(first(), 7, turn));
        if (goes_on && is_job)
            worker_begin_job(first());
        else if (goes_on)
            worker_begin_model(first(), 7);
        assert_false(is_job ? worker_end_job(first(), 3, turn)
                            : worker_end_model(first(), 7, turn));
        assert_int_equal(first()->job, is_job && !goes_on ? 3 : 0);
        UNTIL(R.n_dead == n + 1);
        assert_string_equal(first()->exit_cause, "protocol");
    }
}

static void a_fence_that_one_could_not_put_up_is_missing_of_all(void **state)
{
    const struct sh_msg says = ready(MSG_FENCES & ~MSG_FENCE_USER, "no such user");
    const char *why;

    (void)state;
    script(&says, 1, STAYS);
    start();
    assert_int_equal(pool_fences(R.pool, &why), 0);
    UNTIL(R.n_ready == 1);
    assert_true(worker_is_alive(first()));
    assert_int_equal(pool_fences(R.pool, &why), MSG_FENCES & ~MSG_FENCE_USER);
    assert_string_equal(why, "no such user");
    worker_kill(first(), WORKER_KILL_RENEW);
    assert_false(worker_is_alive(first()));
    UNTIL(R.n_ready == 2);
    assert_int_equal(pool_fences(R.pool, &why), MSG_FENCES & ~MSG_FENCE_USER);
}

/* ------------------------------------------------------------------ fences */

static void start_on_gpu(void)
{
    R.conf.device = "cuda";
    R.conf.n_workers = N_WORKERS;
    start();
    assert_int_equal(R.fences, MSG_FENCES);
}

static void workers_that_never_start_are_tried_without_fences(void **state)
{
    uint32_t seen[6];
    size_t n = 0;
    const char *why;

    (void)state;
    script(NULL, 0, "exit 1");
    start_on_gpu();
    for (seen[0] = MSG_FENCES; n < SH_ARRAY_LEN(seen) - 1 && (n == 0 || seen[n] != MSG_FENCES);) {
        UNTIL(R.fences != seen[n]);
        seen[++n] = R.fences;
    }
    assert_int_equal(seen[n], MSG_FENCES); /* none of it has helped */
    assert_true(n >= 3);
    assert_int_equal(seen[1], MSG_FENCES & ~MSG_FENCE_FILES);
    assert_int_equal(pool_fences(R.pool, &why), 0);
}

static void deaths_that_no_fence_can_cause_change_none(void **state)
{
    static const struct {
        int rc; /* of WK_UNFIT; 0: it says nothing */
        const char *does;
        bool changes;
    } CASES[] = {
        {0, "kill -KILL $$", false}, {SH_E_DEVMEM, "exit 1", false}, {SH_E_NOMEM, "exit 1", false},
        {SH_E_IO, "exit 1", true},   {0, "kill -SEGV $$", true},
    };

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        const struct sh_msg unfit = {.type = MSG_WK_UNFIT,
                                     .u.wk_unfit = {.rc = CASES[i].rc, .msg = "no device"}};

        script(&unfit, CASES[i].rc != 0, CASES[i].does);
        start_on_gpu();
        UNTIL(CASES[i].changes ? R.fences != MSG_FENCES
                               : R.n_dead >= 2 * N_WORKERS && first()->state == WORKER_STARTING);
        assert_int_equal(R.fences != MSG_FENCES, CASES[i].changes);
        end(state);
        begin(state);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(a_worker_may_die_in_any_state),
        TEST(who_dies_again_and_again_is_started_more_and_more_seldom),
        TEST(what_it_ended_of_is_told_apart),
        TEST(one_that_is_silent_at_work_is_killed),
        TEST(one_that_does_not_come_to_a_run_from_a_load_is_killed),
        TEST(a_pool_that_stops_starts_nobody),
        TEST(one_is_ready_once),
        TEST(one_that_says_that_another_model_is_ready_is_killed),
        TEST(one_that_says_twice_that_it_has_compiled_is_killed),
        TEST(a_fence_that_one_could_not_put_up_is_missing_of_all),
        TEST(workers_that_never_start_are_tried_without_fences),
        TEST(deaths_that_no_fence_can_cause_change_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
