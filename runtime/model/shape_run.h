/* shape_run.h - graph_at() for more than one operator after the other: nodes that run other nodes
 * (Loop, Scan), and values that are not tensors (sequences, optionals).
 *
 *   shape.c       one node after the other
 *   shape_loop.c  Loop, Scan, SequenceMap: their bodies, unrolled
 *   shape_seq.c   sequences, which exist only here: lists of values of the new graph
 */
#ifndef SH_RUNTIME_MODEL_SHAPE_RUN_H
#define SH_RUNTIME_MODEL_SHAPE_RUN_H

#include "runtime/model/rewrite.h"

#define RUN_SEQUENCE 0x80000000u /* in a map: sequence number map & ~RUN_SEQUENCE */

struct run_sequence {
    uint32_t *of; /* OWNED: values of the new graph */
    uint32_t n;
    bool is_none; /* an optional without a value */
};

struct run {
    const struct graph *from;
    struct shape_ctx c;
    struct sh_buf *list;               /* NULL: stop at the first node that is not supported */
    uint32_t *map;                     /* [from->n_values]: values of the new graph, or sequences */
    struct sh_err err;                 /* of the current node */
    struct sh_err lost;                /* of the last branch node that could not be computed */
    const struct graph_node *failed;   /* the innermost one */
    uint32_t *body_first, *body_next;  /* nodes of body k: first[k], next[that], ...; NULL: none */
    uint32_t n_bodies, depth, n_steps; /* n_steps: nodes of bodies so far */
    size_t folded;                     /* bytes of constants used by bodies */
    struct run_sequence *sequences;    /* OWNED */
    size_t cap_sequences, n_sequences, n_elements;
};

/* Does one node of the old graph. A node of an impossible branch is no failure. */
int run__step(struct run *r, uint32_t number);
/* Does a node that is SHAPE_CONTROL or has a sequence among its inputs. */
int run__control(struct run *r, const struct graph_node *n);
int run__fail(struct run *r, const struct graph_node *n, int rc, const char *why);

/* ---- bodies (shape_loop.c) */
int run__find_bodies(struct run *r, struct sh_err *err);
int run__loop(struct run *r, const struct graph_node *n, struct shape_ctx *c);
int run__scan(struct run *r, const struct graph_node *n, struct shape_ctx *c);
int run__sequence_map(struct run *r, const struct graph_node *n, struct shape_ctx *c);

/* ---- sequences (shape_seq.c) */
static inline bool run__is_sequence(uint32_t v)
{
    return v != GRAPH_NONE && (v & RUN_SEQUENCE);
}
bool run__has_sequence(const struct run *r, const struct graph_node *n);
/* of: copied. */
int run__add_sequence(struct run *r, const uint32_t *of, uint32_t n, uint32_t *out,
                      struct sh_err *err);
const struct run_sequence *run__sequence(const struct run *r, uint32_t v);
void run__sequences_fini(struct run *r);

#endif
