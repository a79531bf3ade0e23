/* turn.h - steps of training that make one update. */
#ifndef SH_RUNTIME_DEVICE_TURN_H
#define SH_RUNTIME_DEVICE_TURN_H

#include <stdint.h>

/* The update that a step of training is part of. A run that goes on with a step has the same. Part
 * 0 begins ACCUM's sums anew; parts before the last do none of SQUARES, SGD, ADAM, LOSS_SCALE and
 * EMA. */
struct dev_turn {
    double lr;
    int64_t update;     /* number of updates before it: for Adam's bias correction */
    int64_t part, last; /* of its steps, from 0: this one, and the last */
    float mix;          /* of the step: MIX */
};

#endif
