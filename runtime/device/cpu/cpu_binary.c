/* cpu_binary.c - two operands with numpy's broadcasting, and WHERE.
 *
 * Equal shapes of floats: oneDNN, in the layout of the first operand, activation fused. A value for
 * each channel: cpu_channel.c. Everything else: loops over merged axes; the three common inner
 * steps (both, left or right only) are separate loops so that the compiler can vectorise them.
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/cpu_act.h"

#include <math.h>

#define GRAIN 16384

/* ------------------------------------------------------------------ oneDNN's way */

static bool binary_alg(enum dev_bin k, dnnl_alg_kind_t *out)
{
    static const dnnl_alg_kind_t ALGS[DEV_N_BINS] = {
        [DEV_BIN_ADD] = dnnl_binary_add, [DEV_BIN_SUB] = dnnl_binary_sub,
        [DEV_BIN_MUL] = dnnl_binary_mul, [DEV_BIN_DIV] = dnnl_binary_div,
        [DEV_BIN_MIN] = dnnl_binary_min, [DEV_BIN_MAX] = dnnl_binary_max,
    };

    *out = ALGS[k];
    return ALGS[k] != 0;
}

static bool can_use_dnnl(struct cpu_build *b)
{
    const struct dev_tensor *x = cpu__t(b, b->op->in[0]), *y = cpu__t(b, b->op->in[1]);
    dnnl_alg_kind_t alg;
    bool same = dev_same_dims(x, y) && x->dtype == SH_F32 && y->dtype == SH_F32 && x->rank > 0;

    /* A quotient of two blocked tensors would divide 0 by 0 in the padding. */
    return same && binary_alg(b->op->u.binary.kind, &alg) && !cpu__act_is_own(b->op->act);
}

static int dnnl_way(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const struct cpu_tensor *ts = b->plan->tensors;
    /* Follow whichever operand is blocked already. */
    const dnnl_memory_desc_t *md =
        ts[op->in[0]].is_blocked ? &ts[op->in[0]].lay->md : &ts[op->in[1]].lay->md;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_post_ops_t po = NULL;
    dnnl_binary_desc_t desc;
    dnnl_alg_kind_t alg;
    struct cpu_ref x, y, z;
    dnnl_status_t s;

    if (op->u.binary.kind == DEV_BIN_DIV)
        md = &ts[op->in[0]].lay->plain;
    binary_alg(op->u.binary.kind, &alg);
    s = dnnl_post_ops_create(&po);
    if (s == dnnl_success && !cpu__act_post(po, op->act, op->act_p0, op->act_p1))
        s = dnnl_unimplemented;
    if (s == dnnl_success)
        s = dnnl_binary_desc_init(&desc, alg, md, md, md);
    if (s == dnnl_success)
        s = cpu__pd(b, &desc, po, NULL, &pd);
    dnnl_post_ops_destroy(po);
    cpu__status(b, s, "binary operation");
    x = cpu__in(b, op->in[0], NULL, md);
    y = cpu__in(b, op->in[1], NULL, md);
    z = cpu__out(b, op->out[0], md, true);
    return cpu__step_prim(b, pd,
                          (const struct cpu_bind[]){{DNNL_ARG_SRC_0, x, NULL},
                                                    {DNNL_ARG_SRC_1, y, NULL},
                                                    {DNNL_ARG_DST, z, NULL}},
                          3);
}

/* ------------------------------------------------------------------ loops */

struct bin_ctx {
    const struct dev_op *op;
    const void *a, *b;
    void *y;
};

#define ROW(TYPE, OUT, EXPR)                                                             \
    do {                                                                                 \
        const TYPE *pa = (const TYPE *)c->a + off[1], *pb = (const TYPE *)c->b + off[2]; \
        OUT *py = (OUT *)c->y + off[0];                                                  \
        int64_t sa = nd->stride[1][nd->rank - 1], sb = nd->stride[2][nd->rank - 1];      \
        if (sa == 1 && sb == 1)                                                          \
            for (int64_t i = 0; i < n; i++) {                                            \
                const TYPE a = pa[i], b = pb[i];                                         \
                py[i] = (OUT)(EXPR);                                                     \
            }                                                                            \
        else if (sa == 1 && sb == 0) {                                                   \
            const TYPE b = pb[0];                                                        \
            for (int64_t i = 0; i < n; i++) {                                            \
                const TYPE a = pa[i];                                                    \
                py[i] = (OUT)(EXPR);                                                     \
            }                                                                            \
        } else                                                                           \
            for (int64_t i = 0; i < n; i++) {                                            \
                const TYPE a = pa[i * sa], b = pb[i * sb];                               \
                py[i] = (OUT)(EXPR);                                                     \
            }                                                                            \
    } while (0)

