/* cuda.h - how the cuda back end turns operations into kernels; only its own files see this.
 *
 *   plan   tensors (how each is stored) + one struct cuda_op for each dev_op
 *   op     one function that enqueues the operation's kernels on the dev's stream
 *   move   a conversion of one operand, made by the plan before (or after) the operation
 *   keep   device memory of the plan that lives through a whole run: parameters in the form in
 *          which the kernels want them, converted all at once when a training step begins
 *
 * Storage. A float tensor of role ACT or WEIGHT is stored in the compute type of the precision (F32
 * for fp32 and tf32, F16, BF16); what the caller sees (INPUT, LABEL, OUTPUT, KEEP, STATE) is plain
 * F32. In a program with convolutions an activation of rank 4 that is no alias is channels-last
 * (NHWC) where one, a pooling or a BatchNorm reads or writes it, or what shares its layout; so is
 * every convolution weight (KRSC); everything else is row-major. The choice depends on the graph
 * alone, so all workers and all batch sizes choose the same. WEIGHTs that are
 * factors of normalisations, and scalars, stay F32: cheap, and a mask's -3.4e38 is no fp16 number.
 * Those that only products in tf32 read are rounded to it in the image, to the nearest: the matrix
 * units would do it, and 13 zeroes a number need not travel (runtime/pack/pack.h).
 *
 * A family file (cuda_conv.c, ...) has one builder per kind. It says in which form it takes each
 * operand (cuda__in, cuda__out), asks for scratch, and sets `run`. Kernels lie in .cu files beside
 * it, behind launchers with C linkage (kernels.h).
 *
 * Arithmetic: sums in F32 (F64 where a kernel says so); results rounded once when stored. Stores to
 * F16 saturate finite values at 65504, so that a large negative mask does not become infinite.
 *
 * Determinism: a reduction runs in a fixed order; no floating-point atomics, except in libraries
 * when dev_conf.deterministic is off.
 */
#ifndef SH_RUNTIME_DEVICE_CUDA_CUDA_H
#define SH_RUNTIME_DEVICE_CUDA_CUDA_H

#include "runtime/device/backend.h"
#include "runtime/device/cuda/kernels.h"

#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#define CUDA_MAX_QUEUED 1024 /* marks of the stream that dev_throttle can look back to */

struct cuda_tune;  /* cuda_tune.h: which kernels measured fastest, shared by the workers */
struct cuda_convs; /* cuda_conv.h: engines by problem, shared by the plans of one dev */

struct cuda_dev {
    struct dev base;      /* first member */
    unsigned char *arena; /* device pointer of offset 0; cuda_dev.c holds what it belongs to */
    cudaStream_t stream;
    cudnnHandle_t cudnn;
    cublasLtHandle_t lt;
    struct cuda_tune *tune;   /* NULL: heuristics decide */
    struct cuda_convs *convs; /* OWNED, cuda__convs_free(): convolutions built so far; NULL: none */
    cudaEvent_t queue[CUDA_MAX_QUEUED];
    uint64_t n_queued;               /* events recorded so far */
    struct k_fault *fault;           /* host page, see cuda_grid.c; behind it ... */
    uint32_t *damaged;               /* ... what unpack.cu reports */
    uint32_t *arrivals;              /* K_ARRIVALS, on the device: 0 between two kernels */
    const struct cuda_plan *running; /* the last one enqueued: a fault's operation is of it */
    const char *debug_fault; /* BORROWED: file that asks for a fault; NULL except in tests */
    int n_sms, smem_max;     /* multiprocessors; shared memory that a block can have */
    bool deterministic, verify_launches;
};

enum cuda_space { CUDA_IMAGE, CUDA_STATE, CUDA_WORK, CUDA_TABLES, CUDA_N_SPACES };

enum cuda_layout { CUDA_PLAIN, CUDA_NHWC };

struct cuda_form { /* a way to store a tensor; NHWC for rank 4 only */
    enum cuda_type type;
    enum cuda_layout layout;
};

struct cuda_tensor {
    struct cuda_form form;
    uint32_t root; /* of its aliases: whose bytes these are */
    enum cuda_space space;
    bool rounds; /* F32, of which only products in tf32 know: it is stored as they take it */
};

/* What `run` gets: device pointers, in the forms that the builder asked for. NULL: absent. */
struct cuda_call {
    struct cuda_dev *dev;
    const struct cuda_plan *plan;
    const struct dev_op *op;
    uint32_t index;
    cudaStream_t stream;
    int64_t step;
    struct dev_turn turn;
    void *in[DEV_MAX_IN];
    void *out[DEV_MAX_OUT];
    void *scratch;
    void *aux;
    unsigned char *base[CUDA_N_SPACES];
};
typedef int cuda_run(const struct cuda_call *c, struct sh_err *err);

struct cuda_move { /* operand `slot` converted from (or to) how it is stored */
    uint32_t slot, tensor;
    struct cuda_form form;
    size_t scratch_off; /* of the converted bytes, in the operation's scratch */
    size_t stored_off;  /* of the first sample that moves, in the tensor */
    struct k_nd nd;
};

