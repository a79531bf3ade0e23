/* queue.h - events in time order; equal times in the order in which they were put in. */
#ifndef SH_SIMULATE_QUEUE_H
#define SH_SIMULATE_QUEUE_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event {
    int64_t at_ns;
    uint64_t order; /* queue_put() sets it */
    uint32_t kind, a, b;
};

struct queue {           /* a heap; zeroed: empty */
    struct event *items; /* OWNED, queue_fini() */
    size_t n, cap;
    uint64_t n_put;
};

void queue_fini(struct queue *q);
int queue_put(struct queue *q, struct event e, struct sh_err *err);
bool queue_take(struct queue *q, struct event *out); /* false: empty */

#endif
