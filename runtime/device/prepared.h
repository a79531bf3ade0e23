/* prepared.h - the ranges of plans that a back end holds prepared (dev_plan_prepare): which of them
 * a run can take, and which makes room for another. Of the back ends that prepare something. One
 * thread for each device.
 *
 * What is prepared takes memory beside the pool, of the host and of the device: a CUDA graph takes
 * some for each launch in it, and no driver says how much. So the number is bounded, of a plan and
 * of all plans of a device; what was used longest ago goes first.
 */
#ifndef SH_RUNTIME_DEVICE_PREPARED_H
#define SH_RUNTIME_DEVICE_PREPARED_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

#define DEV_MAX_PREPARED 132u      /* ranges of one plan */
#define DEV_MAX_PREPARED_ALL 2048u /* of all plans that a process has on one device */

struct dev_range { /* of operations, at one pair of bases */
    const void *arena;
    size_t image, workspace;
    uint32_t from, to;
};

struct dev_prepared; /* of one plan */

struct dev_prepared_all { /* of one device; zeroed: none */
    struct dev_prepared *first;
    uint64_t turn;
    uint32_t n; /* read */
};

/* a is BORROWED until dev_prepared_free(). */
int dev_prepared_new(struct dev_prepared_all *a, struct dev_prepared **out, struct sh_err *err);
/* All must have been taken out. NULL is allowed. */
void dev_prepared_free(struct dev_prepared *p);

/* BORROWED, and counts as a use. NULL: there is none. */
void *dev_prepared_find(struct dev_prepared *p, const struct dev_range *r);
/* TAKES what, not NULL, for a range that has none. Returns what has to make room for it, of this
 * plan or of another: OWNED; NULL: nothing. */
void *dev_prepared_add(struct dev_prepared *p, const struct dev_range *r, void *what);
/* Takes one out: OWNED; NULL: there is none left. */
void *dev_prepared_pop(struct dev_prepared *p);

#endif