struct cuda_op {
    cuda_run *run; /* NULL: nothing to do (an alias; or done by an earlier operation) */
    void *aux;     /* OWNED through free_aux */
    void (*free_aux)(void *aux);
    struct cuda_move *before, *after; /* OWNED */
    uint32_t n_before, n_after;
    uint32_t keep_in[DEV_MAX_IN]; /* 1 + index of the keep entry that replaces in[k]; 0: none */
    size_t scratch_bytes, scratch_off; /* in all; in the workspace */
    size_t own_off;                    /* of what the builder asked for, in the scratch */
    bool by_step;                      /* what it launches depends on call.step or call.turn */
    bool is_same; /* out[0] has the bytes of in[0], in their order: it may be another name */
};

struct cuda_keep { /* STATE tensor in another form, fresh at every step's begin */
    uint32_t tensor;
    struct cuda_form form;
    size_t off;
};

struct cuda_record; /* cuda_record.c: launches of an operation */

struct cuda_plan {
    struct dev_plan base;
    enum dev_precision precision;
    enum cuda_type compute; /* of activations */
    bool has_conv, is_training;
    uint32_t gradients_from; /* the first loss: gradients begin there; DEV_NONE: there are none */
    struct cuda_tensor *tensors; /* OWNED */
    struct cuda_op *ops;         /* OWNED */
    struct cuda_keep *keep;      /* OWNED */
    uint32_t n_keep;
    size_t cap_keep, keep_bytes, keep_off;
    size_t extent[CUDA_N_SPACES]; /* bytes that a run touches behind each base */
    struct dev_prepared *graphs;  /* OWNED: captured runs (cuda_graph.c); NULL: none yet */
    struct cuda_record *records;  /* OWNED by operation; NULL: none */
    bool is_finished;
};

/* Does the operation write gradients, which must not saturate? (device.cuh) */
static inline bool cuda__overflows(const struct cuda_call *c)
{
    return c->plan->compute == CUDA_T_F16 && c->index >= c->plan->gradients_from;
}

static inline struct cuda_dev *cuda__dev(const struct cuda_plan *p)
{
    return (struct cuda_dev *)p->base.dev;
}

/* ------------------------------------------------------------------ building */

struct cuda_build {
    struct cuda_plan *plan;
    const struct dev_op *op;
    struct cuda_op *co;
    uint32_t index;
    struct sh_err *err;
};
typedef int cuda_builder(struct cuda_build *b);

static inline const struct dev_tensor *cuda__t(const struct cuda_build *b, uint32_t tensor)
{
    return &b->plan->base.g->tensors[tensor];
}
static inline uint32_t cuda__opt_in(const struct dev_op *op, uint32_t i)
{
    return i < op->n_in ? op->in[i] : DEV_NONE;
}
static inline uint32_t cuda__opt_out(const struct dev_op *op, uint32_t i)
{
    return i < op->n_out ? op->out[i] : DEV_NONE;
}
static inline struct cuda_form cuda__form(const struct cuda_build *b, uint32_t tensor)
{
    return b->plan->tensors[tensor].form;
}
static inline struct cuda_form cuda__plain(enum cuda_type t) /* row-major */
{
    return (struct cuda_form){t, CUDA_PLAIN};
}

