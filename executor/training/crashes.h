/* crashes.h - counts workers that die with a training job: is the job to blame?
 *
 * A killed process does not say why it died, but one can see whether the job advances. Deaths count
 * as a series until there is progress between two of them: a step never done before or, for a job
 * that was thrown back and repeats steps, a newer checkpoint. A newer checkpoint does not end the
 * series if the worker died at the furthest step again: what kills it there does so from any state.
 * Pure. */
#ifndef SH_EXECUTOR_TRAINING_CRASHES_H
#define SH_EXECUTOR_TRAINING_CRASHES_H

#include <stdint.h>

struct crashes { /* zeroed: no deaths, of a job at its beginning */
    uint32_t n;
    int64_t furthest, kept; /* at the last death, or where the job began */
};

/* Notes the death of a worker that had committed the steps up to `at`. furthest: the last step that
 * the job ever committed. kept: the step of its newest checkpoint in memory or on disk; a state
 * that only the device has does not count, since the next death may take it. Returns the number of
 * deaths in this series. */
uint32_t crashes_note(struct crashes *d, int64_t at, int64_t furthest, int64_t kept);

#endif
