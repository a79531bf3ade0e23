/* cuda_matmul.c - matrix product over the last two axes by cublasLt, leading axes broadcast.
 *
 * cublasLt thinks in columns: a row-major y[M,N] is its column-major y'[N,M] = b' a', so b is its
 * first operand, and a bias along N is the one that its epilogue knows.
 *
 * Leading axes merge as far as all operands allow. Those along which b is broadcast fold into the
 * rows of a, so that a fully connected layer is one product; of the others the largest becomes the
 * batch, and what is left is a loop of calls.
 *
 * A residual of y's shape is cublasLt's C; a bias of one value per column, RELU and GELU are its
 * epilogue. What it lacks is done in place afterwards: k_binary for a summand of any other shape,
 * k_epilogue for the rest. Its GELU is the approximation by tanh. That is what GELU_TANH is; for
 * GELU_ERF it is taken at fp16 and bf16 alone: the two differ by less than 5e-4, the rounding of
 * fp16 between 1 and 2 and an eighth of that of bf16. fp32 and tf32 compute the exact one.
 *
 * Its workspace is scratch of the operation. Parts of a sum over K are added up in F32, never in
 * 16 bits. Which of its algorithms runs is what it proposes first or, where there is a tuning file,
 * what measured fastest among the first MAX_ALGOS.
 */
#include "common/mem.h"
#include "runtime/device/cuda/cuda_nest.h"
#include "runtime/device/cuda/cuda_tune.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_WORKSPACE ((size_t)32 << 20)
#define MAX_ALGOS 32
#define MAX_CALLS 4096 /* of one operation */
#define MAX_SUMMANDS 2 /* that are neither C nor in an epilogue */
#define ALGO_WORDS (sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t))

enum { A, B, Y, N_MATRICES };

struct axis { /* of the leading ones; strides in elements */
    int64_t n, stride[N_MATRICES];
};

struct mm {
    int64_t m, n, k;
    struct axis batch;             /* n = 1: none */
    struct axis loop[SH_MAX_RANK]; /* the others, outermost first */
    uint32_t n_loop;
    int64_t calls;
    enum cuda_type in_type, y_type, bias_type;
    cublasLtMatmulDesc_t desc;                 /* OWNED */
    cublasLtMatrixLayout_t layout[N_MATRICES]; /* OWNED; C is like Y */
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
    cublasLtEpilogue_t epilogue;
    float alpha, beta;
    bool has_late; /* k_epilogue runs: */
    bool late_bias, late_act;
    struct {
        uint32_t slot;
        int type;
        struct k_nest nest;
    } add[MAX_SUMMANDS]; /* y += in[slot] */
    uint32_t n_add;
};

static void mm_free(void *aux)
{
    struct mm *m = aux;

    for (int i = 0; i < N_MATRICES; i++)
        if (m->layout[i])
            cublasLtMatrixLayoutDestroy(m->layout[i]);
    if (m->desc)
        cublasLtMatmulDescDestroy(m->desc);
    free(m);
}

/* ------------------------------------------------------------------ shapes */

/* Axis i of `lead` leading ones in tensor t, which may lack the first. */
static int64_t lead_dim(const struct dev_tensor *t, uint32_t lead, uint32_t i)
{
    uint32_t missing = lead + 2 - t->rank;

    return i < missing ? 1 : t->dims[i - missing];
}

static int64_t lead_stride(const struct dev_tensor *t, uint32_t lead, uint32_t i)
{
    uint32_t missing = lead + 2 - t->rank;
    int64_t s = 1;

    if (lead_dim(t, lead, i) == 1)
        return 0;
    for (uint32_t k = i - missing + 1; k < t->rank; k++)
        s *= t->dims[k];
    return s;
}

