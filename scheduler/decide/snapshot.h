/* snapshot.h - everything that one pass decides from: plain data, no pointers into the daemon.
 *
 * Indices: executors, models, tenants, requests and jobs are named by their place in their arrays.
 * Times are sh_clock_ns values or durations, in ns. The daemon (pass.c) and tests fill the same
 * struct.
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
    bool is_idle;          /* it has had nothing to run for a while */
    bool has_modest;       /* tenants that are modest ask for it: demand.h */
    uint32_t n_runs;       /* outstanding runs */
    int64_t busy_until_ns; /* predicted end of the outstanding runs; <= now when idle */
    int64_t slack_ns;      /* how much slower they may be */
    double reserve;        /* predict_promise(); 0: as much as slow runs take */
    int64_t lane_ns;       /* predicted end of copies under way to it; <= now when none */
    int64_t stop_ns;       /* measured cost of stopping training */
    double ns_per_byte;    /* measured cost of copying weights */
    uint32_t job;          /* index of the job that holds the training slot, or SNAP_NONE; one of
                            * several GPUs holds several */
    bool slot_taken;       /* taken by something that is not in `jobs` */
    uint64_t pool_bytes;   /* of device memory */
    uint64_t unfit;        /* bit v: no job of version v runs there (snap_job.version) */
};

struct snap_place { /* a model on an executor */
    bool ready;
    uint64_t resident_bytes; /* on the device, or on their way ... */
    int64_t arrives_ns;      /* ... until then; <= now: all on the device */
    double link_share;       /* of the image's bytes go over the link; 0: all */
    double disk_ns_per_byte; /* the others are read from disk at this rate; 0: they need not be */
    int64_t unpack_ns;       /* the next run unpacks for so long */
    int64_t worker_ns;       /* each run may wait so long for a worker */
    bool is_shut;            /* it would push out others: thrash.h */
    bool has_some;           /* some were on the device before others were on their way */
};

struct snap_model {
    uint32_t max_batch;
    bool is_solo; /* its samples may interact: no two requests run together */
    uint64_t image_bytes;
    /* predict.h; unknown: slow 0, treated as usual; tail 0 */
    int64_t run_ns[PREDICT_N_BUCKETS]; /* usual */
    int64_t slow_ns[PREDICT_N_BUCKETS];
    int64_t tail_ns[PREDICT_N_BUCKETS];
    /* Of a run that waits for weights: what is added to its forecast, how much slower it may be. */
    int64_t cold_over_ns[PREDICT_N_KINDS], cold_slack_ns[PREDICT_N_KINDS];
    int64_t fastest_ns; /* fastest recent run of one sample; 0: none */
    /* requests have been refused for lack of time, and none admitted, since then; 0: no */
    int64_t refused_ns;
    int64_t copied_ns;   /* the last copy to any executor is there then */
    double asked;        /* recent demand, samples per ns: predict_asked() */
    int64_t expected_ns; /* if no executor has it: when one will; SNAP_NEVER */
    bool failed;         /* no executor has it, because all failed to load it */
};

struct snap_tenant {
    bool active;
    double weight; /* of its share above the guarantee; 0: none */
    double guaranteed_gpus;
    double max_gpus;      /* < 0: unlimited */
    double lending_limit; /* part of the idle guarantee that others may use; < 0: all */
    uint32_t max_running_jobs;
    uint64_t max_memory_bytes; /* on each device; 0: all of it */
    double usage_ns;           /* decayed device time */
    double backlog;            /* queued jobs not in `jobs`, which go after those; < 1: none */
};

enum snap_request_state { SNAP_OPEN, SNAP_READY };

struct snap_request {
    enum snap_request_state state;
    uint32_t model, tenant;
    uint32_t exec;    /* where it was placed, or SNAP_NONE */
    bool is_modest;   /* its tenant asks for less than its part: demand.h */
    bool promised;    /* admitted with its batch: predicted to meet its limit */
    int waits;        /* enum decide_reason of an earlier DECISION_WAIT; 0: it did not wait */
    uint32_t batch;   /* samples; 1 until the body is here */
    int32_t priority; /* higher goes first */
    int64_t arrived_ns;
    int64_t turn_ns;     /* where neither priority nor deadline says who goes first: the least */
    int64_t deadline_ns; /* for the order and for batching; SNAP_NO_DEADLINE */
    int64_t limit_ns;    /* refuse rather than finish later: the deadline of an SLO with on_miss
                              * reject, the client's budget; SNAP_NO_DEADLINE; >= deadline_ns */
    int64_t let_in_ns;   /* the limit that was known when it was placed; 0: it was placed whatever
                          * its limit, or not yet */
    int64_t wait_ns;     /* latest time for an executor to have the model */
    int64_t patience_ns; /* without a limit: a model that is shut keeps it waiting until then */
    enum snap_on_miss on_miss;
};

/* LEFT: no executor has it any more, but the database does not say so yet. It counts for its array,
 * so that nobody ever reads that more than the limit run at once. */
enum snap_job_state { SNAP_QUEUED, SNAP_STARTING, SNAP_RUNNING, SNAP_STOPPING, SNAP_LEFT };

struct snap_job {
    int64_t line_us; /* place among those of its priority (lines.h), then id */
    int64_t id;
    uint32_t level; /* above 0: it gives way to those of its tenant that go before it */
    enum snap_job_state state;
    uint32_t tenant;
    uint32_t exec;    /* if not queued, one of its own; SNAP_NONE while one is away or stops */
    int32_t priority; /* the job's plus its queue's */
    bool queue_open;
    bool model_ready;
    int64_t not_before_ns; /* back-off after a failure */
    int64_t since_ns;      /* start of the current run, for the minimum run time */
    int64_t min_run_ns;    /* its own minimum run time; 0: the snapshot's */
    bool may_suspend;      /* false while it starts or completes */
    bool is_fixed;         /* never suspended for another job */
    bool fills;            /* it was started before a job of several GPUs that goes first */
    uint32_t gpus;         /* that it has at once; 0: one */
    int64_t loss_ns;       /* while it runs: loss_rank_ns(), if it gave way (loss.h) */
    int64_t lasts_ns;      /* how long it is expected to run, from since_ns; 0: unknown */
    uint32_t array;        /* 1 to n_arrays; 0: in no array with a limit */
    uint32_t array_max;    /* most of its jobs at once */
    uint64_t version;      /* that not every executor can run; 0: all can */
    uint64_t need_bytes;   /* device memory it needs, once there was too little; 0: unknown */
};

struct snapshot {
    int64_t now_ns;
    bool db_up;         /* jobs can start only if the start can be recorded */
    bool with_jobs;     /* false: a pass for requests only */
    uint32_t max_runs;  /* most outstanding runs of an executor */
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
    /* [request * n_execs + exec], of the first n_shared requests: the part of the executor's time
     * that may be promised to those of its tenant and model (demand.h); of the others: all */
    const double *shares;
    size_t n_shared;
    const struct snap_job *jobs;
    size_t n_jobs, n_arrays;
};

#endif
