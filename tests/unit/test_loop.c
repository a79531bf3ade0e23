/* test_loop.c - without it, a wake-up could be lost (a daemon that sleeps on work), a callback
 * could run for something already freed, or a timer could fire early, twice or never. */
/* link: -Wl,--wrap=sh_clock_ns -Wl,--wrap=epoll_pwait2 */
#include "common/clock.h"
#include "common/loop.h"
#include "tests/unit/sh_test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define MS INT64_C(1000000)
#define LONG_NS (10000 * MS) /* a test that waits this long has failed */

static int64_t look_ns, looked_ns; /* a look at the clock takes so long; 0: as it is */
static bool sleeps_for_ever;

int64_t __real_sh_clock_ns(void);
int64_t __wrap_sh_clock_ns(void);
int __real_epoll_pwait2(int fd, struct epoll_event *ev, int max, const struct timespec *wait,
                        const sigset_t *mask);
int __wrap_epoll_pwait2(int fd, struct epoll_event *ev, int max, const struct timespec *wait,
                        const sigset_t *mask);

int64_t __wrap_sh_clock_ns(void)
{
    return look_ns ? (looked_ns += look_ns) : __real_sh_clock_ns();
}

int __wrap_epoll_pwait2(int fd, struct epoll_event *ev, int max, const struct timespec *wait,
                        const sigset_t *mask)
{
    if (!look_ns)
        return __real_epoll_pwait2(fd, ev, max, wait, mask);
    sleeps_for_ever |= !wait;
    return 0;
}

struct world {
    struct sh_loop *loop;
    struct sh_io *io[2];
    struct sh_timer *timer[4];
    int fd[2][2]; /* two pairs */
    int calls, other_calls;
    unsigned events;
    char order[32];
    pid_t pid;
    int wait_status;
};

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    assert_ok(sh_loop_new(&w->loop, NULL));
    for (int i = 0; i < 2; i++)
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, w->fd[i]), 0);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    for (int i = 0; i < 2; i++) {
        sh_io_del(w->io[i]);
        for (int k = 0; k < 2; k++)
            if (w->fd[i][k] >= 0)
                close(w->fd[i][k]);
    }
    for (int i = 0; i < 4; i++)
        sh_timer_del(w->timer[i]);
    sh_loop_free(w->loop);
    sh_clock_real();
    free(w);
    return 0;
}

static void count_io(struct sh_loop *l, int fd, unsigned events, void *arg)
{
    struct world *w = arg;

    (void)l;
    (void)fd;
    w->calls++;
    w->events = events;
}

/* ---------------------------------------------------------------- descriptors */

static void a_readable_descriptor_is_reported_until_it_is_read(void **state)
{
    struct world *w = *state;

    assert_ok(sh_io_add(w->loop, w->fd[0][0], SH_IO_READ, count_io, w, &w->io[0], NULL));
    assert_ok(sh_loop_once(w->loop, 0, NULL));
    assert_int_equal(w->calls, 0);
    assert_int_equal(write(w->fd[0][1], "x", 1), 1);
    assert_ok(sh_loop_once(w->loop, LONG_NS, NULL));
    assert_ok(sh_loop_once(w->loop, LONG_NS, NULL));
    assert_int_equal(w->calls, 2);
    assert_int_equal(w->events, SH_IO_READ);
}

static void interest_can_be_changed(void **state)
{
    struct world *w = *state;

    assert_ok(sh_io_add(w->loop, w->fd[0][0], SH_IO_READ, count_io, w, &w->io[0], NULL));
    assert_ok(sh_io_set(w->io[0], SH_IO_READ | SH_IO_WRITE, NULL));
    assert_ok(sh_loop_once(w->loop, LONG_NS, NULL));
    assert_int_equal(w->events, SH_IO_WRITE);
    assert_ok(sh_io_set(w->io[0], 0, NULL));
    assert_ok(sh_loop_once(w->loop, 0, NULL));
    assert_int_equal(w->calls, 1);
}

static void a_hang_up_is_reported_without_being_asked_for(void **state)
{
    struct world *w = *state;

    assert_ok(sh_io_add(w->loop, w->fd[0][0], 0, count_io, w, &w->io[0], NULL));
    close(w->fd[0][1]);
    w->fd[0][1] = -1;
    assert_ok(sh_loop_once(w->loop, LONG_NS, NULL));
    assert_int_equal(w->events, SH_IO_HUP);
}

