/* cuda_elem.c - builders of activations, their gradients, binary operations, WHERE and FILL.
 *
 * All of them read and write their operands as stored: no operand is ever moved for them.
 */
#include "common/mem.h"
#include "runtime/device/cuda/cuda_nest.h"

/* The operation's nest as aux: its output and all inputs, broadcast. */
static int keep_nest(struct cuda_build *b, cuda_run *run)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *y = cuda__t(b, op->out[0]);
    int rc;
    struct k_nest *n = cuda__aux_new(b, sizeof(*n), &rc);

    if (rc)
        return rc;
    cuda__nest_init(n, y->rank, y->dims);
    rc = cuda__nest_add(b, n, 0, op->out[0]);
    for (uint32_t i = 0; i < op->n_in && !rc; i++)
        rc = cuda__nest_add(b, n, (int)i + 1, op->in[i]);
    if (rc)
        return rc;
    k_nest_pack(n, 0);
    b->co->run = run;
    return SH_OK;
}

/* ------------------------------------------------------------------ activations */

static int act_run(const struct cuda_call *c, struct sh_err *err)
{
    const struct dev_op *op = c->op;

    k_act(c->stream, c->aux, cuda__operand_out(c, 0), cuda__operand_in(c, 0), (int)op->act,
          op->act_p0, op->act_p1);
    return cuda__launched(c, err);
}

int cuda__act(struct cuda_build *b)
{
    const uint32_t all[] = {b->op->in[0], b->op->out[0]};
    int rc = cuda__same_f32(b, all, SH_ARRAY_LEN(all));

    return rc ? rc : keep_nest(b, act_run);
}

static int act_bwd_run(const struct cuda_call *c, struct sh_err *err)
{
    const struct dev_op *op = c->op;

    k_act_bwd(c->stream, c->aux, cuda__operand_out(c, 0), cuda__operand_in(c, 0),
              cuda__operand_in(c, 1), cuda__operand_in(c, 2), (int)op->act, op->act_p0, op->act_p1);
    return cuda__launched(c, err);
}

int cuda__act_bwd(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t all[] = {op->in[0], op->in[1], op->in[2], op->out[0]};
    int rc = cuda__same_f32(b, all, SH_ARRAY_LEN(all));

    return rc ? rc : keep_nest(b, act_bwd_run);
}

/* ------------------------------------------------------------------ binary */

static int binary_run(const struct cuda_call *c, struct sh_err *err)
{
    const struct dev_op *op = c->op;

    k_binary(c->stream, c->aux, cuda__operand_out(c, 0), cuda__operand_in(c, 0),
             cuda__operand_in(c, 1), (int)op->u.binary.kind, (int)op->act, op->act_p0, op->act_p1);
    return cuda__launched(c, err);
}

static int binary_int_run(const struct cuda_call *c, struct sh_err *err)
{
    k_binary_int(c->stream, c->aux, cuda__operand_in(c, 0).type, c->out[0], c->in[0], c->in[1],
                 (int)c->op->u.binary.kind);
    return cuda__launched(c, err);
}

static bool is_computable(enum sh_dtype t)
{
    return t != SH_F64 && t != SH_F16 && t != SH_BF16;
}

int cuda__binary(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *x = cuda__t(b, op->in[0]), *y = cuda__t(b, op->in[1]);
    const struct dev_tensor *z = cuda__t(b, op->out[0]);
    const enum dev_bin k = op->u.binary.kind;
    const bool compares = dev_bin_compares(k);
    const bool fits = compares ? z->dtype == SH_U8 || z->dtype == SH_BOOL : z->dtype == x->dtype;

    if ((unsigned)k >= DEV_N_BINS)
        return cuda__refuse(b, SH_E_BUG, "binary operation %d is unknown", (int)k);
    if (x->dtype != y->dtype || !is_computable(x->dtype) || !fits)
        return cuda__refuse(b, SH_E_UNSUPPORTED, "types %s and %s to %s cannot be computed",
                            sh_dtype_st(x->dtype), sh_dtype_st(y->dtype), sh_dtype_st(z->dtype));
    if (x->dtype == SH_F32 && dev_bin_of_bits(k))
        return cuda__refuse(b, SH_E_UNSUPPORTED, "bits are those of integers");
    if (op->act != DEV_ACT_NONE && z->dtype != SH_F32)
        return cuda__refuse(b, SH_E_UNSUPPORTED, "an activation needs F32");
    return keep_nest(b, x->dtype == SH_F32 ? binary_run : binary_int_run);
}

/* ------------------------------------------------------------------ where, fill */

static int where_run(const struct cuda_call *c, struct sh_err *err)
{
    k_where(c->stream, c->aux, cuda__operand_out(c, 0), c->in[0], cuda__operand_in(c, 1),
            cuda__operand_in(c, 2));
    return cuda__launched(c, err);
}

int cuda__where(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const enum sh_dtype t = cuda__t(b, op->out[0])->dtype;

    if (sh_dtype_bytes(cuda__t(b, op->in[0])->dtype) != 1 || cuda__t(b, op->in[1])->dtype != t ||
        cuda__t(b, op->in[2])->dtype != t)
        return cuda__refuse(b, SH_E_UNSUPPORTED, "needs a condition of BOOL and two equal types");
    return keep_nest(b, where_run);
}

static int fill_run(const struct cuda_call *c, struct sh_err *err)
{
    const struct dev_tensor *y = &c->plan->base.g->tensors[c->op->out[0]];

    k_fill(c->stream, c->out[0], cuda__operand_out(c, 0).type, y->dtype == SH_BOOL,
           dev_tensor_elements(y), c->op->u.pad.value);
    return cuda__launched(c, err);
}

int cuda__fill(struct cuda_build *b)
{
    b->co->run = fill_run;
    return SH_OK;
}
