/* store.h - all SQL of the scheduler, except what store_view.h reads.
 *
 * Every write is one transaction that first locks the lease row and fails with SH_E_PRECONDITION if
 * its epoch or holder is not ours: a leader that was replaced cannot write. Each function may be
 * called again with the same argument after a lost connection: it finds its work done and succeeds.
 *
 * All functions block and have the type dbop_run_fn (dbthread.h); `arg` is the struct named in the
 * comment, whose `out` part takes the results. Besides SH_E_PRECONDITION they fail as common/db.h
 * says.
 */
#ifndef SH_SCHEDULER_DATABASE_STORE_H
#define SH_SCHEDULER_DATABASE_STORE_H

#include "common/db.h"
#include "common/msg.h"
#include "scheduler/decide/job.h"
#include "scheduler/decide/past.h"

#include <stdbool.h>
#include <stdint.h>

struct store_fence {
    char holder[96];
    uint64_t epoch;
};

/* ---- lease: arg is struct store_lease. release lets it expire now. */
struct store_lease {
    struct store_fence fence; /* acquire fills epoch */
    int64_t ttl_ms;
    char options[512]; /* acquire: JSON, what we decide by; "": nothing is said */
    bool held;         /* out: we have it */
};
int store_lease_acquire(struct db *db, void *arg, struct sh_err *err);
int store_lease_renew(struct db *db, void *arg, struct sh_err *err);
int store_lease_release(struct db *db, void *arg, struct sh_err *err);

/* ---- jobs: arg is struct store_start. QUEUED -> STARTING, or FAILED if something that it needs is
 * gone. */
struct store_start {
    struct store_fence fence;
    int64_t job;
    uint32_t attempt;
    char executor[JOB_NAME_BYTES];
    char moved_from[JOB_NAME_BYTES]; /* "": it has not moved */
    struct store_start_out {
        enum job_state state; /* in the database afterwards; STARTING: start it */
        char *tenant, *model, *package, *dataset, *eval_dataset, *spec, *resume; /* OWNED */
        char *inputs, *outputs, *resume_digest; /* OWNED; for batch inference */
        char *about;                            /* OWNED: names, for the job's log */
        int64_t resume_step;
        int64_t placement; /* larger than that of each earlier start of the job */
        struct job_progress base;
    } * out;
};
int store_job_start(struct db *db, void *arg, struct sh_err *err);
void store_start_free(void *start);

/* arg is struct store_write: changes of state with their events, checkpoints, progress. When a job
 * leaves its executor its wish is cleared. If a client wished so, a job that goes to QUEUED becomes
 * SUSPENDED, or goes to the end of the queue. */
struct store_version { /* a published model, as shunt-import described it */
    char *digest, *package, *inputs, *outputs, *meta; /* OWNED; JSON, except the first two */
    int64_t bytes;
};

struct store_write {
    struct store_fence fence;
    int64_t job, parent_version;
    uint32_t attempt;
    char executor[JOB_NAME_BYTES]; /* after the changes; "": NULL */
    struct job_change changes[JOB_MAX_PENDING];
    size_t n_changes;
    struct job_checkpoint *checkpoints; /* OWNED */
    size_t n_checkpoints;
    struct job_progress progress;
    struct job_saved saved;
    int64_t backoff_ms, handicap_us; /* for a change to QUEUED */
    int error_rc; /* reason of the last change to QUEUED, FAILED or EXPIRED; 0: none */
    char error[512];
    char evaluation[SH_JOB_EVALUATION_BYTES]; /* "": unchanged */
    char *result;                             /* OWNED: JSON without "version"; SUCCEEDED only */
    struct store_version version;             /* digest NULL: none */
    struct store_write_out {
        bool conflict;        /* nothing was written: the database had another state */
        enum job_state state; /* now; SUSPENDED if QUEUED was written and a client wished it */
        int64_t version_id;   /* of the trained model; 0: none */
        int32_t version;
    } * out;
};
int store_job_write(struct db *db, void *arg, struct sh_err *err);
void store_write_free(void *write);

/* arg is struct store_reasons: why queued jobs wait. Writes no event. */
#define STORE_MAX_REASONS 256
struct store_reasons {
    struct store_fence fence;
    size_t n;
    int64_t job[STORE_MAX_REASONS];
    char reason[STORE_MAX_REASONS][40];
};
int store_job_reasons(struct db *db, void *arg, struct sh_err *err);

/* arg is struct store_fence: every waiting job stands where it was queued. */
int store_lines_reset(struct db *db, void *arg, struct sh_err *err);

/* ---- models: arg is struct store_model_state. Notifies channel shunt_models with the version's
 * id. Does nothing unless the version is REGISTERED or LOADING; UNLOADED: unless it is
 * UNLOADING. */
struct store_model_state {
    struct store_fence fence;
    int64_t version_id;
    const char *state; /* static: LOADING, READY, FAILED, UNLOADED */
    char reason_code[40], reason[512];
    uint64_t image_bytes;
    char *profile; /* OWNED: JSON or NULL */
};
int store_model_set_state(struct db *db, void *arg, struct sh_err *err);
void store_model_state_free(void *state);

