/* places.h - where a program ran lately, to know which places come again. */
#ifndef SH_EXECUTOR_WORKER_PLACES_H
#define SH_EXECUTOR_WORKER_PLACES_H

#include "executor/device/dev.h"

#include <stdbool.h>

/* A device that prepares runs keeps as many of one plan (cuda_graph.c). Places that take turns
 * among more of them are not worth preparing for: each would push another out. */
#define PLACES_MAX 4

struct places { /* zeroed: none yet */
    struct {
        size_t image, workspace;
    } at[PLACES_MAX]; /* ring */
    uint32_t n;       /* runs so far */
};

/* Notes a run at these bases; true if one of the PLACES_MAX before it was there too. */
bool places_again(struct places *p, const struct dev_bases *b);

#endif
