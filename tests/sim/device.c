/* device.c - see device.h. */
#include "tests/sim/device.h"

#include "common/mem.h"
#include "common/shm.h"
#include "runtime/device/lock.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#define RING 4096u
#define TICKET_NS 300
#define ZERO_SHARE 2 /* a scrub only writes */
#define SEE_NS 200   /* until a waiter sees a ticket */

enum cmd_kind { CMD_COPY, CMD_MOVE, CMD_ZERO, CMD_TICKET, CMD_MARK, CMD_FOLLOW };

struct cmd {
    enum cmd_kind kind;
    enum dev_dir dir;
    size_t off, from, bytes; /* from: of a move */
    char *host;
    uint32_t slot;  /* FOLLOW: the other lane ... */
    uint64_t value; /* ... and how many of its commands come before */
};

struct lane {
    struct cmd cmds[RING];
    uint32_t head, n;
    uint64_t n_done;
    bool is_busy;
    double times; /* as the link of the profile, so many times */
};

struct waiter {
    struct waiter *next;
    uint32_t slot, value;
    struct sim_proc *proc;
    uint64_t generation;
    sim_event_fn *fn;
    void *arg;
    uint64_t n;
};

struct locked { /* host memory */
    struct locked *next;
    const char *base;
    size_t bytes;
};

struct sim_device {
    struct dev_mem base; /* first member */
    struct sim_device *next;
    struct sim_proc *owner;
    uint64_t generation;
    const struct sim_device_conf *conf;
    struct sh_shm arena, tickets;
    ino_t inode;
    int event_fd;
    bool is_closed;
    struct lane lanes[DEV_MAX_LANES];
    uint64_t marks[RING];
    uint32_t first_mark, n_marks;
    uint32_t forced[DEV_N_TICKETS]; /* values, and the last one given by dev_ticket_force(); */
    bool is_forced[DEV_N_TICKETS];  /* false: none ever was */
    struct waiter *waiters;
    struct locked *locked;
};

struct configured {
    struct configured *next;
    const struct sim_proc *proc;
    const struct sim_device_conf *conf;
};

static struct configured *configured;
static struct sim_device *devices;
static sim_lane_fn *watch;

void sim_device_configure(struct sim_proc *p, const struct sim_device_conf *c)
{
    struct configured *e = configured;

    while (e && e->proc != p)
        e = e->next;
    if (!e) {
        e = calloc(1, sizeof(*e));
        if (!e)
            abort();
        e->proc = p;
        e->next = configured;
        configured = e;
    }
    e->conf = c;
}

static const struct sim_device_conf *conf_of(const struct sim_proc *p)
{
    for (const struct configured *e = configured; e; e = e->next)
        if (e->proc == p)
            return e->conf;
    sim_broken("world", "%s opens a device that nobody has configured", sim_proc_name(p));
}

void sim_device_watch(sim_lane_fn *fn)
{
    watch = fn;
}

static bool happens(double chance)
{
    return chance > 0 && sim_chance(chance);
}

struct sim_device *sim_device_of_mem(const struct dev_mem *m)
{
    return (struct sim_device *)(uintptr_t)m;
}

/* ------------------------------------------------------------------ tickets and marks */

static struct sim_device *device(const struct dev_mem *m)
{
    return sim_device_of_mem(m);
}

static uint32_t *word(const struct sim_device *d, uint32_t slot)
{
    return (uint32_t *)d->tickets.base + slot;
}

bool sim_device_has(const struct sim_device *d, uint32_t slot, uint32_t value)
{
    return (int32_t)(*word(d, slot) - value) >= 0;
}

static void raise_ticket(struct sim_device *d, uint32_t slot, uint32_t value)
{
    if (sim_device_has(d, slot, value))
        return;
    *word(d, slot) = value;
    for (struct waiter **at = &d->waiters; *at;) {
        struct waiter *w = *at;

        if (w->slot != slot || !sim_device_has(d, slot, w->value)) {
            at = &w->next;
            continue;
        }
        if (sim_proc_generation(w->proc) == w->generation)
            sim_after(w->proc, SEE_NS, w->fn, w->arg, w->n);
        *at = w->next;
        free(w);
    }
}

