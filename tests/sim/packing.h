/* packing.h - what the images of simulated packages are packed to, and by which of them runs take
 * less time packed: by their number, so that each worker of each executor finds the same. */
#ifndef SH_TESTS_SIM_PACKING_H
#define SH_TESTS_SIM_PACKING_H

#include "common/msg.h"
#include "tests/sim/content.h"
#include "tests/sim/profile.h"

/* Of a simulated byte that is written. On a device without a queue much less than a real one takes:
 * all of the simulation would wait for it. */
#define SIM_UNPACK_NS_PER_BYTE (0.0008 * SIM_SCALE)
#define SIM_UNPACK_NS 4000 /* of a layer */

/* Ends of the packed layers. False: it does not get smaller, or (how) is better as it is. */
bool sim_packs(const struct sim_package *p, const struct sim_model *m, enum msg_pack how,
               uint64_t link_ends[static SIM_MAX_LAYERS]);

#endif
