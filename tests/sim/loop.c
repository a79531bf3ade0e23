/* loop.c - common/loop.h in virtual time: timers, hooks, watched descriptors, ends of children; and
 * what starts children (common/spawn.h, kill, waitpid, socketpair). See world.h.
 *
 * What is freed here stays in memory: an event may still name it, and a seed is a process. */
#include "common/loop.h"

#include "common/mem.h"
#include "common/spawn.h"
#include "common/units.h"
#include "tests/sim/platform.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define REAP_MIN_NS SH_US(20)
#define REAP_MAX_NS SH_US(500)
#define KILL_NS SH_US(10)
#define SPAWN_MIN_NS SH_US(300)
#define SPAWN_MAX_NS SH_MS(3)

struct sh_io {
    struct sh_io *next;
    struct sh_loop *loop;
    int fd;
    unsigned events;
    sh_io_fn *fn;
    void *arg;
    bool is_told; /* an event is on its way */
};

struct sh_timer {
    struct sh_loop *loop;
    int64_t period_ns;
    uint64_t armed; /* number of the event that counts; 0: none */
    sh_timer_fn *fn;
    void *arg;
};

struct child {
    struct child *next;
    pid_t pid;
    sh_child_fn *fn;
    void *arg;
    int wait_status;
};

struct hook {
    sh_hook_fn *fn;
    void *arg;
};

struct sh_loop {
    struct sim_proc *proc;
    uint64_t generation, n_armed;
    struct sh_io *ios;
    struct child *children;
    struct hook before_sleep, on_wake;
    sim_stopped_fn *on_stop;
    void *on_stop_arg;
    bool is_woken, is_stopping;
};

static int no_memory(struct sh_err *err)
{
    return SH_FAIL(err, SH_E_NOMEM, "could not allocate");
}

int sh_loop_new(struct sh_loop **out, struct sh_err *err)
{
    struct sim_proc *p = sim_self();

    *out = calloc(1, sizeof(**out));
    if (!*out)
        return no_memory(err);
    (*out)->proc = p;
    (*out)->generation = sim_proc_generation(p);
    sim__proc_loop(p, *out);
    return SH_OK;
}

void sh_loop_free(struct sh_loop *l)
{
    if (l && sim__loop_of(l->proc) == l)
        sim__proc_loop(l->proc, NULL);
}

void sim__loop_hook(struct sh_loop *l)
{
    if (l->before_sleep.fn)
        l->before_sleep.fn(l, l->before_sleep.arg);
}

/* ------------------------------------------------------------------ descriptors */

int sh_io_add(struct sh_loop *l, int fd, unsigned events, sh_io_fn *fn, void *arg,
              struct sh_io **out, struct sh_err *err)
{
    struct sh_io *io = calloc(1, sizeof(*io));

    *out = io;
    if (!io)
        return no_memory(err);
    *io =
        (struct sh_io){.next = l->ios, .loop = l, .fd = fd, .events = events, .fn = fn, .arg = arg};
    l->ios = io;
    return SH_OK;
}

int sh_io_set(struct sh_io *io, unsigned events, struct sh_err *err)
{
    (void)err;
    io->events = events;
    return SH_OK;
}

void sh_io_del(struct sh_io *io)
{
    if (!io)
        return;
    for (struct sh_io **at = &io->loop->ios; *at; at = &(*at)->next)
        if (*at == io) {
            *at = io->next;
            break;
        }
    io->fn = NULL;
}

static void on_ready(void *arg, uint64_t n)
{
    struct sh_io *io = arg;

    (void)n;
    io->is_told = false;
    if (io->fn)
        io->fn(io->loop, io->fd, SH_IO_READ, io->arg);
}

struct find {
    int fd;
    struct sh_io *io;
};

