/* cpu_mem.c - arena in shared memory, copies by lane threads, tickets, marks. */
#include "runtime/device/cpu/cpu_mem.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/shm.h"
#include "common/units.h"
#include "runtime/device/lane.h"

#include <emmintrin.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RING 8192u /* commands that one lane holds */
/* A slowed copy is made in pieces of about this length: each one costs a wake-up and cold caches,
 * which the compute threads on the same cores pay for. */
#define CHUNK_NS SH_MS(2)
#define MIN_CHUNK ((size_t)64 << 10)
#define MAX_CHUNK ((size_t)4 << 20)
#define SPIN_NS SH_US(40) /* a sleeper wakes late by about this much: the rest is spun */
#define CLOSE_S 5
#define FRESH_BYTES ((size_t)64 << 10) /* of the arena, whose first copy is told apart */

enum cmd_kind { CMD_COPY, CMD_MOVE, CMD_ZERO, CMD_TICKET, CMD_MARK, CMD_FOLLOW };

struct cmd {
    enum cmd_kind kind;
    enum dev_dir dir;
    unsigned char *dst;
    const unsigned char *src;
    size_t bytes;
    uint64_t value; /* of a ticket or mark; FOLLOW: so many commands of that lane are done */
    uint32_t slot;
    struct lane *after;
    int64_t enqueued_ns;
};

struct lane {
    struct cpu_mem *mem;
    pthread_t thread;
    bool has_thread;
    uint32_t link;
    pthread_mutex_t lock;        /* guards ring, head, n, and what is counted */
    pthread_cond_t wake, passed; /* passed: n_done has grown, and somebody waits for that */
    struct cmd *ring;            /* OWNED */
    uint32_t head, n, n_followers;
    uint64_t n_given, n_done; /* commands, since it exists */
    int64_t ready_ns;         /* when the previous command was done; of the lane's thread only */
};

struct cpu_mem {
    struct dev_mem base; /* first member */
    struct sh_shm arena, tickets;
    atomic_uchar *copied; /* OWNED; by FRESH_BYTES of the arena: a copy has been there */
    double ns_per_byte;   /* 0: not slowed */
    int64_t latency_ns;
    struct lane lanes[DEV_MAX_LANES];
    uint32_t n_ready;          /* lanes whose lock and condition exist */
    atomic_bool stop, aborted; /* finish what is queued; drop what is queued */

    pthread_mutex_t link_lock;
    int64_t link_free_ns[DEV_MAX_LANES][2]; /* by link and direction */
    struct dev_marks marks;
};

static struct cpu_mem *mem_of(struct dev_mem *m)
{
    return (struct cpu_mem *)m;
}

/* ------------------------------------------------------------------ tickets and marks */

void cpu__ticket_force(struct dev_mem *m, uint32_t slot, uint32_t value)
{
    uint32_t *word = (uint32_t *)mem_of(m)->tickets.base + slot;

    if (dev_ticket_raise(word, value))
        sh_futex_wake(word);
}

uint32_t cpu__ticket_value(const struct dev_mem *m, uint32_t slot)
{
    const struct cpu_mem *c = (const struct cpu_mem *)m;

    return __atomic_load_n((const uint32_t *)c->tickets.base + slot, __ATOMIC_ACQUIRE);
}

bool cpu__mem_next_mark(struct dev_mem *m, uint64_t *cookie)
{
    return dev_marks_next(&mem_of(m)->marks, cookie);
}

int cpu__mem_event_fd(const struct dev_mem *m)
{
    return ((const struct cpu_mem *)m)->marks.event_fd;
}

/* ------------------------------------------------------------------ a lane's thread */

/* Sleeps until shortly before, then spins if `exact`: a sleeper is woken some 10 us late. */
static void wait_until(int64_t end_ns, bool exact)
{
    int64_t sleep_to = exact ? end_ns - SPIN_NS : end_ns;
    struct timespec ts = {.tv_sec = sleep_to / SH_S(1), .tv_nsec = sleep_to % SH_S(1)};

    if (sleep_to > sh_clock_ns())
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
            ;
    while (exact && sh_clock_ns() < end_ns)
        __builtin_ia32_pause();
}

