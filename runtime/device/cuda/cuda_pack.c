/* cuda_pack.c - plain host numbers <-> the bytes that the device stores; on the host, off the path.
 */
#include "common/mem.h"
#include "runtime/device/cuda/cuda.h"

#include <math.h>
#include <stdlib.h>

static uint32_t float_bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

static float float_of(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

/* Round to nearest, ties to even; finite values beyond the range become the largest, and what is
 * not zero the smallest at least: it may be what something is divided by. */
static uint16_t to_f16(float x)
{
    uint32_t u = float_bits(x), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;

    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (a == 0x7f800000u)
        return (uint16_t)(sign | 0x7c00u);
    if (a >= float_bits(65520.0f))
        return (uint16_t)(sign | 0x7bffu);
    if (a < float_bits(6.103515625e-5f)) /* below the smallest normal: a multiple of 2^-24 */
        return (uint16_t)(sign | (a ? SH_MAX((uint32_t)lrintf(fabsf(x) * 16777216.0f), 1u) : 0u));
    a += 0xfffu + (a >> 13 & 1u);
    return (uint16_t)(sign | ((a - (112u << 23)) >> 13));
}

static float from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = h >> 10 & 0x1fu, m = h & 0x3ffu;

    if (e == 31)
        return float_of(sign | 0x7f800000u | m << 13);
    if (e == 0)
        return float_of(sign | float_bits((float)m * 5.9604644775390625e-8f));
    return float_of(sign | (e + 112u) << 23 | m << 13);
}

static uint16_t to_bf16(float x)
{
    uint32_t u = float_bits(x), a = u & 0x7fffffffu;

    if (a > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40u);
    if (a >= 0x7f7f8000u && a < 0x7f800000u)
        return (uint16_t)((u >> 16 & 0x8000u) | 0x7f7fu);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

static float from_bf16(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

/* To the nearest, ties to even; what is finite stays finite. */
static uint32_t to_tf32(uint32_t u)
{
    const uint32_t a = u & 0x7fffffffu;

    if (a >= 0x7f7ff000u)
        return a > 0x7f800000u ? (u | 0x400000u) & ~0x1fffu : a == 0x7f800000u ? u : u & ~0x1fffu;
    return (u + 0xfffu + (u >> 13 & 1u)) & ~0x1fffu;
}

static void round_all(void *stored, size_t n)
{
    unsigned char *at = stored;

    for (size_t i = 0; i < n; i++) {
        uint32_t u;

        memcpy(&u, at + i * sizeof(u), sizeof(u));
        u = to_tf32(u);
        memcpy(at + i * sizeof(u), &u, sizeof(u));
    }
}

/* Does input k of the operation go into a product, and nowhere else? Convolutions in groups may be
 * computed in F32. */
static bool goes_into_product(const struct dev_op *op, uint32_t k)
{
    return (op->kind == DEV_OP_CONV && k == 1 && op->u.conv.groups == 1) ||
           (op->kind == DEV_OP_MATMUL && k < 2);
}

static enum pack_type pack_type_of(enum cuda_type t)
{
    return t == CUDA_T_F32    ? PACK_32
           : t == CUDA_T_F16  ? PACK_F16
           : t == CUDA_T_BF16 ? PACK_BF16
                              : PACK_BYTES;
}

int cuda__note_stored(struct cuda_plan *p, struct sh_err *err)
{
    struct dev_graph *g = p->base.g;
    bool *reads_all = calloc((size_t)g->n_tensors + 1, sizeof(*reads_all)); /* by root */

    if (!reads_all)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a plan of %u tensors", g->n_tensors);
    for (uint32_t i = 0; i < g->n_ops; i++)
        for (uint32_t k = 0; k < g->ops[i].n_in; k++)
            if (g->ops[i].in[k] != DEV_NONE && !goes_into_product(&g->ops[i], k))
                reads_all[p->tensors[g->ops[i].in[k]].root] = true;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const uint32_t root = p->tensors[i].root;

        g->tensors[i].stored = pack_type_of(p->tensors[i].form.type);
        p->tensors[i].rounds = p->precision == DEV_TF32 && !reads_all[root] &&
                               g->tensors[root].role == DEV_ROLE_WEIGHT &&
                               p->tensors[i].form.type == CUDA_T_F32;
    }
    free(reads_all);
    return SH_OK;
}

/* One element; n bytes wide and unchanged where the types agree. */
static void put_numbers_as(enum cuda_type t, size_t n, const unsigned char *plain,
                           unsigned char *stored)
{
    float x;
    uint16_t h;

    if (t != CUDA_T_F16 && t != CUDA_T_BF16) {
        memcpy(stored, plain, n);
        return;
    }
    memcpy(&x, plain, sizeof(x));
    h = t == CUDA_T_F16 ? to_f16(x) : to_bf16(x);
    memcpy(stored, &h, sizeof(h));
}

static void get_numbers_as(enum cuda_type t, size_t n, const unsigned char *stored,
                           unsigned char *plain)
{
    uint16_t h;
    float x;

    if (t != CUDA_T_F16 && t != CUDA_T_BF16) {
        memcpy(plain, stored, n);
        return;
    }
    memcpy(&h, stored, sizeof(h));
    x = t == CUDA_T_F16 ? from_f16(h) : from_bf16(h);
    memcpy(plain, &x, sizeof(x));
}

/* dims of the plain order, merged to [outer][c][inner]; stored as [outer][inner][c] if NHWC. */
static void convert_tensor(const struct dev_tensor *t, struct cuda_form f,
                           const unsigned char *from, unsigned char *to, bool pack)
{
    bool is_nhwc = f.layout == CUDA_NHWC && t->rank == 4;
    int64_t outer = is_nhwc ? t->dims[0] : 1, c = is_nhwc ? t->dims[1] : 1;
    int64_t inner = dev_tensor_elements(t) / (outer * c);
    size_t wide = sh_dtype_bytes(t->dtype), n = cuda__type_bytes(f.type);

    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < c; k++)
            for (int64_t i = 0; i < inner; i++) {
                size_t plain = (size_t)((o * c + k) * inner + i) * wide;
                size_t stored = (size_t)((o * inner + i) * c + k) * n;

                if (pack)
                    put_numbers_as(f.type, n, from + plain, to + stored);
                else
                    get_numbers_as(f.type, n, from + stored, to + plain);
            }
}

static int convert_all(struct dev_plan *p, uint32_t tensor, const void *from, void *to, bool pack)
{
    const struct cuda_plan *cp = (const struct cuda_plan *)p;
    const struct dev_tensor *t = &p->g->tensors[tensor];
    struct cuda_form f = cp->tensors[tensor].form;
    bool is_same = f.type != CUDA_T_F16 && f.type != CUDA_T_BF16 && f.layout == CUDA_PLAIN;

    if (is_same)
        memcpy(to, from, (size_t)dev_tensor_elements(t) * cuda__type_bytes(f.type));
    else
        convert_tensor(t, f, from, to, pack);
    if (pack && cp->tensors[tensor].rounds)
        round_all(to, (size_t)dev_tensor_elements(t));
    return SH_OK;
}

int cuda__plan_pack(struct dev_plan *p, uint32_t tensor, const void *plain, void *stored,
                    struct sh_err *err)
{
    (void)err;
    return convert_all(p, tensor, plain, stored, true);
}

int cuda__plan_unpack(struct dev_plan *p, uint32_t tensor, const void *stored, void *plain,
                      struct sh_err *err)
{
    (void)err;
    return convert_all(p, tensor, stored, plain, false);
}
