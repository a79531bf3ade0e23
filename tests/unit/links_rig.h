/* links_rig.h - copies over several links of the fake device, each call of which is noted and may
 * fail, for tests. */
#ifndef SH_TESTS_UNIT_LINKS_RIG_H
#define SH_TESTS_UNIT_LINKS_RIG_H

#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"
#include "executor/memory/transmit.h"
#include "tests/device/fake/fake.h"
#include "tests/unit/sh_test.h"

#define N_BLOCKS 4u
#define POOL (N_BLOCKS * DEV_BLOCK)
#define N_LAYERS 12u
#define LAYER 65536u
#define BYTES (N_LAYERS * LAYER)
#define MAX_CALLS 4096u

struct speed {
    double gb_per_s, latency_us;
};

static const struct speed ONE[] = {{1, 5}}, TWO[] = {{1, 5}, {0.5, 9}},
                          FOUR[] = {{1, 5}, {2, 20}, {0.3, 8}, {1, 5}};

struct call {
    char kind; /* copy, ticket, mark, follow, zero, move */
    uint32_t lane;
};

struct rig {
    struct dev_ops ops;
    struct dev_mem_ops mem_ops;
    struct sh_loop *loop;
    struct dev_lib *lib;
    struct dev_mem *mem;
    struct dev *dev;
    struct tx *tx;
    const struct speed *speeds;
    uint32_t n;
    struct tx_image im;
    unsigned char *host, *got;
    uint64_t ends[N_LAYERS];
    double ns[N_LAYERS];
    int arrived;
};

static struct rig rig;
static struct call calls[MAX_CALLS];
static uint32_t n_calls;
/* What fails: calls of this kind on this lane, behind so many of them, so many times. */
static struct {
    char kind;
    uint32_t lane;
    int skip, times, rc;
} script;

static inline int note(char kind, uint32_t lane, struct sh_err *err)
{
    assert_true(n_calls < MAX_CALLS);
    if (script.kind == kind && script.lane == lane && script.skip-- <= 0 && script.times > 0) {
        script.times--;
        return SH_FAIL(err, script.rc, "as scripted");
    }
    calls[n_calls++] = (struct call){kind, lane};
    return SH_OK;
}

static inline int noted_copy(struct dev_mem *m, uint32_t lane, enum dev_dir dir, size_t off,
                             void *host, size_t bytes, struct sh_err *err)
{
    int rc = note('c', lane, err);

    return rc ? rc : fake__mem_copy(m, lane, dir, off, host, bytes, err);
}

static inline int noted_move(struct dev_mem *m, uint32_t lane, size_t dst, size_t src, size_t bytes,
                             struct sh_err *err)
{
    int rc = note('v', lane, err);

    return rc ? rc : fake__mem_move(m, lane, dst, src, bytes, err);
}

static inline int noted_zero(struct dev_mem *m, uint32_t lane, size_t off, size_t bytes,
                             struct sh_err *err)
{
    int rc = note('z', lane, err);

    return rc ? rc : fake__mem_zero(m, lane, off, bytes, err);
}

static inline int noted_ticket(struct dev_mem *m, uint32_t lane, uint32_t slot, uint32_t value,
                               struct sh_err *err)
{
    int rc = note('t', lane, err);

    return rc ? rc : fake__mem_ticket(m, lane, slot, value, err);
}

static inline int noted_follow(struct dev_mem *m, uint32_t lane, uint32_t after, struct sh_err *err)
{
    int rc = note('f', lane, err);

    return rc ? rc : fake__mem_follow(m, lane, after, err);
}

static inline int noted_mark(struct dev_mem *m, uint32_t lane, uint64_t cookie, struct sh_err *err)
{
    int rc = note('m', lane, err);

    return rc ? rc : fake__mem_mark(m, lane, cookie, err);
}

int __wrap_dev_mem_measure(struct dev_mem *m, uint32_t lane, double *alpha_ns, double *beta_ns,
                           struct sh_err *err);

int __wrap_dev_mem_measure(struct dev_mem *m, uint32_t lane, double *alpha_ns, double *beta_ns,
                           struct sh_err *err)
{
    (void)m, (void)err;
    assert_true(lane < rig.n);
    *alpha_ns = rig.speeds[lane].latency_us * 1e3;
    *beta_ns = 1 / rig.speeds[lane].gb_per_s;
    return SH_OK;
}