/* When this copy may begin on its link; the link is taken for its whole duration at once. */
static int64_t take_link(struct lane *l, const struct cmd *c, int64_t duration_ns)
{
    struct cpu_mem *m = l->mem;
    int64_t begin = SH_MAX(c->enqueued_ns, l->ready_ns);

    pthread_mutex_lock(&m->link_lock);
    begin = SH_MAX(begin, m->link_free_ns[l->link][c->dir]);
    m->link_free_ns[l->link][c->dir] = begin + duration_ns;
    pthread_mutex_unlock(&m->link_lock);
    return begin;
}

/* With stores that go past the caches: the core that copies is a core that computes too. So its
 * caches keep their lines, and no line of dst is read just to be overwritten (a quarter less
 * time). */
static void copy_bytes(unsigned char *dst, const unsigned char *src, size_t bytes)
{
    size_t head = SH_MIN(-(uintptr_t)dst & 15, bytes), at = head;

    memcpy(dst, src, head);
    for (; at + 64 <= bytes; at += 64)
        for (size_t i = 0; i < 64; i += 16)
            _mm_stream_si128((__m128i *)(void *)(dst + at + i),
                             _mm_loadu_si128((const __m128i *)(const void *)(src + at + i)));
    memcpy(dst + at, src + at, bytes - at);
    _mm_sfence();
}

/* To where no copy has been. A store to a page that is not there yet costs a fault and zeros that
 * the copy overwrites; through the file the kernel takes a page and fills it, in half the time.
 * Pages that only a worker has written to are there already: as right, once a little slower. */
static bool copy_first(const struct cpu_mem *m, size_t off, const unsigned char *src, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = pwrite(m->arena.fd, src + at, bytes - at, (off_t)(off + at));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

static void copy_in(struct cpu_mem *m, unsigned char *dst, const unsigned char *src, size_t bytes)
{
    const size_t first = (size_t)(dst - (unsigned char *)m->arena.base);

    for (size_t at = 0; at < bytes;) {
        size_t off = first + at, n = SH_MIN(bytes - at, FRESH_BYTES - off % FRESH_BYTES);
        atomic_uchar *copied = &m->copied[off / FRESH_BYTES];

        if (atomic_load(copied) || !copy_first(m, off, src + at, n))
            copy_bytes(dst + at, src + at, n);
        atomic_store(copied, 1);
        at += n;
    }
}

static void copy_chunk(struct cpu_mem *m, const struct cmd *c, size_t at, size_t bytes)
{
    if (c->dir == DEV_H2D)
        copy_in(m, c->dst + at, c->src + at, bytes);
    else
        copy_bytes(c->dst + at, c->src + at, bytes);
}

static void run_slow_copy(struct lane *l, const struct cmd *c)
{
    struct cpu_mem *m = l->mem;
    int64_t total = m->latency_ns + (int64_t)((double)c->bytes * m->ns_per_byte);
    int64_t begin = take_link(l, c, total);
    double per_chunk = m->ns_per_byte > 0 ? CHUNK_NS / m->ns_per_byte : (double)MAX_CHUNK;
    size_t chunk = per_chunk >= (double)MAX_CHUNK   ? MAX_CHUNK
                   : per_chunk <= (double)MIN_CHUNK ? MIN_CHUNK
                                                    : (size_t)per_chunk;

    for (size_t at = 0; at < c->bytes && !atomic_load(&m->aborted);) {
        size_t n = SH_MIN(chunk, c->bytes - at);

        copy_chunk(m, c, at, n);
        at += n;
        wait_until(begin + m->latency_ns + (int64_t)((double)at * m->ns_per_byte), at == c->bytes);
    }
    l->ready_ns = begin + total;
}

static void follow_lane(struct lane *after, uint64_t n_done)
{
    pthread_mutex_lock(&after->lock);
    after->n_followers++;
    while (after->n_done < n_done)
        pthread_cond_wait(&after->passed, &after->lock);
    after->n_followers--;
    pthread_mutex_unlock(&after->lock);
}

static void run_cmd(struct lane *l, const struct cmd *c)
{
    struct cpu_mem *m = l->mem;

    if (c->kind == CMD_COPY && (m->ns_per_byte > 0 || m->latency_ns > 0)) {
        run_slow_copy(l, c);
        return;
    }
    switch (c->kind) {
    case CMD_COPY:
        copy_chunk(m, c, 0, c->bytes);
        break;
    case CMD_MOVE:
        memmove(c->dst, c->src, c->bytes);
        break;
    case CMD_ZERO:
        memset(c->dst, 0, c->bytes);
        break;
    case CMD_TICKET:
        cpu__ticket_force(&m->base, c->slot, (uint32_t)c->value);
        return;
    case CMD_MARK:
        dev_marks_reach(&m->marks, c->value);
        return;
    case CMD_FOLLOW:
        follow_lane(c->after, c->value);
        break;
    }
    l->ready_ns = sh_clock_ns();
}

/* did: the last one is done. */
static bool next_cmd(struct lane *l, bool did, struct cmd *out)
{
    bool found;

    pthread_mutex_lock(&l->lock);
    l->n_done += did;
    if (l->n_followers > 0)
        pthread_cond_broadcast(&l->passed);
    while (l->n == 0 && !atomic_load(&l->mem->stop))
        pthread_cond_wait(&l->wake, &l->lock);
    found = l->n > 0;
    if (found) {
        *out = l->ring[l->head];
        l->head = (l->head + 1) % RING;
        l->n--;
    }
    pthread_mutex_unlock(&l->lock);
    return found;
}

static void *lane_main(void *arg)
{
    struct lane *l = arg;
    struct cmd c;

    /* A copy engine does not compete with kernels for cores. The nearest to that: woken at once,
     * ahead of compute threads. Without the right to do so the lane still works, a little later. */
    prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), -10);
    for (bool did = false; next_cmd(l, did, &c); did = true)
        if (!atomic_load(&l->mem->aborted))
            run_cmd(l, &c);
    return NULL;
}

