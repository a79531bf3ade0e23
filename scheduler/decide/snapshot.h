/* snapshot.h - everything that one pass decides from: plain data, no pointers into the daemon.
 *
 * Indices: an executor, model, tenant, request or job is named by its place in its array. Times are
 * sh_clock_ns values or durations in ns. The same struct is filled by the daemon (pass.c), by tests
 * and by simulations.
 */
#ifndef SH_SCHEDULER_DECIDE_SNAPSHOT_H
#define SH_SCHEDULER_DECIDE_SNAPSHOT_H

#include "scheduler/decide/predict.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SNAP_NONE UINT32_MAX
#define SNAP_NO_DEADLINE INT64_MAX
#define SNAP_NEVER INT64_MAX

enum snap_on_miss { SNAP_BEST_EFFORT, SNAP_DELAY, SNAP_REJECT };

struct snap_exec {
    bool up;               /* connected and synchronised */
    bool trains;           /* a run has to stop a training job first */
    uint32_t n_runs;       /* outstanding */
    int64_t busy_until_ns; /* predicted end of the outstanding runs; <= now when idle */
    int64_t slack_ns;      /* by so much one of them may be slower */
    int64_t lane_ns;       /* predicted end of the copies on their way to it; <= now when none is */
    int64_t stop_ns;       /* measured cost of stopping training */
    double ns_per_byte;    /* measured cost of copying weights */
    uint32_t job;          /* index of the job that holds the training slot, or SNAP_NONE */
    bool slot_taken;       /* by something that is not in `jobs` */
    uint64_t pool_bytes;   /* of device memory */
};

struct snap_place { /* a model on an executor */
    bool ready;
    uint64_t resident_bytes; /* there, or on their way ... */
    int64_t arrives_ns;      /* ... until then; <= now: they are there */
};

struct snap_model {
    uint32_t max_batch;
    bool is_solo; /* its samples may meet: no two requests run together */
    uint64_t image_bytes;
    /* predict.h; a slow or tail time is 0 where it is not known: slow as usual, tail 0 */
    int64_t run_ns[PREDICT_N_BUCKETS]; /* usual */
    int64_t slow_ns[PREDICT_N_BUCKETS];
    int64_t tail_ns[PREDICT_N_BUCKETS];
    int64_t cold_slack_ns; /* by so much a run that waits for weights may be slower */
    int64_t fastest_ns;    /* run of one sample of late; 0: there was none */
    int64_t refused_ns;  /* since when requests are refused for their time, and none is let in; 0 */
    double asked;        /* samples a ns, of late, refused ones too: predict_asked() */
    int64_t expected_ns; /* when an executor will have it, of one that none has; SNAP_NEVER */
    bool failed;         /* it has none because all have failed to load it */
};

struct snap_tenant {
    bool active;
    double weight; /* of its share above the guarantee; 0 = none */
    double guaranteed_gpus;
    double max_gpus;      /* < 0: unlimited */
    double lending_limit; /* of the guarantee, what others may use while it is idle; < 0: all */
    uint32_t max_running_jobs;
    uint64_t max_memory_bytes; /* of each device; 0: all of it */
    double usage_ns;           /* decayed device time */
    double backlog; /* queued jobs that are not in `jobs`; those that are go first; < 1: none */
};

enum snap_request_state { SNAP_OPEN, SNAP_READY };

struct snap_request {
    enum snap_request_state state;
    uint32_t model, tenant;
    uint32_t exec;    /* where it was placed, or SNAP_NONE */
    bool promised;    /* let in with the batch it has: it will make its limit, by prediction */
    uint32_t batch;   /* samples; 1 while the body is not there yet */
    int32_t priority; /* higher goes first */
    int64_t arrived_ns;
    int64_t deadline_ns; /* for the order and for batching; SNAP_NO_DEADLINE */
    int64_t limit_ns;    /* refuse rather than finish later: the deadline of an SLO with on_miss
                              * reject, the client's budget; SNAP_NO_DEADLINE; >= deadline_ns */
    int64_t wait_ns;     /* for an executor that will have the model: not after this */
    enum snap_on_miss on_miss;
};

/* LEFT: on no executor any more, but the database does not say so yet. It counts for its array, so
 * that nobody ever reads of more than may run at once. */
enum snap_job_state { SNAP_QUEUED, SNAP_STARTING, SNAP_RUNNING, SNAP_STOPPING, SNAP_LEFT };

struct snap_job {
    int64_t queued_us; /* FIFO order, then the number */
    int64_t id;
    enum snap_job_state state;
    uint32_t tenant;
    uint32_t exec;    /* of a job that is not queued; SNAP_NONE while its executor is away */
    int32_t priority; /* the job's plus its queue's */
    bool queue_open;
    bool model_ready;
    int64_t not_before_ns; /* back-off after a failure */
    int64_t since_ns;      /* start of the present run, for the minimum run time */
    int64_t min_run_ns;    /* its own minimum run time; 0: the snapshot's */
    bool may_suspend;      /* false while it starts or completes */
    bool is_fixed;         /* never suspended for another job */
    uint32_t array;        /* 1 to n_arrays: of which; 0: of none that has a limit */
    uint32_t array_max;    /* so many of it at once */
    uint64_t need_bytes;   /* of device memory, where it was too much once; 0: not known to be */
};

struct snapshot {
    int64_t now_ns;
    bool db_up;         /* a job can only start when the start can be recorded */
    bool with_jobs;     /* false: a pass for requests only */
    uint32_t max_runs;  /* outstanding runs for one executor */
    int64_t margin_ns;  /* kept free before a deadline */
    int64_t min_run_ns; /* a training job keeps its slot for at least this long */

    const struct snap_exec *execs;
    size_t n_execs;
    const struct snap_model *models;
    size_t n_models;
    const struct snap_place *places; /* [model * n_execs + exec] */
    const struct snap_tenant *tenants;
    size_t n_tenants;
    const struct snap_request *requests;
    size_t n_requests;
    const struct snap_job *jobs;
    size_t n_jobs, n_arrays;
};

#endif
