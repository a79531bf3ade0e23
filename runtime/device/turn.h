/* turn.h - the training steps of one update. */
#ifndef SH_RUNTIME_DEVICE_TURN_H
#define SH_RUNTIME_DEVICE_TURN_H

#include <stdint.h>

/* The update to which a training step belongs. A run that continues a step has the same one. Part 0
 * starts ACCUM's sums anew; parts before the last skip SQUARES, SGD, ADAM, LOSS_SCALE and EMA. */
struct dev_turn {
    double lr;
    int64_t update;     /* number of earlier updates, for Adam's bias correction */
    int64_t part, last; /* index of this step in the update, from 0, and of the last */
    float mix;          /* of the step, for MIX */
};

#endif