/* ------------------------------------------------------------------ enqueueing */

static int enqueue_cmd(struct dev_mem *base, uint32_t lane, struct cmd c, struct sh_err *err)
{
    struct lane *l = &mem_of(base)->lanes[lane];
    int rc = SH_OK;

    c.enqueued_ns = sh_clock_ns();
    pthread_mutex_lock(&l->lock);
    if (l->n == RING) {
        rc = SH_FAIL(err, SH_E_QUEUEFULL, "copy lane %u already holds %u commands", lane, RING);
    } else {
        l->ring[(l->head + l->n) % RING] = c;
        l->n++;
        l->n_given++;
        pthread_cond_signal(&l->wake);
    }
    pthread_mutex_unlock(&l->lock);
    return rc;
}

int cpu__mem_copy(struct dev_mem *m, uint32_t lane, enum dev_dir dir, size_t off, void *host,
                  size_t bytes, struct sh_err *err)
{
    unsigned char *at = (unsigned char *)mem_of(m)->arena.base + off;
    struct cmd c = {.kind = CMD_COPY, .dir = dir, .bytes = bytes};

    c.dst = dir == DEV_H2D ? at : host;
    c.src = dir == DEV_H2D ? host : at;
    return enqueue_cmd(m, lane, c, err);
}

int cpu__mem_move(struct dev_mem *m, uint32_t lane, size_t dst, size_t src, size_t bytes,
                  struct sh_err *err)
{
    unsigned char *base = mem_of(m)->arena.base;
    struct cmd c = {.kind = CMD_MOVE, .dst = base + dst, .src = base + src, .bytes = bytes};

    return enqueue_cmd(m, lane, c, err);
}

int cpu__mem_zero(struct dev_mem *m, uint32_t lane, size_t off, size_t bytes, struct sh_err *err)
{
    unsigned char *base = mem_of(m)->arena.base;
    struct cmd c = {.kind = CMD_ZERO, .dst = base + off, .bytes = bytes};

    return enqueue_cmd(m, lane, c, err);
}

int cpu__mem_ticket(struct dev_mem *m, uint32_t lane, uint32_t slot, uint32_t value,
                    struct sh_err *err)
{
    struct cmd c = {.kind = CMD_TICKET, .slot = slot, .value = value};

    return enqueue_cmd(m, lane, c, err);
}

/* What it waits for was given before, so lanes cannot wait for each other in a ring. */
int cpu__mem_follow(struct dev_mem *m, uint32_t lane, uint32_t after, struct sh_err *err)
{
    struct lane *a = &mem_of(m)->lanes[after];
    struct cmd c = {.kind = CMD_FOLLOW, .after = a};

    pthread_mutex_lock(&a->lock);
    c.value = a->n_given;
    pthread_mutex_unlock(&a->lock);
    return enqueue_cmd(m, lane, c, err);
}

