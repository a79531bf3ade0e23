/* counted_int.h - what the files about counted axes share. */
#ifndef SH_RUNTIME_MODEL_COUNTED_INT_H
#define SH_RUNTIME_MODEL_COUNTED_INT_H

#include "runtime/model/counted.h"

#define COUNTED_NUMBERS 64 /* of a list that is known number by number */

struct counted { /* a node at work */
    struct shape_ctx *c;
    const struct shape_op *op;
};

/* ---- numbers (counted_numbers.c) */
struct graph_number number__const(int64_t v);
bool number__is_const(const struct graph_number *n);
/* Element i of an integer value: a constant, or what is known of it. false: nothing. */
bool number__get(const struct graph_value *v, size_t i, struct graph_number *out);
/* The same of one number, of which nothing need be known but its value. */
struct graph_number number__any(const struct shape_ctx *c, uint32_t v);
/* It as a value, I64 of rank 0. */
uint32_t number__value(struct shape_ctx *c, struct graph_number n);
/* "Add", "Sub", "Mul", "Div", "Min", "Max". */
struct graph_number number__op(struct shape_ctx *c, const char *op, struct graph_number a,
                               struct graph_number b);
/* Are they the same whatever the data? */
bool number__same(const struct graph *g, const struct graph_number *a,
                  const struct graph_number *b);
/* The node that gives a value; NULL: none does. */
const struct graph_node *counted__writer(const struct graph *g, uint32_t v);
/* The node at work, if all it takes are such numbers. *done: its outputs are known. */
int counted__numbers(struct counted *k, bool *done);
/* Output `out` is these, of its type and shape. */
int counted__is_numbers(struct counted *k, uint32_t out, const struct graph_number *n);

/* ---- axes (counted.c) */
int counted__axis(const struct graph_value *v);                         /* -1: none is counted */
struct graph_number counted__of(const struct shape_ctx *c, uint32_t v); /* of its counted axis */
int counted__axis_in(const struct counted *k, uint32_t i); /* of input i; < 0: none, or no input */
/* Input i with `fill` in what is undefined. */
int counted__cover(struct counted *k, uint32_t i, double fill);
/* mask, [n], along axis `axis` of `rank` axes. */
uint32_t counted__along(struct shape_ctx *c, uint32_t mask, int axis, int rank);
int counted__refuse(struct counted *k, const char *why);
/* Outputs are NaN unless a (op) b. */
void counted__grant(struct counted *k, struct graph_number a, const char *op,
                    struct graph_number b);

/* ---- rules: counted_rules.c, counted_shape.c */
typedef int counted_fn(struct counted *k);
counted_fn counted__reshape, counted__squeeze, counted__unsqueeze, counted__flatten,
    counted__expand, counted__const_of_shape, counted__range, counted__slice, counted__split,
    counted__concat, counted__shape, counted__size;

#endif