void sim_device_when(struct sim_device *d, uint32_t slot, uint32_t value, struct sim_proc *p,
                     sim_event_fn *fn, void *arg, uint64_t n)
{
    struct waiter *w;

    if (sim_device_has(d, slot, value)) {
        sim_after(p, SEE_NS, fn, arg, n);
        return;
    }
    w = calloc(1, sizeof(*w));
    if (!w)
        abort();
    *w = (struct waiter){d->waiters, slot, value, p, sim_proc_generation(p), fn, arg, n};
    d->waiters = w;
}

static void add_mark(struct sim_device *d, uint64_t cookie)
{
    if (d->n_marks == RING)
        sim_broken("device", "%u marks were not fetched", RING);
    d->marks[(d->first_mark + d->n_marks++) % RING] = cookie;
    sim_fd_ready(d->event_fd);
}

/* ------------------------------------------------------------------ lanes */

static char *arena(const struct sim_device *d, size_t off)
{
    return (char *)d->arena.base + off;
}

static void copy(const struct sim_device *d, const struct cmd *c, size_t from, size_t to)
{
    char *dev = arena(d, c->off + from), *host = c->host + from;

    if (c->dir == DEV_H2D)
        memcpy(dev, host, to - from);
    else
        memcpy(host, dev, to - from);
}

static size_t half(const struct cmd *c)
{
    return c->bytes / 2 / sizeof(uint64_t) * sizeof(uint64_t);
}

static int64_t duration(const struct sim_device *d, const struct lane *l, const struct cmd *c)
{
    const struct sim_profile *p = d->conf->profile;
    int64_t ns = p->latency_ns;

    switch (c->kind) {
    case CMD_COPY:
        ns += (int64_t)((double)c->bytes *
                        (c->dir == DEV_H2D ? p->to_ns_per_byte : p->from_ns_per_byte));
        ns = (int64_t)((double)ns * l->times);
        if (happens(d->conf->stall))
            ns += sim_between(0, d->conf->max_stall_ns);
        return ns;
    case CMD_MOVE:
        return ns + (int64_t)((double)c->bytes * p->memory_ns_per_byte);
    case CMD_ZERO:
        return ns + (int64_t)((double)c->bytes * p->memory_ns_per_byte / ZERO_SHARE);
    default:
        return TICKET_NS;
    }
}

static void finish(struct sim_device *d, const struct cmd *c)
{
    switch (c->kind) {
    case CMD_COPY:
        copy(d, c, half(c), c->bytes);
        break;
    case CMD_MOVE:
        memmove(arena(d, c->off), arena(d, c->from), c->bytes);
        break;
    case CMD_ZERO:
        memset(arena(d, c->off), 0, c->bytes);
        break;
    case CMD_TICKET:
        raise_ticket(d, c->slot, (uint32_t)c->value);
        break;
    case CMD_MARK:
        add_mark(d, c->value);
        break;
    case CMD_FOLLOW:
        break;
    }
}

static unsigned use_of(const struct cmd *c)
{
    switch (c->kind) {
    case CMD_COPY:
        return 1u << (c->dir == DEV_H2D ? SIM_LANE_IN : SIM_LANE_OUT);
    case CMD_MOVE:
        return 1u << SIM_LANE_MOVE;
    case CMD_ZERO:
        return 1u << SIM_LANE_ZERO;
    default:
        return 0;
    }
}

bool sim_device_will_write(const struct sim_device *d, unsigned uses, size_t off, size_t bytes)
{
    for (size_t k = 0; k < DEV_MAX_LANES; k++)
        for (uint32_t i = 0; i < d->lanes[k].n; i++) {
            const struct cmd *c = &d->lanes[k].cmds[(d->lanes[k].head + i) % RING];

            if ((uses & use_of(c)) && c->off < off + bytes && off < c->off + c->bytes)
                return true;
        }
    return false;
}

static void on_done(void *arg, uint64_t lane);

static void go_on(struct sim_device *d, uint32_t lane)
{
    struct lane *l = &d->lanes[lane];
    const struct cmd *c = &l->cmds[l->head];

    if (l->is_busy || l->n == 0 || (c->kind == CMD_FOLLOW && d->lanes[c->slot].n_done < c->value))
        return;
    l->is_busy = true;
    if (c->kind == CMD_COPY)
        copy(d, c, 0, half(c));
    sim_world_after(duration(d, l, c), on_done, d, lane);
}

