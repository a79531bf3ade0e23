/* jobpool.h - jobs, tenants and training slots, in the order in which decisions ask for them: what
 * decide.h says of training, at a cost that follows from what has changed.
 *
 *   tenants  by (below its guarantee first, share, first job)     who is next
 *     groups   jobs that are alike in all that could hold one back and not another
 *       line     by (priority, place in line, id)
 *   tenants  by (share, first to give way), the greatest first    who gives way
 *     running  by (priority, place in line, loss, id), the lowest, last and least first
 *   slots    the free ones, by (runs, index)
 *   running  jobs that fill, by (start, loss), the last to start first; then by their estimated end
 *   times    of those that wait for their next attempt, and those within their minimum run
 *
 * The caller sets what changes, and asks for decisions when he likes. They are the same as if all
 * had been set a moment ago: tests/unit/test_jobpool.c compares them with a plain scan.
 *
 * Usage decays alike for all tenants, so the order of shares holds while time passes. It is given
 * on a scale of its own, as of some fixed time; `scale` is what one unit of it is worth now.
 *
 * Between jobpool_begin() and jobpool_end() nothing may be set. What was decided counts as done
 * there, and a job that is to get a slot that is being given up as started: jobpool_why() and
 * jobpool_next() go by that. Nothing but jobpool_set_job() allocates, so decisions cannot fail.
 * Pure: no clock, database or log. Not thread-safe.
 */
#ifndef SH_SCHEDULER_DECIDE_JOBPOOL_H
#define SH_SCHEDULER_DECIDE_JOBPOOL_H

#include "common/idmap.h"
#include "common/tree.h"
#include "scheduler/decide/decide.h"

struct jobpool_array;
struct jobpool_group;
struct jobpool_tenant;

struct jobpool_slot_facts { /* an executor's training slot */
    uint32_t index, n_runs;
    uint64_t pool_bytes;
    bool is_up, is_taken;
};

struct jobpool_slot { /* a zeroed one is in no pool; the caller owns it */
    struct sh_tree_node by_size, by_load;
    struct jobpool_slot *next; /* of the same job, which starts; NULL */
    struct jobpool_slot_facts f;
    uint64_t most_bytes; /* of those below it in by_load */
};

struct jobpool_job_facts {
    struct snap_job is; /* without tenant, exec and array, which are: */
    struct jobpool_tenant *tenant;
    uint64_t array;                /* id; 0: in no array with a limit */
    const struct jobpool_slot *on; /* a slot that it has; BORROWED while is_on_exec */
    bool is_on_exec;               /* its executors are connected and stay, and ... */
    uint64_t exec_bytes;           /* ... the least of their devices has so much */
};

struct jobpool_job {          /* a zeroed one is in no pool; the caller owns it */
    struct sh_tree_node node; /* with what it is ordered by close to it */
    struct jobpool_job_facts f;
    struct sh_tree_node timed;
    struct sh_tree_node off; /* while it runs, if it is known when it is off its slots */
    struct jobpool_array *array;
    struct jobpool_group *group; /* NULL: in no line */
    int64_t guarded_until_ns;    /* it gives way to nobody; while it runs */
    uint64_t most_bytes;         /* while it runs: of those below it in node */
    struct jobpool_job *next_taken;
    uint8_t place, taken; /* jobpool_int.h */

    /* What was decided. */
    enum decide_reason why;    /* it gives way */
    struct jobpool_slot *slot; /* where it starts: a list; f.is.fills is set as well */
    struct jobpool_job *next_moved;
};

struct jobpool_rank { /* of a tenant, by one of its jobs: where it was put */
    double share;
    int64_t line_us, yields_us, id; /* yields_us: the greater, the sooner it gives way */
    int64_t loss_ns;                /* the less, the sooner it does */
    int32_t priority;
    bool is_below; /* its guarantee */
};

struct jobpool_tenant { /* a zeroed one is in no pool; the caller owns it */
    struct sh_tree_node next;
    struct jobpool_rank rank;
    struct sh_tree_node wants;
    struct {
        struct sh_tree_node node;
        struct jobpool_rank rank;
        struct jobpool_job *first;       /* that gives way; NULL */
        uint64_t most_bytes, most_below; /* of its runs; of the tenants below */
        double load, load_below;         /* of the tenant; the greatest of the tenants below */
    } gives[2];
    struct jobpool_job *head;              /* NULL: none may start */
    struct jobpool_job *first_taken;       /* by the present decision: in line; NULL: none */
    uint64_t least_need, least_below;      /* of its groups; of the tenants below in next */
    uint32_t least_gpus, least_gpus_below; /* the same */
    double load, load_below; /* slots by weight; the least of the tenants below in next */

