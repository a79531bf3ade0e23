/* jobpool_order.c - see jobpool.h: in which order jobs, tenants and slots are, and what the nodes
 * of their trees know of those below them. */
#include "common/mem.h"
#include "scheduler/decide/jobpool_int.h"

#include <float.h>

#define TENANT(node_, member) SH_TREE_OF(node_, struct jobpool_tenant, member)

/* The least or the greatest of what is n's own and what its kids know; `is_new` is set if n did not
 * know it. */
#define SUM(is_new, better, n, type, member, total, own)                              \
    do {                                                                              \
        type *x_ = SH_TREE_OF(n, type, member);                                       \
        __typeof__(x_->total) best_ = (own);                                          \
        for (int k_ = 0; k_ < 2; k_++)                                                \
            if ((n)->kid[k_])                                                         \
                best_ = better(best_, SH_TREE_OF((n)->kid[k_], type, member)->total); \
        (is_new) |= x_->total != best_;                                               \
        x_->total = best_;                                                            \
    } while (0)

static int by_line_rank(const struct jobpool_rank *x, const struct jobpool_rank *y)
{
    if (x->priority != y->priority)
        return JOBPOOL_ORDER(y->priority, x->priority);
    return x->line_us != y->line_us ? JOBPOOL_ORDER(x->line_us, y->line_us)
                                    : JOBPOOL_ORDER(x->id, y->id);
}

/* Of two jobs of a tenant, or of tenants of one share. */
static int by_way_rank(const struct jobpool_rank *x, const struct jobpool_rank *y)
{
    if (x->priority != y->priority)
        return JOBPOOL_ORDER(x->priority, y->priority);
    if (x->yields_us != y->yields_us)
        return JOBPOOL_ORDER(y->yields_us, x->yields_us);
    return x->loss_ns != y->loss_ns ? JOBPOOL_ORDER(x->loss_ns, y->loss_ns)
                                    : JOBPOOL_ORDER(y->id, x->id);
}

/* Its place in its line and its loss. A job of level 0 gives way after all others of its priority,
 * the one that loses least first, of those that lose the same the youngest. Others give way in
 * their line's order, the last one first: one before it would have its slot at once, so that both
 * lose. */
static struct jobpool_rank line_rank(const struct snap_job *j)
{
    return (struct jobpool_rank){.line_us = j->line_us,
                                 .yields_us = j->level ? j->line_us : INT64_MIN,
                                 .id = j->id,
                                 .loss_ns = j->loss_ns,
                                 .priority = j->priority};
}

int jobpool__line_cmp(const struct jobpool_job *a, const struct jobpool_job *b)
{
    const struct jobpool_rank x = line_rank(&a->f.is), y = line_rank(&b->f.is);

    return by_line_rank(&x, &y);
}

int jobpool__next_cmp(const struct jobpool_rank *x, const struct jobpool_rank *y)
{
    if (x->is_below != y->is_below)
        return x->is_below ? -1 : 1;
    return x->share != y->share ? JOBPOOL_ORDER(x->share, y->share) : by_line_rank(x, y);
}

int jobpool__way_cmp(const struct jobpool_rank *x, const struct jobpool_rank *y)
{
    return x->share != y->share ? JOBPOOL_ORDER(y->share, x->share) : by_way_rank(x, y);
}

struct jobpool_rank jobpool__rank(const struct jobpool_job *j)
{
    const struct jobpool_tenant *t = j->f.tenant;
    struct jobpool_rank rank = line_rank(&j->f.is);

    rank.share = t->share;
    rank.is_below = jobpool__is_below(t, jobpool__gpus(j));
    return rank;
}

bool jobpool__is_below(const struct jobpool_tenant *t, uint32_t gpus)
{
    return t->running + gpus - 1 < t->f.guaranteed_gpus;
}

double jobpool__load(const struct jobpool_tenant *t)
{
    if (jobpool__is_below(t, 1))
        return -1;
    return t->f.weight > 0 ? t->running / t->f.weight : DBL_MAX;
}

bool jobpool__own_claim(const struct jobpool_job *want, const struct jobpool_job *have)
{
    if (want->f.is.priority != have->f.is.priority)
        return want->f.is.priority > have->f.is.priority;
    return have->f.is.level && jobpool__line_cmp(want, have) < 0;
}

static int by_line(const struct sh_tree_node *a, const struct sh_tree_node *b)
{
    return jobpool__line_cmp(JOBPOOL_JOB(a), JOBPOOL_JOB(b));
}

static int by_way(const struct sh_tree_node *a, const struct sh_tree_node *b)
{
    const struct jobpool_rank x = line_rank(&JOBPOOL_JOB(a)->f.is);
    const struct jobpool_rank y = line_rank(&JOBPOOL_JOB(b)->f.is);

    return by_way_rank(&x, &y);
}

static bool sum_runs(struct sh_tree_node *n)
{
    bool is_new = false;

    SUM(is_new, SH_MAX, n, struct jobpool_job, node, most_bytes, JOBPOOL_JOB(n)->f.exec_bytes);
    return is_new;
}

int64_t jobpool__ends_ns(const struct jobpool_job *j)
{
    return j->place == PLACE_BACKOFF ? j->f.is.not_before_ns : j->guarded_until_ns;
}

static int by_end_time(const struct sh_tree_node *a, const struct sh_tree_node *b)
{
    const struct jobpool_job *x = SH_TREE_OF(a, struct jobpool_job, timed);
    const struct jobpool_job *y = SH_TREE_OF(b, struct jobpool_job, timed);

    return jobpool__ends_ns(x) != jobpool__ends_ns(y)
               ? JOBPOOL_ORDER(jobpool__ends_ns(x), jobpool__ends_ns(y))
               : JOBPOOL_ORDER(x->f.is.id, y->f.is.id);
}

