/* fake_dev.c - the compute face of the fake: hashes for results, scripted time and failures. */
#include "common/clock.h"
#include "common/mem.h"
#include "common/shm.h"
#include "tests/device/fake/fake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define OP_NS 1000
#define MAX_OP_NS INT64_C(10000000000)

struct fake_dev {
    struct dev base; /* first member */
    struct sh_shm arena, tickets;
    struct sh_shm own; /* of dev_own_memory, instead of the arena; base NULL: none */
};

struct script {
    int64_t ns;
    int fail, prepare; /* SH_OK, or the code */
};

struct fake_plan {
    struct dev_plan base;
    struct script *ops;            /* OWNED */
    struct dev_prepared *prepared; /* OWNED */
    bool is_finished;
};

static struct fake_dev *dev_of(struct dev *d)
{
    return (struct fake_dev *)d;
}

static struct fake_plan *plan_of(const struct dev_plan *p)
{
    return (struct fake_plan *)(uintptr_t)p;
}

/* ------------------------------------------------------------------ device */

static void fake_close(struct dev *base)
{
    struct fake_dev *d = dev_of(base);

    if (!d)
        return;
    sh_shm_fini(&d->own);
    sh_shm_fini(&d->arena);
    sh_shm_fini(&d->tickets);
    free(d);
}

static int import(int fd, size_t bytes, struct sh_shm *out, struct sh_err *err)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0), rc;

    if (copy < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not take a descriptor of the arena");
    rc = sh_shm_map(copy, bytes, true, out, err);
    if (rc)
        close(copy);
    return rc;
}

static int fake_open(const struct dev_conf *c, struct dev **out, struct sh_err *err)
{
    struct fake_dev *d = calloc(1, sizeof(*d));
    const size_t words = DEV_N_TICKETS * sizeof(uint32_t);
    int rc;

    *out = NULL;
    if (!d)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate device");
    d->arena.fd = d->tickets.fd = d->own.fd = -1;
    d->base.arena_bytes = c->arena_bytes;
    if (c->n_fds == 2) {
        rc = import(c->fds[0], c->arena_bytes, &d->arena, err);
        if (!rc)
            rc = import(c->fds[1], words, &d->tickets, err);
    } else {
        rc = sh_shm_create("shunt-fake-arena", c->arena_bytes, &d->arena, err);
        if (!rc)
            rc = sh_shm_create("shunt-fake-tickets", words, &d->tickets, err);
    }
    if (!rc) {
        *out = &d->base;
        d = NULL;
    }
    fake_close(d ? &d->base : NULL);
    return rc;
}

static int fake_own_memory(struct dev *base, size_t bytes, struct sh_err *err)
{
    struct fake_dev *d = dev_of(base);
    struct sh_shm own = {.fd = -1};
    int rc = bytes ? sh_shm_create("shunt-fake-own", bytes, &own, err) : SH_OK;

    if (rc)
        return rc;
    sh_shm_fini(&d->own);
    d->own = own;
    return SH_OK;
}

static unsigned char *at(struct dev *d, size_t off)
{
    const struct fake_dev *f = dev_of(d);

    return (unsigned char *)(f->own.base ? f->own.base : f->arena.base) + off;
}

static int fake_upload(struct dev *d, size_t off, const void *host, size_t n, struct sh_err *err)
{
    (void)err;
    memcpy(at(d, off), host, n);
    return SH_OK;
}

static int fake_download(struct dev *d, void *host, size_t off, size_t n, struct sh_err *err)
{
    (void)err;
    memcpy(host, at(d, off), n);
    return SH_OK;
}

static int fake_fill(struct dev *d, size_t off, int byte, size_t n, struct sh_err *err)
{
    (void)err;
    memset(at(d, off), byte, n);
    return SH_OK;
}

static int fake_move(struct dev *d, size_t dst, size_t src, size_t n, struct sh_err *err)
{
    (void)err;
    memcpy(at(d, dst), at(d, src), n);
    return SH_OK;
}

static int fake_wait(struct dev *d, uint32_t slot, uint32_t value, int64_t timeout_ms,
                     struct sh_err *err)
{
    const uint32_t *word = (const uint32_t *)dev_of(d)->tickets.base + slot;
    int64_t end = sh_clock_ns() + timeout_ms * 1000000;

    for (;;) {
        uint32_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);

        if ((int32_t)(seen - value) >= 0)
            return SH_OK;
        if (sh_futex_wait(word, seen, end - sh_clock_ns()) == SH_E_TIMEOUT)
            return SH_FAIL(err, SH_E_TIMEOUT, "ticket %u did not reach %u within %lld ms", slot,
                           value, (long long)timeout_ms);
    }
}

static bool fake_has_ticket(const struct dev *base, uint32_t slot, uint32_t value)
{
    const uint32_t *word = ((const struct fake_dev *)base)->tickets.base;

    return (int32_t)(__atomic_load_n(word + slot, __ATOMIC_ACQUIRE) - value) >= 0;
}

