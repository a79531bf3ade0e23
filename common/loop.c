/* loop.c - epoll, a heap of timers, pidfds, a signalfd and an eventfd.
 *
 * Order of one turn: hook before sleeping, epoll_wait, descriptors, timers, graves. What a callback
 * removes is only marked dead and goes to the graves, because later events of the same epoll_wait
 * may still point to it; it is freed when the turn ends.
 *
 * A turn runs the timers that were armed before it began, so a timer that its own callback re-arms
 * with delay 0 cannot keep the loop from its descriptors.
 */
#include "common/loop.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/relax.h"
#include "common/units.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define EVENTS_PER_TURN 128
#define MAX_TIMERS (1u << 20)
#define MAX_FDS (1u << 20)
#define NOT_ARMED SIZE_MAX

struct sh_io {
    struct sh_loop *loop;
    int fd;
    unsigned events;
    sh_io_fn *fn;
    void *arg;
    bool dead;
    struct sh_io *next_grave;
};

struct sh_timer {
    struct sh_loop *loop;
    int64_t due_ns, period_ns;
    uint64_t seq; /* order of arming: breaks ties, and marks the timers of this turn */
    size_t slot;  /* place in the heap or NOT_ARMED */
    sh_timer_fn *fn;
    void *arg;
    bool dead;
    struct sh_timer *next_grave;
};

struct child {
    pid_t pid;
    int pidfd;
    struct sh_io *io;
    sh_child_fn *fn;
    void *arg;
    struct child *next;
};

struct hook {
    sh_hook_fn *fn;
    void *arg;
};

struct sh_loop {
    int epoll_fd, wake_fd, signal_fd;
    struct sh_io *wake_io, *signal_io;
    struct sh_io **by_fd; /* who watches which descriptor; see unwatch() */
    size_t by_fd_cap;
    struct sh_timer **heap;
    size_t heap_len, heap_cap, n_timers;
    uint64_t seq;
    struct child *children;
    struct hook before_sleep, on_wake, on_term, on_hup;
    struct sh_io *io_graves;
    struct sh_timer *timer_graves;
    bool in_turn, no_pwait2;
    int64_t busy_ns, awake_ns; /* polls until awake_ns + busy_ns instead of sleeping */
    atomic_bool wake_pending, stop;
};

/* ---------------------------------------------------------------- descriptors */

static uint32_t to_epoll(unsigned events)
{
    return (events & SH_IO_READ ? EPOLLIN : 0u) | (events & SH_IO_WRITE ? EPOLLOUT : 0u) |
           (events & SH_IO_HUP ? EPOLLRDHUP : 0u);
}

static unsigned from_epoll(uint32_t e)
{
    return (e & EPOLLIN ? SH_IO_READ : 0u) | (e & EPOLLOUT ? SH_IO_WRITE : 0u) |
           (e & (EPOLLHUP | EPOLLERR | EPOLLRDHUP) ? SH_IO_HUP : 0u);
}

static void free_graves(struct sh_loop *l)
{
    struct sh_io *io;
    struct sh_timer *t;

    while ((io = l->io_graves)) {
        l->io_graves = io->next_grave;
        free(io);
    }
    while ((t = l->timer_graves)) {
        l->timer_graves = t->next_grave;
        free(t);
    }
}

int sh_io_add(struct sh_loop *l, int fd, unsigned events, sh_io_fn *fn, void *arg,
              struct sh_io **out, struct sh_err *err)
{
    struct epoll_event ev = {.events = to_epoll(events)};
    struct sh_io *io = NULL;
    int rc;

    *out = NULL;
    if (fd < 0)
        return SH_FAIL(err, SH_E_BUG, "cannot watch descriptor %d", fd);
    rc = sh_grow(&l->by_fd, &l->by_fd_cap, (size_t)fd + 1, sizeof(struct sh_io *), MAX_FDS,
                 "table of watched descriptors", err);
    if (rc)
        goto out;
    io = calloc(1, sizeof(*io));
    if (!io) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a watch for a descriptor");
        goto out;
    }
    *io = (struct sh_io){.loop = l, .fd = fd, .events = events, .fn = fn, .arg = arg};
    ev.data.ptr = io;
    if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not watch descriptor %d", fd);
        goto out;
    }
    l->by_fd[fd] = io;
    *out = io;
    io = NULL;
