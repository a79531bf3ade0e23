/* prepared.h - the ranges of plans that a back end holds prepared (dev_plan_prepare): finds the one
 * for a run, and chooses what makes room for another. For back ends that prepare. One thread for
 * each device.
 *
 * Prepared ranges take memory outside the pool, on the host and on the device: a CUDA graph takes
 * some for each launch in it, and no driver says how much. So their number is limited, for a plan
 * and for all plans of a device; the least recently used goes first.
 */
#ifndef SH_RUNTIME_DEVICE_PREPARED_H
#define SH_RUNTIME_DEVICE_PREPARED_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

#define DEV_MAX_PREPARED 132u      /* ranges of one plan */
#define DEV_MAX_PREPARED_ALL 2048u /* of all plans of a process on one device */

struct dev_range { /* a range of operations, at one set of bases */
    const void *arena, *host_tables;
    size_t image, workspace, tables;
    uint32_t from, to;
};

struct dev_prepared; /* those of one plan */

struct dev_prepared_all { /* those of one device; zeroed: none */
    struct dev_prepared *first;
    uint64_t turn;
    uint32_t n; /* read */
};

/* a is BORROWED until dev_prepared_free(). */
int dev_prepared_new(struct dev_prepared_all *a, struct dev_prepared **out, struct sh_err *err);
/* Take out all of them first. NULL is allowed. */
void dev_prepared_free(struct dev_prepared *p);

/* BORROWED; counts as a use. NULL: not found. */
void *dev_prepared_find(struct dev_prepared *p, const struct dev_range *r);
/* TAKES what (not NULL), for a range that has none. Returns what has to make room for it, of this
 * or another plan: OWNED; NULL: nothing. */
void *dev_prepared_add(struct dev_prepared *p, const struct dev_range *r, void *what);
/* Takes one out: OWNED; NULL: none is left. */
void *dev_prepared_pop(struct dev_prepared *p);

#endif
