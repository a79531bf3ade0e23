/* places.h - where and how a program ran recently, to find places that recur. */
#ifndef SH_EXECUTOR_WORKER_PLACES_H
#define SH_EXECUTOR_WORKER_PLACES_H

#include "runtime/device/dev.h"

#include <stdbool.h>

/* If more places than this take turns, preparing for them does not pay: a device keeps a limited
 * number of prepared ranges for one plan, and each would evict another. At each place a run comes
 * either whole, with its weights resident, or in groups. */
#define PLACES_MAX 4
#define PLACES_MAX_GROUPS (DEV_MAX_PREPARED / PLACES_MAX - 1)

struct places { /* zeroed: none yet */
    struct {
        struct dev_bases b;
        uint32_t groups;
    } at[PLACES_MAX]; /* ring */
    uint32_t n;       /* runs noted */
};

/* Notes a run at these bases. True: one of the last PLACES_MAX was there too, with the same groups
 * of layers (`groups` identifies them). */
bool places_again(struct places *p, const struct dev_bases *b, uint32_t groups);

#endif