/* "<KIND> (node \"x\"): <text>" with rc. */
int cuda__refuse(struct cuda_build *b, int rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The operation takes in[slot] (gives out[slot]) in `form`: call.in[slot] (out[slot]) will be that,
 * converted by the plan if it is stored in another form. Without such a call it comes as stored
 * (cuda__form). A STATE tensor is converted once per step, into the plan's keep memory. */
int cuda__in(struct cuda_build *b, uint32_t slot, struct cuda_form form);
int cuda__out(struct cuda_build *b, uint32_t slot, struct cuda_form form);
/* cuda__in for samples (axis 0) [first, first + count): they begin *off bytes behind call.in[slot],
 * a multiple of DEV_ALIGN. What has to be converted is these alone, so operations that share the
 * samples among them convert each once. */
int cuda__in_samples(struct cuda_build *b, uint32_t slot, struct cuda_form form, int64_t first,
                     int64_t count, size_t *off);
/* Row-major, in the type in which it is stored. */
int cuda__in_plain(struct cuda_build *b, uint32_t slot);
int cuda__out_plain(struct cuda_build *b, uint32_t slot);
/* call.scratch: at least `bytes`, aligned to DEV_ALIGN. Once per operation. */
void cuda__scratch(struct cuda_build *b, size_t bytes);
/* The plan frees aux by fn, on failure of the builder too. */
void cuda__aux(struct cuda_build *b, void *aux, void (*fn)(void *aux));
/* Another operation's tensor in this run, as stored. */
void *cuda__ptr(const struct cuda_call *c, uint32_t tensor);
static inline enum cuda_type cuda__stored_type(const struct cuda_call *c, uint32_t tensor)
{
    return c->plan->tensors[tensor].form.type;
}
/* Strides in elements, by logical axis, of tensor t stored in `layout`. */
void cuda__strides(const struct dev_tensor *t, enum cuda_layout layout,
                   int64_t out[static SH_MAX_RANK]);
size_t cuda__type_bytes(enum cuda_type t);
/* cuda_pack.c. Sets `rounds` of the plan's tensors, and `stored` of the graph's. */
int cuda__note_stored(struct cuda_plan *p, struct sh_err *err);

/* ------------------------------------------------------------------ errors (cuda_err.c) */
/* SH_OK, or: SH_E_DEVMEM for lack of memory; SH_E_DEVLOST with the cause for what only ends with
 * the process (illegal access, hardware fault, launch time-out); else SH_E_BUG. `what`: "could not
 * <what>". A driver's error that is not sticky is cleared. */
int cuda__check(cudaError_t e, const char *what, struct sh_err *err);
int cuda__check_drv(CUresult e, const char *what, struct sh_err *err);
int cuda__no_memory(size_t bytes, struct sh_err *err); /* SH_E_DEVMEM: what is free, what to do */
int cuda__check_dnn(cudnnStatus_t e, const char *what, struct sh_err *err);
int cuda__check_blas(cublasStatus_t e, const char *what, struct sh_err *err);
/* After a launch: the launch's own error, as "<KIND> (node \"x\")". */
int cuda__launched(const struct cuda_call *c, struct sh_err *err);
int cuda__launch_failed(const struct cuda_call *c, CUresult e, struct sh_err *err);

/* ------------------------------------------------------------------ grids (cuda_grid.c) */

int cuda__grid_open(struct cuda_dev *d, struct sh_err *err); /* d has its stream */
void cuda__grid_close(struct cuda_dev *d);
/* After the stream was waited for. SH_E_INVALID: a kernel met a bad index or label since; SH_E_IO:
 * packed weights are damaged, until dev_take_damage(). */
int cuda__fault_check(struct cuda_dev *d, struct sh_err *err);

/* ------------------------------------------------------------------ tests (cuda_fault.c) */

const char *cuda__debug_fault_file(void);                             /* NULL: none is wanted */
int cuda__debug_fault(const struct cuda_plan *p, struct sh_err *err); /* if the file asks for it */

/* ------------------------------------------------------------------ families */

#define DEV_OP(kind, in, max_in, out, max_out, builder) cuda_builder cuda__##builder;
#include "runtime/device/op.def"
#undef DEV_OP
void cuda__convs_free(struct cuda_dev *d); /* after all plans, before the cudnn handle */

/* ------------------------------------------------------------------ the plan's calls */

int cuda__plan_new(struct dev *d, struct dev_graph *g, enum dev_precision p,
                   const struct dev_plan *layout_of, struct dev_plan **out, struct sh_err *err);
void cuda__plan_free(struct dev_plan *p);
size_t cuda__plan_scratch_bytes(const struct dev_plan *p, uint32_t op);
void cuda__plan_set_scratch(struct dev_plan *p, uint32_t op, size_t ws_offset);
size_t cuda__plan_keep_bytes(const struct dev_plan *p);
void cuda__plan_set_keep(struct dev_plan *p, size_t ws_offset);
int cuda__plan_finish(struct dev_plan *p, struct sh_err *err);
int cuda__plan_pack(struct dev_plan *p, uint32_t tensor, const void *plain, void *stored,
                    struct sh_err *err);
int cuda__plan_unpack(struct dev_plan *p, uint32_t tensor, const void *stored, void *plain,
                      struct sh_err *err);
int cuda__plan_run(struct dev_plan *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                   struct sh_err *err);
int cuda__plan_profile(struct dev_plan *p, const struct dev_bases *b, uint32_t repeat, double *ns,
                       struct sh_err *err);
int cuda__plan_warm(struct dev_plan *p, double *ns, struct sh_err *err);
int cuda__plan_prepare(struct dev_plan *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                       struct sh_err *err);
/* The call of a run at these bases, checked; then plain launches of operations [from, to), moves
 * included. cuda__enqueue does both; cuda_graph.c captures it. */
int cuda__begin(const struct cuda_plan *p, const struct dev_bases *b, struct cuda_call *c,
                struct sh_err *err);
int cuda__run_range(struct cuda_plan *p, struct cuda_call *c, uint32_t from, uint32_t to,
                    struct sh_err *err);
/* One operation without its record. */
int cuda__run_op(struct cuda_plan *p, struct cuda_call *c, uint32_t i, struct sh_err *err);
int cuda__enqueue(struct cuda_plan *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                  struct sh_err *err);

/* cuda_graph.c: operations [from, to) of an inference plan as one CUDA graph, by bases. */
bool cuda__graph_launch(struct cuda_plan *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                        int *rc, struct sh_err *err); /* false: no graph is ready for this */
int cuda__graph_capture(struct cuda_plan *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                        struct sh_err *err);
void cuda__graphs_free(struct cuda_plan *p);

#endif
