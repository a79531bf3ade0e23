/* jobpool_gang.c - see decide.h: jobs of several slots, which have all of them or none. */
#include "common/mem.h"
#include "scheduler/decide/jobpool_int.h"

#define OFF_JOB(n) SH_TREE_OF(n, struct jobpool_job, off)
#define FREE_SLOT(n) SH_TREE_OF(n, struct jobpool_slot, by_load)

/* ------------------------------------------------------------------ slots */

/* Those that fill come first: the last to start, and of these the one that loses least. By loss
 * before that, more would be lost in all: who gives way starts again, and others with it. */
static int by_off(const struct sh_tree_node *a, const struct sh_tree_node *b)
{
    const struct snap_job *x = &SH_TREE_OF(a, struct jobpool_job, off)->f.is;
    const struct snap_job *y = &SH_TREE_OF(b, struct jobpool_job, off)->f.is;
    const int64_t ends_x = x->since_ns + x->lasts_ns, ends_y = y->since_ns + y->lasts_ns;

    if (x->fills != y->fills)
        return x->fills ? -1 : 1;
    if (x->fills && x->since_ns != y->since_ns)
        return JOBPOOL_ORDER(y->since_ns, x->since_ns);
    if (x->fills && x->loss_ns != y->loss_ns)
        return JOBPOOL_ORDER(x->loss_ns, y->loss_ns);
    if (!x->fills && ends_x != ends_y)
        return JOBPOOL_ORDER(ends_x, ends_y);
    return JOBPOOL_ORDER(x->id, y->id);
}

const struct sh_tree_kind JOBPOOL_OFF = {by_off, NULL};

static bool slot_is(const struct sh_tree_node *n, const void *arg)
{
    return FREE_SLOT(n)->f.pool_bytes >= *(const uint64_t *)arg;
}

static bool slot_has(const struct sh_tree_node *n, const void *arg)
{
    return FREE_SLOT(n)->most_bytes >= *(const uint64_t *)arg;
}

/* The first free slots where it can run, up to so many as it needs, as a list. */
static uint32_t collect_slots(const struct jobpool *q, const struct jobpool_job *j,
                              struct jobpool_slot **list)
{
    const struct sh_tree_ask ask = {slot_is, slot_has, &j->f.is.need_bytes};
    uint32_t n = 0;

    for (struct sh_tree_node *x = sh_tree_first_with(&q->free, &ask); x && n < jobpool__gpus(j);
         x = sh_tree_next_with(x, &ask)) {
        if (!jobpool__fits(q, j, FREE_SLOT(x)))
            continue;
        *list = FREE_SLOT(x);
        list = &FREE_SLOT(x)->next;
        n++;
    }
    *list = NULL;
    return n;
}

uint32_t jobpool__n_free(const struct jobpool *q, const struct jobpool_job *j)
{
    struct jobpool_slot *unused;

    return collect_slots(q, j, &unused);
}

/* Free slots that nobody else is guaranteed: those below their guarantee may have all. */
static int64_t unreserved(const struct jobpool *q, const struct jobpool_job *j)
{
    const struct jobpool_tenant *t = j->f.tenant;

    if (jobpool__is_below(t, jobpool__gpus(j)))
        return (int64_t)q->free.n;
    return ((int64_t)q->free.n * JOBPOOL_SLOT - (q->reserved - t->reserved)) / JOBPOOL_SLOT;
}

struct jobpool_slot *jobpool__free_slots(const struct jobpool *q, const struct jobpool_job *j)
{
    struct jobpool_slot *list;

    if (unreserved(q, j) < jobpool__gpus(j) || collect_slots(q, j, &list) < jobpool__gpus(j))
        return NULL;
    return list;
}

bool jobpool__are_large(const struct jobpool *q, const struct jobpool_job *j)
{
    const struct sh_tree_node *n = sh_tree_first(&q->slots); /* the largest first */

    for (uint32_t left = jobpool__gpus(j); n && j->f.is.need_bytes && left > 1; left--)
        n = sh_tree_next(n);
    return n && SH_TREE_OF(n, struct jobpool_slot, by_size)->f.pool_bytes >= j->f.is.need_bytes;
}

bool jobpool__is_possible(const struct jobpool *q, const struct jobpool_job *j)
{
    const struct jobpool_tenant *t = j->f.tenant;
    const int64_t gpus = jobpool__gpus(j);

    if (gpus == 1 || (int64_t)q->slots.n < gpus || !jobpool__are_large(q, j))
        return gpus == 1 && jobpool__are_large(q, j);
    /* What others do not lend is theirs, whether they use it or not. */
    return gpus - 1 < t->f.guaranteed_gpus ||
           ((int64_t)q->slots.n - gpus) * JOBPOOL_SLOT >= q->owed - t->owed;
}

/* ------------------------------------------------------------------ the reservation */

/* Does it go before one that runs? Who is within its guarantee keeps what it has. */
static bool gang_goes_before(const struct jobpool_job *j, const struct jobpool_job *run)
{
    const struct jobpool_tenant *t = j->f.tenant, *other = run->f.tenant;

    if (t != other && other->running < other->f.guaranteed_gpus + jobpool__gpus(run))
        return false;
    if (t != other && jobpool__is_below(t, jobpool__gpus(j)))
        return true;
    return t->share != other->share ? t->share < other->share : jobpool__line_cmp(j, run) < 0;
}

