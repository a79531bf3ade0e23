/* cuda_nest.c - loop nests over stored tensors. */
#include "runtime/device/cuda/cuda_nest.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ any two sides (kernels.h) */

static void move_axis(struct k_nest *n, int from, int to)
{
    n->dims[to] = n->dims[from];
    for (int k = 0; k < K_OPERANDS; k++)
        n->stride[k][to] = n->stride[k][from];
}

static void swap_axes(struct k_nest *n, int a, int b)
{
    struct k_nest keep = *n;

    move_axis(n, b, a);
    n->dims[b] = keep.dims[a];
    for (int k = 0; k < K_OPERANDS; k++)
        n->stride[k][b] = keep.stride[k][a];
}

static bool can_merge(const struct k_nest *n, int outer, int inner)
{
    for (int k = 0; k < K_OPERANDS; k++)
        if (n->stride[k][outer] != n->stride[k][inner] * n->dims[inner])
            return false;
    return true;
}

void k_nest_pack(struct k_nest *n, int by)
{
    int w = 0;

    for (int i = 0; i < n->rank; i++) /* axes of one say nothing */
        if (n->dims[i] != 1)
            move_axis(n, i, w++);
    n->rank = w;
    for (int i = 1; i < n->rank; i++) /* a few axes: by insertion */
        for (int k = i; k > 0 && llabs(n->stride[by][k - 1]) < llabs(n->stride[by][k]); k--)
            swap_axes(n, k - 1, k);
    w = 0;
    for (int i = 1; i < n->rank; i++) {
        if (can_merge(n, w, i)) {
            int64_t dim = n->dims[w] * n->dims[i];

            move_axis(n, i, w);
            n->dims[w] = dim;
        } else {
            move_axis(n, i, ++w);
        }
    }
    if (n->rank == 0) { /* a single element */
        n->dims[0] = 1;
        for (int k = 0; k < K_OPERANDS; k++)
            n->stride[k][0] = 1;
    }
    n->rank = n->rank ? w + 1 : 1;
}

/* ------------------------------------------------------------------ from tensors */

void cuda__nest_init(struct k_nest *n, uint32_t rank, const int64_t *dims)
{
    *n = (struct k_nest){.rank = (int)rank, .total = 1};
    for (uint32_t i = 0; i < rank; i++) {
        n->dims[i] = dims[i];
        n->total *= dims[i];
    }
    if (rank == 0) {
        n->rank = 1;
        n->dims[0] = 1;
    }
}

int cuda__nest_add(struct cuda_build *b, struct k_nest *n, int k, uint32_t tensor)
{
    const struct dev_tensor *t = cuda__t(b, tensor);
    int64_t own[SH_MAX_RANK];
    uint32_t rank = (uint32_t)n->rank;

    cuda__strides(t, cuda__form(b, tensor).layout, own);
    for (uint32_t i = 0; i < t->rank; i++) {
        uint32_t axis = rank - t->rank + i;
        bool fits = t->rank <= rank && (t->dims[i] == 1 || t->dims[i] == n->dims[axis]);

        if (!fits)
            return cuda__refuse(b, SH_E_BUG, "the shape of \"%s\" does not fit the result",
                                t->name);
        n->stride[k][axis] = t->dims[i] == 1 ? 0 : own[i];
    }
    return SH_OK;
}

int cuda__nest_move(struct cuda_build *b, struct k_nest *n, uint32_t x, uint32_t y)
{
    const struct dev_tensor *t = cuda__t(b, y);
    int rc;

    cuda__nest_init(n, t->rank, t->dims);
    rc = cuda__nest_add(b, n, 0, y);
    return rc ? rc : cuda__nest_add(b, n, 1, x);
}

int cuda__need_f32(struct cuda_build *b, const uint32_t *tensors, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (tensors[i] != DEV_NONE && cuda__t(b, tensors[i])->dtype != SH_F32)
            return cuda__refuse(b, SH_E_UNSUPPORTED, "needs F32, \"%s\" is %s",
                                cuda__t(b, tensors[i])->name,
                                sh_dtype_st(cuda__t(b, tensors[i])->dtype));
    return SH_OK;
}

int cuda__same_shape(struct cuda_build *b, uint32_t x, uint32_t y)
{
    const struct dev_tensor *tx = cuda__t(b, x), *ty = cuda__t(b, y);

    return dev_same_dims(tx, ty)
               ? SH_OK
               : cuda__refuse(b, SH_E_BUG, "\"%s\" and \"%s\" differ in shape", tx->name, ty->name);
}

int cuda__same_f32(struct cuda_build *b, const uint32_t *tensors, uint32_t n)
{
    int rc = cuda__need_f32(b, tensors, n);

    for (uint32_t i = 1; i < n && !rc; i++)
        if (tensors[i] != DEV_NONE)
            rc = cuda__same_shape(b, tensors[0], tensors[i]);
    return rc;
}

int cuda__axis(struct cuda_build *b, uint32_t tensor, int64_t axis, uint32_t *out)
{
    return dev_axis_of(cuda__t(b, tensor), axis, out)
               ? SH_OK
               : cuda__refuse(b, SH_E_BUG, "axis %lld does not exist", (long long)axis);
}

void *cuda__aux_new(struct cuda_build *b, size_t bytes, int *rc)
{
    void *aux = calloc(1, bytes);

    *rc = SH_OK;
    if (aux)
        cuda__aux(b, aux, free);
    else
        *rc = cuda__refuse(b, SH_E_NOMEM, "could not allocate an operation");
    return aux;
}

static struct k_operand nest_operand(const struct cuda_call *c, void *p, uint32_t tensor)
{
    enum cuda_type type = tensor == DEV_NONE ? CUDA_T_F32 : cuda__stored_type(c, tensor);

    return (struct k_operand){.p = p, .type = (int)type, .overflows = cuda__overflows(c)};
}

struct k_operand cuda__operand_in(const struct cuda_call *c, uint32_t slot)
{
    return nest_operand(c, c->in[slot], cuda__opt_in(c->op, slot));
}

struct k_operand cuda__operand_out(const struct cuda_call *c, uint32_t slot)
{
    return nest_operand(c, c->out[slot], cuda__opt_out(c->op, slot));
}