/* Both descriptors are ready in one turn; the first callback removes both watches. */
static void remove_both(struct sh_loop *l, int fd, unsigned events, void *arg)
{
    struct world *w = arg;

    (void)l;
    (void)fd;
    (void)events;
    w->calls++;
    for (int i = 0; i < 2; i++) {
        sh_io_del(w->io[i]);
        w->io[i] = NULL;
    }
}

static void what_is_removed_in_a_turn_gets_no_further_event(void **state)
{
    struct world *w = *state;

    for (int i = 0; i < 2; i++) {
        assert_int_equal(write(w->fd[i][1], "x", 1), 1);
        assert_ok(sh_io_add(w->loop, w->fd[i][0], SH_IO_READ, remove_both, w, &w->io[i], NULL));
    }
    assert_ok(sh_loop_once(w->loop, LONG_NS, NULL));
    assert_ok(sh_loop_once(w->loop, 0, NULL));
    assert_int_equal(w->calls, 1);
}

/* The first callback replaces the other descriptor by a new one with the same number. */
static void replace_other(struct sh_loop *l, int fd, unsigned events, void *arg)
{
    struct world *w = arg;
    int other = fd == w->fd[0][0] ? 1 : 0;

    (void)events;
    if (w->calls++ > 0)
        return;
    sh_io_del(w->io[other]);
    close(w->fd[other][0]);
    assert_int_equal(fcntl(fd, F_DUPFD_CLOEXEC, w->fd[other][0]), w->fd[other][0]);
    assert_ok(sh_io_add(l, w->fd[other][0], SH_IO_WRITE, count_io, w, &w->io[other], NULL));
    sh_io_set(w->io[1 - other], 0, NULL);
    w->events = 0;
}

static void an_old_event_never_reaches_a_new_watch_of_the_same_number(void **state)
{
    struct world *w = *state;

    for (int i = 0; i < 2; i++) {
        assert_int_equal(write(w->fd[i][1], "x", 1), 1);
        assert_ok(sh_io_add(w->loop, w->fd[i][0], SH_IO_READ, replace_other, w, &w->io[i], NULL));
    }
    assert_ok(sh_loop_once(w->loop, LONG_NS, NULL));
    assert_int_equal(w->calls, 1);
    assert_ok(sh_loop_once(w->loop, LONG_NS, NULL));
    assert_int_equal(w->events, SH_IO_WRITE);
}

/* libpq closes its socket itself; the number may be watched anew before we remove the old watch. */
static void a_late_removal_leaves_the_new_watch_of_the_number_alone(void **state)
{
    struct world *w = *state;
    int number = w->fd[0][0];

    assert_ok(sh_io_add(w->loop, number, SH_IO_READ, count_io, w, &w->io[0], NULL));
    close(number); /* behind the loop's back */
    assert_int_equal(fcntl(w->fd[1][0], F_DUPFD_CLOEXEC, number), number);
    assert_ok(sh_io_add(w->loop, number, SH_IO_READ, count_io, w, &w->io[1], NULL));
    sh_io_del(w->io[0]);
    w->io[0] = NULL;
    assert_int_equal(write(w->fd[1][1], "x", 1), 1);
    assert_ok(sh_loop_once(w->loop, LONG_NS, NULL));
    assert_int_equal(w->calls, 1);
}

static void watching_twice_or_nothing_is_refused(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};

    assert_ok(sh_io_add(w->loop, w->fd[0][0], SH_IO_READ, count_io, w, &w->io[0], NULL));
    assert_fails(sh_io_add(w->loop, w->fd[0][0], SH_IO_READ, count_io, w, &w->io[1], &err), SH_E_IO,
                 &err, "watch descriptor");
    assert_null(w->io[1]);
    err = (struct sh_err){0};
    assert_fails(sh_io_add(w->loop, -1, SH_IO_READ, count_io, w, &w->io[1], &err), SH_E_BUG, &err,
                 "-1");
}

static void nest(struct sh_loop *l, int fd, unsigned events, void *arg)
{
    struct world *w = arg;

    (void)fd;
    (void)events;
    w->calls = sh_loop_once(l, 0, NULL);
}

