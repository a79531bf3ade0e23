/* thrash.h - of one executor: do the weights that are asked of it push each other out?
 *
 * Predictions count copies, so who would be late is refused (decide.h). But where the models that
 * are asked for need more memory than there is, they come and go, the device waits for weights, and
 * many requests of all are refused. Then it is better to answer those for some models.
 *
 * An executor thrashes while runs wait for weights for more than THRASH_STALL of their time, more
 * than THRASH_LATE of the requests that it could take find no time, and the models that were asked
 * for within SH_WORKING_SET_NS (the working set; Denning 1968) are larger than its memory. Then
 * some are shut: a request for one is not let in there unless all its weights are there; one
 * without a limit waits until then, or until the device is idle (decide.h). Each look takes half of
 * what is too much: of the tenant (whose models they are) whose working set is largest for its
 * share, what is asked for least by its size. A tenant keeps one at least. What was promised is
 * kept. As long as some are shut THRASH_CALM of the requests is enough: what is half done is worse
 * than nothing.
 *
 * It opens again, first what has been shut longest: where it finds room in THRASH_FULL of the
 * memory, where it is calm and runs have the device for less than THRASH_BUSY of the time, and
 * after THRASH_TRY_NS whatever else is asked for, since nobody is to be kept out for ever.
 *
 * The table of models is there only while an executor may be thrashing, 56 KiB then.
 *
 * Pure: times are arguments. Not thread-safe. */
#ifndef SH_SCHEDULER_DECIDE_THRASH_H
#define SH_SCHEDULER_DECIDE_THRASH_H

#include "common/units.h"

#include <stdbool.h>
#include <stdint.h>

#define THRASH_LOOK_NS SH_MS(250)
#define THRASH_HALF_NS SH_S(2) /* what was seen counts half after that time */
#define THRASH_TRY_NS SH_S(30)
#define THRASH_STALL 0.25
#define THRASH_LATE 0.15
#define THRASH_FULL 0.9
#define THRASH_CALM 0.02
#define THRASH_BUSY 0.5
#define THRASH_MAX 1024u

struct thrash_model {
    int64_t version, tenant; /* ids */
    uint64_t bytes;
    double share;             /* of its tenant */
    double n_asked;           /* set here, as the rest; fades as all does */
    int64_t last_ns, shut_ns; /* shut: closed since then; 0: open */
};

struct thrash {                                   /* zeroed: it does not */
    int64_t looked_ns;                            /* the last time */
    double ns, run_ns, stall_ns, n_asked, n_late; /* of late, up to then and since: they fade */
    uint32_t in_row;                              /* looks that found it thrashing, up to now */
    bool was_asked;                               /* since the last look: else none is shut */
    struct thrash_model *of; /* OWNED [THRASH_MAX], thrash_fini(); NULL: all is well */
    uint32_t n, n_shut;
};

void thrash_fini(struct thrash *t);
/* Shuts and opens, if the last look was THRASH_LOOK_NS ago. memory: what images may have there. For
 * requests that wait, since perhaps nobody else asks: thrash_ask() does the same. */
void thrash_look(struct thrash *t, uint64_t memory, int64_t now_ns);
/* A request that the executor could take asks for m: version, tenant, bytes and share. Once for
 * each request. */
void thrash_ask(struct thrash *t, const struct thrash_model *m, uint64_t memory, int64_t now_ns);
void thrash_late(struct thrash *t); /* one found no time */
/* A run had the device for so long, and waited for weights in so much of that. */
void thrash_ran(struct thrash *t, int64_t run_ns, int64_t stall_ns);
bool thrash_is_shut(const struct thrash *t, int64_t version);

#endif
