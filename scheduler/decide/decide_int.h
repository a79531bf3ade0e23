/* decide_int.h - between decide.c (who is let in, who runs), decide_due.c (the promises) and
 * decide_time.c (how long runs last). */
#ifndef SH_SCHEDULER_DECIDE_DECIDE_INT_H
#define SH_SCHEDULER_DECIDE_DECIDE_INT_H

#include "scheduler/decide/decide.h"

struct ranked { /* a request in the order in which it is served */
    uint32_t i;
    int32_t priority;
    bool late;
    int64_t deadline_ns, arrived_ns;
};

struct plan {           /* what an executor has before it */
    int64_t start_ns;   /* when what was sent to it is done, and training has stopped */
    int64_t slack_ns;   /* by so much that may last longer */
    int64_t lane_ns;    /* when the copies on their way are done */
    int64_t backlog_ns; /* requests without a promise that are placed here and ahead in the order */
    int64_t due_end_ns; /* of the last look at the promised ones */
    uint32_t n_placed;
    uint32_t first_due; /* SNAP_NONE: nobody has a promise here */
    bool is_known;      /* what is promised was looked at ... */
    bool ready_only;    /* ... without those whose body is on its way */
};

struct look { /* at an executor from start_ns on */
    uint32_t exec;
    int64_t start_ns, slack_ns;
    bool ready_only;   /* as if nobody waited whose body is on its way, but for ... */
    uint32_t newcomer; /* ... this one; SNAP_NONE */
};

/* How large runs should be that a request leads. A plan takes them for as long as a batch that
 * others may still fill: who is let in by a plan of small runs has no time left for large ones when
 * his turn comes, and under load all runs would be small. */
struct due_shape {
    uint32_t room;  /* the least size that carries what is asked for; 0: not known yet */
    uint32_t ahead; /* the least that carries any load: so large it may be sent ahead of time */
};

struct work {
    const struct snapshot *in;
    struct decisions *out;
    struct ranked *order;
    struct plan *plans;
    uint32_t *samples; /* [model * n_execs + exec]: in the batch that is being filled there */
    int64_t
        *arrives_ns; /* the same: when all weights will be there; 0: with a run at the earliest */
    uint32_t *exec;  /* of each request, or SNAP_NONE */
    bool *done;      /* refused or in a run */
    bool *is_held;   /* by model: no run of it yet */

    /* decide_due.c, by request */
    uint32_t *next_due; /* of those with a promise on the same executor, by limit */
    int64_t *end_ns;    /* at the latest, by the last look */
    int64_t *kept_ns;   /* by the look that counts: due__keep(). INT64_MIN: none yet, MAX: lost */
    bool *is_lost;      /* by the last look: late, whatever runs before it */
    struct due_shape *shape; /* due__shape() */
    uint32_t *next_same;     /* scratch: of the same model */
    uint32_t *next_left;     /* scratch: next_due without those who are in a run already */
    bool *taken;             /* scratch */
    uint32_t *run;           /* scratch: the requests of one run */
    uint32_t *last_of_model; /* scratch, by model */
    bool *is_warm;           /* scratch, by model */
    int64_t longest_ns;      /* scratch: of the runs of each promised request alone */
};

/* decide_time.c */
int64_t decide__run_ns(const struct snapshot *in, uint32_t model, uint32_t batch);
int64_t decide__slack_ns(const struct snapshot *in, uint32_t model, uint32_t batch);
/* To copy what e lacks of the model. */
int64_t decide__missing_ns(const struct snapshot *in, uint32_t model, uint32_t e);
/* When a run that begins at start_ns is over. *slack: by so much it may last longer. */
struct run_of { /* a run that could be */
    uint32_t exec, model, batch;
    bool is_warm; /* a run before it has brought all weights */
};
int64_t decide__end_ns(const struct work *w, const struct run_of *r, int64_t start_ns,
                       int64_t *slack);
/* Of what a run may be slower by, the part that counts for r, who is to be through by until_ns. */
int64_t decide__heed(const struct snap_request *r, int64_t until_ns, int64_t slack);
/* With how many samples at most requests run together; 0: each runs by itself. */
uint32_t decide__most(const struct snapshot *in, uint32_t model);
/* The samples a run should take of `batch` that could be in it. */
uint32_t decide__whole(const struct snapshot *in, uint32_t model, uint32_t batch);

/* decide_due.c. due__shape(): of the runs that i leads, who has a limit. */
struct due_shape due__shape(const struct work *w, uint32_t i);
/* due__init(): all that are promised by the snapshot and not done. */
void due__init(struct work *w);
void due__insert(struct work *w, uint32_t i, uint32_t e);
void due__remove(struct work *w, uint32_t i, uint32_t e);
/* Predicts the ends of all that are promised there and not done, as the earliest limit goes first.
 * Returns how many requests the first run has; they are in w->run. */
uint32_t due__look(struct work *w, const struct look *at);
/* As they are by the last look they count from now on. */
void due__keep(struct work *w, uint32_t e);
/* By how much the last look breaks a promise there that the one before kept; 0: none. */
int64_t due__broken_ns(const struct work *w, const struct look *at);

#endif