out:
    free(io);
    return rc;
}

int sh_io_set(struct sh_io *io, unsigned events, struct sh_err *err)
{
    struct epoll_event ev = {.events = to_epoll(events), .data.ptr = io};

    if (io->dead)
        return SH_FAIL(err, SH_E_BUG, "the watch of descriptor %d was removed", io->fd);
    if (events == io->events)
        return SH_OK;
    if (epoll_ctl(io->loop->epoll_fd, EPOLL_CTL_MOD, io->fd, &ev) < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not change the watch of descriptor %d", io->fd);
    io->events = events;
    return SH_OK;
}

/* A library (libpq) may close its socket before we hear of it, and the number may already belong
 * to another watch: then there is nothing of ours left in the kernel's table. */
static void unwatch(struct sh_io *io)
{
    struct sh_loop *l = io->loop;

    if (l->by_fd[io->fd] != io)
        return;
    l->by_fd[io->fd] = NULL;
    epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, io->fd, NULL);
}

void sh_io_del(struct sh_io *io)
{
    struct sh_loop *l;

    if (!io || io->dead)
        return;
    l = io->loop;
    unwatch(io);
    io->dead = true;
    io->next_grave = l->io_graves;
    l->io_graves = io;
    if (!l->in_turn)
        free_graves(l);
}

static void dispatch_event(struct sh_loop *l, const struct epoll_event *ev)
{
    struct sh_io *io = ev->data.ptr;
    unsigned events = from_epoll(ev->events);

    if (io->dead)
        return;
    /* An earlier callback of this turn may have lost interest; a hang-up cannot be declined. */
    events &= io->events | SH_IO_HUP;
    if (events)
        io->fn(l, io->fd, events, io->arg);
}

/* ---------------------------------------------------------------- timers */

static bool earlier(const struct sh_timer *a, const struct sh_timer *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->seq < b->seq;
}

static void place_timer(struct sh_loop *l, size_t i, struct sh_timer *t)
{
    l->heap[i] = t;
    t->slot = i;
}

