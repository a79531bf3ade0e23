/* dev_test.c - the harness of the device tests.
 *
 * Bounds by precision. Rounding to p significant bits costs 2^-2p / 7 of normalised squared error,
 * on average over mantissas: 3.4e-8 for fp16, 2.2e-6 for bf16. tf32 cuts operands to 11 bits where
 * matrix units read what an operation before has left: 1.4e-7 each. T_BOUND_* leave room for some
 * tens of them and for gradients that are differences of larger numbers; one wrong element in ten
 * thousand does not fit.
 */
#include "tests/device/dev_test.h"

#include "common/mem.h"

#include <math.h>
#include <poll.h>

#define MARK_MS 60000

static struct dev_lib *lib;
static struct dev *dev;
static size_t reach; /* of the arena, what the graph that was placed last may use */

static const char *backend(void)
{
    const char *kind = getenv("BACKEND");

    return kind && kind[0] ? kind : "cpu";
}

const char *t_kind(void)
{
    return strcmp(backend(), "oracle") == 0 ? "cpu" : backend();
}

size_t t_arena(void)
{
    return strcmp(t_kind(), "cuda") == 0 ? (size_t)4 << 30 : (size_t)96 << 20;
}

int t_setup(void **state)
{
    const char *threads = getenv("THREADS");
    struct dev_conf conf = {.threads = threads ? (uint32_t)strtoul(threads, NULL, 10) : 2,
                            .arena_bytes = t_arena(),
                            .deterministic = true,
                            .verify_launches = getenv("VERIFY_LAUNCHES") != NULL};
    struct sh_err err = {0};

    (void)state;
    assert_ok_err(dev_lib_open(backend(), &lib, &err), &err);
    assert_ok_err(dev_open(lib, &conf, &dev, &err), &err);
    return 0;
}

int t_teardown(void **state)
{
    (void)state;
    dev_close(dev);
    dev_lib_close(lib);
    return 0;
}

struct dev *t_open_worker(const struct dev_mem *m)
{
    int fds[DEV_MAX_FDS];
    struct dev_conf c = {.threads = 1, .arena_bytes = dev_mem_bytes(m), .fds = fds};
    struct sh_err err = {0};
    struct dev *d = NULL;

    assert_ok_err(dev_mem_export(m, fds, &c.n_fds, &err), &err);
    assert_ok_err(dev_open(t_lib(), &c, &d, &err), &err);
    return d;
}

uint64_t t_wait_mark(struct dev_mem *m)
{
    struct pollfd p = {.fd = dev_mem_event_fd(m), .events = POLLIN};
    uint64_t cookie = 0;

    assert_int_equal(poll(&p, 1, MARK_MS), 1);
    assert_true(dev_mem_next_mark(m, &cookie));
    return cookie;
}

unsigned char *t_pattern(size_t n)
{
    unsigned char *p = malloc(n);

    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(i * 31 + i / 251);
    return p;
}

struct dev *t_dev(void)
{
    return dev;
}

const struct dev_lib *t_lib(void)
{
    return lib;
}

/* $PRECISION of the environment, else fp32. */
static enum dev_precision precision(void)
{
    const char *name = getenv("PRECISION");
    enum dev_precision p = DEV_FP32;
    struct sh_err err = {0};

    if (name && name[0])
        assert_ok_err(dev_precision_parse(name, &p, &err), &err);
    return p;
}

float t_round(double x)
{
    const enum dev_precision p = precision();
    int e;

    if (p == DEV_FP32 || p == DEV_FP64 || x == 0 || !isfinite(x))
        return (float)x;
    frexp(x, &e);
    e -= p == DEV_BF16 ? 8 : 11; /* the exponent of the last bit that stays */
    e = p == DEV_FP16 ? SH_MAX(e, -24) : e;
    return (float)ldexp(rint(ldexp(x, -e)), e);
}

double t_unit(void)
{
    const enum dev_precision p = precision();

    return p == DEV_FP16 ? 0x1p-11 : p == DEV_BF16 ? 0x1p-8 : 0;
}

void t_init(struct t_graph *t)
{
    *t = (struct t_graph){.step = 0};
    t->g.tensors = t->tensors;
    t->g.ops = t->ops;
    t->g.n_layers = 1;
}

void t_fini(struct t_graph *t)
{
    for (uint32_t i = 0; i < t->g.n_tensors; i++)
        free(t->plain[i]);
}

