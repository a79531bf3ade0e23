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
    bool is_frozen;   /* IR_PARAM that keeps its value */
    uint32_t padding; /* result of a GATHER: 1 + the row of its table that learns nothing */
    struct ir_init init;
    uint32_t grad;      /* after autodiff, of a root: its gradient; DEV_NONE: none */
    const char *suffix; /* IR_OPTIM: "momentum", "m", "v", "sum", "scale"; IR_EMA: "ema" */
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
    uint32_t loss;   /* training; DEV_NONE otherwise */
    uint32_t scaler; /* DEV_NONE: the loss is not scaled */
    size_t n_names, n_commits;
    size_t cap_tensors, cap_info, cap_ops, cap_names, cap_commits;
};

int ir_new(struct ir **out, struct sh_err *err); /* OWNED, ir_free() */
void ir_free(struct ir *ir);

/* name: BORROWED as long as the ir lives (a name of the source graph, or from ir_name). */
int ir_tensor(struct ir *ir, const char *name, enum sh_dtype t, enum dev_role role, uint32_t rank,
              const int64_t *dims, uint32_t *out, struct sh_err *err);
/* A new tensor with type and shape of `like`. */
int ir_like(struct ir *ir, uint32_t like, const char *name, enum dev_role role, uint32_t *out,
            struct sh_err *err);
/* Another shape of the same bytes; `t` itself when the shape is the same. */
int ir_alias(struct ir *ir, uint32_t t, uint32_t rank, const int64_t *dims, uint32_t *out,
             struct sh_err *err);
/* A constant made by the compiler. TAKES data (malloc) on success. */
int ir_const(struct ir *ir, const char *name, enum dev_role role, enum sh_dtype t, uint32_t rank,
             const int64_t *dims, void *data, uint32_t *out, struct sh_err *err);
/* The same, made on demand: a program that only runs never needs the contents of its weights. TAKES
 * ctx (malloc; it must own nothing) on success. What ctx points to must be given (ir_is_given), or
 * the tensor must be settled at once. */
int ir_later(struct ir *ir, const struct dev_tensor *like, const char *name, ir_fill *fill,
             void *ctx, uint32_t *out, struct sh_err *err);
/* Is it a constant of the source graph, whose data outlive every tensor here? */
bool ir_is_given(const struct ir *ir, uint32_t t);
/* Makes the contents of a constant from ir_later(). Fails: SH_E_NOMEM. */
int ir_settle(struct ir *ir, uint32_t t, struct sh_err *err);
/* *out: BORROWED from the ir. */
int ir_name(struct ir *ir, const char **out, struct sh_err *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

int ir_push(struct ir *ir, const struct dev_op *op, struct sh_err *err);
/* Makes a tensor of the type and shape given, adds it to the outputs of op, and pushes op. */
int ir_emit(struct ir *ir, struct dev_op *op, enum sh_dtype t, uint32_t rank, const int64_t *dims,
            uint32_t *out, struct sh_err *err);
/* The same with type and shape of `like`. */
int ir_emit_like(struct ir *ir, struct dev_op *op, uint32_t like, uint32_t *out,
                 struct sh_err *err);
/* An operation on the given inputs; the rest zero. */
struct dev_op ir_op(enum dev_op_kind k, const char *name, uint32_t n_in, const uint32_t *in);
/* a (bin) b -> *out with the shape `rank`, `dims`. */
int ir_binary(struct ir *ir, enum dev_bin k, const char *name, uint32_t a, uint32_t b,
              uint32_t like, uint32_t *out, struct sh_err *err);
int ir_act(struct ir *ir, enum dev_act act, float p0, float p1, const char *name, uint32_t x,
           uint32_t *out, struct sh_err *err);

static inline struct dev_tensor *ir_t(const struct ir *ir, uint32_t t)
{
    return &ir->g.tensors[t];
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
int ir_drop_unused(struct ir *ir, struct sh_err *err);

/* Removes unreferenced tensors, so that the device does not have to store their types. Changes
 * tensor numbers. */
int ir_compact(struct ir *ir, struct sh_err *err);

/* The writer and the number of readers of each root; valid until operations change. */
struct ir_uses {
    uint32_t *writer; /* op number, DEV_NONE for none */
    uint32_t *reads;  /* an OUTPUT counts one more */
    uint32_t *reader; /* the last operation that reads it */
};
int ir_uses_init(struct ir_uses *u, const struct ir *ir, struct sh_err *err);
void ir_uses_fini(struct ir_uses *u);

#endif
