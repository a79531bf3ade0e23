/* store_view.h - what the scheduler reads from the database, all of one moment.
 *
 * A leader's first look reads everything; later looks read what has changed. The table hot_change
 * has a row for each change, with the number of its transaction. A change is new if the snapshot of
 * the last look did not see that transaction. So a transaction is noticed when it commits, however
 * long it stayed open, and the cost of a look depends on the changes, not on the number of jobs. A
 * full look is repeated from time to time and should find nothing new. The look after a lost
 * connection is full, too: a server that crashed may give the numbers of transactions that left
 * nothing in its log to new transactions, whose changes would not be new to us.
 *
 * Of the waiting jobs only the first of each line are read (lines.h), and those with a deadline
 * that is due. docs/decisions/0011 says why.
 *
 * Only a leader looks: the next leader removes changes as soon as it has seen them, and a replaced
 * one would miss them.
 *
 * arg of store_view_load is struct store_view; type and failures as in store.h.
 */
#ifndef SH_SCHEDULER_DATABASE_STORE_VIEW_H
#define SH_SCHEDULER_DATABASE_STORE_VIEW_H

#include "common/db.h"
#include "scheduler/database/store.h"
#include "scheduler/decide/job.h"
#include "scheduler/decide/lines.h"

#define STORE_MAX_CHANGES 5000 /* of jobs; if there are more, the look becomes a full one */
#define STORE_MAX_DUE 256      /* jobs past their deadline, for each look */

struct store_tenant {
    int64_t id;
    const char *name;
    bool active;
    double guaranteed_gpus, max_gpus /* < 0: unlimited */, weight;
    double lending_limit; /* < 0: all of the guarantee */
    uint32_t max_running_jobs, max_concurrent_requests;
    struct store_memory { /* on each device */
        uint64_t min_bytes, max_bytes /* 0: none */;
        uint64_t host_max_bytes; /* of each executor's host memory; 0: its default */
        double share;
    } memory;
};

struct store_model {
    int64_t version_id, model_id, tenant_id;
    const char *tenant, *model, *state, *package, *precision, *profile /* JSON */;
    uint32_t version, max_batch;
    uint64_t image_bytes, n_runs; /* n_runs: as the last leader wrote it */
    double slo_ms;                /* 0: none */
    double slo_percentile;
    int32_t slo_priority;
    const char *on_miss;
    bool pinned, is_solo;
    const char *warm; /* JSON: lists of sizes to compile before somebody asks; NULL: none */
};

struct store_job {
    int64_t id; /* if `gone`, everything else is 0 */
    bool gone;
    struct line_key line;
    struct line_place place;
    int64_t model_id;
    const char *tenant, *model, *state, *queue_state, *version_state, *executor, *reason;
    const char *wish;
    int32_t priority; /* including its queue's */
    int64_t queued_us, min_runtime_ms, save_asked, save_done;
    double deadline_s, not_before_s; /* from now; NaN: none */
    uint32_t attempt, max_attempts;
    struct job_progress progress, base;
    bool publishes;
    uint32_t array_max;   /* at most so many of its array at once; 0: no limit */
    int64_t step_samples; /* samples of one step; training: the batch */
    int64_t all_steps;    /* steps it will take, by its spec and dataset; 0: unknown */
};

struct store_place { /* a job in a line that was read */
    struct line_key line;
    struct line_place place;
};

struct store_count { /* n jobs of a tenant in this state */
    int64_t tenant_id, n;
    const char *state;
};

struct store_seen {      /* what a look has seen; zeroed: nothing */
    uint64_t xmin, xmax; /* transactions below xmin had ended, those from xmax on had not begun */
    char *open;          /* OWNED: the open ones between them, as {1,2,3} */
    uint64_t connection; /* db_generation() */
};
void store_seen_free(struct store_seen *s);

struct store_limits { /* rows of a look, by the options max-... */
    size_t tenants, versions;
    size_t lines; /* and jobs of all lines */
    size_t busy;  /* jobs on executors, all of them, and those waiting for their next attempt */
};

struct store_view {
    /* in */
    struct store_limits most;
    struct store_fence fence;
    bool full;                /* read everything; the look sets it if it must */
    bool with_usage;          /* read the decayed usage too, once after a lease was won */
    double half_life_s;       /* of the usage */
    struct store_seen before; /* what the last look that was merged has seen */
    int64_t *doubtful;        /* OWNED: jobs to read even if unchanged */
    size_t n_doubtful;
    struct store_place *asked; /* OWNED: lines to continue behind these places */
    size_t n_asked, window;    /* most jobs of a line; a full look sets it */
    /* out; all arrays OWNED, strings BORROWED from `res` */
    struct store_seen now;
    bool is_anew;     /* full because the changes are unknown: too many, or a new connection */
    bool is_busy_cut; /* full look: there may be more jobs than `most.busy` */
    bool with_tenants, with_models;
    struct store_tenant *tenants;
    size_t n_tenants;
    struct store_model *models;
    size_t n_models;
    int64_t *queues, *versions, *arrays; /* these changed, so their jobs did */
    size_t n_queues, n_versions, n_arrays;
    struct store_job *jobs; /* first changed or doubtful ones (n_told), then the others */
    size_t n_jobs, n_told;
    struct store_place *places; /* in order; full look: of all lines, else of those asked */
    size_t n_places;
    struct store_count *counts; /* differences from the look before; n may be < 0 */
    size_t n_counts;
    struct store_count *totals; /* full look: all jobs that are not final */
    size_t n_totals;
    int64_t *usage_tenant;
    double *usage_ns;
    size_t n_usage;
    struct db_res *res[8];
};
int store_view_load(struct db *db, void *arg, struct sh_err *err);
void store_view_free(void *view); /* also the struct itself */

#endif
