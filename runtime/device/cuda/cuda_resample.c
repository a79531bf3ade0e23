/* cuda_resample.c - sums of a few elements along one axis or two; the kernel is in resample.cu. */
#include "common/mem.h"
#include "runtime/device/cuda/cuda_nest.h"

static int check_table(struct cuda_build *b, uint32_t slot, int64_t m, int *taps)
{
    const struct dev_tensor *from = cuda__t(b, b->op->in[slot]),
                            *weight = cuda__t(b, b->op->in[slot + 1]);
    const int64_t n = dev_tensor_elements(from);
    int rc;

    *taps = (int)(n / m);
    if (from->dtype != SH_I32 || weight->dtype != SH_F32 || from->rank != 1 || weight->rank != 1 ||
        n % m != 0 || n > INT32_MAX || dev_tensor_elements(weight) != n)
        return cuda__refuse(b, SH_E_BUG, "its tables do not fit");
    rc = cuda__in_plain(b, slot);
    return rc ? rc : cuda__in(b, slot + 1, cuda__plain(CUDA_T_F32));
}

static int run_resample(const struct cuda_call *c, struct sh_err *err)
{
    struct k_resample *r = c->aux;

    r->from[0] = c->in[1];
    r->weight[0] = c->in[2];
    r->from[1] = c->in[3];
    r->weight[1] = c->in[4];
    k_resample(c->stream, r, cuda__operand_in(c, 0), cuda__operand_out(c, 0));
    return cuda__launched(c, err);
}

/* Channels last stays so where the axes are among rows and columns. */
static int take_layout(struct cuda_build *b, uint32_t axis, bool *is_last)
{
    struct cuda_form x = cuda__form(b, b->op->in[0]), y = cuda__form(b, b->op->out[0]);
    int rc;

    *is_last = axis >= 2 && cuda__t(b, b->op->in[0])->rank == 4 && y.layout == CUDA_NHWC;
    x.layout = y.layout = *is_last ? CUDA_NHWC : CUDA_PLAIN;
    rc = cuda__in(b, 0, x);
    return rc ? rc : cuda__out(b, 0, y);
}

int cuda__resample(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t all[] = {op->in[0], op->out[0]}, two = op->n_in > 3;
    const struct dev_tensor *x = cuda__t(b, op->in[0]), *y = cuda__t(b, op->out[0]);
    struct k_resample *r;
    bool is_last = false;
    uint32_t a;
    int rc = cuda__need_f32(b, all, 2);

    if (!rc)
        rc = cuda__axis(b, op->in[0], op->u.axis.axis, &a);
    if (!rc && (op->n_in == 4 || a + two >= x->rank || x->rank != y->rank))
        rc = cuda__refuse(b, SH_E_BUG, "input and result do not fit");
    if (rc)
        return rc;
    r = cuda__aux_new(b, sizeof(*r), &rc);
    if (!rc)
        rc = take_layout(b, a, &is_last);
    if (rc)
        return rc;
    *r = (struct k_resample){.outer = dev_axes_elements(x, 0, a),
                             .n = {x->dims[a], two ? x->dims[a + 1] : 1},
                             .m = {y->dims[a], two ? y->dims[a + 1] : 1},
                             .inner = dev_axes_elements(x, a + 1 + two, x->rank)};
    if (is_last) { /* the channels, before the axes so far, come behind all */
        r->outer = r->outer / x->dims[1];
        r->inner *= x->dims[1];
    }
    if (dev_tensor_elements(y) != r->outer * r->m[0] * r->m[1] * r->inner)
        return cuda__refuse(b, SH_E_BUG, "input and result do not fit");
    rc = check_table(b, 1, r->m[0], &r->taps[0]);
    if (!rc && two)
        rc = check_table(b, 3, r->m[1], &r->taps[1]);
    b->co->run = run_resample;
    return rc;
}
