/* portion.h - how much of a training step is given to the device at once, and how much of it may
 * wait there: a stop has to wait for what the device was given. Pure. */
#ifndef SH_EXECUTOR_WORKER_PORTION_H
#define SH_EXECUTOR_WORKER_PORTION_H

#include <stdbool.h>
#include <stdint.h>

#define PORTION_NS 20000.0
/* Portions queued on the device: where their times are not known (each is one operation), and at
 * most. */
#define PORTIONS_FEW 8u
#define PORTIONS_MAX 256u
#define PORTIONS_ALONE 4.0 /* bounds: see portions_apart() */

/* Operations are enqueued in portions of about PORTION_NS, between which a stop is seen. Returns
 * the end of the one that begins at `op`; it holds at least that operation, and none from `limit`
 * on. op_ns: what each takes; NULL: not known. *ns: what the portion takes.
 *
 * An operation that takes nothing, as its work is done by one before it, needs no portion: that
 * would be a mark on the device for nothing, and would come between two long ones, which then would
 * not be kept apart. */
uint32_t portion_end(const double *op_ns, uint32_t op, uint32_t limit, double *ns);

struct portions {            /* zeroed: none yet */
    double ns[PORTIONS_MAX]; /* ring: what those enqueued last take */
    uint32_t n;
};

/* Notes one that is enqueued. Returns how many of the last ones may be queued, so that the device
 * drains within bound_ns when training is told to stop; at least 1. */
uint32_t portions_add(struct portions *p, double ns, double bound_ns);

/* A portion is enqueued while the one before it runs, so that the device has something to go on
 * with; but two long ones would both have to end after a stop. True: the device waits for the host
 * between the last one and this, which is little beside what they take. */
bool portions_apart(const struct portions *p, double ns, double bound_ns);

#endif
