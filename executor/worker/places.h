/* places.h - where and how a program ran lately, to know which places come again. */
#ifndef SH_EXECUTOR_WORKER_PLACES_H
#define SH_EXECUTOR_WORKER_PLACES_H

#include "runtime/device/dev.h"

#include <stdbool.h>

/* Places that take turns among more are not worth preparing for: a device keeps so much of what it
 * prepared for one plan, and each would push another out. At each of them a run comes whole, with
 * its weights there, or in groups. */
#define PLACES_MAX 4
#define PLACES_MAX_GROUPS (DEV_MAX_PREPARED / PLACES_MAX - 1)

struct places { /* zeroed: none yet */
    struct {
        size_t image, workspace;
        uint32_t groups;
    } at[PLACES_MAX]; /* ring */
    uint32_t n;       /* runs so far */
};

/* Notes a run at these bases; true if one of the PLACES_MAX before it was there too, in the same
 * groups of layers: `groups` stands for these. */
bool places_again(struct places *p, const struct dev_bases *b, uint32_t groups);

#endif
