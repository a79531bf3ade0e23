/* cuda_bn.c - batch normalisation; the kernels are in bn.cu and bn_planes.cu. */
#include "common/mem.h"
#include "runtime/device/cuda/cuda_nest.h"

/* Operands of x's shape all come in one form: that of bn.cu, channels last if any of them is stored
 * so. Vectors are F32. */
static int geometry(struct cuda_build *b, const uint32_t *like, uint32_t n, struct k_bn *g)
{
    const struct dev_tensor *x = cuda__t(b, b->op->in[0]);

    if (x->rank < 2 || x->dtype != SH_F32)
        return cuda__refuse(b, SH_E_UNSUPPORTED, "needs an F32 input with a channel axis");
    *g = (struct k_bn){.type = (int)b->plan->compute,
                       .n = x->dims[0],
                       .c = x->dims[1],
                       .len = dev_tensor_elements(x) / (x->dims[0] * x->dims[1]),
                       .n_sms = cuda__dev(b->plan)->n_sms,
                       .smem_max = cuda__dev(b->plan)->smem_max,
                       .arrivals = cuda__dev(b->plan)->arrivals};
    g->is_last = g->len == 1;
    for (uint32_t i = 0; i < n; i++)
        if (like[i] != DEV_NONE && cuda__form(b, like[i]).layout == CUDA_NHWC)
            g->is_last = true;
    if (g->c > K_BN_MAX_CHANNELS)
        return cuda__refuse(b, SH_E_UNSUPPORTED, "%lld channels, at most %d are supported",
                            (long long)g->c, K_BN_MAX_CHANNELS);
    return SH_OK;
}

static struct cuda_form big_form(const struct cuda_build *b, const struct k_bn *g)
{
    bool is_nhwc = g->is_last && cuda__t(b, b->op->in[0])->rank == 4;

    return (struct cuda_form){b->plan->compute, is_nhwc ? CUDA_NHWC : CUDA_PLAIN};
}

static int check_vector(struct cuda_build *b, uint32_t t)
{
    const struct dev_tensor *d = cuda__t(b, t);

    if (d->dtype == SH_F32 && dev_tensor_elements(d) == cuda__t(b, b->op->in[0])->dims[1])
        return SH_OK;
    return cuda__refuse(b, SH_E_BUG, "\"%s\" is not one F32 per channel", d->name);
}

/* slot: of an input or an output that may be absent; big: of x's shape, else one per channel. */
static int take_bn_operand(struct cuda_build *b, uint32_t slot, bool is_in, const struct k_bn *g,
                           bool big)
{
    uint32_t t = is_in ? cuda__opt_in(b->op, slot) : cuda__opt_out(b->op, slot);
    struct cuda_form f = big ? big_form(b, g) : cuda__plain(CUDA_T_F32);
    const uint32_t like[] = {b->op->in[0], t};
    int rc;

    if (t == DEV_NONE)
        return SH_OK;
    rc = big ? cuda__same_f32(b, like, SH_ARRAY_LEN(like)) : check_vector(b, t);
    if (rc)
        return rc;
    return is_in ? cuda__in(b, slot, f) : cuda__out(b, slot, f);
}

static int check_bn_room(struct cuda_build *b, const struct k_bn *g)
{
    if (k_bn_has_room(g))
        return SH_OK;
    return cuda__refuse(b, SH_E_UNSUPPORTED,
                        "training %lld channels takes more than the %d bytes of shared memory that "
                        "a block has on this device",
                        (long long)g->c, g->smem_max);
}

static int keep_geometry(struct cuda_build *b, const struct k_bn *g, cuda_run *run)
{
    int rc;
    struct k_bn *aux = cuda__aux_new(b, sizeof(*aux), &rc);

    if (rc)
        return rc;
    *aux = *g;
    b->co->run = run;
    return SH_OK;
}

/* ------------------------------------------------------------------ training */

static int run_train(const struct cuda_call *c, struct sh_err *err)
{
    struct k_bn_train_args a = {.x = c->in[0],
                                .residual = c->in[5],
                                .scale = c->in[1],
                                .bias = c->in[2],
                                .run_mean = c->in[3],
                                .run_var = c->in[4],
                                .y = c->out[0],
                                .mean = c->out[1],
                                .invstd = c->out[2],
                                .new_mean = c->out[3],
                                .new_var = c->out[4],
                                .scratch = c->scratch,
                                .eps = c->op->u.norm.eps,
                                .momentum = c->op->u.norm.momentum};

    if (!dev_act_bounds(c->op, &a.lo, &a.hi))
        a.gate = (int)c->op->act;
    k_bn_train(c->stream, c->aux, &a);
    return cuda__launched(c, err);
}

