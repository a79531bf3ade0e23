/* cpu.h - how the cpu back end turns operations into things that run; only its own files see this.
 *
 *   plan   tensors (how each is stored) + one struct cpu_op for each dev_op
 *   op     a list of steps and the size of its private scratch
 *   step   one oneDNN primitive or one of our functions, with its arguments as references
 *   ref    a tensor, or a place in the op's scratch; becomes a pointer when the plan runs
 *
 * A family file (cpu_conv.c, ...) has one builder per kind. It asks for its operands in the layout
 * that it wants (cpu__in), names the layout that it produces (cpu__out), and appends its steps. The
 * reorders between what is stored and what is wanted are appended by these two calls. A tensor's
 * layout is decided by the first operation that writes it, so blocked layouts spread from
 * convolution to convolution by themselves; a tensor that must be plain is decided from the start.
 *
 * The first failure stays in the build's err. Later calls of the builders' helpers do nothing, and
 * what returns a code returns that of the first failure, so that a builder reads like a list of
 * what has to be; it asks where it would use what a failure leaves open.
 *
 * Determinism: work is split by the number of threads only, never by load or time; sums run in a
 * fixed order.
 */
#ifndef SH_RUNTIME_DEVICE_CPU_CPU_H
#define SH_RUNTIME_DEVICE_CPU_CPU_H

#include "common/shm.h"
#include "common/vectorise.h"
#include "runtime/device/backend.h"

#include <dnnl.h>

