/* fake_mem.c - the memory face of the fake: commands with a due time, run by whoever calls next. */
#include "common/clock.h"
#include "common/mem.h"
#include "common/shm.h"
#include "tests/device/fake/fake.h"

#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define RING 4096u

enum cmd_kind { CMD_MOVE, CMD_ZERO, CMD_TICKET, CMD_MARK, CMD_FOLLOW };

struct cmd {
    enum cmd_kind kind;
    unsigned char *dst;
    const unsigned char *src;
    size_t bytes;
    uint32_t slot;  /* FOLLOW: the other lane ... */
    uint64_t value; /* ... and how many of its commands must be done */
    int64_t due_ns;
};

struct ring {
    struct cmd *cmds; /* OWNED RING */
    uint32_t head, n;
    int64_t ready_ns; /* when the last command enqueued is done */
    uint64_t n_done;
    bool is_held;
};

struct link {
    double ns_per_byte;
    int64_t latency_ns, free_ns[2];
};

struct fake_mem {
    struct dev_mem base; /* first member */
    struct sh_shm arena, tickets;
    uint8_t link_of[DEV_MAX_LANES];
    struct link links[DEV_MAX_LANES];
    struct ring lanes[DEV_MAX_LANES], marks; /* marks: of kind CMD_MARK, done and not fetched */
    int timer_fd;
};

static struct fake_mem *mem_of(const struct dev_mem *m)
{
    return (struct fake_mem *)(uintptr_t)m;
}

static uint32_t *word_of(struct fake_mem *m, uint32_t slot)
{
    return (uint32_t *)m->tickets.base + slot;
}

static void raise_ticket(uint32_t *word, uint32_t value)
{
    if ((int32_t)(value - __atomic_load_n(word, __ATOMIC_RELAXED)) <= 0)
        return;
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    sh_futex_wake(word);
}

static void push(struct ring *r, const struct cmd *c)
{
    r->cmds[(r->head + r->n++) % RING] = *c;
}

static void run_cmd(struct fake_mem *m, const struct cmd *c)
{
    switch (c->kind) {
    case CMD_MOVE:
        memmove(c->dst, c->src, c->bytes);
        break;
    case CMD_ZERO:
        memset(c->dst, 0, c->bytes);
        break;
    case CMD_TICKET:
        raise_ticket(word_of(m, c->slot), (uint32_t)c->value);
        break;
    case CMD_MARK:
        push(&m->marks, c);
        break;
    case CMD_FOLLOW:
        break;
    }
}

static bool may_go(const struct fake_mem *m, const struct ring *l)
{
    const struct cmd *c = &l->cmds[l->head];

    return l->n > 0 && !l->is_held &&
           (c->kind != CMD_FOLLOW || m->lanes[c->slot].n_done >= c->value);
}

/* The lane whose first command is due first; NULL if none has one that may go. */
static struct ring *first_due(struct fake_mem *m)
{
    struct ring *best = NULL;

    for (uint32_t i = 0; i < m->base.n_lanes; i++) {
        struct ring *l = &m->lanes[i];

        if (may_go(m, l) && (!best || l->cmds[l->head].due_ns < best->cmds[best->head].due_ns))
            best = l;
    }
    return best;
}

/* When the first mark of a lane is due; INT64_MAX if there is none. */
static int64_t mark_due(const struct ring *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        const struct cmd *c = &l->cmds[(l->head + i) % RING];

        if (c->kind == CMD_MARK)
            return c->due_ns;
    }
    return INT64_MAX;
}