static void a_callback_cannot_run_the_loop(void **state)
{
    struct world *w = *state;

    assert_ok(sh_io_add(w->loop, w->fd[0][0], SH_IO_WRITE, nest, w, &w->io[0], NULL));
    assert_ok(sh_loop_once(w->loop, LONG_NS, NULL));
    assert_int_equal(w->calls, SH_E_BUG);
}

/* ---------------------------------------------------------------- timers */

struct named {
    struct world *w;
    char name;
};

static void append(struct sh_loop *l, void *arg)
{
    struct named *n = arg;
    size_t len = strlen(n->w->order);

    (void)l;
    n->w->order[len] = n->name;
}

static void timers_fire_in_order_and_not_before_their_time(void **state)
{
    struct world *w = *state;
    struct named a = {w, 'a'}, b = {w, 'b'}, c = {w, 'c'}, d = {w, 'd'};

    sh_clock_fake(1000, 0);
    assert_ok(sh_timer_add(w->loop, 30, 0, append, &c, &w->timer[0], NULL));
    assert_ok(sh_timer_add(w->loop, 10, 0, append, &a, &w->timer[1], NULL));
    assert_ok(sh_timer_add(w->loop, 20, 0, append, &b, &w->timer[2], NULL));
    assert_ok(sh_timer_add(w->loop, 30, 0, append, &d, &w->timer[3], NULL));
    assert_ok(sh_loop_once(w->loop, 0, NULL));
    assert_string_equal(w->order, "");
    sh_clock_advance(19);
    assert_ok(sh_loop_once(w->loop, 0, NULL));
    assert_string_equal(w->order, "a");
    sh_clock_advance(11);
    assert_ok(sh_loop_once(w->loop, 0, NULL));
    assert_string_equal(w->order, "abcd");
    sh_clock_advance(1000);
    assert_ok(sh_loop_once(w->loop, 0, NULL));
    assert_string_equal(w->order, "abcd");
}

static void ignore_timer(struct sh_loop *l, void *arg)
{
    (void)l;
    (void)arg;
}

/* A look at the clock takes time; on a busy machine another process may run between two of them. */
static void a_timer_that_falls_due_between_two_looks_at_the_clock_is_not_slept_over(void **state)
{
    struct world *w = *state;

    looked_ns = MS;
    look_ns = 10;
    for (int64_t delay_ns = 1; delay_ns < 100; delay_ns++) {
        assert_ok(sh_timer_add(w->loop, delay_ns, 0, ignore_timer, NULL, &w->timer[0], NULL));
        assert_ok(sh_loop_once(w->loop, -1, NULL));
        sh_timer_del(w->timer[0]);
        w->timer[0] = NULL;
    }
    look_ns = 0;
    assert_false(sleeps_for_ever);
}

static void a_periodic_timer_leaves_out_what_it_missed(void **state)
{
    struct world *w = *state;
    struct named a = {w, 'a'};

    sh_clock_fake(0, 0);
    assert_ok(sh_timer_add(w->loop, 10, 10, append, &a, &w->timer[0], NULL));
    for (int i = 0; i < 3; i++) {
        sh_clock_advance(10);
        assert_ok(sh_loop_once(w->loop, 0, NULL));
    }
    assert_string_equal(w->order, "aaa");
    sh_clock_advance(1005);
    assert_ok(sh_loop_once(w->loop, 0, NULL));
    assert_ok(sh_loop_once(w->loop, 0, NULL));
    assert_string_equal(w->order, "aaaa");
    sh_clock_advance(10);
    assert_ok(sh_loop_once(w->loop, 0, NULL));
    assert_string_equal(w->order, "aaaaa");
}

static void a_timer_can_be_disarmed_and_armed_again(void **state)
{
    struct world *w = *state;
    struct named a = {w, 'a'};

    sh_clock_fake(0, 0);
    assert_ok(sh_timer_add(w->loop, 10, 0, append, &a, &w->timer[0], NULL));
    sh_timer_set(w->timer[0], -1);
    sh_clock_advance(100);
    assert_ok(sh_loop_once(w->loop, 0, NULL));
    assert_string_equal(w->order, "");
    sh_timer_set(w->timer[0], 5);
    sh_timer_set(w->timer[0], 50);
    sh_clock_advance(10);
    assert_ok(sh_loop_once(w->loop, 0, NULL));
    assert_string_equal(w->order, "");
    sh_clock_advance(40);
    assert_ok(sh_loop_once(w->loop, 0, NULL));
    assert_string_equal(w->order, "a");
}

