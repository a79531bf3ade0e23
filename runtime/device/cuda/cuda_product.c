/* cuda_product.c - builders of operations on integers of 8 bits: QUANTIZE, QCONV, QMATMUL.
 *
 * Products run in a kernel of ours (product.cu), which takes everything that follows the sum. How
 * large its tiles are is measured where there is a tuning file, like the choice among the kernels
 * of the libraries; the results are the same to the bit. Rows whose length is no multiple of 16
 * bytes are widened by zeros first, both operands, in scratch.
 */
#include "common/mem.h"
#include "runtime/device/cuda/cuda_nest.h"
#include "runtime/device/cuda/cuda_tune.h"
#include "runtime/device/cuda/kernels_quant.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ------------------------------------------------------------------ QUANTIZE */

static struct k_quant quant(const struct dev_quant *q)
{
    return (struct k_quant){q->scale, (int)q->zero};
}

static int quantize_run(const struct cuda_call *c, struct sh_err *err)
{
    const struct dev_quantize *q = &c->op->u.quant;

    k_quantize(c->stream, c->aux,
               &(struct k_quantize){.y = cuda__operand_out(c, 0),
                                    .x = cuda__operand_in(c, 0),
                                    .add = cuda__operand_in(c, 1),
                                    .y_q = quant(&q->y),
                                    .x_q = quant(&q->x),
                                    .add_q = quant(&q->add),
                                    .act = (int)c->op->act,
                                    .p0 = c->op->act_p0,
                                    .p1 = c->op->act_p1});
    return cuda__launched(c, err);
}

int cuda__quantize(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t add = cuda__opt_in(op, 1);
    int rc;
    struct k_nest *n = cuda__aux_new(b, sizeof(*n), &rc);

    if (!rc)
        rc = cuda__nest_move(b, n, op->in[0], op->out[0]);
    if (!rc && add != DEV_NONE)
        rc = cuda__nest_add(b, n, 2, add);
    if (rc)
        return rc;
    k_nest_pack(n, 0);
    b->co->run = quantize_run;
    return SH_OK;
}

/* ------------------------------------------------------------------ products */

struct product {
    struct k_product k;
    int how;
    int64_t x_rows, w_rows;  /* of `width` bytes */
    int c, width;            /* of a row, as it is and as the kernel takes it */
    size_t x_bytes, w_bytes; /* scratch of x in the form of the kernel, and of w; 0: as it is */
    bool is_folded;
    struct k_conv plain; /* not folded */
};

static void read_qconv_window(const struct cuda_build *b, struct k_conv *v)
{
    const struct dev_op *op = b->op;
    const struct dev_conv *c = &op->u.qconv.conv;
    const struct dev_tensor *x = cuda__t(b, op->in[DEV_Q_X]), *w = cuda__t(b, op->in[DEV_Q_W]);
    const struct dev_tensor *y = cuda__t(b, op->out[0]);

    if (op->kind == DEV_OP_QMATMUL) {
        *v = (struct k_conv){.n = dev_tensor_elements(x) / w->dims[1],
                             .h = 1,
                             .w = 1,
                             .c = w->dims[1],
                             .m = w->dims[0],
                             .r = 1,
                             .s = 1,
                             .p = 1,
                             .q = 1,
                             .groups = 1,
                             .stride = {1, 1},
                             .dilation = {1, 1}};
        return;
    }
    *v = (struct k_conv){.n = x->dims[0],
                         .h = x->dims[2],
                         .w = x->dims[3],
                         .c = x->dims[1],
                         .m = w->dims[0],
                         .r = w->dims[2],
                         .s = w->dims[3],
                         .p = y->dims[2],
                         .q = y->dims[3],
                         .groups = c->groups};
    for (int i = 0; i < 2; i++) {
        v->stride[i] = c->stride[i];
        v->dilation[i] = c->dilation[i];
        v->pad[i] = c->pad_begin[i];
    }
}

