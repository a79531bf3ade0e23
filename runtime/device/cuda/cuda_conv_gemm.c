/* cuda_conv_gemm.c - a 1x1 convolution without stride as one matrix product of cuBLASLt.
 *
 * Channels-last, pixels are rows: y[NPQ][M] = x[NPQ][C] w[M][C]^T. The library counts columns, so
 * each of these is its own transpose there:
 *
 *   forward          y (M x NPQ) = w (C x M)^T  x (C x NPQ)     [+ z] [+ bias of the rows] [relu]
 *   data gradient    x (C x NPQ) = w (C x M)    y (M x NPQ)
 *   weight gradient  w (C x M)   = x (C x NPQ)  y (M x NPQ)^T
 */
#include "runtime/device/cuda/cuda_conv.h"

#include <string.h>

#define MAX_FOUND 16

bool cuda__conv_gemm_fits(const struct conv_problem *p)
{
    bool fits = p->groups == 1 && !p->is_raw && p->y[2] == p->x[2] && p->y[3] == p->x[3];

    for (int i = 0; i < 2; i++)
        fits = fits && p->w[2 + i] == 1 && p->stride[i] == 1 && p->pad_begin[i] == 0 &&
               p->pad_end[i] == 0;
    return fits;
}

uint32_t cuda__conv_gemm_fused(const struct conv_problem *p)
{
    return CONV_FUSED_BIAS | CONV_FUSED_Z | (p->act == DEV_ACT_RELU ? CONV_FUSED_ACT : 0);
}