/* Leading axes without those of one, neighbours merged where all operands allow it. */
static int read_lead(struct cuda_build *b, const struct dev_tensor *const t[N_MATRICES],
                     struct mm *m)
{
    const uint32_t lead = SH_MAX(SH_MAX(t[A]->rank, t[B]->rank), t[Y]->rank) - 2;

    for (uint32_t i = 0; i < lead; i++) {
        struct axis x = {.n = lead_dim(t[Y], lead, i)};
        struct axis *last = m->n_loop ? &m->loop[m->n_loop - 1] : NULL;
        bool merges = last;

        for (int k = 0; k < N_MATRICES; k++) {
            if (lead_dim(t[k], lead, i) != x.n && (k == Y || lead_dim(t[k], lead, i) != 1))
                return cuda__refuse(b, SH_E_BUG, "the leading axes of the matrices do not fit");
            x.stride[k] = lead_stride(t[k], lead, i);
        }
        if (x.n == 1)
            continue;
        for (int k = 0; k < N_MATRICES && merges; k++)
            merges = last->stride[k] == x.stride[k] * x.n;
        if (merges)
            x.n *= last->n;
        else
            last = &m->loop[m->n_loop++];
        *last = x;
    }
    return SH_OK;
}

static void take_mm_batch(struct mm *m, bool trans_a)
{
    const struct axis *last = m->n_loop ? &m->loop[m->n_loop - 1] : NULL;
    uint32_t best = 0;

    if (last && !trans_a && last->stride[B] == 0 && last->stride[A] == m->m * m->k) {
        m->m *= last->n;
        m->n_loop--;
    }
    m->batch = (struct axis){.n = 1};
    for (uint32_t i = 1; i < m->n_loop; i++)
        if (m->loop[i].n >= m->loop[best].n)
            best = i;
    if (m->n_loop) {
        m->batch = m->loop[best];
        m->n_loop--;
        memmove(&m->loop[best], &m->loop[best + 1], (m->n_loop - best) * sizeof(*m->loop));
    }
    m->calls = 1;
    for (uint32_t i = 0; i < m->n_loop; i++)
        m->calls *= m->loop[i].n;
}

static int read_matmul_shapes(struct cuda_build *b, struct mm *m)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *const t[N_MATRICES] = {cuda__t(b, op->in[0]), cuda__t(b, op->in[1]),
                                                    cuda__t(b, op->out[0])};
    const bool ta = op->u.matmul.trans_a, tb = op->u.matmul.trans_b;
    const int64_t *a, *w, *y;
    int rc;

    for (int i = 0; i < N_MATRICES; i++)
        if (t[i]->rank < 2)
            return cuda__refuse(b, SH_E_UNSUPPORTED, "both operands need at least two axes");
    a = t[A]->dims + t[A]->rank - 2;
    w = t[B]->dims + t[B]->rank - 2;
    y = t[Y]->dims + t[Y]->rank - 2;
    m->m = y[0];
    m->n = y[1];
    m->k = a[ta ? 0 : 1];
    if (a[ta ? 1 : 0] != m->m || w[tb ? 1 : 0] != m->k || w[tb ? 0 : 1] != m->n)
        return cuda__refuse(b, SH_E_BUG, "the shapes of the matrices do not fit");
    rc = read_lead(b, t, m);
    if (rc)
        return rc;
    take_mm_batch(m, ta);
    if (m->calls > MAX_CALLS || m->batch.n > INT32_MAX)
        return cuda__refuse(b, SH_E_UNSUPPORTED,
                            "broadcasting needs %" PRId64
                            " products of their own, at most %d are supported",
                            m->calls, MAX_CALLS);
    return SH_OK;
}

/* ------------------------------------------------------------------ operands */

/* One value per column of y? */
static bool is_row_of_n(const struct dev_tensor *t, int64_t n)
{
    return t->rank > 0 && t->dims[t->rank - 1] == n && dev_tensor_elements(t) == n;
}