    struct snap_tenant f;
    uint32_t n_jobs;               /* of all kinds; it must not go before they are gone */
    uint32_t queued;               /* jobs */
    uint32_t running, held, fixed; /* slots */
    uint32_t n_held;               /* jobs that hold them */
    uint32_t kept;                 /* slots of its quota that are kept for its gang */
    double share, share_before;
    int64_t reserved, owed; /* millionths of a slot; owed: if it had none */
    struct sh_tree groups, heads[2], runs[2];
    struct jobpool_tenant *next_charged, *next_unsorted;
    bool is_charged, is_unsorted;
};

struct jobpool_now {
    int64_t now_ns;
    bool db_up;
    double scale; /* of usage_ns of tenants */
};

/* Can jobs of this version run there? What it says must not change while a decision is made. */
typedef bool jobpool_fit_fn(const void *arg, uint64_t version, const struct jobpool_slot *x);

struct jobpool {          /* a zeroed one is empty */
    jobpool_fit_fn *fits; /* NULL: all can run everywhere */
    const void *fits_arg; /* BORROWED */
    int64_t min_run_ns;   /* of jobs that have none of their own: set before there is one */
    struct jobpool_now at;
    double step;                   /* one minimum run, on the scale of shares */
    double margin;                 /* by so much a share must be smaller for a claim */
    uint32_t n_busy;               /* tenants with jobs */
    struct sh_tree slots, free;    /* that are up; that are free as well */
    struct sh_tree next, wants;    /* tenants; those whose own jobs have to give way */
    struct sh_tree gives[2];       /* tenants whose jobs may give way now, and later */
    struct sh_tree later, guarded; /* jobs, by the time at which that ends */
    struct sh_tree off;            /* running jobs: those that fill, then by their estimated end */
    struct idmap arrays;
    struct jobpool_tenant *unsorted; /* they have changed */
    int64_t reserved, owed;          /* millionths of slots, of all tenants */
    uint32_t coming;                 /* slots that are being given up */

    /* Of the present decision. */
    struct jobpool_job *started, *stopped, **end_started, **end_stopped;
    struct jobpool_job *taken;
    struct jobpool_tenant *charged;
    struct jobpool_group *touched;
    bool decides;
    uint32_t n_taken, n_untaken; /* n_untaken: slots that come, and are nobody's yet */
    /* The first that waits for several slots; NULL. At kept_ns they will be there, and so many
     * more; SNAP_NEVER: unknown. */
    struct jobpool_job *kept;
    int64_t kept_ns;
    uint32_t n_spare;
};

/* At the end of all: what was set is BORROWED no more, nor what it was in. */
void jobpool_forget_tenant(struct jobpool_tenant *t);
void jobpool_fini(struct jobpool *q);

void jobpool_set_slot(struct jobpool *q, struct jobpool_slot *x,
                      const struct jobpool_slot_facts *f);
/* f->usage_ns is on the pool's scale. KEEPS t while it has jobs. */
void jobpool_set_tenant(struct jobpool *q, struct jobpool_tenant *t, const struct snap_tenant *f);
void jobpool_del_tenant(struct jobpool *q, struct jobpool_tenant *t); /* it has no job */
bool jobpool_has_tenant(const struct jobpool_tenant *t, const struct snap_tenant *f);
void jobpool_scale_tenant(struct jobpool_tenant *t, int halvings); /* all of them, at once */
/* KEEPS j. Fails: SH_E_NOMEM, SH_E_TOOBIG; then j is in no pool. */
int jobpool_set_job(struct jobpool *q, struct jobpool_job *j, const struct jobpool_job_facts *f,
                    struct sh_err *err);
void jobpool_del_job(struct jobpool *q, struct jobpool_job *j);
/* Is it set so? f NULL: in no pool. */
bool jobpool_has_job(const struct jobpool_job *j, const struct jobpool_job_facts *f);

void jobpool_begin(struct jobpool *q, const struct jobpool_now *now);
/* q->started and q->stopped: jobs, by next_moved, in the order of their decisions; they stay
 * readable until something is set. */
void jobpool_decide(struct jobpool *q);
/* The queued job that is next, and the next one behind it; NULL: no other may start. */
struct jobpool_job *jobpool_next(struct jobpool *q);
/* Looks at the first n jobs in the order, those that are to get a slot before all others. They are
 * in q->taken, by next_taken, the last one first. */
void jobpool_look(struct jobpool *q, size_t n);
/* Why a queued job waits; behind those that were looked at it waits for them. */
enum decide_reason jobpool_why(const struct jobpool *q, const struct jobpool_job *j);
void jobpool_end(struct jobpool *q);

#endif