static cudaDataType_t data_type(enum cuda_type t)
{
    return t == CUDA_T_F16 ? CUDA_R_16F : t == CUDA_T_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasLtEpilogue_t gemm_epilogue(const struct conv_problem *p)
{
    const bool relu = p->pass == DNN_FORWARD && p->act == DEV_ACT_RELU;

    if (p->has_bias)
        return relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
    return relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

static bool ok(cublasStatus_t st)
{
    return st == CUBLAS_STATUS_SUCCESS;
}

static bool set_gemm_desc(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name,
                          const void *p, size_t bytes)
{
    return ok(cublasLtMatmulDescSetAttribute(d, name, p, bytes));
}

/* All but the algorithm. On failure *g is empty. */
static bool describe_gemm(const struct conv_problem *p, struct conv_gemm *g)
{
    const cublasOperation_t trans = CUBLAS_OP_T;
    const cublasLtEpilogue_t ep = gemm_epilogue(p);
    const cudaDataType_t t = data_type(p->type);
    const uint64_t n = (uint64_t)(p->x[0] * p->x[2] * p->x[3]);
    const uint64_t c = (uint64_t)p->x[1], m = (uint64_t)p->y[1];
    const bool is_tf32 = p->type == CUDA_T_F32 && !p->is_strict;
    /* The address comes with each run; a library may look at how it is aligned. */
    void *const some = (void *)(uintptr_t)DEV_ALIGN;
    bool done;

    *g = (struct conv_gemm){.workspace_bytes = 0};
    done =
        ok(cublasLtMatmulDescCreate(
            &g->desc, is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
        set_gemm_desc(g->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &ep, sizeof(ep));
    if (done && p->has_bias)
        done = set_gemm_desc(g->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &some, sizeof(some));
    if (done && p->pass == DNN_FORWARD)
        done = set_gemm_desc(g->desc, CUBLASLT_MATMUL_DESC_TRANSA, &trans, sizeof(trans)) &&
               ok(cublasLtMatrixLayoutCreate(&g->a, t, c, m, (int64_t)c)) &&
               ok(cublasLtMatrixLayoutCreate(&g->b, t, c, n, (int64_t)c)) &&
               ok(cublasLtMatrixLayoutCreate(&g->c, t, m, n, (int64_t)m));
    else if (done && p->pass == DNN_BWD_DATA)
        done = ok(cublasLtMatrixLayoutCreate(&g->a, t, c, m, (int64_t)c)) &&
               ok(cublasLtMatrixLayoutCreate(&g->b, t, m, n, (int64_t)m)) &&
               ok(cublasLtMatrixLayoutCreate(&g->c, t, c, n, (int64_t)c));
    else if (done)
        done = set_gemm_desc(g->desc, CUBLASLT_MATMUL_DESC_TRANSB, &trans, sizeof(trans)) &&
               ok(cublasLtMatrixLayoutCreate(&g->a, t, c, n, (int64_t)c)) &&
               ok(cublasLtMatrixLayoutCreate(&g->b, t, m, n, (int64_t)m)) &&
               ok(cublasLtMatrixLayoutCreate(&g->c, t, c, m, (int64_t)c));
    if (!done)
        cuda__conv_gemm_fini(g);
    return done;
}

void cuda__conv_gemm_fini(struct conv_gemm *g)
{
    if (g->a)
        cublasLtMatrixLayoutDestroy(g->a);
    if (g->b)
        cublasLtMatrixLayoutDestroy(g->b);
    if (g->c)
        cublasLtMatrixLayoutDestroy(g->c);
    if (g->desc)
        cublasLtMatmulDescDestroy(g->desc);
    *g = (struct conv_gemm){.desc = NULL};
}

int cuda__conv_gemm_list(struct cuda_dev *d, const struct conv_problem *p, size_t max_workspace,
                         struct conv_gemm *out, int max)
{
    const uint64_t bytes = max_workspace;
    /* Partial sums stay in F32. */
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasLtMatmulHeuristicResult_t found[MAX_FOUND];
    cublasLtMatmulPreference_t pref = NULL;
    struct conv_gemm g;
    int n = 0, kept = 0;

    if (!describe_gemm(p, &g))
        return 0;
    if (!ok(cublasLtMatmulPreferenceCreate(&pref)) ||
        !ok(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &bytes, sizeof(bytes))) ||
        !ok(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                 &schemes, sizeof(schemes))) ||
        !ok(cublasLtMatmulAlgoGetHeuristic(d->lt, g.desc, g.a, g.b, g.c, g.c, pref,
                                           max < MAX_FOUND ? max : MAX_FOUND, found, &n)))
        n = 0;
    for (int i = 0; i < n; i++)
        if (ok(found[i].state) && found[i].workspaceSize <= max_workspace &&
            describe_gemm(p, &out[kept])) {
            out[kept].algo = found[i].algo;
            out[kept++].workspace_bytes = found[i].workspaceSize;
        }
    if (pref)
        cublasLtMatmulPreferenceDestroy(pref);
    cuda__conv_gemm_fini(&g);
    return kept;
}

bool cuda__conv_gemm_load(struct cuda_dev *d, const struct conv_problem *p, const void *algo,
                          size_t bytes, struct conv_gemm *out)
{
    cublasLtMatmulHeuristicResult_t r;

    if (bytes != sizeof(out->algo) || !describe_gemm(p, out))
        return false;
    memcpy(&out->algo, algo, bytes);
    if (ok(cublasLtMatmulAlgoCheck(d->lt, out->desc, out->a, out->b, out->c, out->c, &out->algo,
                                   &r)) &&
        ok(r.state) && r.workspaceSize <= CONV_MAX_WORKSPACE) {
        out->workspace_bytes = r.workspaceSize;
        return true;
    }
    cuda__conv_gemm_fini(out);
    return false;
}

int cuda__conv_gemm_run(struct cuda_dev *d, const struct conv_problem *p, const struct conv_gemm *g,
                        const struct conv_args *a, struct sh_err *err)
{
    const float one = 1.0f, beta = p->has_z ? 1.0f : 0.0f;
    const void *l = p->pass == DNN_BWD_WEIGHT ? a->x : a->w;
    const void *r = p->pass == DNN_FORWARD ? a->x : a->y;
    void *out = p->pass == DNN_FORWARD ? a->y : p->pass == DNN_BWD_DATA ? a->x : a->w;
    cublasStatus_t st = CUBLAS_STATUS_SUCCESS;

    if (p->has_bias)
        st = cublasLtMatmulDescSetAttribute(g->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &a->bias,
                                            sizeof(a->bias));
    if (ok(st))
        st = cublasLtMatmul(d->lt, g->desc, &one, l, g->a, r, g->b, &beta, p->has_z ? a->z : out,
                            g->c, out, g->c, &g->algo, g->workspace_bytes ? a->scratch : NULL,
                            g->workspace_bytes, d->stream);
    return ok(st) ? SH_OK : cuda__check_blas(st, "run a 1x1 convolution", err);
}