/* xorshift: the same numbers on every machine. */
static double noise(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return (double)(*s >> 11) / 4503599627370496.0 - 1;
}

uint32_t t_add(struct t_graph *t, enum dev_role role, enum sh_dtype type, struct t_dims dims)
{
    uint32_t i = t->g.n_tensors++;
    struct dev_tensor *n = &t->tensors[i];
    uint64_t seed = 0x9E3779B97F4A7C15u * (i + 1);

    assert_true(i < T_MAX_TENSORS);
    snprintf(t->names[i], sizeof(t->names[i]), "t%u", i);
    *n = (struct dev_tensor){
        .name = t->names[i], .dtype = type, .role = role, .rank = dims.rank, .alias_of = DEV_NONE};
    for (uint32_t k = 0; k < dims.rank; k++)
        n->dims[k] = dims.d[k];
    t->plain[i] = calloc((size_t)dev_tensor_elements(n), 8);
    assert_non_null(t->plain[i]);
    if (type == SH_F32)
        for (int64_t k = 0; k < dev_tensor_elements(n); k++)
            t_f(t, i)[k] = t_round(noise(&seed));
    return i;
}

static bool is_ours(const struct t_graph *t)
{
    return t_unit() > 0 && t->g.n_tensors % 2 == 1;
}

uint32_t t_in(struct t_graph *t, struct t_dims dims)
{
    const bool ours = is_ours(t);
    uint32_t i = t_add(t, ours ? DEV_ROLE_ACT : DEV_ROLE_INPUT, SH_F32, dims);

    t->given[i] = ours;
    return i;
}
uint32_t t_weight(struct t_graph *t, struct t_dims dims)
{
    return t_add(t, DEV_ROLE_WEIGHT, SH_F32, dims);
}
uint32_t t_state(struct t_graph *t, struct t_dims dims)
{
    return t_add(t, DEV_ROLE_STATE, SH_F32, dims);
}
uint32_t t_act(struct t_graph *t, struct t_dims dims)
{
    return t_add(t, DEV_ROLE_ACT, SH_F32, dims);
}
uint32_t t_out(struct t_graph *t, struct t_dims dims)
{
    return t_add(t, is_ours(t) ? DEV_ROLE_ACT : DEV_ROLE_OUTPUT, SH_F32, dims);
}

uint32_t t_index(struct t_graph *t, struct t_dims dims, int64_t below)
{
    uint32_t i = t_add(t, DEV_ROLE_INPUT, SH_I64, dims);
    uint64_t seed = 12345 + i;

    for (int64_t k = 0; k < dev_tensor_elements(&t->tensors[i]); k++)
        ((int64_t *)t->plain[i])[k] = (int64_t)((noise(&seed) + 1) / 2 * (double)below);
    return i;
}

