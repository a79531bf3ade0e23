/* portion.h - how much of a training step the device gets at once, and how much may be queued on
 * it: a stop has to wait for all that was queued. Pure. */
#ifndef SH_EXECUTOR_WORKER_PORTION_H
#define SH_EXECUTOR_WORKER_PORTION_H

#include <stdbool.h>
#include <stdint.h>

#define PORTION_NS 20000.0
/* Portions queued on the device: if their times are unknown (each is then one operation), and at
 * most. */
#define PORTIONS_FEW 8u
#define PORTIONS_MAX 256u
#define PORTIONS_ALONE 4.0 /* bounds: see portions_apart() */

/* Operations are enqueued in portions of about PORTION_NS, and a stop is seen between portions.
 * Returns the end of the portion that begins at `op`; it holds at least that operation, and none
 * from `limit` on. op_ns: time of each operation; NULL: unknown. *ns: time of the portion.
 *
 * An operation that takes no time, since an earlier one does its work, gets no portion: it would
 * cost a mark on the device, and would stand between two long portions, which would then not be
 * kept apart. */
uint32_t portion_end(const double *op_ns, uint32_t op, uint32_t limit, double *ns);

struct portions {            /* zeroed: no portions yet */
    double ns[PORTIONS_MAX]; /* ring: times of the last portions */
    uint32_t n;
};

/* Notes an enqueued portion. Returns how many of the last portions may be queued so that the device
 * drains within bound_ns after a stop; at least 1. */
uint32_t portions_add(struct portions *p, double ns, double bound_ns);

/* A portion is normally enqueued while the one before it runs, so that the device does not idle.
 * But after a stop two long ones would both have to finish. True: let the device wait for the host
 * between the last portion and this one; that is short beside their own time. */
bool portions_apart(const struct portions *p, double ns, double bound_ns);

#endif