static float float_floor_mod(float a, float b)
{
    const float r = fmodf(a, b);

    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static void row_f32(void *ctx, const struct cpu_nd *nd, int64_t n, const int64_t *off)
{
    const struct bin_ctx *c = ctx;

    switch (c->op->u.binary.kind) {
    case DEV_BIN_ADD:
        ROW(float, float, a + b);
        break;
    case DEV_BIN_SUB:
        ROW(float, float, a - b);
        break;
    case DEV_BIN_MUL:
        ROW(float, float, a *b);
        break;
    case DEV_BIN_DIV:
        ROW(float, float, a / b);
        break;
    case DEV_BIN_MIN:
        ROW(float, float, a < b ? a : b);
        break;
    case DEV_BIN_MAX:
        ROW(float, float, a > b ? a : b);
        break;
    case DEV_BIN_POW:
        ROW(float, float, powf(a, b));
        break;
    case DEV_BIN_EQUAL:
        ROW(float, uint8_t, a == b);
        break;
    case DEV_BIN_LESS:
        ROW(float, uint8_t, a < b);
        break;
    case DEV_BIN_GREATER:
        ROW(float, uint8_t, a > b);
        break;
    case DEV_BIN_LESS_EQUAL:
        ROW(float, uint8_t, a <= b);
        break;
    case DEV_BIN_GREATER_EQUAL:
        ROW(float, uint8_t, a >= b);
        break;
    case DEV_BIN_MOD:
        ROW(float, float, float_floor_mod(a, b));
        break;
    case DEV_BIN_FMOD:
        ROW(float, float, fmodf(a, b));
        break;
    default: /* refused by the builder */
        break;
    }
}

static int64_t int_mod(int64_t a, int64_t b, bool floors)
{
    int64_t r = b == 0 || b == -1 ? 0 : a % b; /* INT64_MIN % -1 traps */

    return floors && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static uint64_t shifted(uint64_t a, int64_t by, bool left, size_t bytes)
{
    if (by < 0 || by >= (int64_t)(8 * bytes))
        return 0;
    return left ? a << by : a >> by;
}

/* Integers: arithmetic modulo 2^64, so that overflow is defined; x / 0 and x mod 0 are 0. */
#define SIGNED(TYPE, UTYPE) (b == 0 ? 0 : b == -1 ? (TYPE)(0 - (UTYPE)a) : a / b)
#define UNSIGNED(TYPE, UTYPE) (b == 0 ? 0 : a / b)
#define SIGNED_MOD(floors) int_mod((int64_t)a, (int64_t)b, floors)
#define UNSIGNED_MOD(floors) (b == 0 ? 0 : a % b)
#define INT_ROWS(NAME, TYPE, UTYPE, QUOTIENT)                                           \
    static void NAME(void *ctx, const struct cpu_nd *nd, int64_t n, const int64_t *off) \
    {                                                                                   \
        const struct bin_ctx *c = ctx;                                                  \
                                                                                        \
        switch (c->op->u.binary.kind) {                                                 \
        case DEV_BIN_ADD:                                                               \
            ROW(TYPE, TYPE, (UTYPE)a + (UTYPE)b);                                       \
            break;                                                                      \
        case DEV_BIN_SUB:                                                               \
            ROW(TYPE, TYPE, (UTYPE)a - (UTYPE)b);                                       \
            break;                                                                      \
        case DEV_BIN_MUL:                                                               \
            ROW(TYPE, TYPE, (UTYPE)a *(UTYPE)b);                                        \
            break;                                                                      \
        case DEV_BIN_DIV:                                                               \
            ROW(TYPE, TYPE, QUOTIENT(TYPE, UTYPE));                                     \
            break;                                                                      \
        case DEV_BIN_MIN:                                                               \
            ROW(TYPE, TYPE, a < b ? a : b);                                             \
            break;                                                                      \
        case DEV_BIN_MAX:                                                               \
            ROW(TYPE, TYPE, a > b ? a : b);                                             \
            break;                                                                      \
        case DEV_BIN_POW:                                                               \
            ROW(TYPE, TYPE, pow((double)a, (double)b));                                 \
            break;                                                                      \
        case DEV_BIN_EQUAL:                                                             \
            ROW(TYPE, uint8_t, a == b);                                                 \
            break;                                                                      \
        case DEV_BIN_LESS:                                                              \
            ROW(TYPE, uint8_t, a < b);                                                  \
            break;                                                                      \
        case DEV_BIN_GREATER:                                                           \
            ROW(TYPE, uint8_t, a > b);                                                  \
            break;                                                                      \
        case DEV_BIN_LESS_EQUAL:                                                        \
            ROW(TYPE, uint8_t, a <= b);                                                 \
            break;                                                                      \
        case DEV_BIN_GREATER_EQUAL:                                                     \
            ROW(TYPE, uint8_t, a >= b);                                                 \
            break;                                                                      \
        case DEV_BIN_MOD:                                                               \
            ROW(TYPE, TYPE, QUOTIENT##_MOD(true));                                      \
            break;                                                                      \
        case DEV_BIN_FMOD:                                                              \
            ROW(TYPE, TYPE, QUOTIENT##_MOD(false));                                     \
            break;                                                                      \
        case DEV_BIN_BIT_AND:                                                           \
            ROW(TYPE, TYPE, (UTYPE)a &(UTYPE)b);                                        \
            break;                                                                      \
        case DEV_BIN_BIT_OR:                                                            \
            ROW(TYPE, TYPE, (UTYPE)a | (UTYPE)b);                                       \
            break;                                                                      \
        case DEV_BIN_BIT_XOR:                                                           \
            ROW(TYPE, TYPE, (UTYPE)a ^ (UTYPE)b);                                       \
            break;                                                                      \
        case DEV_BIN_SHIFT_LEFT:                                                        \
            ROW(TYPE, TYPE, shifted((UTYPE)a, (int64_t)b, true, sizeof(TYPE)));         \
            break;                                                                      \
        case DEV_BIN_SHIFT_RIGHT:                                                       \
            ROW(TYPE, TYPE, shifted((UTYPE)a, (int64_t)b, false, sizeof(TYPE)));        \
            break;                                                                      \
        case DEV_N_BINS:                                                                \
            break;                                                                      \
        }                                                                               \
    }
INT_ROWS(row_i64, int64_t, uint64_t, SIGNED)
INT_ROWS(row_i32, int32_t, uint32_t, SIGNED)
INT_ROWS(row_i16, int16_t, uint32_t, SIGNED)
INT_ROWS(row_i8, int8_t, uint32_t, SIGNED)
INT_ROWS(row_u64, uint64_t, uint64_t, UNSIGNED)
INT_ROWS(row_u32, uint32_t, uint32_t, UNSIGNED)
INT_ROWS(row_u16, uint16_t, uint32_t, UNSIGNED)
INT_ROWS(row_u8, uint8_t, uint32_t, UNSIGNED)

struct nd_aux {
    struct cpu_nd nd;
    cpu_row_fn *row;
};

struct bin_job {
    const struct nd_aux *aux;
    struct bin_ctx ctx;
};

static void bin_range(void *ctx, int64_t from, int64_t to)
{
    struct bin_job *j = ctx;

    cpu__nd_run(&j->aux->nd, from, to, j->aux->row, &j->ctx);
}

/* p: a b y */
static void bin_fn(const struct cpu_call *c)
{
    struct bin_job j = {.aux = c->aux,
                        .ctx = {.op = c->op, .a = c->p[0], .b = c->p[1], .y = c->p[2]}};

    cpu__parallel(c->threads, j.aux->nd.total, GRAIN, bin_range, &j);
}

static cpu_row_fn *binary_row_fn(enum sh_dtype t)
{
    switch (t) {
    case SH_F32:
        return row_f32;
    case SH_I64:
        return row_i64;
    case SH_I32:
        return row_i32;
    case SH_I16:
        return row_i16;
    case SH_I8:
        return row_i8;
    case SH_U64:
        return row_u64;
    case SH_U32:
        return row_u32;
    case SH_U16:
        return row_u16;
    case SH_U8:
    case SH_BOOL:
        return row_u8;
    default:
        return NULL;
    }
}

static int check_types(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *x = cpu__t(b, op->in[0]), *y = cpu__t(b, op->in[1]);
    const struct dev_tensor *z = cpu__t(b, op->out[0]);
    size_t want = dev_bin_compares(op->u.binary.kind) ? 1 : sh_dtype_bytes(x->dtype);

    if ((unsigned)op->u.binary.kind >= DEV_N_BINS)
        return cpu__refuse(b, SH_E_BUG, "binary operation %d is unknown", (int)op->u.binary.kind);
    if (x->dtype != y->dtype || !binary_row_fn(x->dtype) || sh_dtype_bytes(z->dtype) != want)
        return cpu__refuse(b, SH_E_UNSUPPORTED, "types %s and %s to %s cannot be computed",
                           sh_dtype_st(x->dtype), sh_dtype_st(y->dtype), sh_dtype_st(z->dtype));
    if (x->dtype == SH_F32 && dev_bin_of_bits(op->u.binary.kind))
        return cpu__refuse(b, SH_E_UNSUPPORTED, "bits are those of integers");
    if (op->act != DEV_ACT_NONE && z->dtype != SH_F32)
        return cpu__refuse(b, SH_E_UNSUPPORTED, "an activation needs F32");
    return SH_OK;
}

/* Operand 0 is the result, to which the inputs broadcast. */
static int broadcast_all(struct cpu_build *b, struct cpu_nd *nd)
{
    const struct dev_tensor *y = cpu__t(b, b->op->out[0]);

    cpu__nd_init(nd, y->rank, y->dims, b->op->n_in + 1);
    cpu__strides(y->rank, y->dims, nd->stride[0]);
    for (uint32_t i = 0; i < b->op->n_in; i++)
        if (!cpu__nd_broadcast(nd, i + 1, cpu__t(b, b->op->in[i])))
            return cpu__refuse(b, SH_E_BUG, "the shapes do not broadcast to \"%s\"", y->name);
    cpu__nd_merge(nd);
    return SH_OK;
}

int cpu__binary(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    struct nd_aux aux;
    struct cpu_ref refs[3];
    uint32_t n;

    if (check_types(b))
        return b->err->rc;
    if (can_use_dnnl(b))
        return dnnl_way(b);
    if (cpu__channel_has(b))
        return cpu__channel(b);
    n = cpu__all_plain(b, refs);
    broadcast_all(b, &aux.nd);
    aux.row = binary_row_fn(cpu__t(b, op->in[0])->dtype);
    cpu__step_fn(b, bin_fn, refs, n, &aux, sizeof(aux));
    return cpu__act_in_place(b, refs[2], &b->plan->tensors[op->out[0]].lay->plain);
}

/* ------------------------------------------------------------------ where */

struct where_ctx {
    const uint8_t *cond;
    const unsigned char *a, *b;
    unsigned char *y;
    size_t size;
};

#define PICK(TYPE)                                                                          \
    for (int64_t i = 0; i < n; i++)                                                         \
    ((TYPE *)c->y)[off[0] + i * s[0][l]] = c->cond[off[1] + i * s[1][l]]                    \
                                               ? ((const TYPE *)c->a)[off[2] + i * s[2][l]] \
                                               : ((const TYPE *)c->b)[off[3] + i * s[3][l]]

static void where_row(void *ctx, const struct cpu_nd *nd, int64_t n, const int64_t *off)
{
    const struct where_ctx *c = ctx;
    const int64_t(*s)[SH_MAX_RANK] = nd->stride;
    const uint32_t l = nd->rank - 1;

    if (c->size == 8)
        PICK(uint64_t);
    else if (c->size == 4)
        PICK(uint32_t);
    else if (c->size == 2)
        PICK(uint16_t);
    else
        PICK(uint8_t);
}

struct where_job {
    const struct cpu_nd *nd;
    struct where_ctx ctx;
};

static void where_range(void *ctx, int64_t from, int64_t to)
{
    struct where_job *j = ctx;

    cpu__nd_run(j->nd, from, to, where_row, &j->ctx);
}

/* p: cond a b y */
static void where_fn(const struct cpu_call *c)
{
    const struct dev_tensor *y = &c->plan->base.g->tensors[c->op->out[0]];
    struct where_job j = {.nd = c->aux,
                          .ctx = {.cond = c->p[0],
                                  .a = c->p[1],
                                  .b = c->p[2],
                                  .y = c->p[3],
                                  .size = sh_dtype_bytes(y->dtype)}};

    cpu__parallel(c->threads, j.nd->total, GRAIN, where_range, &j);
}

int cpu__where(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *y = cpu__t(b, op->out[0]);
    struct cpu_nd nd;

    if (sh_dtype_bytes(cpu__t(b, op->in[0])->dtype) != 1 ||
        cpu__t(b, op->in[1])->dtype != y->dtype || cpu__t(b, op->in[2])->dtype != y->dtype)
        return cpu__refuse(b, SH_E_UNSUPPORTED, "needs a condition of BOOL and two equal types");
    broadcast_all(b, &nd);
    return cpu__step_plain(b, where_fn, &nd, sizeof(nd));
}