/* is_known: y or the bias is there; can_gate: bn(x) is what y is made of, or can be computed. */
static int check_act(struct cuda_build *b, bool is_known, bool can_gate)
{
    float lo, hi;

    if (!dev_act_bounds(b->op, &lo, &hi) && !(can_gate && dev_act_is_gated(b->op->act)))
        return cuda__refuse(b, SH_E_UNSUPPORTED, "cannot apply %s", dev_act_name(b->op->act));
    if (!is_known && b->op->act != DEV_ACT_NONE)
        return cuda__refuse(b, SH_E_BUG, "an activation needs y or the bias");
    return SH_OK;
}

int cuda__bn_train(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t like[] = {op->in[0], op->out[0]};
    struct k_bn g;
    int rc = geometry(b, like, SH_ARRAY_LEN(like), &g);

    if (!rc)
        rc = check_bn_room(b, &g);
    if (!rc)
        rc = check_act(b, true, cuda__opt_in(op, 5) == DEV_NONE);
    for (uint32_t i = 0; i < 6 && !rc; i++)
        rc = take_bn_operand(b, i, true, &g, i == 0 || i == 5);
    for (uint32_t i = 0; i < 5 && !rc; i++)
        rc = take_bn_operand(b, i, false, &g, i == 0);
    if (rc)
        return rc;
    cuda__scratch(b, k_bn_scratch_bytes(&g));
    return keep_geometry(b, &g, run_train);
}

static int run_bn_bwd(const struct cuda_call *c, struct sh_err *err)
{
    struct k_bn_bwd_args a = {.x = c->in[0],
                              .d_y = c->in[1],
                              .d_y2 = c->in[7],
                              .y = c->in[6],
                              .scale = c->in[2],
                              .mean = c->in[3],
                              .invstd = c->in[4],
                              .bias = c->in[5],
                              .d_x = c->out[0],
                              .d_residual = c->out[3],
                              .d_scale = c->out[1],
                              .d_bias = c->out[2],
                              .scratch = c->scratch,
                              .has_act = c->op->act != DEV_ACT_NONE};

    if (!dev_act_bounds(c->op, &a.lo, &a.hi))
        a.gate = (int)c->op->act;
    k_bn_train_bwd(c->stream, c->aux, &a);
    return cuda__launched(c, err);
}

int cuda__bn_train_bwd(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t like[] = {op->in[0], op->in[1], op->out[0]};
    struct k_bn g;
    int rc = geometry(b, like, SH_ARRAY_LEN(like), &g);

    if (!rc)
        rc = check_bn_room(b, &g);
    if (!rc)
        rc = check_act(b, cuda__opt_in(op, 5) != DEV_NONE || cuda__opt_in(op, 6) != DEV_NONE,
                       cuda__opt_in(op, 5) != DEV_NONE && cuda__opt_in(op, 6) == DEV_NONE);
    for (uint32_t i = 0; i < 8 && !rc; i++)
        rc = take_bn_operand(b, i, true, &g, i < 2 || i > 5);
    for (uint32_t i = 0; i < 4 && !rc; i++)
        rc = take_bn_operand(b, i, false, &g, i == 0 || i == 3);
    if (rc)
        return rc;
    cuda__scratch(b, k_bn_scratch_bytes(&g));
    return keep_geometry(b, &g, run_bn_bwd);
}

/* ------------------------------------------------------------------ inference */

static int run_infer(const struct cuda_call *c, struct sh_err *err)
{
    struct k_bn_infer_args a = {.x = c->in[0],
                                .scale = c->in[1],
                                .bias = c->in[2],
                                .mean = c->in[3],
                                .var = c->in[4],
                                .y = c->out[0],
                                .eps = c->op->u.norm.eps,
                                .p0 = c->op->act_p0,
                                .p1 = c->op->act_p1,
                                .act = (int)c->op->act};

    k_bn_infer(c->stream, c->aux, &a);
    return cuda__launched(c, err);
}

int cuda__bn_infer(struct cuda_build *b)
{
    const uint32_t like[] = {b->op->in[0], b->op->out[0]};
    struct k_bn g;
    int rc = geometry(b, like, SH_ARRAY_LEN(like), &g);

    for (uint32_t i = 0; i < 5 && !rc; i++)
        rc = take_bn_operand(b, i, true, &g, i == 0);
    if (!rc)
        rc = take_bn_operand(b, 0, false, &g, true);
    return rc ? rc : keep_geometry(b, &g, run_infer);
}
