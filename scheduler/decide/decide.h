/* decide.h - the policy: from a snapshot to a list of decisions. Pure: no clock, database or log.
 *
 * Requests are ordered by priority, then earliest deadline, then arrival. A best-effort request
 * that is predicted to be late goes behind those of its priority that can still be in time. A new
 * request goes to the executor where it costs least, of those where it is in time: its predicted
 * finish, which accounts for residency and load, and what it takes from others; among equal ones to
 * the one that holds more of the model, then to the one with fewer runs. If no executor has its
 * model, a request waits as long as one is expected to have it in time.
 *
 * What is taken from others counts as its own wait does: the time of a copy, and where a job trains
 * the time by which the executor's work grows and that of an interruption. So a request joins a run
 * that is about to be formed, or waits for a short while behind another, rather than stop a job.
 *
 * If one is refused because those who hold its model are busy, the image is sent to one that has
 * nothing to do, one copy of a model at a time: a copy that takes longer than requests have time
 * would otherwise never be made.
 *
 * Promises. A request with a limit is admitted only if it is predicted to meet the limit behind
 * those that go before it, and if all requests admitted earlier still meet theirs; otherwise it is
 * refused at once. After that no decision here makes it miss its limit: a request that would,
 * whatever its priority, waits until it no longer does. Only work that takes longer than predicted
 * can make it late; it is given up when it could not be in time even as the next run. When its body
 * arrives later, it is admitted again, with its batch and with the limit that the body names: for
 * more samples or less time than before it may be refused. decide_due.c keeps track of them. A
 * plan reserves room for batches as large as the present demand makes them; if it reserved less,
 * all batches would be small under load; if more, it would refuse what an idle device could answer.
 *
 * Where the weights that are asked for push each other out, some models are shut (thrash.h): their
 * requests are let in only where all their weights are. Others are refused at once if they have a
 * limit. One without a limit waits: until its model is open, for an executor that has had nothing
 * to run for a while, or until it has waited for so long that it comes all the same.
 *
 * A run takes its usual time; one that waits for weights takes until they arrive, plus the rest of
 * its computation. All runs up to a finish may take longer: as much together as independent errors
 * do of which each reaches slow_ns, times what promises have shown to be needed (predict_promise).
 * So much of a request's time is reserved, but no more than a quarter: it would help nobody, since
 * a refused request misses its deadline as well.
 *
 * A run takes the first ready request of an executor and adds others of the same model, whoever
 * asked, while max_batch and all waiting deadlines allow it; but where more is asked for than there
 * is time, nobody who is not modest joins a run of one who is (demand.h): it would take longer. On
 * a free device it never waits for more to come; it is sent to a busy one only if more requests
 * would hardly help. It ends at a compiled size if that and a run for the rest are faster than the
 * next larger size.
 *
 * Probes. If requests of a model have been refused for some time although nothing is before them,
 * one is admitted anyway: what keeps them out may have passed, and only a run can tell.
 *
 * Training. One job holds the training slot of an executor. Free slots go to tenants below their
 * guarantee first, then by decayed usage / weight, then by priority, then by their place in line
 * (lines.h): when they were queued, put back by the device time that they take. A job loses its
 * slot only after its minimum run time, and only to a tenant below its guarantee, to a tenant whose
 * share is smaller by a margin and that has fewer slots by its weight, to a job of the same tenant
 * with a higher priority, or to one of its tenant and priority that goes before it in line, once
 * its level is above 0. A fixed job never loses its slot; so that others get what they are owed, a
 * tenant runs no more fixed jobs than its guarantee.
 *
 * The victim. Of those that have to give way, the tenant with the greatest share gives one, of its
 * lowest priority: the last in line of those above level 0, since one before it would take that
 * one's slot at once; of level 0 the one whose loss is least (loss.h), then the youngest.
 *
 * The margin. Where tenants have r slots each in the mean, one slot more or less is an r-th of what
 * a tenant has. It is worth a move when shares differ by r minimum runs, 20 at most, of r slots.
 * If one minimum run of one slot were enough, shares would cross all the time, and with them jobs.
 * That is the margin where there is a slot for each tenant or less. If slots by weight did not
 * count, they would go on moving until those who had used less have used more.
 *
 * Several GPUs. A job of several slots starts when it has all of them, and is stopped as one.
 * Quotas and guarantees count slots; it is below a guarantee only with all of its slots. The first
 * in the order that waits for slots keeps those that are free: its reservation. So many others
 * give way to it as would to jobs of one slot, all that it needs or nobody. If they do not, it
 * starts when those that run are estimated to be off. Others may fill the free slots until then,
 * if they are estimated to end by that time, if they may be suspended and have their minimum run
 * before it, or if so many slots more will be there. Those that may be suspended give way to it at
 * any time, even within their minimum run. Within a tenant, the first one in line that the quota
 * does not allow now holds back those behind it; one that it never allows does not. To give way by
 * share, a tenant must have more slots by weight without the job, and with one of them, than the
 * tenant that asks.
 *
 * Lending. Others may use a tenant's idle guarantee up to its lending_limit; the rest is kept free
 * for the tenant (reserved). A tenant below its own guarantee may take reserved slots all the same.
 * If guarantees exceed the slots, what exceeds them is reserved for nobody.
 */
