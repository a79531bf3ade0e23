/* job_state.h - the states of a job, once for code, SQL and texts. scheduler/decide/job.h says how
 * they follow each other.
 *
 * Lists are macros over X(NAME), with SEP between two of them:
 *     SH_JOB_STATES(X, )         X(QUEUED) X(HELD) ...
 *     SH_JOB_STATES(TEXT, "|")   "QUEUED" "|" "HELD" ...
 * A new state: a name in one of the three groups, an arrow in scheduler/decide/job.c, and a
 * migration for the CHECK of job.state. */
#ifndef SH_COMMON_JOB_STATE_H
#define SH_COMMON_JOB_STATE_H

#define SH_JOB_WAITING(X, SEP) \
    X(QUEUED) SEP X(HELD)      \
    SEP X(SUSPENDED) /* no executor has it */
#define SH_JOB_ON_EXECUTOR(X, SEP) \
    X(STARTING) SEP X(RUNNING)     \
    SEP X(PREEMPTED)               \
    SEP X(COMPLETING)              \
    SEP X(CANCELLING)
#define SH_JOB_ENDED(X, SEP)   \
    X(SUCCEEDED) SEP X(FAILED) \
    SEP X(CANCELLED)           \
    SEP X(EXPIRED)
#define SH_JOB_LIVE(X, SEP) SH_JOB_WAITING(X, SEP) SEP SH_JOB_ON_EXECUTOR(X, SEP)
#define SH_JOB_STATES(X, SEP) SH_JOB_LIVE(X, SEP) SEP SH_JOB_ENDED(X, SEP)

#define SH_JOB_TEXT(name) #name /* for X */
#define SH_JOB_SQL(name) "'" #name "'"

/* SQL: lists for IN. */
#define SH_JOB_IS_WAITING "(" SH_JOB_WAITING(SH_JOB_SQL, ", ") ")"
#define SH_JOB_IS_ON_EXECUTOR "(" SH_JOB_ON_EXECUTOR(SH_JOB_SQL, ", ") ")"
#define SH_JOB_FINAL "(" SH_JOB_ENDED(SH_JOB_SQL, ", ") ")"

#endif
