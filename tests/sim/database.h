/* database.h - the database of a simulation: what stands behind scheduler/database/store.h and
 * store_view.h.
 *
 * Tables in memory, with what the statements and triggers of the real one do: fences, conditions of
 * changes, hot_change with numbers of transactions, snapshots. A write takes effect at one moment,
 * between its sending and its answer; until then its transaction is open for those who look. What
 * is in the tables is committed, and stays. Its clock is the true time. Row ids begin with 1 and
 * have no gaps: rows are never removed.
 *
 * The structs are for oracles to read; only the functions below and the store's change them.
 */
#ifndef SH_TESTS_SIM_DATABASE_H
#define SH_TESTS_SIM_DATABASE_H

#include "scheduler/database/store.h"
#include "scheduler/database/store_view.h"
#include "tests/sim/content.h"
#include "tests/sim/world.h"

struct database_quota {
    double guaranteed_gpus, max_gpus, weight, borrowing_limit, lending_limit; /* < 0: NULL */
    uint32_t max_running_jobs, max_queued_jobs, max_concurrent_requests;
    struct store_memory memory;
};
extern const struct database_quota DATABASE_QUOTA; /* of a tenant that was just created */

struct database_tenant {
    int64_t id;
    char name[64];
    bool is_active;
    struct database_quota quota;
};
struct database_queue {
    int64_t id;
    bool is_held;
    int32_t priority;
};
struct database_model {
    int64_t id, tenant_id;
    char name[64];
    double slo_ms; /* 0: none */
    const char *on_miss;
    bool is_deleted;
    char profile[32];           /* what it is like (profile.h); "": nothing that is known */
    size_t in_bytes, out_bytes; /* of a sample */
    bool trains;
    uint32_t own_size; /* of the one size that its files leave open; 0: none is open */
};
struct database_version {
    int64_t id, model_id, tenant_id;
    uint32_t version, max_batch;
    const char *state; /* static */
    char package[96];
    struct sim_package content; /* of its files */
    char *profile;              /* JSON or NULL */
    uint64_t image_bytes, n_runs;
    int64_t source_job;
    bool pinned;
};
struct database_job {
    int64_t id, tenant_id, queue_id, version_id, array_id;
    bool is_batch, preemptible, publishes;
    enum job_state state;
    int32_t priority;
    uint32_t attempt, max_attempts;
    uint64_t epoch;
    int64_t placement;
    char reason[40], executor[JOB_NAME_BYTES], error_code[24];
    enum job_wish wish;
    int64_t save_asked, save_done;
    int64_t created_ns, started_ns, finished_ns, deadline_ns, not_before_ns; /* 0: NULL */
    int64_t queued_us, handicap_us, min_runtime_ms, all_steps, step_samples;
    struct job_progress progress, base;
    char spec[400], dataset[96], eval_dataset[96], token[32];
    char inputs[96], outputs[96]; /* of its version, for batch inference: JSON */
    bool may_stop;                /* before its last step, when evaluations bring nothing more */
    int64_t result_version_id, usage_step;
    char *result; /* JSON; NULL: none */
    struct database_checkpoint {
        uint32_t attempt;
        int64_t step, at_ns;
        uint64_t bytes;
        char path[256], digest[65];
    } * checkpoints;
    size_t n_checkpoints, cap_checkpoints;
    int64_t locked_ns; /* until then somebody's transaction has the row */
    bool is_listed;    /* for whoever walks over jobs */
};
struct database_array {
    int64_t id;
    uint32_t max_parallel; /* 0: no limit */
};
struct database_event {
    int64_t job, at_ns, step;
    bool is_new; /* submitted: there is no `from` */
    enum job_state from, to;
    uint32_t attempt;
    uint64_t epoch;
    char reason[40], executor[JOB_NAME_BYTES];
};
struct database_usage { /* all minutes together */
    int64_t tenant_id, model_id;
    bool is_training;
    int64_t gpu_ns, requests, samples;
};
struct database_executor {
    char name[JOB_NAME_BYTES];
    bool up;
    uint64_t epoch;
};

