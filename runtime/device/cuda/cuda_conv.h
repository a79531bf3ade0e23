/* cuda_conv.h - between the files of the convolution family.
 *
 *   problem   one convolution with all that decides how fast a kernel is at it
 *   method    how a problem is solved: an engine of cuDNN, a matrix product, or our own kernels.
 *             Methods are kept by problem for the life of the dev (struct cuda_convs) and shared by
 *             all operations with that problem, in all plans
 */
#ifndef SH_RUNTIME_DEVICE_CUDA_CUDA_CONV_H
#define SH_RUNTIME_DEVICE_CUDA_CUDA_CONV_H

#include "runtime/device/cuda/cuda.h"
#include "runtime/device/cuda/cudnn_graph.h"

/* Workspaces count against what other tenants may use: small ones are preferred, large refused. */
#define CONV_GOOD_WORKSPACE ((size_t)64 << 20)
#define CONV_MAX_WORKSPACE ((size_t)256 << 20)
#define CONV_KEY 384

struct conv_problem {
    enum dnn_pass pass;
    enum cuda_type type;
    bool is_strict;           /* F32 without TF32 */
    int64_t x[4], w[4], y[4]; /* N C H W, M C/groups R S, N M P Q */
    int64_t stride[2], dilation[2], pad_begin[2], pad_end[2], groups;
    bool has_bias, has_z; /* DNN_FORWARD */
    enum dev_act act;
    float p0, p1;
    /* x, of few channels, comes as it is stored, and the method converts it. */
    bool is_raw, raw_is_plain;
    enum cuda_type raw_type;
    int variant; /* of our kernel, which is then the method: 0: what is best */
};

enum conv_how {
    CONV_FULL,   /* cuDNN, all in one kernel */
    CONV_LINEAR, /* cuDNN without the activation, then our epilogue */
    CONV_BARE,   /* cuDNN's convolution alone, then our epilogue */
    CONV_GEMM,   /* cuBLASLt: 1x1 without stride */
    CONV_OWN,    /* conv_direct.cu */
    CONV_N_HOWS
};

enum { CONV_FUSED_BIAS = 1, CONV_FUSED_Z = 2, CONV_FUSED_ACT = 4 };

struct conv_gemm {
    cublasLtMatmulDesc_t desc; /* OWNED */
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    size_t workspace_bytes;
};

struct conv_method {
    uint32_t refs;
    enum conv_how how;
    uint32_t fused; /* set of CONV_FUSED_* */
    int64_t padded; /* channels of the converted x; 0: x is taken as it comes */
    int variant;    /* CONV_OWN */
    struct dnn_plan plan;
    uint32_t roles; /* of plan */
    struct conv_gemm gemm;
    size_t lib_bytes, x_bytes, w_bytes; /* scratch: of the library or kernel, of padded operands */
    double ns;                          /* measured; 0: not */
};

struct conv_args {          /* device pointers */
    void *x, *w, *y;        /* forward tensors or their gradients */
    void *bias, *z;         /* NULL: none */
    unsigned char *scratch; /* cuda__conv_scratch() bytes, aligned to DEV_ALIGN */
};

void cuda__conv_drop(struct conv_method *m); /* NULL is allowed */
size_t cuda__conv_scratch(const struct conv_method *m);
/* [enqueue] */
int cuda__conv_run(struct cuda_dev *d, const struct conv_problem *p, const struct conv_method *m,
                   struct dnn_pack *pack, const struct conv_args *a, struct sh_err *err);

/* cuda_conv_make.c: methods that may do. A visitor TAKES the method and says whether it is enough;
 * the calls then return true. */
typedef bool conv_visit(void *ctx, struct conv_method *m);
struct conv_search {
    enum conv_how how;
    int64_t padded;
    int limit; /* methods to visit */
    size_t max_workspace;
    bool may_compile; /* engines that cuDNN compiles when they are asked for, 0.3 to 1 s each */
    bool may_be_slow; /* the engine that takes everything */
};
bool cuda__conv_each(struct cuda_dev *d, const struct conv_problem *p, const struct conv_search *s,
                     conv_visit *visit, void *ctx);
/* Widths of x worth a try, best guess first; 0: as it comes. Returns how many. */
int cuda__conv_widths(const struct conv_problem *p, int64_t out[static 4]);
struct conv_method *cuda__conv_own(const struct conv_problem *p, int64_t padded, int variant);
struct k_conv cuda__conv_direct(const struct conv_problem *p, int64_t padded);
void cuda__conv_key(const struct cuda_dev *d, const struct conv_problem *p,
                    char out[static CONV_KEY]);
/* Text for people (the best of n_tried), and bytes from which another worker makes the same: *blob
 * OWNED, free(). */
void cuda__conv_save(const struct conv_method *m, int n_tried, char *text, size_t size, void **blob,
                     size_t *bytes);
struct conv_method *cuda__conv_load(struct cuda_dev *d, const struct conv_problem *p,
                                    const char *text, const void *blob, size_t bytes);

/* cuda_conv_tune.c: *out OWNED; NULL when nothing could be measured. true: it is the choice for the
 * others too; false: memory was too short to measure all. */
bool cuda__conv_fastest(struct cuda_dev *d, const struct conv_problem *p, int *n_tried,
                        struct conv_method **out);

/* cuda_conv_gemm.c */
bool cuda__conv_gemm_fits(const struct conv_problem *p);
uint32_t cuda__conv_gemm_fused(const struct conv_problem *p);
/* The best algorithms by heuristic, best first. Returns how many; each is released by fini. */
int cuda__conv_gemm_list(struct cuda_dev *d, const struct conv_problem *p, size_t max_workspace,
                         struct conv_gemm *out, int max);
bool cuda__conv_gemm_load(struct cuda_dev *d, const struct conv_problem *p, const void *algo,
                          size_t bytes, struct conv_gemm *out);
int cuda__conv_gemm_run(struct cuda_dev *d, const struct conv_problem *p, const struct conv_gemm *g,
                        const struct conv_args *a, struct sh_err *err);
void cuda__conv_gemm_fini(struct conv_gemm *g);

#endif