static bool has_fd(struct sim_proc *p, void *arg)
{
    struct find *f = arg;
    const struct sh_loop *l = sim__loop_of(p);

    for (struct sh_io *io = l ? l->ios : NULL; io && !f->io; io = io->next)
        if (io->fd == f->fd && (io->events & SH_IO_READ))
            f->io = io;
    return f->io != NULL;
}

void sim_fd_ready(int fd)
{
    struct find f = {.fd = fd};

    sim__each_proc(has_fd, &f);
    if (!f.io || f.io->is_told)
        return;
    f.io->is_told = true;
    sim_after(f.io->loop->proc, 0, on_ready, f.io, 0);
}

/* ------------------------------------------------------------------ timers */

static void arm(struct sh_timer *t, int64_t delay_ns);

static void on_due(void *arg, uint64_t n)
{
    struct sh_timer *t = arg;

    if (t->armed != n)
        return;
    t->armed = 0;
    if (t->period_ns > 0)
        arm(t, t->period_ns);
    t->fn(t->loop, t->arg);
}

static void arm(struct sh_timer *t, int64_t delay_ns)
{
    t->armed = ++t->loop->n_armed;
    sim_after(t->loop->proc, delay_ns, on_due, t, t->armed);
}

int sh_timer_add(struct sh_loop *l, int64_t delay_ns, int64_t period_ns, sh_timer_fn *fn, void *arg,
                 struct sh_timer **out, struct sh_err *err)
{
    struct sh_timer *t = calloc(1, sizeof(*t));

    *out = t;
    if (!t)
        return no_memory(err);
    *t = (struct sh_timer){.loop = l, .period_ns = period_ns, .fn = fn, .arg = arg};
    sh_timer_set(t, delay_ns);
    return SH_OK;
}

void sh_timer_set(struct sh_timer *t, int64_t delay_ns)
{
    if (delay_ns < 0)
        t->armed = 0;
    else
        arm(t, delay_ns);
}

void sh_timer_del(struct sh_timer *t)
{
    if (t)
        t->armed = 0;
}

/* ------------------------------------------------------------------ hooks, the end */

void sh_loop_before_sleep(struct sh_loop *l, sh_hook_fn *fn, void *arg)
{
    l->before_sleep = (struct hook){fn, arg};
}

void sh_loop_on_wake(struct sh_loop *l, sh_hook_fn *fn, void *arg)
{
    l->on_wake = (struct hook){fn, arg};
}

static void on_woken(void *arg, uint64_t n)
{
    struct sh_loop *l = arg;

    (void)n;
    l->is_woken = false;
    if (l->on_wake.fn)
        l->on_wake.fn(l, l->on_wake.arg);
}

void sh_loop_wake(struct sh_loop *l)
{
    if (l->is_woken)
        return;
    l->is_woken = true;
    sim_after(l->proc, 0, on_woken, l, 0);
}

static void on_stop(void *arg, uint64_t n)
{
    struct sh_loop *l = arg;

    (void)n;
    if (l->on_stop && !l->on_stop(l->on_stop_arg))
        sim_after(l->proc, SH_MS(10), on_stop, l, 0);
    else
        sim_proc_kill(l->proc, 0);
}

void sim_loop_on_stop(struct sh_loop *l, sim_stopped_fn *fn, void *arg)
{
    l->on_stop = fn;
    l->on_stop_arg = arg;
}

void sh_loop_stop(struct sh_loop *l)
{
    if (l->is_stopping)
        return;
    l->is_stopping = true;
    sim_after(l->proc, 0, on_stop, l, 0);
}

int sh_loop_signals(struct sh_loop *l, sh_hook_fn *fn_term, sh_hook_fn *fn_hup, void *arg,
                    struct sh_err *err)
{
    (void)l, (void)fn_term, (void)fn_hup, (void)arg, (void)err;
    return SH_OK;
}

void sh_loop_busy_poll(struct sh_loop *l, int64_t ns)
{
    (void)l, (void)ns;
}

void sh_loop_stay_awake(struct sh_loop *l)
{
    (void)l;
}