static int check_window(struct cuda_build *b, const struct k_conv *v)
{
    const int64_t most = INT32_MAX - 1024;

    for (int i = 0; i < 2; i++)
        if (v->stride[i] < 1 || v->dilation[i] < 1 || v->pad[i] < 0 || v->pad[i] > most / 4 ||
            v->stride[i] > most / 4 || v->dilation[i] > most / 4)
            return cuda__refuse(b, SH_E_UNSUPPORTED,
                                "strides and dilations start at 1, paddings at 0");
    if (v->n * v->h * v->w > most || v->n * v->p * v->q > most || v->r * v->dilation[0] > most ||
        v->s * v->dilation[1] > most || v->p * v->stride[0] > most || v->q * v->stride[1] > most)
        return cuda__refuse(b, SH_E_UNSUPPORTED, "more than 2^31 pixels");
    return SH_OK;
}

/* Everything but addresses. */
static void describe_product(struct cuda_build *b, struct product *p)
{
    const struct dev_op *op = b->op;
    const struct dev_product *q = &op->u.qconv.q;
    const uint32_t residual = cuda__opt_in(op, DEV_Q_RESIDUAL);
    struct k_product *k = &p->k;

    read_qconv_window(b, &k->conv);
    k->x_is_signed = cuda__t(b, op->in[DEV_Q_X])->dtype == SH_I8;
    k->mid_is_signed = q->mid_type == SH_I8;
    k->x_zero = q->x_zero;
    k->y.type = (int)cuda__form(b, op->out[0]).type;
    k->residual.type = residual == DEV_NONE ? CUDA_T_F32 : (int)cuda__form(b, residual).type;
    k->residual_q = quant(&q->residual);
    k->mid = quant(&q->mid);
    k->y_q = quant(&q->y);
    k->act = (int)op->act;
    k->p0 = op->act_p0;
    k->p1 = op->act_p1;
    /* As in products of floats (cuda_matmul.c): its approximation is below the rounding. */
    k->is_rough = k->act == DEV_ACT_GELU_TANH || k->act == DEV_ACT_GELU_ERF;
    k->is_rough = k->is_rough && b->plan->compute != CUDA_T_F32;
}

static size_t aligned(int64_t rows, int width)
{
    return SH_ALIGN_UP((size_t)rows * (size_t)width, (size_t)DEV_ALIGN);
}

static void reform(cudaStream_t s, const struct product *p, unsigned char *scratch,
                   struct k_product *k)
{
    if (!p->x_bytes)
        return;
    if (p->is_folded) {
        k_product_fold_x(s, &p->plain, k->x, k->x_zero, scratch);
        k_product_fold_w(s, &p->plain, k->w, scratch + p->x_bytes);
    } else {
        k_product_pad(s, k->x, p->x_rows, p->c, scratch, p->width);
        k_product_pad(s, k->w, p->w_rows, p->c, scratch + p->x_bytes, p->width);
    }
    k->x = scratch;
    k->w = scratch + p->x_bytes;
}

static int product_run(const struct cuda_call *c, struct sh_err *err)
{
    const struct product *p = c->aux;
    struct k_product k = p->k;

    k.x = c->in[DEV_Q_X];
    k.w = c->in[DEV_Q_W];
    k.factor = c->in[DEV_Q_FACTOR];
    k.offset = c->in[DEV_Q_OFFSET];
    k.residual.p = c->in[DEV_Q_RESIDUAL];
    k.sums = c->in[DEV_Q_SUMS];
    k.y.p = c->out[0];
    reform(c->stream, p, c->scratch, &k);
    k_product(c->stream, p->how, &k);
    return cuda__launched(c, err);
}

/* ------------------------------------------------------------------ the size of tiles */

#define TRIAL_RUNS 4
#define ROUNDS 3
#define CLEARLY 0.97f /* so much less time, or the guess stays */

static int guess(const struct k_conv *v)
{
    return v->m <= 64 ? K_PRODUCT_NARROW : K_PRODUCT_SQUARE;
}