#ifndef SH_SCHEDULER_DECIDE_DECIDE_H
#define SH_SCHEDULER_DECIDE_DECIDE_H

#include "common/err.h"
#include "scheduler/decide/snapshot.h"

/* Why a request is refused or a job waits: users read the text. */
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
    X(THRASHING, "Thrashing")              \
    X(QUOTA_GUARANTEED, "QuotaGuaranteed") \
    X(MIN_RUN, "MinRuntimeProtected")      \
    X(LENDING_LIMIT, "LendingLimit")       \
    X(ARRAY_LIMIT, "ArrayLimit")           \
    X(ATTAINED, "AttainedTime")            \
    X(GPU_MEMORY, "GpuMemory")             \
    X(GANG, "GangReservation")             \
    X(TOO_FEW_GPUS, "TooFewGpus")

enum decide_reason {
#define X(name, text) DECIDE_##name,
    DECIDE_REASON_MAP(X)
#undef X
        DECIDE_N_REASONS
};

enum decision_kind {
    DECISION_PLACE,   /* request -> exec; copy what is missing. With a limit: a promise */
    DECISION_REFUSE,  /* request; rc, reason, retry_after_ms; exec: copy its weights there */
    DECISION_RUN,     /* members[first .. first+n) -> exec, batch samples */
    DECISION_START,   /* job -> exec, the first of members[first .. first+n), its executors */
    DECISION_SUSPEND, /* job; reason */
    DECISION_WAIT,    /* job stays queued, or request (else SNAP_NONE) for its model; reason */
};

struct decision {
    enum decision_kind kind;
    uint32_t request, job, exec;
    uint32_t first, n, batch;
    int rc;
    enum decide_reason reason;
    bool is_probe;             /* PLACE: without promise or limit */
    bool is_alone_too_slow;    /* REFUSE: its run alone usually takes too long */
    int64_t retry_after_ms;    /* 0: a retry does not help */
    int64_t predicted_ns;      /* PLACE and REFUSE: from arrival to finish; RUN: of the run */
    int64_t forecast_ns;       /* RUN: the same by bytes and layers alone */
    int64_t slack_ns;          /* RUN: how much longer it may take */
    enum predict_kind weights; /* RUN: which of them it will find on the device */
};

struct decide_share { /* of a tenant, in training slots, at the start of the pass */
    double running;   /* slots it holds */
    double waiting;   /* slots that its queued jobs ask for */
    double fair;      /* slots it would get if all were shared out now */
    double reserved;  /* slots kept free for it: its idle guarantee above lending_limit */
};

struct decisions {
    struct decision *items; /* OWNED, decisions_fini() */
    size_t n, cap;
    int rc; /* one that could not be kept */
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

/* What counts when a request is placed: when it is done, and what that takes from others. */
int64_t decide_price_ns(int64_t finish_ns, int64_t cost_ns);
/* What training loses by so much more work; is_first: it is stopped for it. */
int64_t decide_displaced_ns(int64_t added_ns, int64_t stop_ns, bool is_first);

/* The queued jobs that may start, next one first: *n indices into in->jobs; order has room for
 * in->n_jobs. Uses d's scratch memory, and leaves its decisions and shares alone. Fails:
 * SH_E_NOMEM. */
int decide_order(const struct snapshot *in, struct decisions *d, uint32_t *order, size_t *n,
                 struct sh_err *err);

/* Room for the shares of n tenants, all zero. Fails: SH_E_NOMEM, SH_E_TOOBIG. */
int decide_shares_room(struct decisions *d, size_t n, struct sh_err *err);
/* The rest of d->shares, whose running and waiting are set, but for the backlog; of so many slots.
 * in: only its tenants count. Fails: SH_E_NOMEM. */
int decide_shares(const struct snapshot *in, double slots, struct decisions *d, struct sh_err *err);

/* For jobpool.c, decide_jobs.c and decide_share.c */
void decide__add(struct decisions *out, const struct decision *d);
int decide__scratch(struct decisions *out, size_t bytes, void **p, struct sh_err *err);
double decide__reserved(const struct snap_tenant *t, double held);
/* Minimum runs of one slot by which a share must be smaller for a claim, of so many tenants with
 * jobs. */
double decide__margin(double n_slots, double n_tenants);
int decide__jobs(const struct snapshot *in, struct decisions *out, struct sh_err *err);

#endif