static int fake_sync(struct dev *d, struct sh_err *err)
{
    (void)d;
    (void)err;
    return SH_OK;
}

/* ------------------------------------------------------------------ plans */

/* The error code behind `key` in the name, if that is there. */
static int parse_code(const char *name, const char *key, int *out, struct sh_err *err)
{
    const char *at = name ? strstr(name, key) : NULL;

    *out = at ? sh_rc_parse(at + strlen(key)) : SH_OK;
    if (*out == SH_E_BUG && strcmp(at + strlen(key), "BUG") != 0)
        return SH_FAIL(err, SH_E_INVALID, "node \"%s\" names no error code", name);
    return SH_OK;
}

static int parse_script(const char *name, struct script *s, struct sh_err *err)
{
    const char *ns = name ? strstr(name, "!ns=") : NULL;
    char *end;
    int rc;

    *s = (struct script){.ns = OP_NS};
    if (ns) {
        errno = 0;
        s->ns = strtoll(ns + 4, &end, 10);
        if (errno || end == ns + 4 || s->ns < 0 || s->ns > MAX_OP_NS)
            return SH_FAIL(err, SH_E_INVALID, "node \"%s\" has no valid duration", name);
    }
    rc = parse_code(name, "!fail=", &s->fail, err);
    return rc ? rc : parse_code(name, "!prepare=", &s->prepare, err);
}

static void plan_free(struct dev_plan *base)
{
    struct fake_plan *p = plan_of(base);

    if (!p)
        return;
    while (p->prepared && dev_prepared_pop(p->prepared))
        ;
    dev_prepared_free(p->prepared);
    free(p->ops);
    free(p);
}

static int plan_new(struct dev *d, struct dev_graph *g, enum dev_precision precision,
                    const struct dev_plan *layout_of, struct dev_plan **out, struct sh_err *err)
{
    struct fake_plan *p = calloc(1, sizeof(*p));
    int rc = SH_OK;

    (void)precision;
    (void)layout_of;
    *out = NULL;
    if (!p)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a plan");
    p->base = (struct dev_plan){.dev = d, .g = g};
    p->ops = calloc(SH_MAX(g->n_ops, 1), sizeof(*p->ops));
    if (!p->ops)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a plan");
    for (uint32_t i = 0; i < g->n_ops && !rc; i++)
        rc = parse_script(g->ops[i].name, &p->ops[i], err);
    for (uint32_t i = 0; i < g->n_tensors; i++)
        g->tensors[i].bytes =
            (size_t)dev_tensor_elements(&g->tensors[i]) * sh_dtype_bytes(g->tensors[i].dtype);
    if (!rc) {
        *out = &p->base;
        p = NULL;
    }
    plan_free(p ? &p->base : NULL);
    return rc;
}

static size_t plan_scratch_bytes(const struct dev_plan *p, uint32_t op)
{
    (void)p;
    (void)op;
    return 0;
}

static void plan_set_scratch(struct dev_plan *p, uint32_t op, size_t ws_offset)
{
    (void)p;
    (void)op;
    (void)ws_offset;
}

static int plan_finish(struct dev_plan *p, struct sh_err *err)
{
    (void)err;
    plan_of(p)->is_finished = true;
    return SH_OK;
}

static int plan_pack(struct dev_plan *p, uint32_t tensor, const void *plain, void *stored,
                     struct sh_err *err)
{
    (void)err;
    memcpy(stored, plain, p->g->tensors[tensor].bytes);
    return SH_OK;
}

static int plan_unpack(struct dev_plan *p, uint32_t tensor, const void *stored, void *plain,
                       struct sh_err *err)
{
    return plan_pack(p, tensor, stored, plain, err);
}

/* ------------------------------------------------------------------ running */

static int span(const struct dev_plan *p, const struct dev_bases *b, uint32_t tensor,
                unsigned char **out, size_t *bytes, struct sh_err *err)
{
    const struct dev_tensor *t = &p->g->tensors[tensor];
    size_t off;

    while (t->alias_of != DEV_NONE)
        t = &p->g->tensors[t->alias_of];
    off = t->offset + (t->role == DEV_ROLE_WEIGHT  ? b->image
                       : t->role == DEV_ROLE_TABLE ? b->tables
                       : t->role == DEV_ROLE_STATE ? b->state
                                                   : b->workspace);
    *bytes = t->bytes;
    if (off > p->dev->arena_bytes || t->bytes > p->dev->arena_bytes - off)
        return SH_FAIL(err, SH_E_BUG, "tensor \"%s\" leaves the arena", t->name);
    *out = at(p->dev, off);
    return SH_OK;
}

/* On the faked clock this is the clock's own movement; on the real one, a sleep. */
static void pass_time(int64_t ns)
{
    int64_t end = sh_clock_ns() + ns, left;

    sh_clock_advance(ns);
    left = end - sh_clock_ns();
    if (left > 0) {
        struct timespec ts = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};

        while (nanosleep(&ts, &ts) != 0 && errno == EINTR)
            ;
    }
}

