/* world.c - virtual time, processes, chance, the trace. See world.h. */
#include "tests/sim/world.h"

#include "common/clock.h"
#include "common/mem.h"
#include "tests/sim/platform.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WALL_0_MS INT64_C(1750000000000)
#define MONO_0_NS \
    INT64_C(1000000000000) /* no process sees time 0, which means "never" in many places */
#define FIRST_PID 100000
#define MAX_WATCHERS 8
#define MAX_EVENTS (1u << 24)
#define FNV_PRIME UINT64_C(1099511628211)

struct event {
    int64_t at_ns;
    uint64_t seq;
    struct sim_proc *proc; /* NULL: the world's */
    uint64_t generation;
    sim_event_fn *fn;
    void *arg;
    uint64_t n;
};

struct sim_proc {
    struct sim_proc *next; /* of all, in the order they were made */
    const char *name;
    unsigned host;
    pid_t pid;
    uint64_t generation; /* grows with each start and each end */
    bool is_alive, is_paused;
    struct sim_proc *parent;
    uint64_t parent_generation;
    struct sh_loop *loop;
    struct sim_spawned spawned;
    struct event *held; /* OWNED: what was to happen while it is paused */
    size_t n_held, cap_held;
};

static struct {
    int64_t now_ns;
    uint64_t seq, n_events, state[4];
    struct event *heap;
    size_t n, cap;
    struct sim_proc *procs, **last;
    struct sim_proc *self;
    pid_t next_pid;
    struct host {
        int64_t mono_ns, wall_ms, ppm;
        int64_t seen_ns; /* what its monotonic clock has shown */
    } hosts[SIM_MAX_HOSTS];
    bool shows;
    uint64_t hash;
} world;

static void *must(void *p)
{
    if (!p) {
        fputs("sim: no memory\n", stderr);
        exit(2);
    }
    return p;
}

void sim_grow(void *items, size_t *cap, size_t need, size_t item)
{
    struct sh_err err = {0};

    if (sh_grow(items, cap, need, item, SIZE_MAX, "the simulation", &err))
        sim_broken("memory", "%s", err.msg);
}

/* ------------------------------------------------------------------ chance */