/* A summand that neither C nor an epilogue can take: added to y as it is stored. */
static int add_late(struct cuda_build *b, struct mm *m, uint32_t slot)
{
    const uint32_t tensor = b->op->in[slot], y = b->op->out[0];
    struct k_nest *nest = &m->add[m->n_add].nest;
    int64_t stride[SH_MAX_RANK];
    int rc;

    cuda__nest_init(nest, cuda__t(b, y)->rank, cuda__t(b, y)->dims);
    rc = cuda__nest_add(b, nest, 2, tensor);
    if (rc)
        return rc;
    cuda__strides(cuda__t(b, y), CUDA_PLAIN, stride);
    for (uint32_t i = 0; i < cuda__t(b, y)->rank; i++)
        nest->stride[0][i] = nest->stride[1][i] = stride[i];
    k_nest_pack(nest, 0);
    m->add[m->n_add].slot = slot;
    m->add[m->n_add++].type = (int)cuda__form(b, tensor).type;
    return SH_OK;
}

static int take_bias(struct cuda_build *b, struct mm *m)
{
    const uint32_t bias = cuda__opt_in(b->op, 2);
    int rc = SH_OK;

    if (bias == DEV_NONE)
        return SH_OK;
    if (!is_row_of_n(cuda__t(b, bias), m->n))
        return add_late(b, m, 2);
    m->bias_type = cuda__form(b, bias).type;
    if (m->bias_type != m->y_type && b->plan->tensors[bias].space == CUDA_STATE) {
        rc = cuda__in(b, 2, (struct cuda_form){m->y_type, CUDA_PLAIN}); /* once per step */
        m->bias_type = m->y_type;
    }
    if (m->bias_type == m->y_type)
        m->epilogue |= CUBLASLT_EPILOGUE_BIAS;
    else
        m->late_bias = true;
    return rc;
}

static int take_residual(struct cuda_build *b, struct mm *m)
{
    const uint32_t residual = cuda__opt_in(b->op, 3);

    if (residual == DEV_NONE)
        return SH_OK;
    if (!dev_same_dims(cuda__t(b, residual), cuda__t(b, b->op->out[0])))
        return add_late(b, m, 3);
    m->beta = 1;
    return cuda__in(b, 3, (struct cuda_form){m->y_type, CUDA_PLAIN});
}

static void take_act(const struct cuda_build *b, struct mm *m)
{
    const enum dev_act act = b->op->act;
    const bool is_last = !m->late_bias && !m->n_add;

    if (act == DEV_ACT_NONE)
        return;
    if (is_last && act == DEV_ACT_RELU)
        m->epilogue |= CUBLASLT_EPILOGUE_RELU;
    else if (is_last &&
             (act == DEV_ACT_GELU_TANH || (act == DEV_ACT_GELU_ERF && m->in_type != CUDA_T_F32)))
        m->epilogue |= CUBLASLT_EPILOGUE_GELU;
    else
        m->late_act = true;
}

static int take_mm_operands(struct cuda_build *b, struct mm *m)
{
    const struct dev_op *op = b->op;
    const struct cuda_form in = {b->plan->compute, CUDA_PLAIN};
    int rc;

    m->in_type = b->plan->compute;
    m->y_type = cuda__form(b, op->out[0]).type;
    m->epilogue = 0;
    m->alpha = op->u.matmul.alpha;
    rc = cuda__in(b, 0, in);
    if (!rc)
        rc = cuda__in(b, 1, in);
    if (!rc)
        rc = take_bias(b, m);
    if (!rc)
        rc = take_residual(b, m);
    if (!rc)
        rc = cuda__out(b, 0, (struct cuda_form){m->y_type, CUDA_PLAIN});
    if (!rc)
        take_act(b, m);
    m->has_late = m->late_bias || m->late_act;
    return rc;
}

/* ------------------------------------------------------------------ descriptors */

