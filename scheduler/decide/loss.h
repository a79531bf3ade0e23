/* loss.h - what is lost if a job gives way: time in which it holds GPUs, and nothing is won.
 *
 *   loss = GPUs x (save + resume + redo)
 *
 *   save    its state is copied to host memory and written to disk; until then nobody else has them
 *   resume  from its next start to its first step, as its last start took
 *   redo    half a step, on average: the one that is under way is dropped
 *
 * Who gives way is saved at its last step that committed, so what it has done since its last
 * checkpoint is not lost. What nobody has measured yet counts as nothing, but for a first start.
 *
 * Pure. */
#ifndef SH_SCHEDULER_DECIDE_LOSS_H
#define SH_SCHEDULER_DECIDE_LOSS_H

#include "common/units.h"

#include <stdint.h>

#define LOSS_RESUME_NS SH_S(4)   /* until a start was measured */
#define LOSS_ALIKE_NS SH_MS(100) /* losses that differ by less may be the same */

struct loss_facts {
    uint32_t gpus;           /* 0: one */
    uint64_t state_bytes;    /* of its newest checkpoint; 0: none yet */
    double copy_ns_per_byte; /* of the link to its device */
    double disk_bytes_per_s; /* 0: not known */
    int64_t start_ns;        /* 0: not known */
    double steps_per_s;      /* 0, or NaN: not known */
};

struct loss {
    int64_t save_ns, resume_ns, redo_ns;
    int64_t all_ns; /* of all GPUs together */
};

struct loss loss_of(const struct loss_facts *f);
/* For an order: in steps of LOSS_ALIKE_NS, so that jobs do not change places for nothing. */
int64_t loss_rank_ns(const struct loss *l);

#endif
