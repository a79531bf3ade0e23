/* autodiff_int.h - internals of the backward pass: one rule for each kind of operation. */
#ifndef SH_RUNTIME_MODEL_AUTODIFF_INT_H
#define SH_RUNTIME_MODEL_AUTODIFF_INT_H

#include "runtime/model/ir.h"

struct ad_part { /* g: the gradient of elements from `start` on along one axis of `whole` */
    uint32_t whole, axis;
    int64_t start;
    uint32_t g;
};

struct ad {
    struct ir *ir;
    bool *wants;           /* [n] by root: does its gradient matter? */
    bool *still;           /* [n] by root: does no gradient continue from there? */
    bool *slopes;          /* [n] by root: does it change smoothly with a parameter? */
    uint32_t *sums;        /* [n] by root: the operation that adds two tensors to it, or DEV_NONE */
    bool *apart;           /* [n] by root: a difference whose second operand learns nothing of it */
    uint32_t *grads;       /* [n] by root, in the root's shape; DEV_NONE: none yet */
    uint32_t n;            /* tensors of the forward pass */
    uint32_t op;           /* number of the current forward operation */
    uint32_t zero;         /* a tensor of one 0; DEV_NONE until needed */
    int64_t piece;         /* see autodiff_backward() */
    struct ad_part *parts; /* OWNED: parts waiting for ad__settle() */
    size_t n_parts, cap_parts;
};

/* A rule builds as ir.h says: the first failure stays in a->ir. op: a copy of the forward operation
 * (the table moves); dy: gradient of its first output, in that output's shape. */
typedef void ad_rule(struct ad *a, const struct dev_op *op, uint32_t dy);

bool ad__wants(const struct ad *a, uint32_t t);
/* Adds g to the gradient of t: same number of elements, any shape. */
void ad__add(struct ad *a, uint32_t t, uint32_t g);
/* g has the shape of a result to which t was broadcast: sums it down to t's shape and adds it. */
void ad__add_reduced(struct ad *a, uint32_t t, uint32_t g);
/* What b computes, in the shape of t, is added to the gradient of t. */
void ad__add_op(struct ad *a, uint32_t t, struct dev_op *b);
/* Notes a part of a gradient. ad__settle() adds the parts of a root to its gradient; call it before
 * that is read. */
void ad__part(struct ad *a, struct ad_part p);
void ad__settle(struct ad *a, uint32_t root);
/* Was the second operand of op added before, to a choice? Then it gets no gradient here. */
bool ad__takes_back(const struct ad *a, const struct dev_op *op);
uint32_t ad__zero(struct ad *a);
void ad__unsupported(struct ad *a, const struct dev_op *op, const char *why);
/* The sum of g over all axes but the last. */
uint32_t ad__column_sums(struct ad *a, const char *name, uint32_t g);

/* clang-format off */
#define AD_RULES(X)                                                                            \
    X(conv) X(conv_bwd_data) X(resample) X(attention)                                          \
    X(matmul) X(pool_max) X(pool_avg) X(bn_train) X(layernorm) X(dropout) X(act) X(binary)     \
        X(softmax) X(reduce) X(where) X(concat) X(slice) X(pad) X(transpose) X(copy) X(expand) \
            X(gather) X(cumsum) X(topk) X(scatter) X(lstm_cell)
/* clang-format on */
#define X(name) ad_rule ad__##name;
AD_RULES(X)
#undef X

#endif
