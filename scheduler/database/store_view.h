/* store_view.h - what the scheduler reads of the database, all of one moment.
 *
 * The first look of a leader reads everything. Later ones read what has changed since: the table
 * hot_change has a row for each change, with the number of its transaction, and a change is new to
 * us when the snapshot of our last look did not see that transaction. So a transaction is noticed
 * when it commits, however long it stayed open, and a look costs what has changed and not what
 * there is. A full look is made again from time to time; it finds nothing new. After the loss of
 * the connection a look is full, too: a server that has crashed gives the numbers of transactions
 * that left nothing in its log to others, whose changes would not be new to us.
 *
 * Of the waiting jobs only the first of each line are read (lines.h), and those whose deadline is
 * due. docs/decisions/0011 says why.
 *
 * Only a leader looks: changes are removed by the next one as soon as that has seen them, and who
 * was replaced would find what no change had told of.
 *
 * arg of store_view_load is struct store_view: shape and failures as in store.h.
 */
#ifndef SH_SCHEDULER_DATABASE_STORE_VIEW_H
#define SH_SCHEDULER_DATABASE_STORE_VIEW_H

#include "common/db.h"
#include "scheduler/database/store.h"
#include "scheduler/decide/job.h"
#include "scheduler/decide/lines.h"

#define STORE_MAX_MODELS 5000
#define STORE_MAX_TENANTS 10000
#define STORE_MAX_CHANGES 5000 /* of jobs; more since the last look: it becomes a full one */
#define STORE_MAX_BUSY 50000   /* jobs that executors have, or that wait for their next attempt */
#define STORE_MAX_DUE 256      /* jobs past their deadline, of one look */

struct store_tenant {
    int64_t id;
    const char *name;
    bool active;
    double guaranteed_gpus, max_gpus /* < 0: unlimited */, weight;
    double lending_limit; /* < 0: all of the guarantee */
    uint32_t max_running_jobs, max_concurrent_requests;
    struct store_memory { /* of each device */
        uint64_t min_bytes, max_bytes /* 0: none */;
        uint64_t host_max_bytes; /* of each executor's host memory; 0: what it gives anybody */
        double share;
    } memory;
};

struct store_model {
    int64_t version_id, model_id, tenant_id;
    const char *tenant, *model, *state, *package, *precision, *profile /* JSON */;
    uint32_t version, max_batch;
    uint64_t image_bytes, n_runs; /* n_runs: that the last leader has written */
    double slo_ms;                /* 0: none */
    double slo_percentile;
    int32_t slo_priority;
    const char *on_miss;
    bool pinned, is_solo;
    const char *warm; /* JSON: lists of sizes to be compiled before somebody asks; NULL: none */
};

struct store_job {
    int64_t id; /* of a job that is gone: everything else is 0 */
    bool gone;
    struct line_key line;
    struct line_place place;
    int64_t model_id;
    const char *tenant, *model, *state, *queue_state, *version_state, *executor, *reason;
    const char *wish;
    int32_t priority; /* its queue's included */
    int64_t min_runtime_ms, save_asked, save_done;
    double deadline_s, not_before_s; /* from now; NaN: none */
    uint32_t attempt, max_attempts;
    struct job_progress progress, base;
    bool publishes;
    uint32_t array_max;   /* so many of its array at once; 0: no limit */
    int64_t step_samples; /* of one step: of training the batch */
    int64_t all_steps;    /* that it will take, by its spec and dataset; 0: not known */
};

struct store_place { /* of a job of a line that was read */
    struct line_key line;
    struct line_place place;
};

struct store_count { /* n jobs of a tenant in that state */
    int64_t tenant_id, n;
    const char *state;
};

struct store_seen {      /* what a look has seen; a zeroed one has seen nothing */
    uint64_t xmin, xmax; /* all transactions below xmin had ended, none from xmax on had begun */
    char *open;          /* OWNED: those between that had not ended, as {1,2,3} */
    uint64_t connection; /* db_generation() */
};
void store_seen_free(struct store_seen *s);

struct store_view {
    /* in */
    struct store_fence fence;
    bool full;                /* read everything. Set by the look itself when it has to */
    bool with_usage;          /* also the decayed usage, once after a lease was won */
    double half_life_s;       /* of it */
    struct store_seen before; /* by the last look whose answer was taken */
    int64_t *doubtful;        /* OWNED: jobs to read whether they have changed or not */
    size_t n_doubtful;
    struct store_place *asked; /* OWNED: lines to read on, behind these places */
    size_t n_asked, window;    /* jobs of a line at most; a full look sets it */
    /* out; all arrays OWNED, strings BORROWED from `res` */
    struct store_seen now;
    bool is_anew; /* full because what has changed is not known: too much, or another connection */
    bool with_tenants, with_models;
    struct store_tenant *tenants;
    size_t n_tenants;
    struct store_model *models;
    size_t n_models;
    int64_t *queues, *versions, *arrays; /* have changed: so have jobs of theirs */
    size_t n_queues, n_versions, n_arrays;
    struct store_job *jobs; /* first those that were told of or doubtful, then what else was read */
    size_t n_jobs, n_told;
    struct store_place *places; /* in order: of a full look of all lines, else of those asked */
    size_t n_places;
    struct store_count *counts; /* more (or less, n < 0) than at the look before */
    size_t n_counts;
    struct store_count *totals; /* of a full look: all that are not final */
    size_t n_totals;
    int64_t *usage_tenant;
    double *usage_ns;
    size_t n_usage;
    struct db_res *res[8];
};
int store_view_load(struct db *db, void *arg, struct sh_err *err);
void store_view_free(void *view); /* also the struct itself */

#endif
