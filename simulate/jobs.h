/* jobs.h - a cluster of equal GPUs in virtual time, on which a policy runs the jobs of a trace.
 *
 *   WAITS -> RUNS      cluster_start(): needs as many free GPUs as the job asks for, all at once
 *   RUNS -> STOPS      cluster_stop(): it keeps its GPUs for stop_ns more, then WAITS
 *   RUNS -> OVER       all its work is done
 *
 * What it has done when it stops is not lost. Of each time that it holds its GPUs start_ns at first
 * go to waiting: for its program, and for its state from host memory. Both costs are the same for
 * all policies of a replay.
 *
 * A replay may begin in the middle: jobs have GPUs already, or have waited for some time, and
 * differ in what the daemon knows of them (struct job_world). Only its own policy heeds that.
 */
#ifndef SH_SIMULATE_JOBS_H
#define SH_SIMULATE_JOBS_H

#include "scheduler/decide/snapshot.h"
#include "simulate/queue.h"
#include "simulate/trace.h"

#define SIM_NONE UINT32_MAX
#define SIM_NEVER INT64_MAX

enum sim_state { SIM_COMING, SIM_WAITS, SIM_RUNS, SIM_STOPS, SIM_OVER };

struct sim_job {
    struct trace_job of;
    enum sim_state state;
    int64_t left_ns;  /* work, as of since_ns */
    int64_t since_ns; /* RUNS, STOPS: it has its GPUs since then */
    int64_t had_ns;   /* time for which it had its GPUs before that */
    int64_t first_ns, end_ns;
    uint32_t n_stops, hold;        /* hold: events of an earlier one are void */
    uint32_t at;                   /* RUNS, STOPS: place in `running` */
    uint32_t before, behind, list; /* for the policy: lists */
};

struct cluster {
    struct sim_job *jobs; /* OWNED; by arrival */
    size_t n_jobs, n_tenants;
    uint32_t n_gpus, n_free;
    const struct job_world *world;
    int64_t now_ns, start_ns, stop_ns;
    uint32_t *running; /* OWNED: those that RUN or STOP */
    uint32_t n_running;
    /* The rest is for jobs.c. */
    struct queue events;
    int64_t wake_ns;
    double busy_ns;    /* GPU time held until the last arrival */
    int64_t window_ns; /* the last arrival */
    int64_t counted_ns;
    uint64_t n_starts, n_stops, n_passes;
    uint64_t digest; /* of all that was started and stopped, and when */
    int rc;
    struct sh_err err;
};

struct job_more {         /* what the daemon knows of a job, beyond what a trace says */
    struct snap_job is;   /* all but tenant, exec, array and its state */
    int64_t queued_us;    /* its place in its line */
    int64_t had_ns;       /* device time that it had before */
    uint32_t line, array; /* line: of jobs that only differ in their place; array 0: none */
    uint32_t gpu;         /* it has this one when the replay begins; SIM_NONE */
    int64_t since_ns;     /* since then, <= 0 */
    int64_t start_ns;     /* instead of the cluster's */
};

struct job_world {
    const struct job_more *jobs;       /* by job; in the order of each line */
    const struct snap_tenant *tenants; /* with their usage at time 0 */
    const uint64_t *pools;             /* device memory, by GPU */
    size_t n_lines;
    int64_t end_ns;         /* nobody looks further */
    int64_t share_until_ns; /* until then ... */
    double *share_ns;       /* ... this is counted, by tenant: GPU time that it has; or NULL */
};

struct job_conf {
    uint32_t n_gpus;
    int64_t start_ns, stop_ns;
    int64_t min_run_ns, level_ns;
    double half_life_s;
    const struct job_world *world; /* BORROWED; NULL: all jobs and tenants are alike */
    struct sim_job *ends;          /* by job: what became of it; or NULL */
};

struct job_policy {
    const char *name;
    /* Each gets what create() returned; NULL: nothing to do. */
    void *(*create)(struct cluster *c, const struct job_conf *conf);
    void (*destroy)(void *p);
    void (*arrived)(void *p, uint32_t job);
    void (*waits)(void *p, uint32_t job); /* it has stopped */
    void (*over)(void *p, uint32_t job);
    /* Something has changed. Returns when it wants to be asked again at the latest. */
    int64_t (*pass)(void *p);
};

struct job_result {
    double mean_s, p50_s, p95_s, p99_s; /* from arrival to end */
    double mean_wait_s;                 /* of that, less its own work */
    double ftf_mean, ftf_p95, ftf_max;  /* over what its tenant's fair share would have given */
    double used;                        /* of all GPU time until the last arrival */
    double longest_wait_s;              /* from arrival to the first start */
    uint64_t n_starts, n_stops, n_passes, digest;
    double cpu_s;
};

extern const struct job_policy JOBS_FIFO, JOBS_LAS, JOBS_THEMIS, JOBS_DRF, JOBS_OURS;

void cluster_start(struct cluster *c, uint32_t job);
void cluster_stop(struct cluster *c, uint32_t job);
int64_t cluster_start_ns(const struct cluster *c, uint32_t job);
/* When a running job ends if nothing stops it. */
int64_t cluster_end_ns(const struct cluster *c, const struct sim_job *j);
/* How long it has had its GPUs in all. */
int64_t cluster_had_ns(const struct cluster *c, const struct sim_job *j);

/* ideal_ns: by job, or NULL. With a world only the counts and used of *out are set. Fails:
 * SH_E_NOMEM; SH_E_BUG: without a world, the policy left jobs waiting for ever. */
int jobs_replay(const struct trace_jobs *t, const struct job_policy *p, const struct job_conf *conf,
                const int64_t *ideal_ns, struct job_result *out, struct sh_err *err);
/* When each job would end if the GPUs could be divided at will and without loss: all tenants have
 * equal shares, what one does not want goes to the others, and all unfinished jobs of a tenant run
 * at the same part of their full speed (generalised processor sharing, Parekh and Gallager). */
int jobs_ideal(const struct trace_jobs *t, uint32_t n_gpus, int64_t *end_ns, struct sh_err *err);

/* Lists of jobs, for policies. */
struct sim_list {
    uint32_t first, last, id; /* id: of the list that a job is in; 0: none */
    size_t n;
};
void sim_list_init(struct sim_list *l, uint32_t id);
void sim_list_add(struct cluster *c, struct sim_list *l, uint32_t job); /* keeps order of arrival */
void sim_list_drop(struct cluster *c, struct sim_list *l, uint32_t job);

#endif
