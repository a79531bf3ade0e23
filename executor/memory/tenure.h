/* tenure.h - whose the device memory of training's workspace is: training's, or that of images.
 *
 * A paused training step keeps its workspace, which may be most of the device. Where more images
 * are asked for than fit beside it, they come and go over the link, and requests wait for that
 * though the device could hold them all. So there are two states:
 *
 *   TRAINING  training may have its workspace; images have what is left
 *   IMAGES    training is held off: its workspace is given up and does not come back (its state
 *             may stay)
 *
 * What each costs is device time:
 *
 *   TRAINING  the copies of images that would be there without the workspace, each for the run that
 *             waits for it and for those behind that, times `weight`: requests come first; and the
 *             steps that are lost because a run does not fit beside them
 *   IMAGES    the time in which no run has the device, since training has that otherwise
 *
 * Both are counted in either state, for what is not the case as well: by LRU's stack distance
 * (Mattson et al. 1970; residency_distance()) an image is there if it and all others that were used
 * since its last use fit.
 *
 * What the present state has cost more than the other one is summed up, but never below 0. Once it
 * is what a change and back again costs (as many bytes as the workspace has are copied, for which
 * requests wait, and a step is done again), the state changes and the sum begins anew. That is the
 * work-function rule for two states (Borodin, Linial, Saks 1992): whatever comes, it costs at most
 * three times what the best sequence of states would have cost, known in hindsight.
 *
 * Training does not starve under a load that always wants its memory: after TENURE_WAIT_NS it has a
 * try, until it has had the device for two steps, TENURE_TRY_NS or four steps' time at most. The
 * wait doubles after each try, up to TENURE_WAIT_MAX_NS; once training was worth it by itself, it
 * is the first again.
 *
 * Pure: no clock (times are arguments and do not go back). Not thread-safe.
 */
#ifndef SH_EXECUTOR_MEMORY_TENURE_H
#define SH_EXECUTOR_MEMORY_TENURE_H

#include "common/units.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* So much of each gap between runs training does not have: it has to go on first. Of eight loads
 * that were measured at most 0.36 ms (docs/benchmarks.md, "Sharing"). */
#define TENURE_RESUME_NS SH_US(300)
/* So many runs wait for what a change displaces: who lacks it and, in the mean, one behind it. */
#define TENURE_MISSES 2
#define TENURE_TRY_STEPS 2
#define TENURE_TRY_NS SH_S(1)
#define TENURE_WAIT_NS SH_S(30)
#define TENURE_WAIT_MAX_NS SH_S(240)

struct tenure_claim { /* what training wants */
    int64_t job;      /* 0: there is none, or none that could run now */
    int64_t copy_ns;  /* to copy as many bytes as its workspace has */
    int64_t step_ns;  /* device time of a step; 0: unknown */
};

struct tenure {
    int64_t weight; /* --request-weight; 0: always TRAINING */
    struct tenure_claim claim;
    int64_t last_job;
    bool holds_off;   /* IMAGES */
    int64_t sum_ns;   /* what this state has cost more than the other one */
    int64_t since_ns; /* of this state */
    int64_t wait_ns;  /* until the next try; 0: TENURE_WAIT_NS */
    int64_t try_ns;   /* device time that is left of a try; 0: there is none */
    bool is_free;     /* no run has the device ... */
    int64_t free_ns;  /* ... which is counted up to then */
};

struct tenure_room {          /* for images, blocks */
    uint32_t beside, without; /* the workspace */
};

/* Blocks of an image that would have to be copied only because of the workspace; distance: of
 * residency_distance(). */
uint32_t tenure_displaced(const struct tenure_room *room, uint32_t blocks, uint32_t distance);

/* *t is zeroed: TRAINING, no job. */
void tenure_init(struct tenure *t, int64_t weight, int64_t now_ns);
/* What training wants from now on. A job begins in TRAINING. */
void tenure_want(struct tenure *t, const struct tenure_claim *c, int64_t now_ns);
void tenure_begin_run(struct tenure *t, int64_t now_ns); /* a run has the device */
void tenure_end_run(struct tenure *t, int64_t now_ns);   /* none has it any more */
/* Displaced blocks of an image take so long to copy, for a run with n_behind others behind it. */
void tenure_pay(struct tenure *t, int64_t copy_ns, size_t n_behind, int64_t now_ns);
/* A run takes the workspace, whatever that has cost: what was done of the step is lost. */
void tenure_lose(struct tenure *t, int64_t now_ns);
void tenure_look(struct tenure *t, int64_t now_ns); /* from time to time */
/* When training has its memory back if no run comes; INT64_MAX: it is not held off. */
int64_t tenure_due_ns(const struct tenure *t);

#endif