static bool is_dead(const struct sim_device *d)
{
    return d->is_closed || sim_proc_generation(d->owner) != d->generation;
}

/* In the world: a device goes on while its process is stopped. */
static void on_done(void *arg, uint64_t lane)
{
    struct sim_device *d = arg;
    struct lane *l = &d->lanes[lane];
    struct cmd c = l->cmds[l->head];

    if (is_dead(d))
        return;
    /* From the start of the ring again when it is empty: few pages of it are ever touched. */
    l->head = --l->n ? (l->head + 1) % RING : 0;
    l->is_busy = false;
    l->n_done++;
    finish(d, &c);
    go_on(d, (uint32_t)lane);
    for (uint32_t k = 0; k < d->base.n_lanes && d->base.n_links > 1; k++)
        go_on(d, k); /* who follows it */
}

static int enqueue(struct dev_mem *m, uint32_t lane, const struct cmd *c, struct sh_err *err)
{
    struct sim_device *d = device(m);
    struct lane *l = &d->lanes[lane];

    if (l->n == RING)
        return SH_FAIL(err, SH_E_QUEUEFULL, "copy lane %u already holds %u commands", lane, RING);
    if (lane > 0 && lane < d->base.n_links && happens(d->conf->refuse_link))
        return SH_FAIL(err, SH_E_DEVMEM, "the simulated link %u is not there", lane);
    if (happens(d->conf->refuse))
        return SH_FAIL(err, SH_E_DEVMEM, "the simulated device has no memory for a command");
    l->cmds[(l->head + l->n++) % RING] = *c;
    go_on(d, lane);
    return SH_OK;
}

static void tell(const struct dev_mem *m, enum sim_lane_use use, size_t off, size_t bytes)
{
    if (watch)
        watch(device(m)->owner, use, off, bytes);
}

/* Any of it. */
static const struct locked *locked_in(const struct sim_device *d, const void *base, size_t bytes)
{
    const struct locked *l = d->locked;

    while (l && ((uintptr_t)l->base >= (uintptr_t)base + bytes ||
                 (uintptr_t)base >= (uintptr_t)l->base + l->bytes))
        l = l->next;
    return l;
}

/* CUDA refuses a copy of memory of which another part is locked. */
static void check_locks(const struct sim_device *d, const char *host, size_t bytes)
{
    for (size_t n; bytes; bytes -= n, host += n) {
        const struct locked *l;

        n = dev_lock_piece(host, bytes);
        l = locked_in(d, host, n);
        SIM_CHECK("locks", !l || (l->base <= host && host + n <= l->base + l->bytes),
                  "%zu bytes are copied of which another part is locked", n);
    }
}

static int mem_copy(struct dev_mem *m, uint32_t lane, enum dev_dir dir, size_t off, void *host,
                    size_t bytes, struct sh_err *err)
{
    const struct cmd c = {.kind = CMD_COPY, .dir = dir, .off = off, .host = host, .bytes = bytes};

    check_locks(device(m), host, bytes);
    tell(m, dir == DEV_H2D ? SIM_LANE_IN : SIM_LANE_OUT, off, bytes);
    return enqueue(m, lane, &c, err);
}

static int mem_move(struct dev_mem *m, uint32_t lane, size_t dst, size_t src, size_t bytes,
                    struct sh_err *err)
{
    const struct cmd c = {.kind = CMD_MOVE, .off = dst, .from = src, .bytes = bytes};

    tell(m, SIM_LANE_MOVE, dst, bytes);
    return enqueue(m, lane, &c, err);
}

static int mem_zero(struct dev_mem *m, uint32_t lane, size_t off, size_t bytes, struct sh_err *err)
{
    const struct cmd c = {.kind = CMD_ZERO, .off = off, .bytes = bytes};

    tell(m, SIM_LANE_ZERO, off, bytes);
    return enqueue(m, lane, &c, err);
}

static int mem_ticket(struct dev_mem *m, uint32_t lane, uint32_t slot, uint32_t value,
                      struct sh_err *err)
{
    const struct cmd c = {.kind = CMD_TICKET, .slot = slot, .value = value};

