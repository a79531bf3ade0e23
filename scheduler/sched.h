/* sched.h - one scheduler: its parts and what connects them.
 *
 *   STANDBY --lease won--> LOADING --database read--> LEADING --lease lost, or stopped--> STANDBY
 *
 * Only a LEADING scheduler listens. Everything below `epoch` belongs to one term as leader and is
 * dropped at its end; the next leader asks the database, the executors and the APIs again.
 * Everything runs on the loop's thread; the two database threads (dbthread.h, sweep.h) see only op
 * arguments.
 *
 * One turn of the loop: messages and database results change the parts and call sched_wake();
 * before the loop sleeps, a pass (pass.h) decides and acts.
 */
#ifndef SH_SCHEDULER_SCHED_H
#define SH_SCHEDULER_SCHED_H

#include "common/loop.h"
#include "scheduler/database/dbthread.h"
#include "scheduler/decide/conf.h"
#include "scheduler/decide/past.h"
#include "scheduler/jobs/jobs.h"
#include "scheduler/models/models.h"
#include "scheduler/models/shapes.h"
#include "scheduler/pass/pass.h"
#include "scheduler/pass/request.h"
#include "scheduler/pass/shares.h"
#include "scheduler/peers/arrivals.h"
#include "scheduler/peers/executors.h"
#include "scheduler/peers/limits.h"
#include "scheduler/peers/sessions.h"
#include "scheduler/peers/tenants.h"
#include "scheduler/peers/traffic.h"
#include "scheduler/records/report.h"
#include "scheduler/records/sweep.h"
#include "scheduler/records/usage.h"

struct leader;
struct sched_route;

struct sched {
    const struct sched_conf *conf; /* KEEPS */
    struct sh_loop *loop;          /* KEEPS */
    struct sh_wire_keys *link_keys;
    struct dbthread *db;
    struct leader *leader;
    struct sh_timer *tick, *second;
    char holder[96];  /* name/random, so that two with one name do not share a lease */
    uint64_t epoch;   /* 0: standby */
    bool loaded;      /* the database has been read; sessions are accepted */
    bool polling;     /* a look at the database is under way */
    bool poll_again;  /* something changed after it was sent */
    bool skips_usage; /* reading usage took too long: shares start without past usage */
    uint64_t n_polls;
    int64_t poll_at_ns;
    bool woken, all_woken; /* a pass for requests is due; for all of them */
    bool jobs_woken;       /* one for jobs is due */
    int64_t pass_at_ns;    /* last pass with jobs */

    struct tenants tenants;
    struct limits limits;
    struct models models;
    struct jobs jobs;
    struct execs execs;
    struct requests requests;
    struct sessions sessions;
    struct usage usage;
    struct report report;
    struct shares shares;
    struct sweep sweep;
    struct pass pass;
    struct past past;
    struct traffics traffics;
    struct arrivals arrivals;
    const struct sched_route *route; /* route.h */
};

/* Starts the database threads and the timers; nothing else happens until the loop runs. KEEPS conf
 * and l. *out: OWNED, sched_free(). */
int sched_new(const struct sched_conf *conf, struct sh_loop *l, struct sched **out,
              struct sh_err *err);
/* Releases the lease and ends everything. NULL is allowed. */
void sched_free(struct sched *s);

void sched_lead(struct sched *s, uint64_t epoch); /* leader.c: the lease is ours */
void sched_stand_down(struct sched *s, const char *why);
void sched__poll(struct sched *s); /* sched_poll(), for route.c */

/* turn.c: for all parts */
void sched_wake(struct sched *s);      /* a pass for all requests is due */
void sched_wake_some(struct sched *s); /* one for what waiting.h knows to have changed */
void sched_wake_jobs(struct sched *s); /* a pass for jobs is due */
void sched_poll(struct sched *s);      /* look at the database soon */
/* Counts a decision against somebody, by its rule: docs/rules.md has both words. */
void sched_count(const char *decision, const char *rule);
void sched_lost_lease(struct sched *s); /* a write was refused: another scheduler leads */

/* Submits an operation of this epoch; on failure frees arg and logs. `done` gets s as ctx. */
struct sched_op {
    const char *name;
    dbop_run_fn *run;
    dbop_done_fn *done;
    dbop_free_fn *free_arg;
    unsigned flags;
};
int sched_submit(struct sched *s, const struct sched_op *op, void *arg, struct sh_err *err);
/* For done functions: logs a failure; if the fence refused a write, ends our leadership. Returns
 * true if rc is SH_OK and the work may go on. */
bool sched_op_ok(struct sched *s, const char *name, int rc, const struct sh_err *err);
struct store_fence sched_fence(const struct sched *s);

#endif
