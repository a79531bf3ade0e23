/* decide_int.h - shared by decide.c (who is admitted), decide_run.c (who runs), decide_due.c
 * (promises) and decide_time.c (how long runs take). */
#ifndef SH_SCHEDULER_DECIDE_DECIDE_INT_H
#define SH_SCHEDULER_DECIDE_DECIDE_INT_H

#include "scheduler/decide/decide.h"

struct ranked { /* a request in serving order */
    uint32_t i;
    int32_t priority;
    bool late, is_modest;
    int64_t deadline_ns, turn_ns, arrived_ns;
};

struct plan {           /* what an executor has ahead */
    int64_t start_ns;   /* when its outstanding runs are done and training has stopped */
    int64_t slack_ns;   /* how much longer that may take */
    double reserve;     /* so many times the slack of runs is kept free */
    int64_t lane_ns;    /* when its copies under way are done */
    int64_t backlog_ns; /* unpromised requests placed here and ahead in the order */
    int64_t due_end_ns; /* end of the promised ones, by the last look */
    uint32_t n_placed;
    uint32_t first_due;               /* first promised request; SNAP_NONE: none */
    uint32_t first_ready, last_ready; /* of those that may run: places in `order`, or SNAP_NONE */
    bool is_known;                    /* the promises were looked at ... */
    bool ready_only;                  /* ... without requests whose body is on its way */
};

struct look { /* a look at an executor from start_ns on */
    uint32_t exec;
    int64_t start_ns, slack_ns;
    bool ready_only;   /* ignores requests whose body is on its way, except ... */
    uint32_t newcomer; /* ... this one; SNAP_NONE */
};

/* How large the runs led by a request should be. A plan takes them to last as long as a batch that
 * others may still fill: if requests were admitted by a plan of small runs, there would be no time
 * left for large ones, and under load all runs would be small. */
struct due_shape {
    int64_t within_ns; /* of requests that have so much time; 0: of none yet */
    uint32_t room;     /* the smallest size that carries the present demand; 0: not known yet */
    uint32_t ahead;    /* the smallest size that carries any load; 0: not known yet */
};

enum held { /* of a model: is the run of one held back, so that the device waits for others? */
            HELD_NOT,
            PERHAPS, /* unless it breaks a promise */
            ASKED,   /* none that was asked about so far */
            HELD,
};

struct work {
    const struct snapshot *in;
    struct decisions *out;
    struct ranked *order;
    struct plan *plans;
    uint32_t *samples; /* [model * n_execs + exec]: samples in the batch being filled there */
    int64_t
        *arrives_ns; /* the same: when all weights will be there; 0: with a run at the earliest */
    int64_t *unpack_ns;   /* the same: what the next run there has to unpack */
    uint32_t *exec;       /* of each request, or SNAP_NONE */
    bool *done;           /* by request: refused or in a run */
    uint32_t *next_ready; /* by place in `order`: the next of the same executor */
    enum held *held;      /* by model, of the executor that is looked at */

    /* decide_due.c, by request */
    uint32_t *next_due; /* next promised request of the executor, by limit */
    int64_t *end_ns;    /* latest end, by the last look */
    /* latest end by the kept look (due__keep); INT64_MIN: none yet, MAX: late even if it ran now */
    int64_t *kept_ns;
    bool *was_lost;           /* by the kept look */
    bool *is_lost;            /* by the last look: late in any case */
    struct due_shape *shapes; /* by model: of the last request that was asked about */
    uint32_t *next_same;      /* scratch: next of the same model */
    uint32_t *next_left;      /* scratch: next_due without requests already in a run */
    bool *taken;              /* scratch: in a run, or lost */
    uint32_t first_left;      /* scratch: the first that is neither */
    uint32_t *run;            /* scratch: the requests of one run */
    uint32_t *last_of_model;  /* scratch, by model */
    bool *is_warm;            /* scratch, by model */
    int64_t longest_ns;       /* scratch: longest run of a promised request alone */
};