    if (happens(device(m)->conf->refuse_ticket))
        return SH_FAIL(err, SH_E_DEVMEM, "the simulated device has no memory for a ticket");
    return enqueue(m, lane, &c, err);
}

static int mem_mark(struct dev_mem *m, uint32_t lane, uint64_t cookie, struct sh_err *err)
{
    const struct cmd c = {.kind = CMD_MARK, .value = cookie};

    return enqueue(m, lane, &c, err);
}

static int mem_follow(struct dev_mem *m, uint32_t lane, uint32_t after, struct sh_err *err)
{
    const struct lane *a = &device(m)->lanes[after];
    const struct cmd c = {.kind = CMD_FOLLOW, .slot = after, .value = a->n_done + a->n};

    return enqueue(m, lane, &c, err);
}

static int mem_event_fd(const struct dev_mem *m)
{
    return device(m)->event_fd;
}

static bool mem_next_mark(struct dev_mem *m, uint64_t *cookie)
{
    struct sim_device *d = device(m);

    if (d->n_marks == 0)
        return false;
    *cookie = d->marks[d->first_mark];
    d->first_mark = (d->first_mark + 1) % RING;
    d->n_marks--;
    return true;
}

static void ticket_force(struct dev_mem *m, uint32_t slot, uint32_t value)
{
    struct sim_device *d = device(m);

    if (sim_device_has(d, slot, value))
        return;
    d->forced[slot] = value;
    d->is_forced[slot] = true;
    raise_ticket(d, slot, value);
}

bool sim_device_was_forced(const struct sim_device *d, uint32_t slot, uint32_t value)
{
    return d->is_forced[slot] && (int32_t)(d->forced[slot] - value) >= 0;
}

static uint32_t ticket_value(const struct dev_mem *m, uint32_t slot)
{
    return *word(device(m), slot);
}

/* ------------------------------------------------------------------ its life */

static int mem_open(const struct dev_mem_conf *c, struct dev_mem **out, struct sh_err *err)
{
    struct sim_device *d = calloc(1, sizeof(*d));
    struct stat st;
    int rc;

    *out = NULL;
    if (!d)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a simulated device");
    d->owner = sim_self();
    d->generation = sim_proc_generation(d->owner);
    d->conf = conf_of(d->owner);
    d->base.bytes = c->pool_bytes;
    d->base.n_lanes = c->n_lanes;
    d->base.device_bytes = (size_t)(d->conf->profile->device_bytes / SIM_SCALE);
    sh_strlcpy(d->base.device_name, d->conf->profile->device, sizeof(d->base.device_name));
    for (uint32_t k = 0; k < c->n_lanes; k++)
        d->lanes[k].times = c->links[k] ? d->conf->link_times[c->links[k]] : 1;
    d->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rc = sh_shm_create("shunt-sim-arena", c->pool_bytes, &d->arena, err);
    if (!rc)
        rc = sh_shm_create("shunt-sim-tickets", DEV_N_TICKETS * sizeof(uint32_t), &d->tickets, err);
    if (!rc && (d->event_fd < 0 || fstat(d->arena.fd, &st) < 0))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make a simulated device");
    if (rc)
        return rc;
    d->inode = st.st_ino;
    d->next = devices;
    devices = d;
    *out = &d->base;
    return SH_OK;
}

static bool end_one(struct sim_device *d, struct lane *l)
{
    const struct cmd *c = &l->cmds[l->head];

    if (l->n == 0 || (c->kind == CMD_FOLLOW && d->lanes[c->slot].n_done < c->value))
        return false;
    finish(d, c);
    l->head = (l->head + 1) % RING;
    l->n--;
    l->n_done++;
    return true;
}

/* Waits for what is enqueued: it happens now. */
static void mem_close(struct dev_mem *m)
{
    struct sim_device *d = device(m);

    if (!d)
        return;
    for (bool did = true; did;) {
        did = false;
        for (uint32_t i = 0; i < d->base.n_lanes; i++)
            did |= end_one(d, &d->lanes[i]);
    }
    d->is_closed = true;
}

static int mem_export(const struct dev_mem *m, int *fds, size_t *n_fds, struct sh_err *err)
{
    (void)err;
    fds[0] = device(m)->arena.fd;
    fds[1] = device(m)->tickets.fd;
    *n_fds = 2;
    return SH_OK;
}

