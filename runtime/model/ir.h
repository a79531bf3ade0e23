/* ir.h - a dev_graph under construction, for lowering, passes and autodiff.
 *
 * Tensors are in single-assignment form: each is written by one operation, or is a constant, an
 * input or state. An alias names the bytes of its root; roots are never aliases. Operations are in
 * execution order. A pass marks an operation dead (ir_kill), and ir_sweep() removes it.
 *
 * Not thread-safe. The source graph is BORROWED for the life of the ir: constants point into it.
 */
#ifndef SH_RUNTIME_MODEL_IR_H
#define SH_RUNTIME_MODEL_IR_H

#include "common/err.h"
#include "common/train_spec.h"
#include "runtime/device/op.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IR_MAX_TENSORS ((size_t)1 << 21)
#define IR_MAX_OPS ((size_t)1 << 20)
#define IR_DEAD DEV_N_OPS /* kind of an operation that ir_sweep() will remove */

enum ir_state { IR_NO_STATE, IR_PARAM, IR_STAT, IR_OPTIM, IR_EMA };

/* Writes a whole constant, which is made only on demand. */
typedef void ir_fill(const void *ctx, void *to);

enum ir_init_kind { IR_INIT_NONE, IR_INIT_ZEROS, IR_INIT_ONES, IR_INIT_UNIFORM, IR_INIT_NORMAL };
struct ir_init { /* initial values of a parameter; NONE: its data */
    enum ir_init_kind kind;
    float bound; /* UNIFORM: [-bound, bound]; NORMAL: standard deviation */
};

struct ir_info {      /* what the compiler knows of a tensor beyond the device's needs */
    const void *data; /* WEIGHT, STATE: initial contents, row-major in its dtype; NULL: zero */
    const void *sent; /* constant INPUT: written before each run; else NULL */
    void *owned;      /* freed with the ir; if set, data points here */
    ir_fill *fill;    /* NULL; or used instead of data until ir_settle() */
    void *ctx;        /* OWNED */
    enum ir_state state;
    const char *of;   /* IR_PARAM: its name in the module, if the file has another; BORROWED */
    bool is_frozen;   /* IR_PARAM that keeps its value */
    bool is_held;     /* no gradient goes on from there */
    bool skips;       /* result of a SCATTER: some rows may be -1 */
    uint32_t padding; /* result of a GATHER: 1 + the row of its table that learns nothing */
    struct ir_init init;
    uint32_t grad;      /* after autodiff, of a root: its gradient; DEV_NONE: none */
    const char *suffix; /* IR_OPTIM: "momentum", "m", "v", "sum", "scale"; IR_EMA: "ema" */
};

struct ir_none {
    struct dev_tensor tensor; /* one element, along every axis that somebody may ask for */
    struct ir_info info;
};

struct ir_commit {
    uint32_t src, dst; /* dst = STATE */
};

struct ir {
    struct dev_graph g;
    struct ir_info *info; /* parallel to g.tensors */
    char **names;         /* names made here, freed with the ir */
    struct ir_commit *commits;
    uint32_t *inputs, *outputs; /* tensors, in the order of the source graph */
    uint32_t n_inputs, n_outputs;
    /* Training: labels of each head; DEV_NONE: those in `masked`, which are computed, not read. */
    uint32_t labels[TRAIN_MAX_HEADS], n_labels;
    uint32_t masked;
    uint32_t loss;        /* training; DEV_NONE otherwise */
    uint32_t scaler;      /* DEV_NONE: the loss is not scaled */
    struct sh_err err;    /* the first failure of what builds */
    struct ir_none *none; /* OWNED: what ir_t() and ir_info() show of DEV_NONE after it */
    size_t n_names, n_commits;
    size_t cap_tensors, cap_info, cap_ops, cap_names, cap_commits;
};

int ir_new(struct ir **out, struct sh_err *err); /* OWNED, ir_free() */
void ir_free(struct ir *ir);

/* ---- building; reads like an expression. The first failure stays in ir->err; later calls do
 * nothing and return DEV_NONE, whose ir_t() and ir_info() mean nothing, so that only the end has to
 * check. */

/* The first failure so far, also in *err. */
static inline int ir_done(const struct ir *ir, struct sh_err *err)
{
    return sh_err_copy(err, &ir->err);
}
#define IR_FAIL(ir, rc, ...) SH_FAIL(&(ir)->err, rc, __VA_ARGS__)

/* name: BORROWED as long as the ir lives (a name of the source graph, or from ir_name). */
uint32_t ir_tensor(struct ir *ir, const char *name, enum sh_dtype t, enum dev_role role,
                   uint32_t rank, const int64_t *dims);
