/* states.h - the states of everything with a row in the database, and other words in rows, once for
 * code, SQL, bodies, options and texts. The states of jobs are in job_state.h.
 *
 * Lists are macros over X(NAME), with SEP between two of them:
 *     SH_QUEUE_STATES(X, )              X(OPEN) X(HELD) ...
 *     SH_QUEUE_STATES(SH_STATE_TEXT, ",")   "OPEN" "," "HELD" ...
 * A new state: a name here, a migration for the table's CHECK (tests/db/test_states.c compares
 * them), and the code that puts a row there. */
#ifndef SH_COMMON_STATES_H
#define SH_COMMON_STATES_H

#define SH_STATE_TEXT(name) #name /* for X */
#define SH_STATE_SQL(name) "'" #name "'"

/* model_version.state */
#define SH_VERSION_COMING(X, SEP) X(REGISTERED) SEP X(LOADING) /* to executors */
#define SH_VERSION_WANTED(X, SEP) SH_VERSION_COMING(X, SEP) SEP X(READY)
#define SH_VERSION_ON_EXECUTORS(X, SEP) SH_VERSION_WANTED(X, SEP) SEP X(UNLOADING)
#define SH_VERSION_UPLOADED(X, SEP) \
    SH_VERSION_WANTED(X, SEP)       \
    SEP X(FAILED) /* not loaded */  \
    SEP X(UNLOADING)                \
    SEP X(UNLOADED)
#define SH_VERSION_STATES(X, SEP)                \
    X(UPLOADING) SEP SH_VERSION_UPLOADED(X, SEP) \
    SEP X(DELETED)

/* model_version.version: the highest that a client may choose. Uploads and jobs after that take
 * the next numbers, for which the column, a 32-bit integer, has room. */
#define SH_VERSION_MAX 2000000000

/* placement.state: a version on one executor */
#define SH_PLACEMENT_STATES(X, SEP) \
    X(LOADING) SEP X(READY)         \
    SEP X(UNLOADING)                \
    SEP X(FAILED)                   \
    SEP X(ASIDE) /* its host memory was taken: scheduler/models/room.h */

#define SH_DATASET_STATES(X, SEP) \
    X(UPLOADING) SEP X(READY)     \
    SEP X(DELETED)
#define SH_TENANT_SET(X, SEP) X(ACTIVE) SEP X(SUSPENDED) /* settable by PATCH */
#define SH_TENANT_STATES(X, SEP) SH_TENANT_SET(X, SEP) SEP X(DELETED)
/* HELD starts no jobs, DRAINING accepts no new ones. */
#define SH_QUEUE_STATES(X, SEP) \
    X(OPEN) SEP X(HELD)         \
    SEP X(DRAINING)
#define SH_EXECUTOR_STATES(X, SEP) X(UP) SEP X(DOWN)

/* Other words in rows and bodies, and in options and filters. */
#define SH_VISIBILITIES "private,shared"
#define SH_KEY_ROLES "tenant-admin,submit,infer,read" /* of a tenant's key; an admin's is "admin" */
#define SH_PRECISIONS "fp32,tf32,fp16,bf16"
#define SH_ON_MISS "reject,delay,best-effort"
#define SH_SLO_WINDOWS "5m,1h,1d"
#define SH_JOB_KINDS "training,batch_inference"
#define SH_USAGE_BY(X, SEP) \
    X(CLASS, "class")       \
    SEP X(MODEL, "model") SEP X(MINUTE, "minute") SEP X(HOUR, "hour") SEP X(DAY, "day")
#define SH_USAGE_WORD(id, word) word
#define SH_USAGE_CLASSES "inference,training"

#endif