static void rearm_at_once(struct sh_loop *l, void *arg)
{
    struct world *w = arg;

    (void)l;
    w->calls++;
    sh_timer_set(w->timer[0], 0);
}

static void a_timer_that_rearms_itself_at_once_fires_once_a_turn(void **state)
{
    struct world *w = *state;

    sh_clock_fake(0, 0);
    assert_ok(sh_timer_add(w->loop, 0, 0, rearm_at_once, w, &w->timer[0], NULL));
    for (int i = 1; i < 4; i++) {
        assert_ok(sh_loop_once(w->loop, LONG_NS, NULL));
        assert_int_equal(w->calls, i);
    }
}

static void remove_all(struct sh_loop *l, void *arg)
{
    struct world *w = arg;

    (void)l;
    w->calls++;
    for (int i = 0; i < 4; i++) {
        sh_timer_del(w->timer[i]);
        w->timer[i] = NULL;
    }
}

static void a_timer_may_remove_itself_and_the_others(void **state)
{
    struct world *w = *state;

    sh_clock_fake(0, 0);
    for (int i = 0; i < 4; i++)
        assert_ok(sh_timer_add(w->loop, 5, 5, remove_all, w, &w->timer[i], NULL));
    sh_clock_advance(5);
    assert_ok(sh_loop_once(w->loop, 0, NULL));
    sh_clock_advance(5);
    assert_ok(sh_loop_once(w->loop, 0, NULL));
    assert_int_equal(w->calls, 1);
}

static void note_due(struct sh_loop *l, void *arg)
{
    (void)l;
    *(int *)arg += 1;
}

/* Arms, moves and removes in an order without pattern and compares with a plain list. */
static void a_thousand_timers_keep_their_order(void **state)
{
    enum { N = 1000 };
    static struct sh_timer *t[N];
    static int64_t due[N];
    static int fired[N];
    struct world *w = *state;
    uint32_t x = 7;

    sh_clock_fake(0, 0);
    for (int i = 0; i < N; i++) {
        due[i] = 1 + (x = x * 1664525u + 1013904223u) % 5000;
        assert_ok(sh_timer_add(w->loop, due[i], 0, note_due, &fired[i], &t[i], NULL));
    }
    for (int i = 0; i < N; i++) {
        x = x * 1664525u + 1013904223u;
        if (x % 4 == 0) {
            due[i] = 1 + x / 8 % 5000;
            sh_timer_set(t[i], due[i]);
        } else if (x % 4 == 1) {
            due[i] = INT64_MAX;
            sh_timer_del(t[i]);
            t[i] = NULL;
        }
    }
    for (int64_t now = 0; now <= 5100; now += 50) {
        assert_ok(sh_loop_once(w->loop, 0, NULL));
        for (int i = 0; i < N; i++)
            assert_int_equal(fired[i], due[i] <= now);
        sh_clock_advance(50);
    }
    for (int i = 0; i < N; i++)
        sh_timer_del(t[i]);
}

static void count_hook(struct sh_loop *l, void *arg)
{
    struct world *w = arg;

    (void)l;
    w->other_calls++;
}

static void read_and_count(struct sh_loop *l, int fd, unsigned events, void *arg)
{
    char c[64];

    while (recv(fd, c, sizeof(c), MSG_DONTWAIT) > 0)
        ;
    count_io(l, fd, events, arg);
}

static void a_loop_that_stays_awake_polls_and_timers_keep_their_time(void **state)
{
    struct world *w = *state;
    int64_t end = sh_clock_ns() + LONG_NS, cpu = sh_clock_cpu_ns(), begin;

    sh_loop_busy_poll(w->loop, 20 * MS);
    assert_ok(sh_io_add(w->loop, w->fd[0][0], SH_IO_READ, read_and_count, w, &w->io[0], NULL));
    while (sh_clock_cpu_ns() - cpu < 5 * MS && sh_clock_ns() < end) {
        sh_loop_stay_awake(w->loop);
        assert_int_equal(write(w->fd[0][1], "x", 1), 1);
        assert_ok(sh_loop_once(w->loop, -1, NULL));
        assert_ok(sh_loop_once(w->loop, 5 * MS, NULL)); /* polls: nothing comes */
    }
    assert_true(sh_clock_cpu_ns() - cpu >= 5 * MS);
    assert_true(w->calls > 0);
    begin = sh_clock_ns();
    sh_loop_stay_awake(w->loop);
    assert_ok(sh_timer_add(w->loop, 30 * MS, 0, count_hook, w, &w->timer[0], NULL));
    while (w->other_calls == 0)
        assert_ok(sh_loop_once(w->loop, -1, NULL)); /* polls, then sleeps */
    assert_true(sh_clock_ns() - begin >= 30 * MS);
}