/* A process has no loop of its own here: the world has one for all. */
int sh_loop_run(struct sh_loop *l, struct sh_err *err)
{
    (void)l;
    return SH_FAIL(err, SH_E_BUG, "the simulated world runs by itself");
}

int sh_loop_once(struct sh_loop *l, int64_t max_wait_ns, struct sh_err *err)
{
    (void)l, (void)max_wait_ns;
    return SH_FAIL(err, SH_E_BUG, "the simulated world runs by itself");
}

/* ------------------------------------------------------------------ children */

int sh_loop_child(struct sh_loop *l, pid_t pid, sh_child_fn *fn, void *arg, struct sh_err *err)
{
    struct child *c = calloc(1, sizeof(*c));

    if (!c)
        return no_memory(err);
    *c = (struct child){.next = l->children, .pid = pid, .fn = fn, .arg = arg};
    l->children = c;
    return SH_OK;
}

static void on_child(void *arg, uint64_t n)
{
    struct sh_loop *l = sim__loop_of(sim_self());
    struct child *c = arg;

    (void)n;
    for (struct child **at = &l->children; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            c->fn(l, c->pid, c->wait_status, c->arg);
            return;
        }
}

void sim__loop_child_died(struct sim_proc *parent, pid_t pid, int wait_status)
{
    struct sh_loop *l = sim__loop_of(parent);

    for (struct child *c = l ? l->children : NULL; c; c = c->next)
        if (c->pid == pid) {
            c->wait_status = wait_status;
            sim_after(parent, sim_between(REAP_MIN_NS, REAP_MAX_NS), on_child, c, 0);
        }
}

static const struct sim_program *programs;
static size_t n_programs;

void sim_programs(const struct sim_program *list, size_t n)
{
    programs = list;
    n_programs = n;
}

const char *const SH_ENV_SYSTEM[] = {NULL};
const char *const SH_ENV_DAEMON[] = {NULL};

struct birth {
    struct sim_proc *p, *parent;
    sim_fn *main;
    struct sim_spawned spawned;
};

static void on_birth(void *arg, uint64_t n)
{
    struct birth *b = arg;

    (void)n;
    b->main(NULL);
}

static void begin(void *arg)
{
    struct birth *b = arg;

    sim__proc_spawned(b->p, &b->spawned);
    sim_after(b->p, sim_between(SPAWN_MIN_NS, SPAWN_MAX_NS), on_birth, b, 0);
}

static void note_child(int fd, struct sim_proc *child);

static const char *const *copy_argv(const char *const *argv)
{
    size_t n = 0;
    char **copy;

    while (argv[n])
        n++;
    copy = calloc(n + 1, sizeof(*copy));
    for (size_t i = 0; i < n && copy; i++)
        copy[i] = strdup(argv[i]);
    return (const char *const *)copy;
}

/* The child begins to run a while later. */
int sh_spawn(const struct sh_spawn *s, pid_t *pid_out, struct sh_err *err)
{
    struct birth *b = calloc(1, sizeof(*b));

    if (!b)
        return no_memory(err);
    for (size_t i = 0; i < n_programs; i++)
        if (strcmp(programs[i].name, s->argv[0]) == 0)
            b->main = programs[i].main;
    if (!b->main)
        return SH_FAIL(err, SH_E_NOTFOUND, "the simulation has no program %s", s->argv[0]);
    b->parent = sim_self();
    b->p = sim_proc_new(sim__child_name(b->parent, s->argv[0]), sim_proc_host(b->parent));
    b->spawned.parent = b->parent;
    b->spawned.argv = copy_argv(s->argv);
    b->spawned.stdout_fd = s->stdout_fd > STDERR_FILENO ? dup(s->stdout_fd) : -1;
    for (size_t i = 0; i < s->n_fds && i < SH_ARRAY_LEN(b->spawned.fds); i++) {
        b->spawned.fds[b->spawned.n_fds++] = dup(s->fds[i]);
        note_child(s->fds[i], b->p);
    }
    sim_proc_start(b->p, b->parent, begin, b);
    *pid_out = sim_proc_pid(b->p);
    return SH_OK;
}