static inline void open_mem(struct rig *r)
{
    struct dev_mem_conf c = {.pool_bytes = POOL};
    int fds[DEV_MAX_FDS];
    struct dev_conf dc = {.arena_bytes = POOL, .fds = fds};

    r->ops = shunt_dev_ops;
    r->mem_ops = *shunt_dev_ops.mem;
    r->mem_ops.copy = noted_copy;
    r->mem_ops.move = noted_move;
    r->mem_ops.zero = noted_zero;
    r->mem_ops.ticket = noted_ticket;
    r->mem_ops.follow = noted_follow;
    r->mem_ops.mark = noted_mark;
    r->ops.mem = &r->mem_ops;
    links_lanes(&c, r->n);
    assert_ok(dev_lib_wrap(&r->ops, &r->lib, NULL));
    assert_ok(dev_mem_open(r->lib, &c, &r->mem, NULL));
    assert_int_equal(dev_mem_n_links(r->mem), r->n);
    assert_ok(dev_mem_export(r->mem, fds, &dc.n_fds, NULL));
    assert_ok(dev_open(r->lib, &dc, &r->dev, NULL));
    for (uint32_t k = 0; k < r->n; k++)
        fake__link(r->mem, k, r->speeds[k].gb_per_s, r->speeds[k].latency_us);
}

static inline struct rig *rig_open(const struct speed *speeds, uint32_t n)
{
    struct rig *r = &rig;
    struct sh_err err = {0};

    *r = (struct rig){.speeds = speeds, .n = n};
    n_calls = 0;
    script.kind = 0;
    sh_clock_fake(SH_S(100), 0);
    assert_ok(sh_loop_new(&r->loop, NULL));
    open_mem(r);
    assert_ok_err(tx_new(r->loop, r->mem, "e", &r->tx, &err), &err);
    r->host = malloc(BYTES);
    r->got = malloc(POOL);
    assert_true(r->host && r->got);
    for (uint32_t i = 0; i < BYTES; i++)
        r->host[i] = (unsigned char)(1 + (i * 31 >> 3) % 255);
    for (uint32_t i = 0; i < N_LAYERS; i++) {
        r->ends[i] = (uint64_t)(i + 1) * LAYER;
        r->ns[i] = 40000; /* several groups */
    }
    r->im = (struct tx_image){.slot = TX_SLOT_IMAGE,
                              .host = (const char *)r->host,
                              .bytes = BYTES,
                              .n_layers = N_LAYERS,
                              .layer_ends = r->ends};
    return r;
}

static inline void rig_close(struct rig *r)
{
    tx_image_fini(&r->im);
    tx_free(r->tx);
    dev_close(r->dev);
    dev_mem_close(r->mem);
    dev_lib_close(r->lib);
    sh_loop_free(r->loop);
    free(r->host);
    free(r->got);
    sh_clock_real();
}

static inline void look(struct rig *r)
{
    for (int i = 0; i < 3; i++)
        assert_ok(sh_loop_once(r->loop, 0, NULL));
}

static inline void pass(struct rig *r, int64_t ns)
{
    sh_clock_advance(ns);
    look(r);
}

static inline void on_arrived(void *arg)
{
    struct rig *r = arg;

    r->arrived++;
    tx_image_arrived(r->tx, &r->im);
}

static inline void on_flag(void *arg)
{
    *(int *)arg = 1;
}

static inline int load(struct rig *r, const struct tx_place *at)
{
    int rc = tx_load_begin(r->tx, &r->im, at, r->ns, NULL);

    return rc ? rc : tx_load_rest(r->tx, &r->im, on_arrived, r, NULL);
}

static inline const unsigned char *arena(struct rig *r)
{
    assert_ok(dev_download(r->dev, r->got, 0, POOL, NULL));
    return r->got;
}

static inline bool has_come(struct rig *r, uint32_t value)
{
    return (int32_t)(dev_ticket_value(r->mem, TX_SLOT_IMAGE) - value) >= 0;
}

/* Of whom the ticket has come, all bytes are there. Returns how many. */
static inline uint32_t check_tickets(struct rig *r, size_t off)
{
    uint32_t n = 0;

    for (; n < r->im.n_groups && has_come(r, r->im.groups[n].ticket_value); n++)
        assert_memory_equal(arena(r) + off, r->host, r->ends[r->im.groups[n].end_layer - 1]);
    return n;
}

static inline bool is_all(const unsigned char *at, size_t n, unsigned char byte)
{
    for (size_t i = 0; i < n; i++)
        if (at[i] != byte)
            return false;
    return true;
}

static inline uint32_t count(char kind, uint32_t lane)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_calls; i++)
        n += calls[i].kind == kind && calls[i].lane == lane;
    return n;
}

#endif
