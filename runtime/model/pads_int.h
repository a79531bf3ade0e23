/* pads_int.h - what pads.c and its rules share. */
#ifndef SH_RUNTIME_MODEL_PADS_INT_H
#define SH_RUNTIME_MODEL_PADS_INT_H

#include "runtime/model/graph_int.h"
#include "runtime/model/pads.h"
#include "runtime/model/places.h"
#include "runtime/model/ranges.h"

#define PADS_PLACES 3u
/* Elements of a weight that are read at each size, as a mask may be one. */
#define PADS_SMALL 4096
#define PADS_MAX_ODD 64u

/* Larger weights that are not all ordinary numbers. */
struct odd {
    const void *data[PADS_MAX_ODD];
    size_t n;
    bool too_many; /* nothing is known of any */
};

struct track {
    bool mixed;
    uint32_t n; /* places */
    struct place p[PADS_PLACES];
    struct range real, edge[PADS_PLACES], all; /* pads.c */
    uint32_t is_number, is_nan;                /* 1 + the value that it tells this of; 0: of none */
};

struct follow {
    const struct graph *a, *b; /* at size n, at the bucket */
    const struct odd *odd;
    int64_t n, bucket;
    uint32_t ones;                 /* 1 + the input that is filled up with ones; 0: none */
    const struct graph_node *node; /* at work, of b */
    uint32_t out;                  /* which of its outputs */
    struct track *of;              /* by value of b */
    uint32_t *pair;                /* the same: 1 + its value in a; 0: it has none yet */
    uint32_t *whole;    /* by value of a: 1 + the constant that it is cut from; 0: none */
    const char *reason; /* of the node at work, why it mixes */
    char *why;          /* [PADS_WHY]: of the first one */
};

struct track pads__mixed(void);
struct track pads__free(struct range r); /* without a place */
/* The value of a that is value v of b. */
const struct graph_value *pads__in_a(const struct follow *f, uint32_t v);
/* The track of output f->out of f->node; no input of it is mixed. */
struct track pads__rule(struct follow *f);

#endif