static cudaDataType_t blas_type(enum cuda_type t)
{
    return t == CUDA_T_F16 ? CUDA_R_16F : t == CUDA_T_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasStatus_t set_desc(const struct mm *m, cublasLtMatmulDescAttributes_t a, const void *v,
                               size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(m->desc, a, v, bytes);
}

static cublasStatus_t set_epilogue(struct mm *m)
{
    const cublasLtEpilogue_t e = m->epilogue ? m->epilogue : CUBLASLT_EPILOGUE_DEFAULT;
    const void *aligned = (const void *)(uintptr_t)DEV_ALIGN; /* the heuristics ask for one */
    cublasStatus_t s = set_desc(m, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, sizeof(e));

    if (s == CUBLAS_STATUS_SUCCESS && (m->epilogue & CUBLASLT_EPILOGUE_BIAS))
        s = set_desc(m, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &aligned, sizeof(aligned));
    return s;
}

static cublasStatus_t make_layout(struct mm *m, int which, enum cuda_type type, int64_t rows,
                                  int64_t cols)
{
    const int32_t n = (int32_t)m->batch.n;
    const int64_t stride = m->batch.stride[which];
    cublasLtMatrixLayout_t *l = &m->layout[which];
    cublasStatus_t s =
        cublasLtMatrixLayoutCreate(l, blas_type(type), (uint64_t)rows, (uint64_t)cols, rows);

    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof(n));
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                             &stride, sizeof(stride));
    return s;
}

static int describe_mm(struct cuda_build *b, struct mm *m)
{
    const bool ta = b->op->u.matmul.trans_a, tb = b->op->u.matmul.trans_b;
    const cublasOperation_t op_b = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_a = ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasComputeType_t compute =
        b->plan->precision == DEV_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasStatus_t s = cublasLtMatmulDescCreate(&m->desc, compute, CUDA_R_32F);

    if (s == CUBLAS_STATUS_SUCCESS)
        s = set_desc(m, CUBLASLT_MATMUL_DESC_TRANSA, &op_b, sizeof(op_b));
    if (s == CUBLAS_STATUS_SUCCESS)
        s = set_desc(m, CUBLASLT_MATMUL_DESC_TRANSB, &op_a, sizeof(op_a));
    if (s == CUBLAS_STATUS_SUCCESS)
        s = set_epilogue(m);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = make_layout(m, B, m->in_type, tb ? m->k : m->n, tb ? m->n : m->k);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = make_layout(m, A, m->in_type, ta ? m->m : m->k, ta ? m->k : m->m);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = make_layout(m, Y, m->y_type, m->n, m->m);
    return cuda__check_blas(s, "describe a matrix product", b->err);
}

/* ------------------------------------------------------------------ running */

static cublasStatus_t one_call(const struct mm *m, const struct cuda_dev *d, const void *a,
                               const void *w, const void *c, void *y, void *workspace)
{
    return cublasLtMatmul(d->lt, m->desc, &m->alpha, w, m->layout[B], a, m->layout[A], &m->beta, c,
                          m->layout[Y], y, m->layout[Y], &m->algo, workspace, m->workspace,
                          d->stream);
}