/* A new tensor with type and shape of `like`. */
uint32_t ir_like(struct ir *ir, uint32_t like, const char *name, enum dev_role role);
/* Another shape of the same bytes; `t` itself when the shape is the same. */
uint32_t ir_alias(struct ir *ir, uint32_t t, uint32_t rank, const int64_t *dims);
/* Zeroed memory for n elements of a constant, or for what makes one. NULL after a failure. */
void *ir_alloc(struct ir *ir, int64_t n, size_t element);
/* A constant made by the compiler. TAKES data (malloc), on failure too. */
uint32_t ir_const(struct ir *ir, const char *name, enum dev_role role, enum sh_dtype t,
                  uint32_t rank, const int64_t *dims, void *data);
/* The same, made on demand: a program that only runs never needs the contents of its weights. TAKES
 * ctx (malloc; it must own nothing), on failure too. What ctx points to must be given
 * (ir_is_given), or the tensor must be settled at once. */
uint32_t ir_later(struct ir *ir, const struct dev_tensor *like, const char *name, ir_fill *fill,
                  void *ctx);
/* Is it a constant of the source graph, whose data outlive every tensor here? */
bool ir_is_given(const struct ir *ir, uint32_t t);
/* Makes the contents of a constant from ir_later(). Returns them; NULL after a failure. */
const void *ir_settle(struct ir *ir, uint32_t t);
/* BORROWED from the ir. */
const char *ir_name(struct ir *ir, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void ir_push(struct ir *ir, const struct dev_op *op);
/* Makes a tensor of the type and shape given, adds it to the outputs of op, and pushes op. Returns
 * the tensor. */
uint32_t ir_emit(struct ir *ir, struct dev_op *op, enum sh_dtype t, uint32_t rank,
                 const int64_t *dims);
/* The same with type and shape of `like`. */
uint32_t ir_emit_like(struct ir *ir, struct dev_op *op, uint32_t like);
/* An operation on the given inputs; the rest zero. */
struct dev_op ir_op(enum dev_op_kind k, const char *name, uint32_t n_in, const uint32_t *in);
/* a (bin) b, with type and shape of `like`. */
uint32_t ir_binary(struct ir *ir, enum dev_bin k, const char *name, uint32_t a, uint32_t b,
                   uint32_t like);
uint32_t ir_act(struct ir *ir, enum dev_act act, float p0, float p1, const char *name, uint32_t x);
/* n tensors side by side along an axis; in rounds, if they are more than an operation takes. Uses
 * up `in`. */
uint32_t ir_joined(struct ir *ir, const char *name, uint32_t *in, uint32_t n, uint32_t axis);

/* ---- looking and cleaning */

static inline struct dev_tensor *ir_t(const struct ir *ir, uint32_t t)
{
    return t < ir->g.n_tensors ? &ir->g.tensors[t] : &ir->none->tensor;
}
static inline struct ir_info *ir_info(const struct ir *ir, uint32_t t)
{
    return t < ir->g.n_tensors ? &ir->info[t] : &ir->none->info;
}
uint32_t ir_root(const struct ir *ir, uint32_t t);
int64_t ir_elements(const struct ir *ir, uint32_t t);
bool ir_same_shape(const struct ir *ir, uint32_t a, uint32_t b);
/* Is it a constant that nothing changes? */
bool ir_is_const(const struct ir *ir, uint32_t t);
/* Its data; NULL: not a constant, or not settled yet. */
const void *ir_data(const struct ir *ir, uint32_t t);

void ir_kill(struct dev_op *op);
void ir_sweep(struct ir *ir);
/* Removes operations whose results nobody reads. Outputs, loss and state count as read. */
void ir_drop_unused(struct ir *ir);

/* Removes unreferenced tensors, so that the device does not have to store their types. Changes
 * tensor numbers. */
int ir_compact(struct ir *ir, struct sh_err *err);

/* The writer and the number of readers of each root; valid until operations change. */
struct ir_uses {
    uint32_t *writer; /* op number, DEV_NONE for none */
    uint32_t *reads;  /* an OUTPUT counts one more */
    uint32_t *reader; /* the last operation that reads it */
};
bool ir_uses_init(struct ir_uses *u, struct ir *ir); /* false: a failure; fini() it even so */
void ir_uses_fini(struct ir_uses *u);

/* Is parameter t among these names (train_spec.h), by what the file or what the module calls it? */
bool ir_is_named(const struct ir *ir, uint32_t t, const json_t *globs);

#endif