struct cpu_dev {
    struct dev base;              /* first member */
    struct sh_shm arena, tickets; /* imported; fd -1 and base NULL for a private arena */
    unsigned char *memory;        /* the arena, unless own is set */
    unsigned char *own;           /* OWNED own_bytes, of dev_own_memory; NULL: none */
    size_t own_bytes;
    bool is_private, is_damaged;         /* is_damaged: dev_take_damage() */
    struct dev_reach task[DEV_MAX_TASK]; /* ranges in reach: dev_task() */
    size_t n_task;
    bool has_task; /* false: all of the arena is in reach */
    unsigned threads;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

enum cpu_space { CPU_IMAGE, CPU_STATE, CPU_WORK, CPU_TABLES, CPU_N_SPACES };

struct cpu_layout {
    dnnl_memory_desc_t md;    /* as stored; only if has_md */
    dnnl_memory_desc_t plain; /* the same logical dimensions, row-major in the caller's memory */
};

struct cpu_tensor {
    struct cpu_layout *lay; /* in the plan's; NULL once no longer needed */
    uint32_t root;          /* the tensor whose bytes its aliases share */
    uint32_t producer;      /* operation that writes it first; DEV_NONE */
    enum cpu_space space;
    bool has_md;     /* oneDNN knows the element type */
    bool is_fixed;   /* the layout is decided */
    bool is_blocked; /* and is not plain */
    bool is_wino;    /* a weight that is stored as cpu_wino.c transforms it */
    bool is_wide;    /* a root, F32, that is stored as doubles (struct cpu_wide) */
};

struct cpu_ref {
    uint32_t tensor; /* DEV_NONE: in the scratch of the operation */
    size_t off;      /* in bytes */
};

/* Arguments of one of our functions. p[i]: the refs given to cpu__step_fn, as pointers. A failure
 * is recorded in err, and ends the run. */
struct cpu_call {
    const struct cpu_plan *plan;
    const struct dev_op *op;
    uint32_t index;
    unsigned threads;
    int64_t step;
    const struct dev_turn *turn;
    void *const *p;
    const void *aux; /* BORROWED from the step */
    struct sh_err *err;
};
typedef void cpu_fn(const struct cpu_call *c);

struct cpu_step {
    dnnl_primitive_desc_t pd; /* OWNED; NULL for a function, and once plan_finish has made: */
    dnnl_primitive_t prim;    /* OWNED */
    cpu_fn *fn;
    void *aux; /* OWNED, free() */
    uint32_t n;
    struct cpu_ref *refs;  /* OWNED n */
    dnnl_exec_arg_t *args; /* OWNED n and the memory objects in it */
    void **last;           /* OWNED n: pointers of the previous run */
};

struct cpu_op {
    struct cpu_step *steps; /* OWNED */
    size_t n_steps, cap_steps;
    size_t scratch_bytes, scratch_off;
    const_dnnl_primitive_desc_t hint; /* BORROWED from a step: what the backward operation needs */
};

struct cpu_wide; /* cpu_wide.h */

struct cpu_plan {
    struct dev_plan base;
    struct cpu_tensor *tensors;  /* OWNED */
    struct cpu_layout *layouts;  /* OWNED; 1.4 KB each */
    struct cpu_op *ops;          /* OWNED */
    size_t extent[CPU_N_SPACES]; /* bytes that a run touches behind each base */
    size_t wino_room;            /* bytes that transformed kernels may still add to the image */
    unsigned threads;
    const struct cpu_wide *wide; /* BORROWED; NULL but in the tests' oracle */
    bool is_finished;
};

/* ------------------------------------------------------------------ building */

#define CPU_MAX_LATE (DEV_MAX_OUT)

struct cpu_late { /* a result stored in another layout than computed; reordered at the end */
    struct cpu_ref from;
    dnnl_memory_desc_t have, want;
    uint32_t tensor;
};

struct cpu_build {
    struct cpu_plan *plan;
    const struct dev_op *op;
    struct cpu_op *co;
    uint32_t index;
    struct sh_err *err; /* never NULL */
    struct cpu_late late[CPU_MAX_LATE];
    uint32_t n_late;
};
typedef int cpu_builder(struct cpu_build *b);

struct cpu_bind {
    int arg;
    struct cpu_ref ref;
    const dnnl_memory_desc_t *md; /* NULL: the primitive's */
};

static inline const struct dev_tensor *cpu__t(const struct cpu_build *b, uint32_t tensor)
{
    return &b->plan->base.g->tensors[tensor];
}
static inline uint32_t cpu__opt_in(const struct dev_op *op, uint32_t i)
{
    return i < op->n_in ? op->in[i] : DEV_NONE;
}
static inline uint32_t cpu__opt_out(const struct dev_op *op, uint32_t i)
{
    return i < op->n_out ? op->out[i] : DEV_NONE;
}

/* "<KIND> (node \"x\"): <text>" with rc. */
int cpu__refuse(struct cpu_build *b, int rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int cpu__status(struct cpu_build *b, dnnl_status_t s, const char *what); /* success: no failure */
static inline bool cpu__failed(const struct cpu_build *b)
{
    return b->err->rc != SH_OK;
}

/* The tensor whose layout the operand has: of a weight with several names, the first. */
struct cpu_tensor *cpu__stored(const struct cpu_build *b, uint32_t tensor);
/* Operand `tensor` in layout `want`. view: how the operation looks at a plain tensor (other
 * dimensions or transposed), NULL for the tensor's own dimensions. A WEIGHT that nobody has laid
 * out yet takes `want`. */
struct cpu_ref cpu__in(struct cpu_build *b, uint32_t tensor, const dnnl_memory_desc_t *view,
                       const dnnl_memory_desc_t *want);
struct cpu_ref cpu__in_plain(struct cpu_build *b, uint32_t tensor);
/* Where to compute `tensor` in layout `have`. may_keep: the tensor may be stored like this. */
struct cpu_ref cpu__out(struct cpu_build *b, uint32_t tensor, const dnnl_memory_desc_t *have,
                        bool may_keep);
struct cpu_ref cpu__out_plain(struct cpu_build *b, uint32_t tensor);
struct cpu_ref cpu__scratch(struct cpu_build *b, size_t bytes);

/* Creates a primitive descriptor with user scratchpad. po may be NULL. *out: OWNED. */
dnnl_status_t cpu__pd(struct cpu_build *b, const void *desc, const_dnnl_post_ops_t po,
                      const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out);
const dnnl_memory_desc_t *cpu__pd_md(const_dnnl_primitive_desc_t pd, int arg);
bool cpu__pd_is_slow(const_dnnl_primitive_desc_t pd); /* the reference implementation */

/* TAKES pd, on failure too. The scratchpad argument is added here. */
int cpu__step_prim(struct cpu_build *b, dnnl_primitive_desc_t pd, const struct cpu_bind *binds,
                   uint32_t n);
int cpu__step_reorder(struct cpu_build *b, struct cpu_ref from, const dnnl_memory_desc_t *have,
                      struct cpu_ref to, const dnnl_memory_desc_t *want);
/* aux: `bytes` that are copied, or NULL. */
int cpu__step_fn(struct cpu_build *b, cpu_fn *fn, const struct cpu_ref *refs, uint32_t n,
                 const void *aux, size_t bytes);
/* The operands that there are, plain: the inputs, then the outputs. Returns how many they are. */
uint32_t cpu__all_plain(struct cpu_build *b, struct cpu_ref *refs);
/* A step on them. */
int cpu__step_plain(struct cpu_build *b, cpu_fn *fn, const void *aux, size_t bytes);
int cpu__build_end(struct cpu_build *b);                       /* the late reorders */
int cpu__step_finish(struct cpu_build *b, struct cpu_step *s); /* pd becomes prim */
void cpu__op_fini(struct cpu_op *co);

/* Row-major descriptor. */
int cpu__md_plain(uint32_t rank, const int64_t *dims, dnnl_data_type_t type,
                  dnnl_memory_desc_t *out);
bool cpu__type(enum sh_dtype t, dnnl_data_type_t *out);
/* Channels (axis 1) of a block if md is nC..Bc, else 0. */
int64_t cpu__channel_block(const dnnl_memory_desc_t *md);
/* The same kind of layout for other dimensions; plain if it has no blocks of channels. */
int cpu__md_like(struct cpu_build *b, const dnnl_memory_desc_t *like, const dnnl_dims_t dims,
                 dnnl_memory_desc_t *out);
/* Does every element lie at the same place by both, as blocks of channels of one pixel do? */
bool cpu__same_bytes(const dnnl_memory_desc_t *a, const dnnl_memory_desc_t *b);
/* All the given tensors are F32 (DEV_NONE passes). */
int cpu__need_f32(struct cpu_build *b, const uint32_t *tensors, uint32_t n);
int cpu__same_shape(struct cpu_build *b, uint32_t x, uint32_t y);
int cpu__axis(struct cpu_build *b, uint32_t tensor, int64_t axis, uint32_t *out); /* dev_axis_of */

/* One element as a number. cpu__store() to an integer truncates and clamps to the type's range, NaN
 * is 0; cpu__store_int() keeps the low bits. */
bool cpu__is_int(enum sh_dtype t); /* false for BOOL */
double cpu__load(enum sh_dtype t, const void *p, int64_t i);
void cpu__store(enum sh_dtype t, void *p, int64_t i, double v);
int64_t cpu__load_int(enum sh_dtype t, const void *p, int64_t i);
void cpu__store_int(enum sh_dtype t, void *p, int64_t i, int64_t v);

/* Appends a step that applies the operation's activation in place, in layout md. */
int cpu__act_in_place(struct cpu_build *b, struct cpu_ref at, const dnnl_memory_desc_t *md);

/* ------------------------------------------------------------------ threads */

typedef void cpu_range_fn(void *ctx, int64_t from, int64_t to);
/* fn over [0, n) in at most `threads` equal ranges, none below `grain`. The caller takes part. */
void cpu__parallel(unsigned threads, int64_t n, int64_t grain, cpu_range_fn *fn, void *ctx);
void cpu__set_threads(unsigned threads);

/* Words of n blocks of Philox from `first` on, four each: counter { block, second, step }. */
void cpu__philox(uint64_t seed, int64_t first, uint32_t second, int64_t step, int64_t n,
                 uint32_t *out);

/* ------------------------------------------------------------------ strided loops */

#define CPU_ND_OPERANDS 4

/* A loop nest over `dims`, adjacent axes merged where every operand allows it. */
struct cpu_nd {
    uint32_t rank, n; /* n operands */
    int64_t total;
    int64_t dims[SH_MAX_RANK];
    int64_t stride[CPU_ND_OPERANDS][SH_MAX_RANK]; /* in elements; 0 = broadcast */
    int64_t base[CPU_ND_OPERANDS];
};
/* One run of the innermost axis: n elements; off[k] in elements, steps nd->stride[k][rank-1]. */
typedef void cpu_row_fn(void *ctx, const struct cpu_nd *nd, int64_t n, const int64_t *off);

void cpu__nd_init(struct cpu_nd *nd, uint32_t rank, const int64_t *dims, uint32_t n);
/* Operand k is tensor t broadcast to nd's dims (numpy's rules). false: shapes do not fit. */
bool cpu__nd_broadcast(struct cpu_nd *nd, uint32_t k, const struct dev_tensor *t);
void cpu__nd_merge(struct cpu_nd *nd);
/* Elements [from, to) in row-major order of dims. */
void cpu__nd_run(const struct cpu_nd *nd, int64_t from, int64_t to, cpu_row_fn *fn, void *ctx);
void cpu__strides(uint32_t rank, const int64_t *dims, int64_t *out); /* of a plain tensor */

/* ------------------------------------------------------------------ families */

#define DEV_OP(kind, in, max_in, out, max_out, builder) cpu_builder cpu__##builder;
#include "runtime/device/op.def"
#undef DEV_OP
cpu_builder cpu__channel;
bool cpu__channel_has(struct cpu_build *b); /* is this BINARY one of a tensor in blocks? */

/* ------------------------------------------------------------------ the plan's calls */

int cpu__plan_new(struct dev *d, struct dev_graph *g, enum dev_precision p,
                  const struct dev_plan *layout_of, struct dev_plan **out, struct sh_err *err);
void cpu__plan_free(struct dev_plan *p);
size_t cpu__plan_scratch_bytes(const struct dev_plan *p, uint32_t op);
void cpu__plan_set_scratch(struct dev_plan *p, uint32_t op, size_t ws_offset);
int cpu__plan_finish(struct dev_plan *p, struct sh_err *err);
int cpu__plan_pack(struct dev_plan *p, uint32_t tensor, const void *plain, void *stored,
                   struct sh_err *err);
int cpu__plan_unpack(struct dev_plan *p, uint32_t tensor, const void *stored, void *plain,
                     struct sh_err *err);
int cpu__plan_run(struct dev_plan *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                  struct sh_err *err);
int cpu__plan_profile(struct dev_plan *p, const struct dev_bases *b, uint32_t repeat, double *ns,
                      struct sh_err *err);

#endif