static int by_key(const struct sh_tree_node *a, const struct sh_tree_node *b)
{
    const struct jobpool_group *x = SH_TREE_OF(a, struct jobpool_group, by_key);
    const struct jobpool_group *y = SH_TREE_OF(b, struct jobpool_group, by_key);
    const uint64_t ax = x->array ? x->array->id : 0, ay = y->array ? y->array->id : 0;

    if (ax != ay)
        return JOBPOOL_ORDER(ax, ay);
    if (x->array_max != y->array_max)
        return JOBPOOL_ORDER(x->array_max, y->array_max);
    if (x->is_fixed != y->is_fixed)
        return x->is_fixed - y->is_fixed;
    if (x->gpus != y->gpus)
        return JOBPOOL_ORDER(x->gpus, y->gpus);
    return x->need_bytes != y->need_bytes ? JOBPOOL_ORDER(x->need_bytes, y->need_bytes)
                                          : JOBPOOL_ORDER(x->version, y->version);
}

static int by_head(const struct sh_tree_node *a, const struct sh_tree_node *b)
{
    return jobpool__line_cmp(JOBPOOL_GROUP(a)->head, JOBPOOL_GROUP(b)->head);
}

static bool sum_heads(struct sh_tree_node *n)
{
    bool is_new = false;

    SUM(is_new, SH_MIN, n, struct jobpool_group, by_head, least_need, JOBPOOL_GROUP(n)->need_bytes);
    SUM(is_new, SH_MIN, n, struct jobpool_group, by_head, least_gpus, JOBPOOL_GROUP(n)->gpus);
    return is_new;
}

static int by_next(const struct sh_tree_node *a, const struct sh_tree_node *b)
{
    return jobpool__next_cmp(&TENANT(a, next)->rank, &TENANT(b, next)->rank);
}

static bool sum_next(struct sh_tree_node *n)
{
    bool is_new = false;

    SUM(is_new, SH_MIN, n, struct jobpool_tenant, next, least_below, TENANT(n, next)->least_need);
    SUM(is_new, SH_MIN, n, struct jobpool_tenant, next, load_below, TENANT(n, next)->load);
    SUM(is_new, SH_MIN, n, struct jobpool_tenant, next, least_gpus_below,
        TENANT(n, next)->least_gpus);
    return is_new;
}

static int by_wants(const struct sh_tree_node *a, const struct sh_tree_node *b)
{
    return jobpool__next_cmp(&TENANT(a, wants)->rank, &TENANT(b, wants)->rank);
}

#define GIVES(when)                                                                             \
    static int by_gives_##when(const struct sh_tree_node *a, const struct sh_tree_node *b)      \
    {                                                                                           \
        return jobpool__way_cmp(&TENANT(a, gives[when].node)->gives[when].rank,                 \
                                &TENANT(b, gives[when].node)->gives[when].rank);                \
    }                                                                                           \
    static bool sum_gives_##when(struct sh_tree_node *n)                                        \
    {                                                                                           \
        bool is_new = false;                                                                    \
        SUM(is_new, SH_MAX, n, struct jobpool_tenant, gives[when].node, gives[when].most_below, \
            TENANT(n, gives[when].node)->gives[when].most_bytes);                               \
        SUM(is_new, SH_MAX, n, struct jobpool_tenant, gives[when].node, gives[when].load_below, \
            TENANT(n, gives[when].node)->gives[when].load);                                     \
        return is_new;                                                                          \
    }
GIVES(0)
GIVES(1)

static int by_slot_size(const struct sh_tree_node *a, const struct sh_tree_node *b)
{
    const struct jobpool_slot_facts *x = &SH_TREE_OF(a, struct jobpool_slot, by_size)->f;
    const struct jobpool_slot_facts *y = &SH_TREE_OF(b, struct jobpool_slot, by_size)->f;

    return x->pool_bytes != y->pool_bytes ? JOBPOOL_ORDER(y->pool_bytes, x->pool_bytes)
                                          : JOBPOOL_ORDER(x->index, y->index);
}

static int by_slot_load(const struct sh_tree_node *a, const struct sh_tree_node *b)
{
    const struct jobpool_slot_facts *x = &SH_TREE_OF(a, struct jobpool_slot, by_load)->f;
    const struct jobpool_slot_facts *y = &SH_TREE_OF(b, struct jobpool_slot, by_load)->f;

    return x->n_runs != y->n_runs ? JOBPOOL_ORDER(x->n_runs, y->n_runs)
                                  : JOBPOOL_ORDER(x->index, y->index);
}

static bool sum_free(struct sh_tree_node *n)
{
    bool is_new = false;

    SUM(is_new, SH_MAX, n, struct jobpool_slot, by_load, most_bytes,
        SH_TREE_OF(n, struct jobpool_slot, by_load)->f.pool_bytes);
    return is_new;
}

const struct sh_tree_kind JOBPOOL_LINE = {by_line, NULL}, JOBPOOL_TIMES = {by_end_time, NULL},
                          JOBPOOL_GROUPS = {by_key, NULL}, JOBPOOL_WANTS = {by_wants, NULL},
                          JOBPOOL_SLOTS = {by_slot_size, NULL},
                          JOBPOOL_FREE = {by_slot_load, sum_free},
                          JOBPOOL_NEXT = {by_next, sum_next}, JOBPOOL_HEADS = {by_head, sum_heads},
                          JOBPOOL_GIVES[2] = {{by_gives_0, sum_gives_0}, {by_gives_1, sum_gives_1}},
                          JOBPOOL_RUNS = {by_way, sum_runs};