static uint64_t split_mix(uint64_t *x)
{
    uint64_t z = (*x += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t rotate(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

/* xoshiro256** of Blackman and Vigna. */
uint64_t sim_random(void)
{
    uint64_t *s = world.state, result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

uint64_t sim_below(uint64_t n)
{
    return (uint64_t)(((unsigned __int128)sim_random() * n) >> 64);
}

int64_t sim_between(int64_t low, int64_t high)
{
    return low + (int64_t)sim_below((uint64_t)(high - low) + 1);
}

bool sim_chance(double p)
{
    return (double)(sim_random() >> 11) * 0x1p-53 < p;
}

void sim_begin(uint64_t seed)
{
    for (size_t i = 0; i < 4; i++)
        world.state[i] = split_mix(&seed);
    world.last = &world.procs;
    world.next_pid = FIRST_PID;
    world.hash = UINT64_C(14695981039346656037);
    sh_clock_fake(MONO_0_NS, WALL_0_MS);
}

/* ------------------------------------------------------------------ events */

static bool is_before(const struct event *a, const struct event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->seq < b->seq;
}

static void sift_up(size_t i)
{
    struct event e = world.heap[i];

    for (; i > 0 && is_before(&e, &world.heap[(i - 1) / 2]); i = (i - 1) / 2)
        world.heap[i] = world.heap[(i - 1) / 2];
    world.heap[i] = e;
}

static void sift_down(size_t i)
{
    struct event e = world.heap[i];

    for (size_t child; (child = 2 * i + 1) < world.n; i = child) {
        if (child + 1 < world.n && is_before(&world.heap[child + 1], &world.heap[child]))
            child++;
        if (!is_before(&world.heap[child], &e))
            break;
        world.heap[i] = world.heap[child];
    }
    world.heap[i] = e;
}

static void put(const struct event *e)
{
    if (world.n == MAX_EVENTS)
        sim_broken("events", "more than %u events wait", MAX_EVENTS);
    if (world.n == world.cap)
        sim_grow(&world.heap, &world.cap, world.n + 1, sizeof(*world.heap));
    world.heap[world.n] = *e;
    sift_up(world.n++);
}

static void push(struct event e)
{
    e.seq = world.seq++;
    put(&e);
}

static struct event pop(void)
{
    struct event e = world.heap[0];

    world.heap[0] = world.heap[--world.n];
    if (world.n > 0)
        sift_down(0);
    return e;
}

static int64_t after(int64_t delay_ns)
{
    if (delay_ns < 0)
        delay_ns = 0;
    return delay_ns > INT64_MAX - world.now_ns ? INT64_MAX : world.now_ns + delay_ns;
}

void sim_world_after(int64_t delay_ns, sim_event_fn *fn, void *arg, uint64_t n)
{
    const struct event e = {.at_ns = after(delay_ns), .fn = fn, .arg = arg, .n = n};

    push(e);
}

void sim_after(struct sim_proc *p, int64_t delay_ns, sim_event_fn *fn, void *arg, uint64_t n)
{
    const struct event e = {.at_ns = after(delay_ns),
                            .proc = p,
                            .generation = p->generation,
                            .fn = fn,
                            .arg = arg,
                            .n = n};

    push(e);
}

/* ------------------------------------------------------------------ clocks */

void sim_host_clock(unsigned host, int64_t mono_ns, int64_t wall_ms, int64_t ppm)
{
    world.hosts[host] = (struct host){.mono_ns = mono_ns, .wall_ms = wall_ms, .ppm = ppm};
}

void sim_host_wall(unsigned host, int64_t wall_ms)
{
    sim_trace("clock of host %u: %lld ms ahead", host, (long long)wall_ms);
    world.hosts[host].wall_ms = wall_ms;
}

static void set_clock(const struct sim_proc *p)
{
    struct host none = {0}, *h = p ? &world.hosts[p->host] : &none;
    const int64_t passed = world.now_ns + world.now_ns * h->ppm / 1000000;

    SIM_CHECK("clock", passed >= h->seen_ns, "the clock of host %u ran backwards by %" PRId64 " ns",
              p ? p->host : 0, h->seen_ns - passed);
    h->seen_ns = passed;
    sh_clock_fake(MONO_0_NS + h->mono_ns + passed, WALL_0_MS + h->wall_ms + passed / 1000000);
}

int64_t sim_now(void)
{
    return world.now_ns;
}

struct sim_proc *sim_self(void)
{
    return world.self;
}

static struct sim_proc *enter(struct sim_proc *p)
{
    struct sim_proc *old = world.self;

    world.self = p;
    set_clock(p);
    return old;
}

static void leave(struct sim_proc *old)
{
    world.self = old;
    set_clock(old);
}

static void (*watchers[MAX_WATCHERS + 1])(struct sim_proc *p);

void sim_on_turn(void (*fn)(struct sim_proc *p))
{
    size_t i = 0;

    while (watchers[i])
        i++;
    if (i == MAX_WATCHERS)
        sim_broken("world", "more than %d oracles watch", MAX_WATCHERS);
    watchers[i] = fn;
}

static void hook(struct sim_proc *p, uint64_t generation)
{
    if (p->generation == generation && p->loop)
        sim__loop_hook(p->loop);
    for (size_t i = 0; watchers[i] && p->generation == generation; i++)
        watchers[i](p);
}

void sim_within(struct sim_proc *p, sim_fn *fn, void *arg)
{
    struct sim_proc *old = enter(p);
    uint64_t generation = p->generation;

    fn(arg);
    hook(p, generation);
    leave(old);
}

/* ------------------------------------------------------------------ the run */

static void hold(struct sim_proc *p, const struct event *e)
{
    sim_grow(&p->held, &p->cap_held, p->n_held + 1, sizeof(*p->held));
    p->held[p->n_held++] = *e;
}

static void handle(const struct event *e)
{
    struct sim_proc *p = e->proc, *old;

    if (p && p->generation != e->generation)
        return;
    if (p && p->is_paused) {
        hold(p, e);
        return;
    }
    world.n_events++;
    old = enter(p);
    e->fn(e->arg, e->n);
    if (p)
        hook(p, e->generation);
    leave(old);
}

void sim_run(int64_t until_ns)
{
    while (world.n > 0 && world.heap[0].at_ns <= until_ns) {
        struct event e = pop();

        if (e.at_ns > world.now_ns)
            world.now_ns = e.at_ns;
        handle(&e);
    }
    if (world.now_ns < until_ns)
        world.now_ns = until_ns;
}

uint64_t sim_n_events(void)
{
    return world.n_events;
}

/* ------------------------------------------------------------------ processes */

struct sim_proc *sim_proc_new(const char *name, unsigned host)
{
    struct sim_proc *p = must(calloc(1, sizeof(*p)));

    p->name = name;
    p->host = host;
    *world.last = p;
    world.last = &p->next;
    return p;
}

void sim_proc_start(struct sim_proc *p, struct sim_proc *parent, sim_fn *main, void *arg)
{
    if (p->is_alive)
        sim_broken("world", "%s is started twice", p->name);
    p->is_alive = true;
    p->is_paused = false;
    p->generation++;
    p->pid = world.next_pid++;
    p->loop = NULL;
    p->parent = parent;
    p->parent_generation = parent ? parent->generation : 0;
    sim_trace("start %s pid=%d", p->name, (int)p->pid);
    sim_within(p, main, arg);
}

void sim_proc_kill(struct sim_proc *p, int wait_status)
{
    uint64_t generation = p->generation;

    if (!p->is_alive)
        return;
    sim_trace("end %s status=0x%x", p->name, (unsigned)wait_status);
    p->is_alive = p->is_paused = false;
    p->generation++;
    p->n_held = 0;
    p->loop = NULL;
    if (sim__proc_parent(p))
        sim__loop_child_died(p->parent, p->pid, wait_status);
    sim__wires_died(p, generation);
    for (struct sim_proc *c = world.procs; c; c = c->next)
        if (c->is_alive && c->parent == p && c->parent_generation == generation)
            sim_proc_kill(c, 9);
}

void sim_proc_pause(struct sim_proc *p)
{
    if (!p->is_alive || p->is_paused)
        return;
    sim_trace("pause %s", p->name);
    p->is_paused = true;
}

void sim_proc_resume(struct sim_proc *p)
{
    size_t n = p->n_held;

    if (!p->is_paused)
        return;
    sim_trace("resume %s", p->name);
    p->is_paused = false;
    p->n_held = 0;
    for (size_t i = 0; i < n; i++) {
        p->held[i].at_ns = world.now_ns;
        put(&p->held[i]); /* before what was made later */
    }
}

static void on_resume(void *arg, uint64_t n)
{
    (void)n;
    sim_proc_resume(arg);
}

void sim_proc_pause_for(struct sim_proc *p, int64_t ns)
{
    sim_proc_pause(p);
    sim_world_after(ns, on_resume, p, 0);
}

bool sim_proc_is_alive(const struct sim_proc *p)
{
    return p->is_alive;
}

bool sim_proc_is_paused(const struct sim_proc *p)
{
    return p->is_paused;
}

const char *sim_proc_name(const struct sim_proc *p)
{
    return p->name;
}

unsigned sim_proc_host(const struct sim_proc *p)
{
    return p->host;
}

pid_t sim_proc_pid(const struct sim_proc *p)
{
    return p->pid;
}

uint64_t sim_proc_generation(const struct sim_proc *p)
{
    return p->generation;
}

struct sim_proc *sim_proc_of_pid(pid_t pid)
{
    for (struct sim_proc *p = world.procs; p; p = p->next)
        if (p->is_alive && p->pid == pid)
            return p;
    return NULL;
}

void sim__each_proc(bool (*fn)(struct sim_proc *p, void *arg), void *arg)
{
    for (struct sim_proc *p = world.procs; p; p = p->next)
        if (p->is_alive && fn(p, arg))
            return;
}

/* "e3.worker7": the number counts the children of all. */
const char *sim__child_name(const struct sim_proc *parent, const char *program)
{
    const char *short_name = strncmp(program, "shunt-", 6) == 0 ? program + 6 : program;
    char *name = must(malloc(64));

    snprintf(name, 64, "%.24s.%.16s%d", parent->name, short_name, (int)world.next_pid);
    return name;
}

const struct sim_spawned *sim_spawned(void)
{
    return &world.self->spawned;
}

void sim__proc_spawned(struct sim_proc *p, const struct sim_spawned *s)
{
    p->spawned = *s;
}

void sim__proc_loop(struct sim_proc *p, struct sh_loop *l)
{
    p->loop = l;
}

struct sh_loop *sim__loop_of(const struct sim_proc *p)
{
    return p->loop;
}

struct sim_proc *sim__proc_parent(const struct sim_proc *p)
{
    return p->parent && p->parent->generation == p->parent_generation ? p->parent : NULL;
}

/* ------------------------------------------------------------------ the trace */

/* What happens often is not written down unless somebody looks. */
void sim_note(const void *p, size_t n)
{
    const unsigned char *at = p;
    uint64_t word;

    for (; n >= sizeof(word); n -= sizeof(word), at += sizeof(word)) {
        memcpy(&word, at, sizeof(word));
        world.hash = (world.hash ^ word) * FNV_PRIME;
        world.hash ^= world.hash >> 29;
    }
    for (; n > 0; n--)
        world.hash = (world.hash ^ *at++) * FNV_PRIME;
}

static void show(const char *text)
{
    if (world.shows)
        printf("%12.6f %-6s %s\n", (double)world.now_ns / 1e9, world.self ? world.self->name : "-",
               text);
}

void sim_trace(const char *fmt, ...)
{
    const int64_t now_ns = world.now_ns;
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    sim_note(&now_ns, sizeof(now_ns));
    sim_note(text, strlen(text));
    show(text);
}

void sim_show(const char *fmt, ...)
{
    char text[512];
    va_list ap;

    if (!world.shows)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    show(text);
}

void sim_trace_show(bool on)
{
    world.shows = on;
}

uint64_t sim_trace_hash(void)
{
    return world.hash;
}

void sim_broken(const char *name, const char *fmt, ...)
{
    va_list ap;

    printf("BROKEN %s at %.6f s in %s: ", name, (double)world.now_ns / 1e9,
           world.self ? world.self->name : "-");
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
    _exit(SIM_EXIT_BROKEN);
}