uint32_t t_blocked(struct t_graph *t, uint32_t x)
{
    const int64_t *d = t->tensors[x].dims, c = d[1];
    uint32_t w = t_weight(t, DIMS(c, c, 1, 1)), y = t_act(t, DIMS(d[0], c, d[2], d[3]));
    struct dev_op *op = t_op(t, DEV_OP_CONV, IN(x, w), OUT(y));

    op->u.conv =
        (struct dev_conv){.kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
    for (int64_t i = 0; i < c * c; i++)
        t_f(t, w)[i] = i / c == i % c;
    return y;
}

uint32_t t_stored(struct t_graph *t, uint32_t x)
{
    const struct dev_tensor *from = &t->tensors[x];
    struct t_dims dims = {.rank = from->rank};
    uint32_t y;

    memcpy(dims.d, from->dims, from->rank * sizeof(from->dims[0]));
    y = t_act(t, dims);
    t_op(t, DEV_OP_COPY, IN(x), OUT(y));
    return y;
}

float *t_f(struct t_graph *t, uint32_t tensor)
{
    return t->plain[tensor];
}

void t_map(struct t_graph *t, uint32_t tensor, float scale, float shift)
{
    for (int64_t i = 0; i < dev_tensor_elements(&t->tensors[tensor]); i++)
        t_f(t, tensor)[i] = t_round((double)(t_f(t, tensor)[i] * scale + shift));
}

struct dev_op *t_op(struct t_graph *t, enum dev_op_kind kind, const uint32_t *in,
                    const uint32_t *out)
{
    struct dev_op *op = &t->ops[t->g.n_ops++];

    assert_true(t->g.n_ops <= T_MAX_OPS);
    *op = (struct dev_op){.kind = kind, .name = "node"};
    while (in[op->n_in] != T_END) {
        op->in[op->n_in] = in[op->n_in];
        op->n_in++;
    }
    while (out[op->n_out] != T_END) {
        op->out[op->n_out] = out[op->n_out];
        op->n_out++;
    }
    t->g.update_begin = t->g.n_ops;
    return op;
}

/* ------------------------------------------------------------------ running */

static size_t space_of(const struct dev_tensor *t)
{
    return t->role == DEV_ROLE_WEIGHT ? 0 : t->role == DEV_ROLE_STATE ? 1 : 2;
}

/* Everything one after the other, nothing shared. Returns the sizes of the three ranges. */
static void place(struct t_graph *t, struct dev_plan *p, size_t size[3])
{
    size[0] = size[1] = size[2] = 0;
    for (uint32_t i = 0; i < t->g.n_tensors; i++) {
        struct dev_tensor *n = &t->tensors[i];

        if (n->alias_of != DEV_NONE) {
            n->offset = t->tensors[n->alias_of].offset;
            continue;
        }
        assert_true(n->bytes > 0);
        n->offset = size[space_of(n)];
        size[space_of(n)] += SH_ALIGN_UP(n->bytes, (size_t)DEV_ALIGN);
    }
    for (uint32_t i = 0; i < t->g.n_ops; i++) {
        dev_plan_set_scratch(p, i, size[2]);
        size[2] += SH_ALIGN_UP(dev_plan_scratch_bytes(p, i), (size_t)DEV_ALIGN);
    }
    dev_plan_set_keep(p, size[2]);
    size[2] += SH_ALIGN_UP(dev_plan_keep_bytes(p), (size_t)DEV_ALIGN);
    reach = SH_MIN(size[0] + size[1] + size[2] + 64 * DEV_ALIGN, t_arena());
}

static bool goes_in(const struct t_graph *t, uint32_t i)
{
    const struct dev_tensor *n = &t->tensors[i];

    return t->given[i] || (n->alias_of == DEV_NONE && n->role != DEV_ROLE_ACT &&
                           n->role != DEV_ROLE_OUTPUT && n->role != DEV_ROLE_KEEP);
}

static size_t base_of(const struct dev_bases *b, const struct dev_tensor *n)
{
    size_t s = space_of(n);

    return s == 0 ? b->image : s == 1 ? b->state : b->workspace;
}

static void load(struct t_graph *t, struct dev_plan *p, const struct dev_bases *b,
                 struct sh_err *err)
{
    assert_ok_err(dev_fill(dev, 0, 0x4b, reach, err), err);
    for (uint32_t i = 0; i < t->g.n_tensors; i++) {
        const struct dev_tensor *n = &t->tensors[i];
        void *stored;

        if (!goes_in(t, i))
            continue;
        stored = calloc(1, n->bytes);
        assert_non_null(stored);
        assert_ok_err(dev_plan_pack(p, i, t->plain[i], stored, err), err);
        assert_ok_err(dev_upload(dev, base_of(b, n) + n->offset, stored, n->bytes, err), err);
        assert_ok_err(dev_sync(dev, err), err);
        free(stored);
    }
}

/* In calls of `most` operations each. */
static int load_and_run(struct t_graph *t, struct dev_plan *p, const struct dev_bases *b,
                        uint32_t most, struct sh_err *err)
{
    int rc = SH_OK;

    load(t, p, b, err);
    for (uint32_t i = 0; i < t->g.n_ops && !rc; i += most)
        rc = dev_plan_run(p, b, i, SH_MIN(i + most, t->g.n_ops), err);
    return rc ? rc : dev_sync(dev, err);
}

static void fetch(struct t_graph *t, struct dev_plan *p, const struct dev_bases *b, uint32_t i,
                  void *plain)
{
    const struct dev_tensor *n = &t->tensors[i];
    struct sh_err err = {0};
    void *stored = calloc(1, n->bytes);

    assert_non_null(stored);
    assert_ok_err(dev_download(dev, stored, base_of(b, n) + n->offset, n->bytes, &err), &err);
    assert_ok_err(dev_sync(dev, &err), &err);
    assert_ok_err(dev_plan_unpack(p, i, stored, plain, &err), &err);
    free(stored);
}

/* An opaque tensor (indices of a pooling) has no plain form. */
static bool comes_out(const struct t_graph *t, uint32_t i)
{
    const struct dev_tensor *n = &t->tensors[i];

    return n->alias_of == DEV_NONE && n->bytes <= (size_t)dev_tensor_elements(n) * 64 &&
           !(n->role == DEV_ROLE_ACT && n->dtype == SH_I32);
}

/* What comes out of a run, by tensor: OWNED. */
static void fetch_all(struct t_graph *t, struct dev_plan *p, const struct dev_bases *b, void **out)
{
    for (uint32_t i = 0; i < t->g.n_tensors; i++)
        if (comes_out(t, i)) {
            out[i] = calloc((size_t)dev_tensor_elements(&t->tensors[i]), 8);
            assert_non_null(out[i]);
            fetch(t, p, b, i, out[i]);
        }
}

/* What no operation is said to write of the state (dev_op_written) is as it was: a checkpoint does
 * not hold it. */
static void expect_kept(const struct t_graph *t, void *const *first)
{
    uint32_t list[DEV_MAX_IN + DEV_MAX_OUT];
    bool written[T_MAX_TENSORS] = {false};

    for (uint32_t i = 0; i < t->g.n_ops; i++)
        for (uint32_t n = dev_op_written(&t->g, &t->g.ops[i], list); n > 0; n--)
            written[list[n - 1]] = true;
    for (uint32_t i = 0; i < t->g.n_tensors; i++) {
        const struct dev_tensor *n = &t->tensors[i];

        if (n->role == DEV_ROLE_STATE && first[i] && !written[i] &&
            memcmp(first[i], t->plain[i],
                   (size_t)dev_tensor_elements(n) * sh_dtype_bytes(n->dtype)) != 0)
            fail_msg("tensor %u of the state was written, and no operation is said to", i);
    }
}

static void expect_same(struct t_graph *t, struct dev_plan *p, const struct dev_bases *b,
                        void *const *first, const char *which)
{
    void *got[T_MAX_TENSORS] = {NULL};

    fetch_all(t, p, b, got);
    for (uint32_t i = 0; i < t->g.n_tensors; i++) {
        const struct dev_tensor *n = &t->tensors[i];

        if (got[i] && memcmp(first[i], got[i],
                             (size_t)dev_tensor_elements(n) * sh_dtype_bytes(n->dtype)) != 0)
            fail_msg("tensor %u differs between the first run and %s", i, which);
        free(got[i]);
    }
}

static void run_cut(struct t_graph *t, struct dev_plan *p, const struct dev_bases *b,
                    void *const *first)
{
    struct sh_err err = {0};

    for (uint32_t cut = 1; cut < t->g.n_ops; cut++) {
        char which[32];

        snprintf(which, sizeof(which), "that cut before %u", cut);
        load(t, p, b, &err);
        assert_ok_err(dev_plan_run(p, b, 0, cut, &err), &err);
        assert_ok_err(dev_plan_run(p, b, cut, t->g.n_ops, &err), &err);
        assert_ok_err(dev_sync(dev, &err), &err);
        expect_same(t, p, b, first, which);
    }
}

void t_run(struct t_graph *t)
{
    struct sh_err err = {0};
    struct dev_plan *p = NULL;
    struct dev_bases b = {.step = t->step, .turn = t->turn};
    size_t size[3];
    void *first[T_MAX_TENSORS] = {NULL};

    assert_ok_err(dev_plan_new(dev, &t->g, precision(), NULL, &p, &err), &err);
    place(t, p, size);
    assert_ok_err(dev_plan_finish(p, &err), &err);
    b.state = size[0];
    b.workspace = size[0] + size[1];
    assert_true(2 * (size[0] + size[1] + size[2]) + 8192 < t_arena());
    assert_ok_err(load_and_run(t, p, &b, T_MAX_OPS, &err), &err);
    fetch_all(t, p, &b, first);
    expect_kept(t, first);
    /* the same again elsewhere: only multiples of DEV_ALIGN are promised */
    b.workspace = 3 * DEV_ALIGN;
    b.image = b.workspace + size[2] + DEV_ALIGN;
    b.state = b.image + size[0] + 5 * DEV_ALIGN;
    assert_ok_err(load_and_run(t, p, &b, 1, &err), &err);
    expect_same(t, p, &b, first, "that operation by operation");
    /* a back end may remember from now on how it launches an operation: nothing of one place */
    assert_ok_err(dev_plan_warm(p, NULL, &err), &err);
    t->replay = dev_plan_replay(p);
    b.state = 7 * DEV_ALIGN;
    b.workspace = b.state + size[1] + 2 * DEV_ALIGN;
    b.image = b.workspace + size[2] + 3 * DEV_ALIGN;
    assert_ok_err(load_and_run(t, p, &b, T_MAX_OPS, &err), &err);
    expect_same(t, p, &b, first, "that after dev_plan_warm");
    b.image = 11 * DEV_ALIGN;
    b.state = b.image + size[0] + DEV_ALIGN;
    b.workspace = b.state + size[1] + 4 * DEV_ALIGN;
    for (uint32_t i = 0; i < t->g.n_ops; i += 2) /* a wish: it may fail, and the run must not */
        dev_plan_prepare(p, &b, i, SH_MIN(i + 2, t->g.n_ops), NULL);
    assert_ok_err(load_and_run(t, p, &b, 2, &err), &err);
    expect_same(t, p, &b, first, "that after dev_plan_prepare");
    if (t->cuts)
        run_cut(t, p, &b, first);
    for (uint32_t i = 0; i < t->g.n_tensors; i++)
        if (first[i]) {
            free(t->plain[i]);
            t->plain[i] = first[i];
        }
    dev_plan_free(p);
}

int t_plan_fails(struct t_graph *t, enum dev_precision precision, struct sh_err *err)
{
    struct dev_plan *p = NULL;
    int rc = dev_plan_new(dev, &t->g, precision, NULL, &p, err);

    assert_true(rc == SH_OK || p == NULL);
    dev_plan_free(p);
    return rc;
}

void t_profile(struct t_graph *t, double *ns)
{
    struct sh_err err = {0};
    struct dev_plan *p = NULL;
    struct dev_bases b = {.step = t->step, .turn = t->turn};
    size_t size[3];

    assert_ok_err(dev_plan_new(dev, &t->g, precision(), NULL, &p, &err), &err);
    place(t, p, size);
    assert_ok_err(dev_plan_finish(p, &err), &err);
    b.state = size[0];
    b.workspace = size[0] + size[1];
    load(t, p, &b, &err);
    assert_ok_err(dev_plan_profile(p, &b, 2, ns, &err), &err);
    dev_plan_free(p);
}

int t_run_fails(struct t_graph *t, struct sh_err *err)
{
    struct dev_plan *p = NULL;
    struct dev_bases b = {.step = t->step, .turn = t->turn};
    size_t size[3];
    int rc;

    assert_ok_err(dev_plan_new(dev, &t->g, precision(), NULL, &p, err), err);
    place(t, p, size);
    assert_ok_err(dev_plan_finish(p, err), err);
    b.state = size[0];
    b.workspace = size[0] + size[1];
    rc = load_and_run(t, p, &b, T_MAX_OPS, err);
    dev_plan_free(p);
    return rc;
}

/* ------------------------------------------------------------------ comparing */

double *t_doubles(size_t n)
{
    double *d = calloc(n, sizeof(*d));

    assert_non_null(d);
    return d;
}

void t_close(struct t_graph *t, uint32_t tensor, const double *want, double bound)
{
    static const double FLOOR[] = {
        [DEV_FP32] = 0,
        [DEV_TF32] = T_BOUND_TF32,
        [DEV_FP16] = T_BOUND_FP16,
        [DEV_BF16] = T_BOUND_BF16,
        [DEV_FP64] = 0,
    };

    t_close_f32(t, tensor, want, bound > T_EXACT ? SH_MAX(bound, FLOOR[precision()]) : bound);
}

void t_close_f32(struct t_graph *t, uint32_t tensor, const double *want, double bound)
{
    const float *got = t_f(t, tensor);
    double diff = 0, size = 0;
    int64_t n = dev_tensor_elements(&t->tensors[tensor]);

    for (int64_t i = 0; i < n; i++) {
        diff += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    if (!(size > 0) || isinf(size))
        fail_msg("the reference of tensor %u is zero or not finite", tensor);
    if (!(diff / size <= bound)) {
        for (int64_t i = 0; i < n; i++)
            if (!(fabs(got[i] - want[i]) <= 1e-3 * (1 + fabs(want[i])))) {
                print_error("tensor %u [%lld]: %g, want %g\n", tensor, (long long)i, (double)got[i],
                            want[i]);
                break;
            }
        fail_msg("tensor %u: normalised error %g above %g", tensor, diff / size, bound);
    }
}