#define DATABASE_TABLES(X)                 \
    X(struct database_tenant, tenants)     \
    X(struct database_queue, queues)       \
    X(struct database_model, models)       \
    X(struct database_version, versions)   \
    X(struct database_array, arrays)       \
    X(struct database_job, jobs)           \
    X(struct database_event, events)       \
    X(struct database_usage, usage)        \
    X(struct database_source, sources)     \
    X(struct database_executor, executors) \
    X(struct database_change, changes)     \
    X(uint64_t, open)

struct database_source {
    char source[STORE_SOURCE_BYTES];
    int64_t number;
};
struct database_change { /* a row of hot_change */
    uint64_t xid;
    const char *kind, *was, *now; /* static or NULL */
    int64_t id, tenant_id;
};

struct database {
#define X(type, name) \
    type *name;       \
    size_t n_##name, cap_##name;
    DATABASE_TABLES(X)
#undef X
    struct {
        char holder[96];
        uint64_t epoch; /* 0: there is no row */
        int64_t expires_ns;
    } lease;
    uint64_t next_xid, last_done_xid, last_logged_xid;
};
extern struct database database;

/* Somebody uploads the files of a version that is made now. NULL: there are none. */
extern void (*database_upload)(struct database_version *v);

/* Empties all; one queue that is open to everybody is there. */
void database_begin(void);

/* Before the system starts, without a transaction. They give ids. */
int64_t database_add_tenant(const char *name, const struct database_quota *q);
int64_t database_add_queue(int32_t priority);
int64_t database_add_model(int64_t tenant_id, const char *name, double slo_ms, const char *on_miss);
int64_t database_add_version(int64_t model_id, uint32_t max_batch); /* REGISTERED */

/* ------------------------------------------------------------------ what APIs do */

enum database_do {
    DATABASE_SUBMIT,    /* `job` is what is to be; `n` of them, with `n` > 1 an array */
    DATABASE_CONTROL,   /* `what`: an action of api/spec/jobctl.c, on job `id` */
    DATABASE_PATCH,     /* priority `number` or deadline `number` ns from now, of job `id` */
    DATABASE_REGISTER,  /* another version of model `id` */
    DATABASE_UNLOAD,    /* version `id` */
    DATABASE_PIN,       /* version `id`, or not: `number` */
    DATABASE_LOAD,      /* version `id` */
    DATABASE_DELETE,    /* version `id`, if no live job uses it */
    DATABASE_QUOTA_PUT, /* of tenant `id` */
    DATABASE_TENANT,    /* `id` becomes active or not: `number` */
    DATABASE_QUEUE,     /* `id` is held or not: `number` */
    DATABASE_ARRAY,     /* max_parallel `number` of array `id` */
    DATABASE_NOTHING    /* a commit, and no more */
};
struct database_call {
    enum database_do kind;
    int64_t id, number;
    size_t n;
    bool is_deadline;
    const char *what; /* static */
    struct database_job job;
    struct database_quota quota;
    int64_t open_ns; /* its transaction stays open for so long */
    /* out */
    int64_t begun_ns;
    bool is_committed; /* it has taken effect, whatever the caller hears */
    size_t n_changed;
    int64_t first_id; /* of what was made */
};
/* In the process that called. rc: SH_OK; SH_E_DBDOWN: it may be committed, or not; others: it is
 * not. c: BORROWED from the caller of database_call(), who keeps it until then, and for good if his
 * process ends before. */
typedef void database_done_fn(void *arg, struct database_call *c, int rc);
void database_call(struct sim_proc *p, struct database_call *c, database_done_fn *done, void *arg);
/* The same at once and without a process, as somebody does it who sits at the database. */
int database_now(struct database_call *c);

/* ------------------------------------------------------------------ faults */

void database_stop(int64_t for_ns); /* the server is away: connections break */
/* Its log has no room: for so long what would be written is taken back, by so many others, too. */
void database_no_log(unsigned n_others, int64_t for_ns);
void database_crash(int64_t for_ns); /* numbers of transactions that left nothing are given again */
void database_slow(int64_t add_ns, int64_t for_ns);
void database_cut(unsigned host, int64_t for_ns); /* this host does not reach it */
/* So many of the commits are heard of by nobody: the connection breaks before or after. */
void database_doubt(double p, int64_t for_ns);
void database_time_out(double p, int64_t for_ns);       /* so many statements fail in time */
void database_lock_job(uint64_t which, int64_t for_ns); /* the row of a live job */
void database_heal(void);
bool database_is_reached_from(unsigned host);

#endif
