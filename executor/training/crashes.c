/* crashes.c - see crashes.h. */
#include "executor/training/crashes.h"

#include <stdbool.h>

/* A device with a queue tells of a commit as late as in the next step (worker/train.c). */
static bool is_at_furthest(int64_t at, int64_t furthest)
{
    return at + 1 >= furthest;
}

uint32_t crashes_note(struct crashes *d, int64_t at, int64_t furthest, int64_t kept)
{
    bool is_new = furthest > d->furthest;
    bool is_kept = kept > d->kept && !is_at_furthest(at, furthest);

    d->n = is_new || is_kept ? 1 : d->n + 1;
    d->furthest = furthest;
    d->kept = kept;
    return d->n;
}