/* Does a job that fills give way to it now? */
static bool fills_for(const struct jobpool_job *j, const struct jobpool_job *run)
{
    return run->f.is.fills && run->f.is.state == SNAP_RUNNING && run->f.is.may_suspend &&
           run->f.exec_bytes >= j->f.is.need_bytes && !j->f.is.version && !run->f.is.is_fixed &&
           gang_goes_before(j, run);
}

bool jobpool__any_fills(const struct jobpool *q)
{
    const struct sh_tree_node *n = sh_tree_first(&q->off);

    return n && OFF_JOB(n)->f.is.fills;
}

/* Slots that it has a right to already: those that are free, and those that come. */
static int64_t n_there(const struct jobpool *q, const struct jobpool_job *j)
{
    const int64_t n_free =
        q->kept == j ? SH_MIN((int64_t)jobpool__n_free(q, j), unreserved(q, j)) : 0;

    return SH_MAX(n_free, INT64_C(0)) + q->n_untaken;
}

/* When it can start at the latest, if those that run end as they are estimated to. What should
 * have ended already may go on for any time. */
static void estimate_gang(struct jobpool *q, const struct jobpool_job *j)
{
    int64_t n = n_there(q, j), at_ns = q->at.now_ns;

    for (struct sh_tree_node *x = sh_tree_first(&q->off); x && n < jobpool__gpus(j);
         x = sh_tree_next(x)) {
        const struct snap_job *is = &OFF_JOB(x)->f.is;
        const int64_t ends_ns = is->since_ns + is->lasts_ns;

        if (fills_for(j, OFF_JOB(x))) {
            n += jobpool__gpus(OFF_JOB(x));
        } else if (!is->fills && ends_ns > q->at.now_ns &&
                   OFF_JOB(x)->f.exec_bytes >= j->f.is.need_bytes) {
            n += jobpool__gpus(OFF_JOB(x));
            at_ns = ends_ns;
        }
    }
    q->kept_ns = n < jobpool__gpus(j) ? SNAP_NEVER : at_ns;
    q->n_spare = n < jobpool__gpus(j) ? 0 : (uint32_t)n - jobpool__gpus(j);
}

void jobpool__keep(struct jobpool *q, struct jobpool_job *j)
{
    struct jobpool_tenant *t = j->f.tenant;

    q->kept = j;
    t->kept = jobpool__gpus(j);
    jobpool__unsort(q, t);
    if (jobpool__claim_gang(q, j)) {
        q->kept_ns = q->at.now_ns; /* as soon as they have stopped */
        q->n_spare = 0;
        return;
    }
    jobpool__sort(q);
    estimate_gang(q, j);
}

bool jobpool__may_fill(struct jobpool *q, const struct jobpool_job *j)
{
    const struct snap_job *is = &j->f.is;
    const int64_t left_ns = q->kept_ns == SNAP_NEVER ? SNAP_NEVER : q->kept_ns - q->at.now_ns;

    if (is->lasts_ns > 0 && is->lasts_ns <= left_ns)
        return true;
    if (!is->is_fixed && (is->min_run_ns > 0 ? is->min_run_ns : q->min_run_ns) <= left_ns)
        return true;
    if (jobpool__gpus(j) > q->n_spare)
        return false;
    q->n_spare -= jobpool__gpus(j);
    return true;
}

/* ------------------------------------------------------------------ who gives way */

static struct jobpool_job *next_filler(const struct jobpool *q, const struct jobpool_job *j)
{
    for (struct sh_tree_node *x = sh_tree_first(&q->off); x && OFF_JOB(x)->f.is.fills;
         x = sh_tree_next(x))
        if (fills_for(j, OFF_JOB(x)))
            return OFF_JOB(x);
    return NULL;
}

static void set_gang_state(struct jobpool *q, struct jobpool_job *j, enum snap_job_state state)
{
    jobpool__leave(q, j);
    j->f.is.state = state;
    jobpool__enter(q, j, NULL);
}

bool jobpool__claim_gang(struct jobpool *q, struct jobpool_job *j)
{
    const int64_t n = jobpool__gpus(j);
    struct jobpool_job *first = NULL, **end = &first, *next;
    int64_t there = n_there(q, j);
    bool is_enough = jobpool__is_possible(q, j);

    while (is_enough && there < n) {
        enum decide_reason why = DECIDE_GANG;
        struct jobpool_job *v = next_filler(q, j);

        if (!v)
            v = jobpool__claim(q, j, JOBPOOL_NOW, &why);
        is_enough = v != NULL;
        if (!v)
            break;
        set_gang_state(q, v, SNAP_STOPPING);
        jobpool__sort(q);
        v->why = why;
        v->next_moved = NULL;
        *end = v;
        end = &v->next_moved;
        there += jobpool__gpus(v);
    }
    if (is_enough) {
        *q->end_stopped = first;
        q->end_stopped = first ? end : q->end_stopped;
        q->n_untaken = (uint32_t)(there - n);
        jobpool__take(q, j, first ? TAKEN_VICTIM : TAKEN_COMING);
        return true;
    }
    for (struct jobpool_job *v = first; v; v = next) {
        next = v->next_moved;
        set_gang_state(q, v, SNAP_RUNNING);
    }
    jobpool__sort(q);
    return false;
}