static unsigned char *take_aligned(unsigned char *base, size_t *at, size_t bytes)
{
    unsigned char *p = base ? base + *at : NULL;

    *at += SH_ALIGN_UP(bytes, (size_t)DEV_ALIGN);
    return p;
}

/* Addresses in memory from `base` on; NULL: only how much that is. */
static size_t lay_out_trial(const struct product *p, const struct cuda_build *b,
                            unsigned char *base, struct k_product *k)
{
    const struct k_conv *v = &p->k.conv;
    const size_t y = (size_t)(v->n * v->p * v->q * v->m), m = (size_t)v->m;
    const uint32_t residual = cuda__opt_in(b->op, DEV_Q_RESIDUAL);
    size_t at = 0;

    *k = p->k;
    k->x = take_aligned(base, &at, (size_t)(p->x_rows * p->width));
    k->w = take_aligned(base, &at, (size_t)(p->w_rows * p->width));
    k->factor = (const float *)take_aligned(base, &at, m * sizeof(float));
    k->offset = (const float *)take_aligned(base, &at, m * sizeof(float));
    k->sums = (const int32_t *)take_aligned(base, &at, m * sizeof(int32_t));
    k->y.p = take_aligned(base, &at, y * cuda__type_bytes((enum cuda_type)k->y.type));
    if (residual != DEV_NONE)
        k->residual.p =
            take_aligned(base, &at, y * cuda__type_bytes((enum cuda_type)k->residual.type));
    return at;
}

/* Milliseconds of TRIAL_RUNS runs, the best of some rounds; negative: it cannot run. */
static float measure_tile(cudaStream_t s, int how, const struct k_product *k, cudaEvent_t from,
                          cudaEvent_t to)
{
    float best = -1, ms = 0;

    k_product(s, how, k);
    for (int round = 0; round < ROUNDS; round++) {
        if (cudaEventRecord(from, s) != cudaSuccess)
            return -1;
        for (int i = 0; i < TRIAL_RUNS; i++)
            k_product(s, how, k);
        if (cudaGetLastError() != cudaSuccess || cudaEventRecord(to, s) != cudaSuccess ||
            cudaEventSynchronize(to) != cudaSuccess ||
            cudaEventElapsedTime(&ms, from, to) != cudaSuccess)
            return -1;
        if (round == 0 || ms < best)
            best = ms;
    }
    return best;
}

/* false: there was no memory to find out. */
static bool fastest_tile(struct cuda_build *b, const struct product *p, int *how)
{
    const cudaStream_t s = cuda__dev(b->plan)->stream;
    struct k_product k;
    const size_t bytes = lay_out_trial(p, b, NULL, &k);
    cudaEvent_t from = NULL, to = NULL;
    unsigned char *memory = NULL;
    float best = -1, ms;
    bool ok = cudaMallocAsync((void **)&memory, bytes, s) == cudaSuccess &&
              cudaMemsetAsync(memory, 1, bytes, s) == cudaSuccess &&
              cudaEventCreate(&from) == cudaSuccess && cudaEventCreate(&to) == cudaSuccess;

    if (ok) {
        lay_out_trial(p, b, memory, &k);
        best = measure_tile(s, *how, &k, from, to);
        ok = best >= 0;
        for (int i = K_PRODUCT_SQUARE; i < K_PRODUCT_N && ok; i++) {
            ms = i == *how ? -1 : measure_tile(s, i, &k, from, to);
            if (ms >= 0 && ms < best * CLEARLY) {
                best = ms;
                *how = i;
            }
        }
    }
    if (from)
        cudaEventDestroy(from);
    if (to)
        cudaEventDestroy(to);
    if (memory)
        cudaFreeAsync(memory, s);
    cudaStreamSynchronize(s);
    (void)cudaGetLastError();
    return ok;
}