/* ---- executors: arg is struct store_executor. */
struct store_executor {
    struct store_fence fence;
    char name[JOB_NAME_BYTES], host_id[128], device[64], data_addr[256];
    uint64_t pool_bytes;
    bool up;
};
int store_executor_put(struct db *db, void *arg, struct sh_err *err);

/* ---- arg is struct store_forget: removes one batch of the changes that the leader has seen
 * (store_view.h), and adds up what the triggers wrote to job_waiting_change. */
struct store_forget {
    struct store_fence fence;
    uint64_t from, before; /* transactions with from <= xid < before; all have ended */
    int64_t batch;
    int64_t n_rows; /* out */
    uint64_t last;  /* out: the newest transaction */
};
int store_changes_forget(struct db *db, void *arg, struct sh_err *err);

/* ---- reports: arg is struct store_report. Each list is JSON, OWNED, or NULL for none. resets:
 * names of executors whose placements are removed first. places: {version, executor, state, pin,
 * device, host, used (Unix ms)}; without a state the row is removed. measured: {version, batch,
 * predicted, source, runs, recent, p50, p99, learnt}. execs: {name, heard (Unix ms), workers,
 * status}. arrivals: the n_arrivals requests of a slice (peers/arrivals.h) that began arrived_s ago
 * and lasted arrivals_s. with_sweep: also removes versions that have no placement. */
struct store_report {
    struct store_fence fence;
    char *resets, *places, *measured, *execs, *arrivals;
    double arrived_s, arrivals_s;
    uint64_t n_arrivals;
    bool with_sweep;
};
int store_report_put(struct db *db, void *arg, struct sh_err *err);
void store_report_free(void *report);
/* ---- shares: arg is struct store_shares. What the passes decide by, for people; replaces older
 * rows. */
#define STORE_MAX_SHARES 256
struct store_share {
    int64_t tenant_id;
    double guaranteed_gpus, max_gpus /* < 0: unlimited */, weight;
    double running_gpus, waiting_gpus, fair_gpus, reserved_gpus;
    double usage_ns; /* decayed, as of now */
};
struct store_shares {
    struct store_fence fence;
    double half_life_s;
    size_t n;
    struct store_share rows[STORE_MAX_SHARES];
};
int store_share_put(struct db *db, void *arg, struct sh_err *err);

/* ---- old rows: arg is struct store_sweep; removes one batch. Jobs go with their events and
 * checkpoints; SWEEP_EVENTS removes only events of ended jobs. Usage by minute is added up to hours
 * (UTC). Deleted versions, models and datasets go when nothing refers to them and their files are
 * gone; the newest version of a model stays with the model, so that numbers are never reused. The
 * first kinds are whole partitions: a missing one is created, or an old one dropped. Rows in no
 * partition go with the other kinds. */
enum store_sweep_kind {
    SWEEP_EVENT_PARTS,
    SWEEP_USAGE_PARTS,
    SWEEP_AUDIT_PARTS,
    SWEEP_EVENTS,
    SWEEP_JOBS,
    SWEEP_USAGE_HOURS,
    SWEEP_USAGE,
    SWEEP_AUDIT,
    SWEEP_KEYS, /* revoked or expired */
    SWEEP_DELETED,
    SWEEP_N_KINDS
};
struct store_sweep {
    struct store_fence fence;
    enum store_sweep_kind kind;
    int64_t days; /* older rows go; 0: none, for partitions only */
    int64_t batch;
    int64_t n_rows; /* out */
    bool more;      /* out: there may be another batch */
    struct store_part {
        char did[8];     /* made, dropped, busy (locked by somebody: later), done */
        char name[64];   /* the partition made or dropped */
        int64_t ahead_s; /* until the last partition ends; then the default one takes new rows */
    } part;              /* out, for partitions */
};
int store_sweep(struct db *db, void *arg, struct sh_err *err);
const char *store_sweep_name(enum store_sweep_kind kind); /* BORROWED, static */
/* The table with these partitions, BORROWED, static; NULL: not a kind of partitions. */
const char *store_sweep_parts(enum store_sweep_kind kind);

/* ---- usage: arg is struct store_usage, a batch counted by an executor. The numbers of a source
 * grow; a batch whose number does not exceed the earlier ones was counted already and changes
 * nothing. A row belongs to the minute of its use by the database's clock. Each step of a job is
 * counted once, whoever reports it and however often it was done. Rows of an unknown tenant,
 * version or job are ignored. */
#define STORE_SOURCE_BYTES 33
struct store_usage {
    struct store_fence fence;
    char source[STORE_SOURCE_BYTES], executor[JOB_NAME_BYTES];
    int64_t number;
    int64_t heard_ns;           /* row ages are relative to this */
    struct msg_usage_row *rows; /* OWNED; tenants contain no quotes */
    size_t n;
};
int store_usage_add(struct db *db, void *arg, struct sh_err *err);
void store_usage_free(void *usage);

/* How long the last jobs that succeeded took, oldest first. */
#define STORE_PAST_JOBS 1000
struct store_past {
    struct past_job { /* OWNED array */
        struct past_like like;
        int64_t steps, busy_ns, whole_ns;
    } * jobs;
    size_t n;
};
int store_past_read(struct db *db, void *arg, struct sh_err *err);
void store_past_free(void *past); /* also the struct itself */

#endif
