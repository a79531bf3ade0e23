/* cudnn_graph.h - one convolution with what follows it, through cuDNN's backend interface.
 *
 *   graph    what is to be computed: x * w [+ z factor * z] [+ bias] [-> activation] = y as one
 *            operation graph, everything between the convolution and y virtual
 *   config   an engine with its settings, as the heuristics propose it
 *   plan     a config made executable; it outlives the graph and the config
 *   pack     the addresses of one use of a plan, made anew only when they change
 *
 * All tensors are channels-last and of one type, aligned to 16 bytes; sums are in F32. The
 * gradients name the same tensors: of DNN_BWD_DATA the result is x, of DNN_BWD_WEIGHT it is w.
 *
 * That cuDNN has no engine for something is no failure of ours: such calls return false, or an
 * SH_E_* code with err given only where the caller cannot go on.
 */
#ifndef SH_RUNTIME_DEVICE_CUDA_CUDNN_GRAPH_H
#define SH_RUNTIME_DEVICE_CUDA_CUDNN_GRAPH_H

#include "common/err.h"

#include <cudnn.h>

enum dnn_pass { DNN_FORWARD, DNN_BWD_DATA, DNN_BWD_WEIGHT };
enum dnn_role { DNN_X, DNN_W, DNN_Y, DNN_Z, DNN_BIAS, DNN_N_ROLES };

struct dnn_conv {
    enum dnn_pass pass;
    cudnnDataType_t type;
    int64_t x[4], w[4], y[4]; /* logical: N C H W, M C/groups R S, N M P Q */
    int64_t stride[2], dilation[2], pad_begin[2], pad_end[2];
    /* Of DNN_FORWARD only. A factor of 0 keeps the addition in the pattern, but z is not read. */
    bool has_z, has_bias, has_act;
    float z_factor;
    cudnnPointwiseMode_t act;
    double lower, upper, slope; /* of CUDNN_POINTWISE_RELU_FWD */
};

#define DNN_MAX_CONFIGS 64
#define DNN_TEXT 288 /* of an engine and its settings, with the NUL */
#define DNN_NOTE(n) (1u << (n))

struct dnn_graph;

struct dnn_plan {
    cudnnBackendDescriptor_t desc, config; /* OWNED; config may be NULL */
    size_t workspace_bytes;
};

struct dnn_pack {
    cudnnBackendDescriptor_t desc; /* OWNED, dnn_pack_fini(); NULL: none yet */
    void *at[DNN_N_ROLES], *workspace;
};

/* Which roles the graph has, a bit each. */
uint32_t dnn_roles(const struct dnn_conv *c);
/* *out: OWNED, dnn_graph_free(); NULL: cuDNN does not take such a graph, or there is no memory. */
bool dnn_graph_new(cudnnHandle_t h, const struct dnn_conv *c, struct dnn_graph **out);
void dnn_graph_free(struct dnn_graph *g);
/* The best configs by this heuristic, best first, without those that carry a note of the set
 * `banned` (DNN_NOTE of CUDNN_NUMERICAL_NOTE_*) nor, unless may_compile, those that cuDNN has to
 * compile. out[]: each OWNED, dnn_config_free() or dnn_plan_new(). Returns how many, at most
 * DNN_MAX_CONFIGS. */
int dnn_configs(const struct dnn_graph *g, cudnnBackendHeurMode_t mode, uint32_t banned,
                bool may_compile, cudnnBackendDescriptor_t out[static DNN_MAX_CONFIGS]);
void dnn_config_free(cudnnBackendDescriptor_t config);

/* TAKES config, also on failure. Compiling takes 0.3 to 1 s, all others 0.1 ms. */
bool dnn_plan_new(cudnnBackendDescriptor_t config, size_t max_workspace, struct dnn_plan *out);
/* "engine:setting=value,...", for people. Only of a plan that was made of a config. */
bool dnn_plan_text(const struct dnn_plan *p, char out[static DNN_TEXT]);
/* The whole plan, compiled kernels included: *out OWNED, free(). */
bool dnn_plan_save(const struct dnn_plan *p, void **out, size_t *bytes);
bool dnn_plan_load(cudnnHandle_t h, const void *saved, size_t bytes, size_t max_workspace,
                   struct dnn_plan *out);
void dnn_plan_fini(struct dnn_plan *p);

/* [enqueue] on the handle's stream. roles: as of dnn_roles(); at[]: by role. */
int dnn_run(cudnnHandle_t h, const struct dnn_plan *p, struct dnn_pack *pack, uint32_t roles,
            void *const at[static DNN_N_ROLES], void *workspace, struct sh_err *err);
void dnn_pack_fini(struct dnn_pack *pack);

#endif