static void make_product_key(const struct product *p, bool has_residual, char out[CUDA_TUNE_KEY])
{
    const struct k_conv *v = &p->k.conv;

    snprintf(out, CUDA_TUNE_KEY,
             "product/%d%d/%" PRId64 "x%" PRId64 "x%" PRId64 "x%d/%" PRId64 "x%" PRId64 "x%" PRId64
             "/%" PRId64 "x%" PRId64 "/s%" PRId64 ",%" PRId64 "/d%" PRId64 ",%" PRId64 "/p%" PRId64
             ",%" PRId64 "/%d%d/a%d",
             p->k.y.type, p->k.x_is_signed, v->n, v->h, v->w, p->width, v->m, v->r, v->s, v->p,
             v->q, v->stride[0], v->stride[1], v->dilation[0], v->dilation[1], v->pad[0], v->pad[1],
             has_residual ? 1 + p->k.residual.type : 0, p->k.mid.scale != 0, p->k.act);
}

static void choose_tile(struct cuda_build *b, struct product *p)
{
    struct cuda_tune *tune = cuda__dev(b->plan)->tune;
    char key[CUDA_TUNE_KEY], choice[16];
    struct cuda_tuned known;
    int how;

    p->how = guess(&p->k.conv);
    if (!tune || p->width % 16 != 0)
        return;
    make_product_key(p, cuda__opt_in(b->op, DEV_Q_RESIDUAL) != DEV_NONE, key);
    if (cuda_tune_find(tune, key, &known)) {
        free(known.blob);
        if (sscanf(known.choice, "tile %d", &how) == 1 && how > K_PRODUCT_ANY &&
            how < K_PRODUCT_N) {
            p->how = how;
            return;
        }
    }
    if (!fastest_tile(b, p, &p->how))
        return;
    snprintf(choice, sizeof(choice), "tile %d", p->how);
    cuda_tune_record(tune, key, choice, NULL, 0);
}

/* ------------------------------------------------------------------ building */

static int take_qprod_operands(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const enum cuda_layout layout = op->kind == DEV_OP_QCONV ? CUDA_NHWC : CUDA_PLAIN;
    int rc = SH_OK;

    for (uint32_t k = 0; k < op->n_in && !rc; k++) {
        const bool is_tensor = k == DEV_Q_X || k == DEV_Q_W || k == DEV_Q_RESIDUAL;

        if (op->in[k] != DEV_NONE)
            rc = cuda__in(b, k,
                          is_tensor ? (struct cuda_form){cuda__form(b, op->in[k]).type, layout}
                                    : cuda__plain(k == DEV_Q_SUMS ? CUDA_T_I32 : CUDA_T_F32));
    }
    return rc ? rc : cuda__out(b, 0, (struct cuda_form){cuda__form(b, op->out[0]).type, layout});
}

/* For tiles. */
static void set_form(struct cuda_build *b, struct product *p)
{
    struct k_conv *v = &p->k.conv;

    p->plain = *v;
    p->is_folded = k_product_fold(&p->plain, v);
    p->c = (int)v->c;
    p->width = k_product_width(p->c);
    p->x_rows = v->n * v->h * v->w;
    p->w_rows = v->m * v->r * v->s;
    v->c = p->width;
    choose_tile(b, p);
    if (p->is_folded || p->width != p->c) {
        p->x_bytes = aligned(p->x_rows, p->width);
        p->w_bytes = aligned(p->w_rows, p->width);
        cuda__scratch(b, p->x_bytes + p->w_bytes);
    }
}

int cuda__product(struct cuda_build *b)
{
    int rc;
    struct product *p = cuda__aux_new(b, sizeof(*p), &rc);
    const struct k_conv *v = p ? &p->k.conv : NULL;

    if (rc)
        return rc;
    describe_product(b, p);
    rc = check_window(b, v);
    if (rc)
        return rc;
    if (v->groups == 1 && k_product_has_tiles())
        set_form(b, p);
    b->co->run = product_run;
    return take_qprod_operands(b);
}