int sh_spawn_child_init(struct sh_err *err)
{
    (void)err;
    return SH_OK;
}

/* Of an executor that has no folder with the API: such are not simulated. */
int sh_spawn_run(const struct sh_spawn *s, int64_t timeout_ms, size_t max_out, char **out,
                 size_t *out_len, int *wait_status, struct sh_err *err)
{
    (void)timeout_ms, (void)max_out, (void)out, (void)out_len, (void)wait_status;
    return SH_FAIL(err, SH_E_UNSUPPORTED, "the simulation does not wait for %s", s->argv[0]);
}

int sh_self_dir(char *out, size_t size, struct sh_err *err)
{
    (void)err;
    sh_strlcpy(out, "/sim/bin", size);
    return SH_OK;
}

unsigned sh_cores(void)
{
    return 4;
}

static void on_kill(void *arg, uint64_t n)
{
    struct sim_proc *p = arg;

    if (sim_proc_is_alive(p) && sim_proc_generation(p) == n)
        sim_proc_kill(p, SIGKILL);
}

int __wrap_kill(pid_t pid, int sig)
{
    struct sim_proc *p = sim_proc_of_pid(pid);

    if (!p) {
        errno = ESRCH;
        return -1;
    }
    if (sig == SIGKILL || sig == SIGTERM)
        sim_world_after(KILL_NS, on_kill, p, sim_proc_generation(p));
    return 0;
}

pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
    (void)options;
    if (status)
        *status = SIGKILL;
    return pid;
}

/* ------------------------------------------------------------------ pairs of sockets */

struct pair {
    struct pair *next;
    ino_t ino[2];
    struct sh_wire *wire[2];
    struct sim_proc *child[2]; /* was started with this end */
    bool is_orphan;            /* ... and died before it used it */
};

static struct pair *pairs;

static ino_t inode(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

int __real_socketpair(int domain, int type, int protocol, int sv[2]);
int __wrap_socketpair(int domain, int type, int protocol, int sv[2])
{
    struct pair *p = calloc(1, sizeof(*p));
    int rc = p ? __real_socketpair(domain, type, protocol, sv) : -1;

    if (rc) {
        free(p);
        return rc;
    }
    *p = (struct pair){.next = pairs, .ino = {inode(sv[0]), inode(sv[1])}};
    pairs = p;
    return 0;
}

/* Inodes are given out again, so the newest pair counts. */
static struct pair *find_pair(int fd, int *end)
{
    ino_t ino = inode(fd);

    for (struct pair *p = pairs; p; p = p->next)
        for (*end = 0; *end < 2; (*end)++)
            if (p->ino[*end] == ino)
                return p;
    return NULL;
}

struct sh_wire **sim__pair_end(int fd, struct sh_wire ***other)
{
    int i;
    struct pair *p = find_pair(fd, &i);

    if (!p)
        return NULL;
    *other = &p->wire[!i];
    return &p->wire[i];
}

bool sim__pair_is_orphan(int fd)
{
    int i;
    struct pair *p = find_pair(fd, &i);

    return p && p->is_orphan;
}

static void note_child(int fd, struct sim_proc *child)
{
    int i;
    struct pair *p = find_pair(fd, &i);

    if (p)
        p->child[i] = child;
}

void sim__pairs_died(struct sim_proc *child, void (*orphaned)(struct sh_wire *))
{
    for (struct pair *p = pairs; p; p = p->next)
        for (int i = 0; i < 2; i++) {
            if (p->child[i] != child || p->wire[i] || p->is_orphan)
                continue;
            p->is_orphan = true;
            if (p->wire[!i])
                orphaned(p->wire[!i]);
        }
}