/* decide.c. A look at what e has ahead. */
struct look decide__look_at(const struct work *w, uint32_t e);
/* The weights that a request needs are put on their way when it is placed. */
void decide__bring(struct work *w, uint32_t model, uint32_t e);

/* decide_run.c: all runs that e gets now. */
void decide__dispatch(struct work *w, uint32_t e);

/* decide_time.c */
int64_t decide__run_ns(const struct snapshot *in, uint32_t model, uint32_t batch);
int64_t decide__slack_ns(const struct snapshot *in, uint32_t model, uint32_t batch);
const struct snap_place *decide__place(const struct snapshot *in, uint32_t model, uint32_t e);
/* Time to copy what e lacks of the model. */
int64_t decide__missing_ns(const struct snapshot *in, uint32_t model, uint32_t e);
/* The end of a run that begins at start_ns. *slack: how much longer it may take. */
struct run_of { /* a possible run */
    uint32_t exec, model, batch;
    bool is_warm; /* an earlier run has brought all weights, and unpacked them */
};
struct foreseen {              /* of a run that begins then */
    int64_t end_ns;            /* as predicted ... */
    int64_t forecast_ns;       /* ... and by bytes and layers alone */
    int64_t slack_ns;          /* how much longer it may take than predicted */
    enum predict_kind weights; /* which of them it finds on the device when it begins */
};
void decide__foresee(const struct work *w, const struct run_of *r, int64_t start_ns,
                     struct foreseen *out);
/* Its end alone. */
int64_t decide__end_ns(const struct work *w, const struct run_of *r, int64_t start_ns,
                       int64_t *slack);
/* What is kept free before until_ns, when r has to end, of the slack of the runs up to it. */
int64_t decide__heed(const struct snap_request *r, int64_t until_ns, int64_t slack, double reserve);
/* May i be in a run that the head leads? */
bool decide__joins(const struct snapshot *in, uint32_t head, uint32_t i);
/* The latest end of a run on e before one of r that has to begin at begin_ns, to end at until_ns:
 * what is kept free for slow runs stays so, if it does when the run ends at now_end. */
int64_t decide__before(const struct work *w, uint32_t e, const struct snap_request *r,
                       int64_t until_ns, int64_t begin_ns, int64_t now_end, int64_t slack);
/* Most samples of requests that run together; 0: each request runs alone. */
uint32_t decide__most(const struct snapshot *in, uint32_t model);
/* How many of `batch` available samples a run should take. */
uint32_t decide__whole(const struct snapshot *in, uint32_t model, uint32_t batch);

/* decide_due.c. Of runs led by request i, which has a limit: the smallest size that carries the
 * present demand, and the smallest that carries any load, so that it may be sent early. */
uint32_t due__room(const struct work *w, uint32_t i);
uint32_t due__ahead(const struct work *w, uint32_t i);
/* How much more than its part of e is promised to the tenant and model of i with it, as
 * the time by which that comes too early; <= 0: none. One may be promised in any case. */
int64_t due__beyond_ns(const struct work *w, uint32_t i, uint32_t e);
/* due__init(): adds all requests promised by the snapshot and not done. */
void due__init(struct work *w);
void due__insert(struct work *w, uint32_t i, uint32_t e);
void due__remove(struct work *w, uint32_t i, uint32_t e);
/* Predicts the ends of all promised requests there that are not done, earliest limit first. Returns
 * the number of requests in the first run; they are in w->run. */
uint32_t due__look(struct work *w, const struct look *at);
/* Makes the ends of the last look, which was `at`, the ones that count. */
void due__keep(struct work *w, const struct look *at);
/* How much later the last look makes anybody promised than he may be; at least 1 if it loses one
 * whom the kept look did not; 0: none. */
int64_t due__broken_ns(const struct work *w, const struct look *at);

#endif