/* Every product of the operation; `c` is y where there is no residual. */
static cublasStatus_t all_calls(const struct mm *m, const struct cuda_dev *d, const void *a,
                                const void *w, const void *bias, const void *c, void *y,
                                void *workspace)
{
    const size_t in_bytes = cuda__type_bytes(m->in_type), y_bytes = cuda__type_bytes(m->y_type);
    cublasStatus_t s = CUBLAS_STATUS_SUCCESS;

    if (m->epilogue & CUBLASLT_EPILOGUE_BIAS)
        s = set_desc(m, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
    for (int64_t i = 0; i < m->calls && s == CUBLAS_STATUS_SUCCESS; i++) {
        int64_t rest = i, off[N_MATRICES] = {0};

        for (uint32_t x = m->n_loop; x-- > 0;) {
            for (int k = 0; k < N_MATRICES; k++)
                off[k] += rest % m->loop[x].n * m->loop[x].stride[k];
            rest /= m->loop[x].n;
        }
        s = one_call(m, d, (const char *)a + (size_t)off[A] * in_bytes,
                     (const char *)w + (size_t)off[B] * in_bytes,
                     (const char *)c + (size_t)off[Y] * y_bytes,
                     (char *)y + (size_t)off[Y] * y_bytes, workspace);
    }
    return s;
}

static int run_mm(const struct cuda_call *c, struct sh_err *err)
{
    const struct mm *m = c->aux;
    const struct dev_op *op = c->op;
    void *y = c->out[0];
    cublasStatus_t s;

    s = all_calls(m, c->dev, c->in[0], c->in[1], c->in[2], m->beta != 0 ? c->in[3] : y, y,
                  c->scratch);
    if (s != CUBLAS_STATUS_SUCCESS)
        return cuda__check_blas(s, "run a matrix product", err);
    for (uint32_t i = 0; i < m->n_add; i++) {
        const struct k_operand sum = {y, (int)m->y_type, cuda__overflows(c)};

        k_binary(c->stream, &m->add[i].nest, sum, sum,
                 (struct k_operand){.p = c->in[m->add[i].slot], .type = m->add[i].type},
                 DEV_BIN_ADD, DEV_ACT_NONE, 0, 0);
    }
    if (m->has_late)
        k_epilogue(c->stream, dev_tensor_elements(&c->plan->base.g->tensors[op->out[0]]) / m->n,
                   m->n, (int)m->y_type, y, (int)m->bias_type, m->late_bias ? c->in[2] : NULL, NULL,
                   m->late_act ? (int)op->act : DEV_ACT_NONE, op->act_p0, op->act_p1);
    return cuda__launched(c, err);
}

/* ------------------------------------------------------------------ which algorithm */

/* What the pointers of all calls are multiples of. */
static uint32_t alignment(const struct mm *m, int which, enum cuda_type type)
{
    uint64_t all = DEV_ALIGN;

    for (uint32_t i = 0; i < m->n_loop; i++)
        all |= (uint64_t)m->loop[i].stride[which] * cuda__type_bytes(type);
    return (uint32_t)(all & -all);
}

static cublasStatus_t set_preference(const struct mm *m, cublasLtMatmulPreference_t p)
{
    static const cublasLtMatmulPreferenceAttributes_t ALIGNS[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint32_t y_align = alignment(m, Y, m->y_type);
    const uint32_t aligns[] = {alignment(m, B, m->in_type), alignment(m, A, m->in_type), y_align,
                               y_align};
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
                             (m->y_type == CUDA_T_F32 ? CUBLASLT_REDUCTION_SCHEME_INPLACE : 0u);
    const size_t most = MAX_WORKSPACE;
    cublasStatus_t s = cublasLtMatmulPreferenceSetAttribute(
        p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof(most));

    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                 &schemes, sizeof(schemes));
    for (size_t i = 0; i < SH_ARRAY_LEN(ALIGNS) && s == CUBLAS_STATUS_SUCCESS; i++)
        s = cublasLtMatmulPreferenceSetAttribute(p, ALIGNS[i], &aligns[i], sizeof(aligns[i]));
    return s;
}

/* The proposals that can run, best guess first; *n may be 0. */
static int propose(struct cuda_build *b, const struct mm *m, int want,
                   cublasLtMatmulHeuristicResult_t *out, int *n)
{
    cublasLtMatmulPreference_t p = NULL;
    int got = 0;
    cublasStatus_t s = cublasLtMatmulPreferenceCreate(&p);

    *n = 0;
    if (s == CUBLAS_STATUS_SUCCESS)
        s = set_preference(m, p);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatmulAlgoGetHeuristic(cuda__dev(b->plan)->lt, m->desc, m->layout[B],
                                           m->layout[A], m->layout[Y], m->layout[Y], p, want, out,
                                           &got);
    if (p)
        cublasLtMatmulPreferenceDestroy(p);
    if (s == CUBLAS_STATUS_NOT_SUPPORTED)
        return SH_OK;
    for (int i = 0; i < got && s == CUBLAS_STATUS_SUCCESS; i++)
        if (out[i].state == CUBLAS_STATUS_SUCCESS && out[i].workspaceSize <= MAX_WORKSPACE)
            out[(*n)++] = out[i];
    return cuda__check_blas(s, "choose a matrix product", b->err);
}

/* ------------------------------------------------------------------ measuring */

#define TRIAL_RUNS 20
#define TRIAL_DELAY_NS 200000         /* the host enqueues the runs meanwhile */
#define COLD_BYTES ((size_t)96 << 20) /* above the L2 cache: weights come from memory */
#define MAX_COPIES 32
#define MAX_TIMED_CALLS 16
#define CLEARLY 0.97 /* so much less time, or the first proposal stays */

struct trial {
    char *mem;                       /* OWNED, device */
    size_t a, w, bias, y, workspace; /* offsets */
    size_t w_bytes, copies;          /* of w, one for each run in turn */
    cudaEvent_t from, to;            /* OWNED */
};

static void trial_fini(struct trial *t)
{
    if (t->from)
        cudaEventDestroy(t->from);
    if (t->to)
        cudaEventDestroy(t->to);
    cudaFree(t->mem);
}

static size_t take_trial_bytes(size_t *at, size_t bytes)
{
    size_t from = *at;

    *at += SH_ALIGN_UP(bytes, (size_t)DEV_ALIGN);
    return from;
}

static bool trial_init(const struct cuda_build *b, const struct mm *m, struct trial *t)
{
    const size_t in = cuda__type_bytes(m->in_type), out = cuda__type_bytes(m->y_type);
    const uint32_t *t_in = b->op->in;
    size_t all = 0;

    *t = (struct trial){.copies = 1};
    t->w_bytes =
        SH_ALIGN_UP((size_t)dev_tensor_elements(cuda__t(b, t_in[1])) * in, (size_t)DEV_ALIGN);
    if (b->plan->tensors[t_in[1]].space != CUDA_WORK)
        t->copies = SH_MIN(SH_MAX(COLD_BYTES / t->w_bytes, (size_t)1), (size_t)MAX_COPIES);
    t->a = take_trial_bytes(&all, (size_t)dev_tensor_elements(cuda__t(b, t_in[0])) * in);
    t->w = take_trial_bytes(&all, t->w_bytes * t->copies);
    t->bias = take_trial_bytes(&all, (size_t)m->n * sizeof(float));
    t->y = take_trial_bytes(&all, (size_t)dev_tensor_elements(cuda__t(b, b->op->out[0])) * out);
    t->workspace = take_trial_bytes(&all, MAX_WORKSPACE);
    if (cudaMalloc((void **)&t->mem, all) == cudaSuccess &&
        cudaMemsetAsync(t->mem, 0, all, cuda__dev(b->plan)->stream) == cudaSuccess &&
        cudaEventCreate(&t->from) == cudaSuccess && cudaEventCreate(&t->to) == cudaSuccess)
        return true;
    cudaGetLastError(); /* no memory to spare: not measured */
    trial_fini(t);
    return false;
}

static bool run_trial(const struct cuda_build *b, const struct mm *m, const struct trial *t,
                      size_t runs)
{
    cublasStatus_t s = CUBLAS_STATUS_SUCCESS;

    for (size_t i = 0; i < runs && s == CUBLAS_STATUS_SUCCESS; i++)
        s = all_calls(m, cuda__dev(b->plan), t->mem + t->a,
                      t->mem + t->w + i % t->copies * t->w_bytes, t->mem + t->bias, t->mem + t->y,
                      t->mem + t->y, t->mem + t->workspace);
    return s == CUBLAS_STATUS_SUCCESS;
}

/* Milliseconds of TRIAL_RUNS runs with m->algo; negative: it cannot run. */
static float measure_trial(const struct cuda_build *b, const struct mm *m, const struct trial *t)
{
    cudaStream_t s = cuda__dev(b->plan)->stream;
    float best = -1, ms = 0;

    if (!run_trial(b, m, t, 1))
        return -1;
    for (int round = 0; round < 3; round++) {
        k_delay(s, TRIAL_DELAY_NS);
        if (cudaEventRecord(t->from, s) != cudaSuccess || !run_trial(b, m, t, TRIAL_RUNS) ||
            cudaEventRecord(t->to, s) != cudaSuccess ||
            cudaEventSynchronize(t->to) != cudaSuccess ||
            cudaEventElapsedTime(&ms, t->from, t->to) != cudaSuccess)
            return -1;
        if (round == 0 || ms < best)
            best = ms;
    }
    return best;
}

/* *best: which of the proposals is the fastest; the first where that cannot be found out, which is
 * as good an answer: the others shall choose the same. false: there was no memory to find out now,
 * and another worker may have it. */
static bool fastest_trial(struct cuda_build *b, struct mm *m,
                          const cublasLtMatmulHeuristicResult_t *all, int n, int *best)
{
    struct trial t;
    float first = -1, best_ms = -1;

    *best = 0;
    if (n < 2 || m->calls > MAX_TIMED_CALLS)
        return true;
    if (!trial_init(b, m, &t))
        return false;
    for (int i = 0; i < n; i++) {
        float ms;

        m->algo = all[i].algo;
        m->workspace = all[i].workspaceSize;
        ms = measure_trial(b, m, &t);
        if (i == 0)
            first = ms;
        if (ms >= 0 && (best_ms < 0 || ms < best_ms)) {
            *best = i;
            best_ms = ms;
        }
    }
    cudaStreamSynchronize(cuda__dev(b->plan)->stream);
    trial_fini(&t);
    (void)cudaGetLastError(); /* a proposal that cannot run is no failure of what comes next */
    if (first >= 0 && best_ms > first * (float)CLEARLY)
        *best = 0;
    return true;
}

/* ------------------------------------------------------------------ the tuning file */

static void make_mm_key(const struct cuda_build *b, const struct mm *m, char out[CUDA_TUNE_KEY])
{
    int n =
        snprintf(out, CUDA_TUNE_KEY,
                 "matmul/%d-%d-%d/%d%d/%" PRId64 "x%" PRId64 "x%" PRId64 "/%" PRId64 ":%" PRId64
                 ",%" PRId64 ",%" PRId64 "/e%u-%d/%d",
                 (int)b->plan->precision, (int)m->in_type, (int)m->y_type, b->op->u.matmul.trans_a,
                 b->op->u.matmul.trans_b, m->m, m->n, m->k, m->batch.n, m->batch.stride[A],
                 m->batch.stride[B], m->batch.stride[Y], (unsigned)m->epilogue, m->beta != 0,
                 b->plan->tensors[b->op->in[1]].space != CUDA_WORK);

    for (uint32_t i = 0; i < m->n_loop && n < CUDA_TUNE_KEY - 1; i++)
        n += snprintf(out + n, CUDA_TUNE_KEY - (size_t)n, "/%" PRId64 ":%" PRId64 ",%" PRId64,
                      m->loop[i].n, m->loop[i].stride[A], m->loop[i].stride[B]);
}

static bool recall(const struct cuda_build *b, struct mm *m, const char *choice)
{
    cublasLtMatmulHeuristicResult_t r = {.state = CUBLAS_STATUS_SUCCESS};

    for (size_t i = 0; i < ALGO_WORDS; i++)
        if (sscanf(choice + 17 * i, "%16" SCNx64, &r.algo.data[i]) != 1)
            return false;
    if (cublasLtMatmulAlgoCheck(cuda__dev(b->plan)->lt, m->desc, m->layout[B], m->layout[A],
                                m->layout[Y], m->layout[Y], &r.algo, &r) != CUBLAS_STATUS_SUCCESS ||
        r.workspaceSize > MAX_WORKSPACE)
        return false;
    memcpy(&m->algo, &r.algo, sizeof(m->algo));
    m->workspace = r.workspaceSize;
    return true;
}

static void remember_mm(const struct cuda_build *b, const struct mm *m, const char *key)
{
    char choice[CUDA_TUNE_CHOICE] = "";

    for (size_t i = 0; i < ALGO_WORDS; i++)
        snprintf(choice + 17 * i, sizeof(choice) - 17 * i, "%016" PRIx64 " ", m->algo.data[i]);
    cuda_tune_record(cuda__dev(b->plan)->tune, key, choice, NULL, 0);
}

/* *found: false if cublasLt has nothing for this problem and epilogue. */
static int choose_algo(struct cuda_build *b, struct mm *m, bool *found)
{
    const struct cuda_dev *d = cuda__dev(b->plan);
    struct cuda_tune *tune = d->deterministic ? NULL : d->tune; /* else numbers hang on a file */
    cublasLtMatmulHeuristicResult_t all[MAX_ALGOS];
    struct cuda_tuned known;
    char key[CUDA_TUNE_KEY];
    bool is_known, is_final = false;
    int n, best = 0, rc;

    *found = true;
    make_mm_key(b, m, key);
    if (cuda_tune_find(tune, key, &known)) {
        is_known = strlen(known.choice) >= 17 * ALGO_WORDS - 1 && recall(b, m, known.choice);
        free(known.blob);
        if (is_known)
            return SH_OK;
    }
    rc = propose(b, m, tune ? MAX_ALGOS : 1, all, &n);
    *found = n > 0;
    if (rc || n == 0)
        return rc;
    if (tune)
        is_final = fastest_trial(b, m, all, n, &best);
    m->algo = all[best].algo;
    m->workspace = all[best].workspaceSize;
    if (is_final)
        remember_mm(b, m, key);
    return SH_OK;
}

/* ------------------------------------------------------------------ building */

/* What the epilogue did is left to k_epilogue. */
static int without_epilogue(struct cuda_build *b, struct mm *m)
{
    m->late_bias |= (m->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
    m->late_act |= b->op->act != DEV_ACT_NONE;
    m->has_late = m->late_bias || m->late_act;
    m->epilogue = 0;
    return cuda__check_blas(set_epilogue(m), "describe a matrix product", b->err);
}

int cuda__matmul(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t all[] = {op->in[0], op->in[1], cuda__opt_in(op, 2), cuda__opt_in(op, 3),
                            op->out[0]};
    struct mm *m = calloc(1, sizeof(*m));
    bool found = false;
    int rc;

    if (!m)
        return cuda__refuse(b, SH_E_NOMEM, "could not allocate an operation");
    cuda__aux(b, m, mm_free);
    rc = cuda__need_f32(b, all, SH_ARRAY_LEN(all));
    if (!rc)
        rc = read_matmul_shapes(b, m);
    if (!rc)
        rc = take_mm_operands(b, m);
    if (!rc)
        rc = describe_mm(b, m);
    if (!rc)
        rc = choose_algo(b, m, &found);
    if (!rc && !found && m->epilogue) {
        rc = without_epilogue(b, m);
        if (!rc)
            rc = choose_algo(b, m, &found);
    }
    if (!rc && !found)
        rc = cuda__refuse(b, SH_E_UNSUPPORTED, "cuBLASLt has no product for these shapes");
    if (rc)
        return rc;
    if (m->workspace)
        cuda__scratch(b, m->workspace);
    b->co->run = run_mm;
    return SH_OK;
}