static int mem_host_lock(struct dev_mem *m, void *base, size_t bytes, struct sh_err *err)
{
    struct locked *l;

    SIM_CHECK("locks", !locked_in(device(m), base, bytes), "%zu bytes are locked twice", bytes);
    if (happens(device(m)->conf->refuse_lock))
        return SH_FAIL(err, SH_E_NOMEM, "the simulated host has no memory to lock");
    l = malloc(sizeof(*l));
    if (!l)
        abort();
    *l = (struct locked){.next = device(m)->locked, .base = base, .bytes = bytes};
    device(m)->locked = l;
    return SH_OK;
}

static void mem_host_unlock(struct dev_mem *m, void *base)
{
    struct locked **p = &device(m)->locked, *l;

    while (*p && (*p)->base != base)
        p = &(*p)->next;
    l = *p;
    SIM_CHECK("locks", l, "memory is unlocked that nobody has locked");
    *p = l->next;
    free(l);
}

struct sim_device *sim_device_of(int arena_fd)
{
    struct stat st;

    if (fstat(arena_fd, &st) < 0)
        return NULL;
    for (struct sim_device *d = devices; d; d = d->next)
        if (d->inode == st.st_ino)
            return d;
    return NULL;
}

const struct sim_device_conf *sim_device_conf(const struct sim_device *d)
{
    return d->conf;
}

char *sim_device_at(const struct sim_device *d, size_t off, size_t bytes)
{
    return off <= d->base.bytes && bytes <= d->base.bytes - off ? arena(d, off) : NULL;
}

/* ------------------------------------------------------------------ the table of calls */

/* Simulated workers have no compute face: nobody calls these. */
static int no_call(void)
{
    sim_broken("device", "a call of the compute face");
}

#define NO_CALL (void *)(uintptr_t)no_call
static const struct dev_mem_ops MEM = {
    .open = mem_open,
    .close = mem_close,
    .export_fds = mem_export,
    .host_lock = mem_host_lock,
    .host_unlock = mem_host_unlock,
    .copy = mem_copy,
    .move = mem_move,
    .zero = mem_zero,
    .ticket = mem_ticket,
    .follow = mem_follow,
    .mark = mem_mark,
    .event_fd = mem_event_fd,
    .next_mark = mem_next_mark,
    .ticket_force = ticket_force,
    .ticket_value = ticket_value,
};

static const struct dev_stream_ops STREAM = {
    .open = NO_CALL,
    .close = NO_CALL,
    .own_memory = NO_CALL,
    .upload = NO_CALL,
    .download = NO_CALL,
    .fill = NO_CALL,
    .move = NO_CALL,
    .wait = NO_CALL,
    .has_ticket = NO_CALL,
    .sync = NO_CALL,
};

static const struct dev_plan_ops PLAN = {
    .create = NO_CALL,
    .free = NO_CALL,
    .scratch_bytes = NO_CALL,
    .set_scratch = NO_CALL,
    .finish = NO_CALL,
    .pack = NO_CALL,
    .unpack = NO_CALL,
    .run = NO_CALL,
    .profile = NO_CALL,
};

#define OPS(queued)                                                                           \
    {                                                                                         \
        .abi = DEV_ABI, .name = "sim", .is_queued = (queued), .mem = &MEM, .stream = &STREAM, \
        .plan = &PLAN                                                                         \
    }

static const struct dev_ops QUEUED = OPS(true), SYNCHRONOUS = OPS(false);

int __wrap_dev_lib_open(const char *kind, struct dev_lib **out, struct sh_err *err)
{
    (void)kind;
    return dev_lib_wrap(conf_of(sim_self())->is_queued ? &QUEUED : &SYNCHRONOUS, out, err);
}

int __wrap_dev_mem_measure(struct dev_mem *m, uint32_t lane, double *alpha_ns, double *beta_ns,
                           struct sh_err *err)
{
    const struct sim_profile *p = device(m)->conf->profile;
    const double error = 0.97 + (double)sim_below(61) / 1000; /* as measured on a busy host */

    (void)err;
    *alpha_ns = (double)p->latency_ns * error * device(m)->lanes[lane].times;
    *beta_ns = p->to_ns_per_byte * error * device(m)->lanes[lane].times;
    return SH_OK;
}
