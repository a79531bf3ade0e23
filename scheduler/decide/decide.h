/* decide.h - the policy: from a snapshot to a list of decisions. Pure: no clock, database or log.
 *
 * Requests. Order: priority, then earliest deadline, then arrival; a best-effort request that is
 * late by prediction goes behind those of its priority that can still make it. Each new request
 * gets the executor with the least predicted finish, in which residency and load meet; equal ones
 * go to the one that holds more of the model, then to the one with fewer runs. One whose model no
 * executor has waits if one is expected to have it in time.
 *
 * Promises. A request with a limit is let in only where by prediction it makes it behind those that
 * go before it, and all that were let in before still make theirs; else it is refused at once.
 * From then on nothing that is decided here costs it its limit: whoever would, whatever his
 * priority, waits until he no longer does. Only what lasts longer than predicted can make it late;
 * when it cannot be in time even as the next run, it is given up. A body that comes after its
 * request was let in is let in again, with its batch. decide_due.c keeps the books. A plan leaves
 * room for batches as large as what is asked for makes them, or under load all of them would be
 * small; for larger ones would refuse what a device with little to do could answer.
 *
 * A run lasts its usual time, and one that waits for weights until they are there and the rest of
 * it is computed. Of all runs before an end, and of its own, one may be as slow as slow_ns; a part
 * of the time that a request has is kept free for that. More would help nobody: who is refused
 * misses his deadline as well.
 *
 * A run takes the first ready request of an executor and adds others of the same model and tenant
 * while max_batch and every deadline that waits there allow; on a device that is free it never
 * waits for more to come, and it is sent to a busy one only where more would hardly help. It ends
 * at a full size where that and a run of the rest are faster than the next larger size.
 *
 * Probes. Where requests of a model are refused for some time although nothing else is before them,
 * one is let in all the same: what keeps them out may be over, and only a run can tell.
 *
 * Training. One job holds the training slot of an executor. Free slots go to tenants below their
 * guarantee first, then by decayed usage / weight, then priority, then FIFO. A job loses its slot
 * only after its minimum run time, to a tenant below its guarantee, to one whose share is smaller
 * by more than one minimum run, or to a higher priority of the same tenant. A fixed job never
 * loses it; so that it takes nothing that is owed to others, a tenant runs no more of them than
 * its guarantee.
 *
 * Lending. What a tenant leaves idle of its guarantee others may use, but for what exceeds its
 * lending_limit: so many slots are kept free for it (reserved). A tenant below its own guarantee
 * takes them all the same; guarantees that add up to more than there is are nobody's alone.
 */
#ifndef SH_SCHEDULER_DECIDE_DECIDE_H
#define SH_SCHEDULER_DECIDE_DECIDE_H

#include "common/err.h"
#include "scheduler/decide/snapshot.h"

/* Why a request is refused or a job waits: name is what a user reads. */
#define DECIDE_REASON_MAP(X)               \
    X(NONE, "")                            \
    X(NO_EXECUTOR, "NoExecutor")           \
    X(MODEL_LOADING, "ModelLoading")       \
    X(MODEL_FAILED, "ModelFailed")         \
    X(DEADLINE, "DeadlineUnreachable")     \
    X(RESOURCES, "Resources")              \
    X(PRIORITY, "Priority")                \
    X(QUOTA_LIMIT, "QuotaLimit")           \
    X(TENANT_SUSPENDED, "TenantSuspended") \
    X(QUEUE_HELD, "QueueHeld")             \
    X(BACKOFF, "BackoffUntil")             \
    X(DATABASE_DOWN, "DatabaseDown")       \
    X(FAIR_SHARE, "FairShare")             \
    X(QUOTA_GUARANTEED, "QuotaGuaranteed") \
    X(MIN_RUN, "MinRuntimeProtected")      \
    X(LENDING_LIMIT, "LendingLimit")       \
    X(ARRAY_LIMIT, "ArrayLimit")           \
    X(GPU_MEMORY, "GpuMemory")

enum decide_reason {
#define X(name, text) DECIDE_##name,
    DECIDE_REASON_MAP(X)
#undef X
        DECIDE_N_REASONS
};

enum decision_kind {
    DECISION_PLACE,   /* request -> exec; start copying what is missing. With a limit: promised */
    DECISION_REFUSE,  /* request; rc, reason, retry_after_ms; exec: let the weights come there */
    DECISION_RUN,     /* members[first .. first+n) -> exec, batch samples */
    DECISION_START,   /* job -> exec */
    DECISION_SUSPEND, /* job; reason */
    DECISION_WAIT,    /* job stays queued; reason */
};

struct decision {
    enum decision_kind kind;
    uint32_t request, job, exec;
    uint32_t first, n, batch;
    int rc;
    enum decide_reason reason;
    bool is_probe;          /* PLACE: with no promise and no limit any more */
    bool is_alone_too_slow; /* REFUSE: the usual time of the run alone is too long */
    int64_t retry_after_ms; /* 0: asking again does not help */
    int64_t predicted_ns;   /* PLACE and REFUSE: from arrival to finish; RUN: of the run */
    int64_t slack_ns;       /* RUN: by so much it may last longer */
};

struct decide_share { /* of a tenant; slots of training jobs, as at the beginning of the pass */
    double running;   /* it holds */
    double waiting;   /* its queued jobs ask for */
    double fair;      /* it would get if all that is there were shared out now */
    double reserved;  /* are kept free for it: the idle part of its guarantee above lending_limit */
};

struct decisions {
    struct decision *items; /* OWNED, decisions_fini() */
    size_t n, cap;
    uint32_t *members;
    size_t n_members, cap_members;
    struct decide_share *shares; /* OWNED; by tenant; of the last pass with jobs */
    size_t cap_shares;
    void *scratch; /* OWNED; reused between passes */
    size_t scratch_bytes;
};

/* Replaces the content of *out. Fails: SH_E_NOMEM, SH_E_TOOBIG. */
int decide(const struct snapshot *in, struct decisions *out, struct sh_err *err);
void decisions_fini(struct decisions *d);             /* a zeroed struct is empty */
const char *decide_reason_name(enum decide_reason r); /* BORROWED, static */

/* The queued jobs that may start, the next one first: *n indices into in->jobs; order has room for
 * all of them. Uses the scratch memory of `d`, replaces its shares and leaves its decisions alone.
 * Fails: SH_E_NOMEM. */
int decide_order(const struct snapshot *in, struct decisions *d, uint32_t *order, size_t *n,
                 struct sh_err *err);

/* For decide_jobs.c and decide_share.c */
int decide__add(struct decisions *out, const struct decision *d, struct sh_err *err);
int decide__scratch(struct decisions *out, size_t bytes, void **p, struct sh_err *err);
double decide__reserved(const struct snap_tenant *t, double held);
int decide__shares(const struct snapshot *in, struct decisions *out, struct sh_err *err);
int decide__jobs(const struct snapshot *in, struct decisions *out, struct sh_err *err);

#endif
