/* crashes.h - workers that die with a training job: of it, or for reasons that are not its own?
 *
 * A process that was killed does not say why. What can be seen is whether the job gets on: deaths
 * count as a row until there is progress between two of them. That is a step that was never done
 * before; and, for a job that was thrown back and does steps again, a newer checkpoint.
 * Not so where the worker has died at the furthest step once more: what kills it there will do so
 * from any state. */
#ifndef SH_EXECUTOR_TRAINING_CRASHES_H
#define SH_EXECUTOR_TRAINING_CRASHES_H

#include <stdint.h>

struct crashes { /* zeroed: none yet, of a job that stands at its beginning */
    uint32_t n;
    int64_t furthest, kept; /* at the last one, or where the job began */
};

/* A worker died that had committed the steps up to `at`. furthest: what the job has ever committed.
 * kept: the step of its newest checkpoint, in memory or on disk; what only the device has does not
 * count, since the next death may take it. Returns how many deaths in a row that makes. */
uint32_t crashes_note(struct crashes *d, int64_t at, int64_t furthest, int64_t kept);

#endif