static void other_events_let_a_polling_loop_sleep(void **state)
{
    struct world *w = *state;
    int64_t cpu = sh_clock_cpu_ns();

    sh_loop_busy_poll(w->loop, LONG_NS);
    assert_ok(sh_io_add(w->loop, w->fd[0][0], SH_IO_READ, read_and_count, w, &w->io[0], NULL));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(write(w->fd[0][1], "x", 1), 1);
        assert_ok(sh_loop_once(w->loop, -1, NULL));
        assert_ok(sh_loop_once(w->loop, 25 * MS, NULL));
    }
    assert_true(sh_clock_cpu_ns() - cpu < 20 * MS); /* of the 100 that it waited */
}

static void the_loop_sleeps_until_the_next_timer(void **state)
{
    struct world *w = *state;
    struct named a = {w, 'a'};
    int64_t start_ns = sh_clock_ns();

    assert_ok(sh_timer_add(w->loop, 3 * MS, 0, append, &a, &w->timer[0], NULL));
    while (!w->order[0])
        assert_ok(sh_loop_once(w->loop, LONG_NS, NULL));
    assert_true(sh_clock_ns() - start_ns >= 3 * MS);
    assert_true(sh_clock_ns() - start_ns < LONG_NS / 2);
}

/* ---------------------------------------------------------------- wake-ups */

enum { N_WAKERS = 4, N_WORK = 20000 };

struct shared {
    struct sh_loop *loop;
    atomic_int made; /* work made visible before the wake-up */
    int seen;
};

static void *make_work(void *arg)
{
    struct shared *s = arg;

    for (int i = 0; i < N_WORK; i++) {
        atomic_fetch_add(&s->made, 1);
        sh_loop_wake(s->loop);
    }
    return NULL;
}

static void see_work(struct sh_loop *l, void *arg)
{
    struct shared *s = arg;

    s->seen = atomic_load(&s->made);
    if (s->seen == N_WAKERS * N_WORK)
        sh_loop_stop(l);
}

/* If the last wake-up were lost the loop would sleep for ever: the runner's time limit tells. */
static void no_wake_up_is_lost(void **state)
{
    struct world *w = *state;
    struct shared s = {.loop = w->loop};
    pthread_t id[N_WAKERS];

    sh_loop_on_wake(w->loop, see_work, &s);
    for (int i = 0; i < N_WAKERS; i++)
        assert_int_equal(pthread_create(&id[i], NULL, make_work, &s), 0);
    assert_ok(sh_loop_run(w->loop, NULL));
    for (int i = 0; i < N_WAKERS; i++)
        pthread_join(id[i], NULL);
    assert_int_equal(s.seen, N_WAKERS * N_WORK);
}

static void *stop_it(void *arg)
{
    sh_loop_stop(arg);
    return NULL;
}

static void another_thread_can_stop_the_loop(void **state)
{
    struct world *w = *state;
    pthread_t id;

    sh_loop_on_wake(w->loop, count_hook, w);
    assert_int_equal(pthread_create(&id, NULL, stop_it, w->loop), 0);
    assert_ok(sh_loop_run(w->loop, NULL));
    pthread_join(id, NULL);
    assert_int_equal(w->other_calls, 0); /* a stop is no wake-up */
}

static void wake_in_hook(struct sh_loop *l, void *arg)
{
    struct world *w = arg;

    if (w->calls++ == 0)
        sh_loop_wake(l);
}

static void the_hook_before_sleeping_may_wake_the_loop(void **state)
{
    struct world *w = *state;

    sh_loop_before_sleep(w->loop, wake_in_hook, w);
    sh_loop_on_wake(w->loop, count_hook, w);
    assert_ok(sh_loop_once(w->loop, LONG_NS, NULL));
    assert_int_equal(w->calls, 1);
    assert_int_equal(w->other_calls, 1);
}

/* ---------------------------------------------------------------- children and signals */