static uint64_t mix(uint64_t h, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(1099511628211);
    return h;
}

static int run_op(const struct dev_plan *p, const struct dev_bases *b, uint32_t i,
                  struct sh_err *err)
{
    const struct dev_op *op = &p->g->ops[i];
    const struct script *s = &plan_of(p)->ops[i];
    const uint32_t *targets = op->n_out > 0 ? op->out : op->in;
    const uint32_t n_targets = op->n_out > 0 ? op->n_out : 1;
    uint64_t h = mix(UINT64_C(14695981039346656037), (const unsigned char *)&i, sizeof(i));
    unsigned char *at_bytes;
    size_t n;
    int rc = SH_OK;

    pass_time(s->ns);
    if (s->fail)
        return SH_FAIL(err, s->fail, "%s (node \"%s\") fails as scripted", dev_op_name(op->kind),
                       op->name);
    for (uint32_t k = 0; k < op->n_in && !rc; k++) {
        if (op->in[k] == DEV_NONE)
            continue;
        rc = span(p, b, op->in[k], &at_bytes, &n, err);
        if (!rc)
            h = mix(h, at_bytes, n);
    }
    for (uint32_t k = 0; k < n_targets && !rc; k++) {
        if (targets[k] == DEV_NONE)
            continue;
        rc = span(p, b, targets[k], &at_bytes, &n, err);
        for (size_t q = 0; q < n && !rc; q++)
            at_bytes[q] = (unsigned char)(h >> (q % 8 * 8));
    }
    return rc;
}

static int plan_run(struct dev_plan *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                    struct sh_err *err)
{
    int rc = SH_OK;

    if (!plan_of(p)->is_finished)
        return SH_FAIL(err, SH_E_BUG, "the plan is not finished");
    for (uint32_t i = from; i < to && !rc; i++)
        rc = run_op(p, b, i, err);
    return rc;
}

/* It has nothing to gain: what is prepared is the plan itself. */
static int plan_prepare(struct dev_plan *base, const struct dev_bases *b, uint32_t from,
                        uint32_t to, struct sh_err *err)
{
    struct fake_plan *p = plan_of(base);
    const struct dev_range r = {
        .image = b->image, .workspace = b->workspace, .from = from, .to = to};
    int rc = SH_OK;

    for (uint32_t i = from; i < to && !rc; i++)
        if (p->ops[i].prepare)
            rc = SH_FAIL(err, p->ops[i].prepare, "node \"%s\" is not prepared, as scripted",
                         base->g->ops[i].name);
    if (!rc && !p->prepared)
        rc = dev_prepared_new(&base->dev->prepared, &p->prepared, err);
    if (!rc && !dev_prepared_find(p->prepared, &r))
        dev_prepared_add(p->prepared, &r, p);
    return rc;
}

static int plan_profile(struct dev_plan *p, const struct dev_bases *b, uint32_t repeat, double *ns,
                        struct sh_err *err)
{
    int rc = plan_run(p, b, 0, p->g->n_ops, err);

    (void)repeat; /* every run takes the same */
    for (uint32_t i = 0; i < p->g->n_ops && !rc; i++)
        ns[i] = (double)plan_of(p)->ops[i].ns;
    return rc;
}

static const struct dev_mem_ops MEM = {
    .open = fake__mem_open,
    .close = fake__mem_close,
    .export_fds = fake__mem_export,
    .copy = fake__mem_copy,
    .move = fake__mem_move,
    .zero = fake__mem_zero,
    .ticket = fake__mem_ticket,
    .follow = fake__mem_follow,
    .mark = fake__mem_mark,
    .event_fd = fake__mem_event_fd,
    .next_mark = fake__mem_next_mark,
    .ticket_force = fake__ticket_force,
    .ticket_value = fake__ticket_value,
};

static const struct dev_stream_ops STREAM = {
    .open = fake_open,
    .close = fake_close,
    .own_memory = fake_own_memory,
    .upload = fake_upload,
    .download = fake_download,
    .fill = fake_fill,
    .move = fake_move,
    .wait = fake_wait,
    .has_ticket = fake_has_ticket,
    .sync = fake_sync,
};

static const struct dev_plan_ops PLAN = {
    .create = plan_new,
    .free = plan_free,
    .scratch_bytes = plan_scratch_bytes,
    .set_scratch = plan_set_scratch,
    .finish = plan_finish,
    .pack = plan_pack,
    .unpack = plan_unpack,
    .run = plan_run,
    .profile = plan_profile,
    .prepare = plan_prepare,
};

__attribute__((visibility("default"))) const struct dev_ops shunt_dev_ops = {
    .abi = DEV_ABI,
    .name = "fake",
    .mem = &MEM,
    .stream = &STREAM,
    .plan = &PLAN,
};