static void sift_up(struct sh_loop *l, size_t i, struct sh_timer *t)
{
    while (i > 0 && earlier(t, l->heap[(i - 1) / 2])) {
        place_timer(l, i, l->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    place_timer(l, i, t);
}

static void sift_down(struct sh_loop *l, size_t i, struct sh_timer *t)
{
    for (;;) {
        size_t c = 2 * i + 1;

        if (c + 1 < l->heap_len && earlier(l->heap[c + 1], l->heap[c]))
            c++;
        if (c >= l->heap_len || !earlier(l->heap[c], t))
            break;
        place_timer(l, i, l->heap[c]);
        i = c;
    }
    place_timer(l, i, t);
}

static void disarm(struct sh_timer *t)
{
    struct sh_loop *l = t->loop;
    struct sh_timer *last;
    size_t i = t->slot;

    if (i == NOT_ARMED)
        return;
    t->slot = NOT_ARMED;
    last = l->heap[--l->heap_len];
    if (last == t)
        return;
    if (i > 0 && earlier(last, l->heap[(i - 1) / 2]))
        sift_up(l, i, last);
    else
        sift_down(l, i, last);
}

static void arm(struct sh_timer *t, int64_t due_ns)
{
    struct sh_loop *l = t->loop;

    disarm(t);
    t->due_ns = due_ns;
    t->seq = l->seq++;
    l->heap_len++; /* sh_timer_add made room */
    sift_up(l, l->heap_len - 1, t);
}

static int64_t after(int64_t now_ns, int64_t delay_ns)
{
    return delay_ns > INT64_MAX - now_ns ? INT64_MAX : now_ns + delay_ns;
}

int sh_timer_add(struct sh_loop *l, int64_t delay_ns, int64_t period_ns, sh_timer_fn *fn, void *arg,
                 struct sh_timer **out, struct sh_err *err)
{
    struct sh_timer *t;
    int rc;

    *out = NULL;
    /* Room for every timer that exists, so that arming cannot fail. */
    rc = sh_grow(&l->heap, &l->heap_cap, l->n_timers + 1, sizeof(struct sh_timer *), MAX_TIMERS,
                 "table of timers", err);
    if (rc)
        return rc;
    t = calloc(1, sizeof(*t));
    if (!t)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a timer");
    *t = (struct sh_timer){
        .loop = l, .period_ns = period_ns, .slot = NOT_ARMED, .fn = fn, .arg = arg};
    l->n_timers++;
    sh_timer_set(t, delay_ns);
    *out = t;
    return SH_OK;
}

void sh_timer_set(struct sh_timer *t, int64_t delay_ns)
{
    if (t->dead)
        return;
    if (delay_ns < 0)
        disarm(t);
    else
        arm(t, after(sh_clock_ns(), delay_ns));
}

void sh_timer_del(struct sh_timer *t)
{
    struct sh_loop *l;

    if (!t || t->dead)
        return;
    l = t->loop;
    disarm(t);
    l->n_timers--;
    t->dead = true;
    t->next_grave = l->timer_graves;
    l->timer_graves = t;
    if (!l->in_turn)
        free_graves(l);
}

static void run_timers(struct sh_loop *l)
{
    int64_t now_ns = sh_clock_ns();
    uint64_t first_new = l->seq;

    while (l->heap_len > 0) {
        struct sh_timer *t = l->heap[0];

        if (t->due_ns > now_ns || t->seq >= first_new)
            break;
        /* Arm again before the call: the callback may change or remove its timer. Periods that
         * were missed are left out, not caught up with. */
        if (t->period_ns > 0) {
            int64_t due_ns = after(t->due_ns, t->period_ns);

            arm(t, due_ns > now_ns ? due_ns : after(now_ns, t->period_ns));
        } else {
            disarm(t);
        }
        t->fn(l, t->arg);
    }
}

/* ---------------------------------------------------------------- children */

static void forget_child(struct sh_loop *l, struct child *c)
{
    struct child **p = &l->children;

    while (*p != c)
        p = &(*p)->next;
    *p = c->next;
    sh_io_del(c->io);
    close(c->pidfd);
    free(c);
}

static void on_child(struct sh_loop *l, int fd, unsigned events, void *arg)
{
    struct child *c = arg;
    sh_child_fn *fn = c->fn;
    void *fn_arg = c->arg;
    pid_t pid = c->pid, got;
    int wait_status = 0;

    (void)fd;
    (void)events;
    do
        got = waitpid(pid, &wait_status, WNOHANG);
    while (got < 0 && errno == EINTR);
    if (got == 0)
        return;
    if (got < 0)
        wait_status =
            -1; /* somebody else reaped it: neither exited nor killed, as far as we know */
    forget_child(l, c);
    fn(l, pid, wait_status, fn_arg);
}

int sh_loop_child(struct sh_loop *l, pid_t pid, sh_child_fn *fn, void *arg, struct sh_err *err)
{
    struct child *c = NULL;
    int fd = -1, rc;

    fd = pidfd_open(pid, 0); /* close-on-exec by definition */
    if (fd < 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not watch process %d", (int)pid);
        goto out;
    }
    c = calloc(1, sizeof(*c));
    if (!c) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a watch for a process");
        goto out;
    }
    *c = (struct child){.pid = pid, .pidfd = fd, .fn = fn, .arg = arg, .next = l->children};
    rc = sh_io_add(l, fd, SH_IO_READ, on_child, c, &c->io, err);
    if (rc)
        goto out;
    l->children = c;
    c = NULL;
    fd = -1;
out:
    free(c);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* ---------------------------------------------------------------- signals and wake-ups */

static void run_hook(struct sh_loop *l, const struct hook *h)
{
    if (h->fn)
        h->fn(l, h->arg);
}

static void on_signal(struct sh_loop *l, int fd, unsigned events, void *arg)
{
    struct signalfd_siginfo si;

    (void)events;
    (void)arg;
    while (read(fd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
        if (si.ssi_signo == SIGHUP)
            run_hook(l, &l->on_hup);
        else if (l->on_term.fn)
            run_hook(l, &l->on_term);
        else
            sh_loop_stop(l);
    }
}

int sh_loop_signals(struct sh_loop *l, sh_hook_fn *fn_term, sh_hook_fn *fn_hup, void *arg,
                    struct sh_err *err)
{
    sigset_t set;
    int rc;

    if (l->signal_fd >= 0)
        return SH_FAIL(err, SH_E_BUG, "the signals are already watched");
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not block signals");
    l->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (l->signal_fd < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not open a descriptor for signals");
    rc = sh_io_add(l, l->signal_fd, SH_IO_READ, on_signal, NULL, &l->signal_io, err);
    if (rc) {
        close(l->signal_fd);
        l->signal_fd = -1;
        return rc;
    }
    l->on_term = (struct hook){.fn = fn_term, .arg = arg};
    l->on_hup = (struct hook){.fn = fn_hup, .arg = arg};
    return SH_OK;
}

/* Nobody reads it: each write to it is an event of its own (EPOLLET). */
static void on_wake_fd(struct sh_loop *l, int fd, unsigned events, void *arg)
{
    (void)fd;
    (void)events;
    (void)arg;
    /* First forget the wake-up, then look for work. A waker that finds the flag still set made its
     * work visible before this exchange, so the hook sees it; a later one writes again. */
    if (atomic_exchange(&l->wake_pending, false))
        run_hook(l, &l->on_wake);
}

static void poke(struct sh_loop *l)
{
    static const uint64_t one = 1;
    ssize_t n;

    /* The counter reaches its maximum in no life of a process. */
    do
        n = write(l->wake_fd, &one, sizeof(one));
    while (n < 0 && errno == EINTR);
}

void sh_loop_wake(struct sh_loop *l)
{
    if (!atomic_exchange(&l->wake_pending, true))
        poke(l);
}

void sh_loop_stop(struct sh_loop *l)
{
    atomic_store(&l->stop, true);
    poke(l);
}

void sh_loop_on_wake(struct sh_loop *l, sh_hook_fn *fn, void *arg)
{
    l->on_wake = (struct hook){.fn = fn, .arg = arg};
}

void sh_loop_before_sleep(struct sh_loop *l, sh_hook_fn *fn, void *arg)
{
    l->before_sleep = (struct hook){.fn = fn, .arg = arg};
}

/* ---------------------------------------------------------------- the loop */

int sh_loop_new(struct sh_loop **out, struct sh_err *err)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
    struct sh_loop *l = NULL;
    int rc;

    *out = NULL;
    l = calloc(1, sizeof(*l));
    if (!l)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an event loop");
    l->signal_fd = -1;
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    l->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (l->epoll_fd < 0 || l->wake_fd < 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not open the event loop's descriptors");
        goto out;
    }
    rc = sh_io_add(l, l->wake_fd, SH_IO_READ, on_wake_fd, NULL, &l->wake_io, err);
    if (rc)
        goto out;
    ev.data.ptr = l->wake_io;
    if (epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, l->wake_fd, &ev) < 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not watch the event loop's wake-ups");
        goto out;
    }
    *out = l;
    l = NULL;
out:
    sh_loop_free(l);
    return rc;
}

void sh_loop_free(struct sh_loop *l)
{
    if (!l)
        return;
    while (l->children)
        forget_child(l, l->children);
    sh_io_del(l->signal_io);
    sh_io_del(l->wake_io);
    free_graves(l);
    if (l->signal_fd >= 0)
        close(l->signal_fd);
    if (l->wake_fd >= 0)
        close(l->wake_fd);
    if (l->epoll_fd >= 0)
        close(l->epoll_fd);
    free(l->heap);
    free(l->by_fd);
    free(l);
}

/* Nanoseconds to sleep; < 0 = until something happens. */
static int64_t sleep_ns(const struct sh_loop *l, int64_t max_wait_ns)
{
    int64_t left_ns;

    if (l->heap_len == 0)
        return max_wait_ns;
    left_ns = sh_clock_until(l->heap[0]->due_ns);
    return max_wait_ns < 0 ? left_ns : SH_MIN(left_ns, max_wait_ns);
}

void sh_loop_busy_poll(struct sh_loop *l, int64_t ns)
{
    l->busy_ns = ns;
}

void sh_loop_stay_awake(struct sh_loop *l)
{
    if (l->busy_ns > 0)
        l->awake_ns = sh_clock_ns();
}

/* 0: nothing came until it was time to sleep, or until wait_ns were over. */
static int poll_events(const struct sh_loop *l, struct epoll_event *ev, int64_t wait_ns)
{
    int64_t now = sh_clock_ns(), end = l->awake_ns + l->busy_ns;
    int n = 0;

    if (wait_ns >= 0)
        end = SH_MIN(end, after(now, wait_ns));
    for (; n == 0 && now < end; now = sh_clock_ns()) {
        n = epoll_wait(l->epoll_fd, ev, EVENTS_PER_TURN, 0);
        if (n == 0)
            sh_relax();
    }
    return n;
}

static int sleep_events(struct sh_loop *l, struct epoll_event *ev, int64_t wait_ns)
{
    struct timespec ts = {.tv_sec = wait_ns / SH_S(1), .tv_nsec = wait_ns % SH_S(1)};
    int64_t ms;
    int n;

    if (!l->no_pwait2) {
        n = epoll_pwait2(l->epoll_fd, ev, EVENTS_PER_TURN, wait_ns < 0 ? NULL : &ts, NULL);
        if (n >= 0 || errno != ENOSYS)
            return n;
        l->no_pwait2 = true; /* a kernel before 5.11: whole milliseconds have to do */
    }
    /* Rounded up: waking before a timer is due would only spin. */
    ms = wait_ns < 0 ? -1 : SH_MIN(sh_ms_up(wait_ns), INT64_C(86400000));
    return epoll_wait(l->epoll_fd, ev, EVENTS_PER_TURN, (int)ms);
}

int sh_loop_once(struct sh_loop *l, int64_t max_wait_ns, struct sh_err *err)
{
    struct epoll_event ev[EVENTS_PER_TURN];
    int n, rc = SH_OK;

    if (l->in_turn)
        return SH_FAIL(err, SH_E_BUG, "a callback cannot run its own event loop");
    l->in_turn = true;
    run_hook(l, &l->before_sleep);
    /* The hook may have armed timers or stopped the loop: look at both afterwards. */
    n = l->busy_ns > 0 && !atomic_load(&l->stop) ? poll_events(l, ev, sleep_ns(l, max_wait_ns)) : 0;
    if (n == 0)
        n = sleep_events(l, ev, atomic_load(&l->stop) ? 0 : sleep_ns(l, max_wait_ns));
    if (n < 0 && errno != EINTR)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not wait for events");
    for (int i = 0; i < n; i++)
        dispatch_event(l, &ev[i]);
    run_timers(l);
    l->in_turn = false;
    free_graves(l);
    return rc;
}

int sh_loop_run(struct sh_loop *l, struct sh_err *err)
{
    int rc = SH_OK;

    while (!rc && !atomic_load(&l->stop))
        rc = sh_loop_once(l, -1, err);
    atomic_store(&l->stop, false);
    return rc;
}