static void on_exit_of(struct sh_loop *l, pid_t pid, int wait_status, void *arg)
{
    struct world *w = arg;

    w->pid = pid;
    w->wait_status = wait_status;
    sh_loop_stop(l);
}

static pid_t start_child(int code, int sig)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        if (sig)
            raise(sig);
        _exit(code);
    }
    return pid;
}

static void a_child_is_reported_once_and_reaped(void **state)
{
    struct world *w = *state;
    pid_t pid = start_child(7, 0);

    assert_ok(sh_loop_child(w->loop, pid, on_exit_of, w, NULL));
    assert_ok(sh_loop_run(w->loop, NULL));
    assert_int_equal(w->pid, pid);
    assert_true(WIFEXITED(w->wait_status) && WEXITSTATUS(w->wait_status) == 7);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), -1);

    pid = start_child(0, SIGKILL);
    assert_ok(sh_loop_child(w->loop, pid, on_exit_of, w, NULL));
    assert_ok(sh_loop_run(w->loop, NULL));
    assert_true(WIFSIGNALED(w->wait_status) && WTERMSIG(w->wait_status) == SIGKILL);
}

static void a_child_that_ended_before_it_was_watched_is_reported_too(void **state)
{
    struct world *w = *state;
    pid_t pid = start_child(3, 0);
    siginfo_t si;

    assert_int_equal(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT), 0);
    assert_ok(sh_loop_child(w->loop, pid, on_exit_of, w, NULL));
    assert_ok(sh_loop_run(w->loop, NULL));
    assert_int_equal(WEXITSTATUS(w->wait_status), 3);
}

static void children_left_at_the_end_leave_no_descriptor(void **state)
{
    struct world *w = *state;
    int before = sh_test_open_fds();
    struct sh_loop *l;
    pid_t pid;

    assert_ok(sh_loop_new(&l, NULL));
    pid = start_child(0, 0);
    assert_ok(sh_loop_child(l, pid, on_exit_of, w, NULL));
    sh_loop_free(l);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(sh_test_open_fds(), before);
}

static void on_hup(struct sh_loop *l, void *arg)
{
    struct world *w = arg;

    (void)l;
    w->calls++;
}

static void signals_become_calls_and_term_stops_the_loop(void **state)
{
    struct world *w = *state;

    assert_ok(sh_loop_signals(w->loop, NULL, on_hup, w, NULL));
    assert_int_equal(kill(getpid(), SIGHUP), 0);
    assert_ok(sh_loop_once(w->loop, LONG_NS, NULL));
    assert_int_equal(w->calls, 1);
    assert_int_equal(kill(getpid(), SIGTERM), 0);
    assert_ok(sh_loop_run(w->loop, NULL));
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_readable_descriptor_is_reported_until_it_is_read),
        TEST(interest_can_be_changed),
        TEST(a_hang_up_is_reported_without_being_asked_for),
        TEST(what_is_removed_in_a_turn_gets_no_further_event),
        TEST(an_old_event_never_reaches_a_new_watch_of_the_same_number),
        TEST(a_late_removal_leaves_the_new_watch_of_the_number_alone),
        TEST(watching_twice_or_nothing_is_refused),
        TEST(a_callback_cannot_run_the_loop),
        TEST(timers_fire_in_order_and_not_before_their_time),
        TEST(a_timer_that_falls_due_between_two_looks_at_the_clock_is_not_slept_over),
        TEST(a_periodic_timer_leaves_out_what_it_missed),
        TEST(a_timer_can_be_disarmed_and_armed_again),
        TEST(a_timer_that_rearms_itself_at_once_fires_once_a_turn),
        TEST(a_timer_may_remove_itself_and_the_others),
        TEST(a_thousand_timers_keep_their_order),
        TEST(the_loop_sleeps_until_the_next_timer),
        TEST(a_loop_that_stays_awake_polls_and_timers_keep_their_time),
        TEST(other_events_let_a_polling_loop_sleep),
        TEST(no_wake_up_is_lost),
        TEST(another_thread_can_stop_the_loop),
        TEST(the_hook_before_sleeping_may_wake_the_loop),
        TEST(a_child_is_reported_once_and_reaped),
        TEST(a_child_that_ended_before_it_was_watched_is_reported_too),
        TEST(children_left_at_the_end_leave_no_descriptor),
        TEST(signals_become_calls_and_term_stops_the_loop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