static void set_timer(struct fake_mem *m)
{
    int64_t at = m->marks.n > 0 ? 1 : INT64_MAX;
    struct itimerspec t = {.it_value = {.tv_sec = 0}}; /* off */

    for (uint32_t i = 0; i < m->base.n_lanes && at > 1; i++)
        at = SH_MIN(at, SH_MAX(mark_due(&m->lanes[i]), 1));
    if (at != INT64_MAX) {
        t.it_value.tv_sec = at / 1000000000;
        t.it_value.tv_nsec = at % 1000000000;
    }
    timerfd_settime(m->timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
}

static void catch_up(struct fake_mem *m)
{
    int64_t now = sh_clock_ns();
    struct ring *l;

    while ((l = first_due(m)) != NULL && l->cmds[l->head].due_ns <= now && m->marks.n < RING) {
        struct cmd c = l->cmds[l->head];

        l->head = (l->head + 1) % RING;
        l->n--;
        l->n_done++;
        run_cmd(m, &c);
    }
    set_timer(m);
}

/* duration 0 = as soon as the lane gets there. */
static int enqueue(struct dev_mem *base, uint32_t lane, struct cmd c, int64_t *link,
                   int64_t duration_ns, struct sh_err *err)
{
    struct fake_mem *m = mem_of(base);
    struct ring *l = &m->lanes[lane];
    int64_t begin;

    catch_up(m);
    if (l->n == RING)
        return SH_FAIL(err, SH_E_QUEUEFULL, "copy lane %u already holds %u commands", lane, RING);
    begin = sh_clock_ns();
    begin = SH_MAX(begin, l->ready_ns);
    if (link)
        begin = SH_MAX(begin, *link);
    c.due_ns = l->ready_ns = begin + duration_ns;
    if (link)
        *link = c.due_ns;
    push(l, &c);
    catch_up(m);
    return SH_OK;
}

int fake__mem_copy(struct dev_mem *base, uint32_t lane, enum dev_dir dir, size_t off, void *host,
                   size_t bytes, struct sh_err *err)
{
    struct fake_mem *m = mem_of(base);
    unsigned char *at = (unsigned char *)m->arena.base + off;
    struct cmd c = {.kind = CMD_MOVE, .bytes = bytes};
    struct link *link = &m->links[m->link_of[lane]];

    c.dst = dir == DEV_H2D ? at : host;
    c.src = dir == DEV_H2D ? host : at;
    return enqueue(base, lane, c, &link->free_ns[dir],
                   link->latency_ns + (int64_t)((double)bytes * link->ns_per_byte), err);
}

int fake__mem_move(struct dev_mem *m, uint32_t lane, size_t dst, size_t src, size_t bytes,
                   struct sh_err *err)
{
    unsigned char *at = mem_of(m)->arena.base;
    struct cmd c = {.kind = CMD_MOVE, .dst = at + dst, .src = at + src, .bytes = bytes};

    return enqueue(m, lane, c, NULL, 0, err);
}

int fake__mem_zero(struct dev_mem *m, uint32_t lane, size_t off, size_t bytes, struct sh_err *err)
{
    unsigned char *at = mem_of(m)->arena.base;
    struct cmd c = {.kind = CMD_ZERO, .dst = at + off, .bytes = bytes};

    return enqueue(m, lane, c, NULL, 0, err);
}

int fake__mem_ticket(struct dev_mem *m, uint32_t lane, uint32_t slot, uint32_t value,
                     struct sh_err *err)
{
    struct cmd c = {.kind = CMD_TICKET, .slot = slot, .value = value};

    return enqueue(m, lane, c, NULL, 0, err);
}

int fake__mem_follow(struct dev_mem *base, uint32_t lane, uint32_t after, struct sh_err *err)
{
    struct fake_mem *m = mem_of(base);
    const struct ring *a = &m->lanes[after];
    struct cmd c = {.kind = CMD_FOLLOW, .slot = after, .value = a->n_done + a->n};
    int64_t other = a->ready_ns;

    return enqueue(base, lane, c, &other, 0, err);
}

int fake__mem_mark(struct dev_mem *m, uint32_t lane, uint64_t cookie, struct sh_err *err)
{
    struct cmd c = {.kind = CMD_MARK, .value = cookie};

    return enqueue(m, lane, c, NULL, 0, err);
}

int fake__mem_event_fd(const struct dev_mem *m)
{
    return mem_of(m)->timer_fd;
}

bool fake__mem_next_mark(struct dev_mem *base, uint64_t *cookie)
{
    struct fake_mem *m = mem_of(base);
    bool found;

    catch_up(m);
    found = m->marks.n > 0;
    if (found) {
        *cookie = m->marks.cmds[m->marks.head].value;
        m->marks.head = (m->marks.head + 1) % RING;
        m->marks.n--;
    }
    set_timer(m);
    return found;
}

void fake__ticket_force(struct dev_mem *m, uint32_t slot, uint32_t value)
{
    raise_ticket(word_of(mem_of(m), slot), value);
}

uint32_t fake__ticket_value(const struct dev_mem *m, uint32_t slot)
{
    catch_up(mem_of(m));
    return __atomic_load_n(word_of(mem_of(m), slot), __ATOMIC_ACQUIRE);
}

void fake__link(struct dev_mem *base, uint32_t link, double gb_per_s, double latency_us)
{
    struct link *l = &mem_of(base)->links[link];

    l->ns_per_byte = gb_per_s > 0 ? 1 / gb_per_s : 0;
    l->latency_ns = (int64_t)(latency_us * 1000);
}

void fake__hold(struct dev_mem *base, uint32_t lane, bool is_held)
{
    mem_of(base)->lanes[lane].is_held = is_held;
    catch_up(mem_of(base));
}

int fake__mem_open(const struct dev_mem_conf *c, struct dev_mem **out, struct sh_err *err)
{
    struct fake_mem *m = calloc(1, sizeof(*m));
    bool has_rings = m != NULL;
    int rc;

    *out = NULL;
    if (!m)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate device memory object");
    m->base.bytes = c->pool_bytes;
    m->base.n_lanes = c->n_lanes;
    m->arena.fd = m->tickets.fd = -1;
    memcpy(m->link_of, c->links, sizeof(m->link_of));
    for (uint32_t i = 0; i < DEV_MAX_LANES; i++)
        fake__link(&m->base, i, c->copy_gb_per_s, c->copy_latency_us);
    m->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    m->marks.cmds = calloc(RING, sizeof(struct cmd));
    for (uint32_t i = 0; i < c->n_lanes; i++) {
        m->lanes[i].cmds = calloc(RING, sizeof(struct cmd));
        has_rings = has_rings && m->lanes[i].cmds;
    }
    if (!has_rings || !m->marks.cmds || m->timer_fd < 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_NOMEM, "could not create copy lanes");
        goto out;
    }
    rc = sh_shm_create("shunt-fake-arena", c->pool_bytes, &m->arena, err);
    if (!rc)
        rc =
            sh_shm_create("shunt-fake-tickets", DEV_N_TICKETS * sizeof(uint32_t), &m->tickets, err);
    if (rc)
        goto out;
    *out = &m->base;
    m = NULL;
out:
    fake__mem_close(m ? &m->base : NULL);
    return rc;
}

void fake__mem_close(struct dev_mem *base)
{
    struct fake_mem *m = mem_of(base);

    if (!m)
        return;
    sh_shm_fini(&m->arena);
    sh_shm_fini(&m->tickets);
    if (m->timer_fd >= 0)
        close(m->timer_fd);
    for (uint32_t i = 0; i < DEV_MAX_LANES; i++)
        free(m->lanes[i].cmds);
    free(m->marks.cmds);
    free(m);
}

int fake__mem_export(const struct dev_mem *base, int *fds, size_t *n_fds, struct sh_err *err)
{
    (void)err;
    fds[0] = mem_of(base)->arena.fd;
    fds[1] = mem_of(base)->tickets.fd;
    *n_fds = 2;
    return SH_OK;
}