int cpu__mem_mark(struct dev_mem *base, uint32_t lane, uint64_t cookie, struct sh_err *err)
{
    struct dev_marks *marks = &mem_of(base)->marks;
    struct cmd c = {.kind = CMD_MARK, .value = cookie};
    int rc = dev_marks_promise(marks, err);

    if (rc)
        return rc;
    rc = enqueue_cmd(base, lane, c, err);
    if (rc)
        dev_marks_withdraw(marks);
    return rc;
}

/* ------------------------------------------------------------------ life */

static int start_lane(struct cpu_mem *m, uint32_t i, uint32_t link, struct sh_err *err)
{
    struct lane *l = &m->lanes[i];

    l->mem = m;
    l->link = link;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->wake, NULL);
    pthread_cond_init(&l->passed, NULL);
    m->n_ready = i + 1;
    l->ring = calloc(RING, sizeof(*l->ring));
    if (!l->ring)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate copy lane %u", i);
    errno = pthread_create(&l->thread, NULL, lane_main, l);
    if (errno)
        return SH_FAIL_ERRNO(err, SH_E_NOMEM, "could not start copy lane %u", i);
    l->has_thread = true;
    return SH_OK;
}

int cpu__mem_open(const struct dev_mem_conf *c, struct dev_mem **out, struct sh_err *err)
{
    struct cpu_mem *m;
    int rc;

    *out = NULL;
    if (c->ordinal != 0)
        return SH_FAIL(err, SH_E_NOTFOUND, "cpu device %u does not exist, there is only 0",
                       c->ordinal);
    m = calloc(1, sizeof(*m));
    if (!m)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate device memory object");
    m->base.bytes = c->pool_bytes;
    m->base.n_lanes = c->n_lanes;
    m->base.device_bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    m->arena.fd = m->tickets.fd = -1;
    m->ns_per_byte = c->copy_gb_per_s > 0 ? 1 / c->copy_gb_per_s : 0;
    m->latency_ns = (int64_t)(c->copy_latency_us * 1000);
    pthread_mutex_init(&m->link_lock, NULL);
    rc = dev_marks_init(&m->marks, err);
    if (!rc)
        rc = sh_shm_create("shunt-arena", c->pool_bytes, &m->arena, err);
    if (!rc) {
        m->copied = calloc(m->arena.bytes / FRESH_BYTES + 1, sizeof(*m->copied));
        if (!m->copied)
            rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate device memory object");
    }
    if (!rc)
        rc = sh_shm_create("shunt-tickets", DEV_N_TICKETS * sizeof(uint32_t), &m->tickets, err);
    for (uint32_t i = 0; i < c->n_lanes && !rc; i++)
        rc = start_lane(m, i, c->links[i], err);
    if (rc)
        goto out;
    *out = &m->base;
    m = NULL;
out:
    cpu__mem_close(m ? &m->base : NULL);
    return rc;
}

static void stop_lanes(struct cpu_mem *m)
{
    struct timespec end;

    atomic_store(&m->stop, true);
    for (uint32_t i = 0; i < m->n_ready; i++) {
        pthread_mutex_lock(&m->lanes[i].lock);
        pthread_cond_broadcast(&m->lanes[i].wake);
        pthread_mutex_unlock(&m->lanes[i].lock);
    }
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += CLOSE_S;
    for (uint32_t i = 0; i < m->n_ready; i++) {
        struct lane *l = &m->lanes[i];

        if (l->has_thread && pthread_timedjoin_np(l->thread, NULL, &end) != 0) {
            atomic_store(&m->aborted, true); /* drops the rest, so this join is short */
            pthread_join(l->thread, NULL);
        }
        free(l->ring);
        pthread_cond_destroy(&l->wake);
        pthread_cond_destroy(&l->passed);
        pthread_mutex_destroy(&l->lock);
    }
}

void cpu__mem_close(struct dev_mem *base)
{
    struct cpu_mem *m = mem_of(base);

    if (!m)
        return;
    stop_lanes(m);
    sh_shm_fini(&m->arena);
    sh_shm_fini(&m->tickets);
    free(m->copied);
    dev_marks_fini(&m->marks);
    pthread_mutex_destroy(&m->link_lock);
    free(m);
}

int cpu__mem_export(const struct dev_mem *base, int *fds, size_t *n_fds, struct sh_err *err)
{
    const struct cpu_mem *m = (const struct cpu_mem *)base;

    (void)err;
    fds[0] = m->arena.fd;
    fds[1] = m->tickets.fd;
    *n_fds = 2;
    return SH_OK;
}
