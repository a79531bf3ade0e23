/* jobpool.c - see jobpool.h: what there is, each in its place (jobpool_order.c). */
#include "common/mem.h"
#include "scheduler/decide/jobpool_int.h"

#include <math.h>
#include <stdlib.h>

/* ------------------------------------------------------------------ tenants */

/* The quota allows a slot more while the tenant has less than this. */
static double most_gpus(const struct jobpool_tenant *t)
{
    const double most = t->f.max_gpus >= 0 ? t->f.max_gpus : HUGE_VAL;

    return t->f.weight > 0 ? most : SH_MIN(most, t->f.guaranteed_gpus);
}

bool jobpool__has_room(const struct jobpool_tenant *t, uint32_t gpus)
{
    return t->n_held + (t->kept > 0) < t->f.max_running_jobs &&
           t->held + t->kept + gpus - 1 < most_gpus(t);
}

bool jobpool__has_fixed_room(const struct jobpool_tenant *t, uint32_t gpus)
{
    return t->fixed + gpus <= t->f.guaranteed_gpus;
}

bool jobpool__is_open(const struct jobpool_tenant *t, int is_fixed)
{
    const struct sh_tree_node *n = sh_tree_first(&t->heads[is_fixed]);
    const uint32_t gpus = n ? JOBPOOL_GROUP(n)->gpus : 0;

    return n && jobpool__has_room(t, gpus) && (!is_fixed || jobpool__has_fixed_room(t, gpus));
}

static void leave_tree(struct sh_tree *tree, const struct sh_tree_kind *k, struct sh_tree_node *n)
{
    if (sh_tree_has(n))
        sh_tree_del(tree, k, n);
}

/* Where it belongs: in the tree, or not. */
static void sort_in_tree(struct sh_tree *tree, const struct sh_tree_kind *k, struct sh_tree_node *n,
                         bool is_in)
{
    if (!is_in)
        leave_tree(tree, k, n);
    else if (sh_tree_has(n))
        sh_tree_fix(tree, k, n);
    else
        sh_tree_add(tree, k, n);
}

/* Its first job that may start; *least, *gpus: what the one needs that needs least. */
static struct jobpool_job *head_of_tenant(const struct jobpool_tenant *t, uint64_t *least,
                                          uint32_t *gpus)
{
    struct jobpool_job *head = NULL;

    *least = UINT64_MAX;
    *gpus = UINT32_MAX;
    for (int k = 0; k < 2 && t->f.active; k++) {
        const struct jobpool_group *g, *root;

        if (!jobpool__is_open(t, k))
            continue;
        g = JOBPOOL_GROUP(sh_tree_first(&t->heads[k]));
        root = JOBPOOL_GROUP(t->heads[k].root);
        if (!head || jobpool__line_cmp(g->head, head) < 0)
            head = g->head;
        *least = SH_MIN(*least, root->least_need);
        *gpus = SH_MIN(*gpus, root->least_gpus);
    }
    return head;
}

static bool is_same_rank(const struct jobpool_rank *a, const struct jobpool_rank *b)
{
    return a->share == b->share && a->line_us == b->line_us && a->yields_us == b->yields_us &&
           a->id == b->id && a->loss_ns == b->loss_ns && a->priority == b->priority &&
           a->is_below == b->is_below;
}

static void sort_gives(struct jobpool *q, struct jobpool_tenant *t, int when)
{
    const bool lends = t->running >= 1 && t->running - 1 >= t->f.guaranteed_gpus;
    struct sh_tree_node *first = lends ? sh_tree_first(&t->runs[when]) : NULL;
    const struct jobpool_rank none = {.share = 0};
    const struct jobpool_rank rank = first ? jobpool__rank(JOBPOOL_JOB(first)) : none;
    const uint64_t most = first ? JOBPOOL_JOB(t->runs[when].root)->most_bytes : 0;
    const double load = jobpool__load(t);
    struct sh_tree_node *node = &t->gives[when].node;

    t->gives[when].first = first ? JOBPOOL_JOB(first) : NULL;
    if (!first && !sh_tree_has(node))
        return;
    if (first && sh_tree_has(node) && is_same_rank(&rank, &t->gives[when].rank) &&
        most == t->gives[when].most_bytes && load == t->gives[when].load)
        return;
    t->gives[when].rank = rank;
    t->gives[when].most_bytes = most;
    t->gives[when].load = load;
    sort_in_tree(&q->gives[when], &JOBPOOL_GIVES[when], node, first != NULL);
}

/* Has one of its jobs that run to give way to its first that waits? */
static bool wants_own(const struct jobpool_tenant *t)
{
    const struct sh_tree_node *first = sh_tree_first(&t->runs[JOBPOOL_NOW]);

    return t->head && first && jobpool__own_claim(t->head, JOBPOOL_JOB(first));
}

static void sort_next(struct jobpool *q, struct jobpool_tenant *t)
{
    uint64_t least;
    uint32_t gpus;
    struct jobpool_job *head = head_of_tenant(t, &least, &gpus);
    const struct jobpool_rank none = {.share = 0};
    const struct jobpool_rank rank = head ? jobpool__rank(head) : none;
    const double load = jobpool__load(t);
    bool wants;

    t->head = head;
    wants = wants_own(t);
    if (sh_tree_has(&t->next) == (head != NULL) && is_same_rank(&rank, &t->rank) &&
        least == t->least_need && gpus == t->least_gpus && load == t->load &&
        sh_tree_has(&t->wants) == wants)
        return;
    t->rank = rank;
    t->least_need = least;
    t->least_gpus = gpus;
    t->load = load;
    sort_in_tree(&q->next, &JOBPOOL_NEXT, &t->next, head != NULL);
    sort_in_tree(&q->wants, &JOBPOOL_WANTS, &t->wants, wants);
}

void jobpool__unsort(struct jobpool *q, struct jobpool_tenant *t)
{
    if (t->is_unsorted)
        return;
    t->is_unsorted = true;
    t->next_unsorted = q->unsorted;
    q->unsorted = t;
}

/* Millionths of slots that nobody else may have while the tenant holds so many. */
static int64_t reserved_slots(const struct jobpool_tenant *t, uint32_t held)
{
    return llround(decide__reserved(&t->f, held) * (double)JOBPOOL_SLOT);
}

void jobpool__sort(struct jobpool *q)
{
    struct jobpool_tenant *t;

    while ((t = q->unsorted)) {
        const int64_t reserved = t->owed ? reserved_slots(t, t->held) : 0;

        q->unsorted = t->next_unsorted;
        t->is_unsorted = false;
        q->reserved += reserved - t->reserved;
        t->reserved = reserved;
        sort_next(q, t);
        for (int when = 0; when < 2; when++)
            sort_gives(q, t, when);
    }
}

static bool is_shut(const struct jobpool_group *g)
{
    const uint64_t most = g->tenant->f.max_memory_bytes;

    /* One that the quota can never allow holds nobody back. */
    return (g->array && g->array->n >= g->array_max) || (most && g->need_bytes > most) ||
           g->gpus - 1 >= most_gpus(g->tenant) ||
           (g->is_fixed && g->gpus > g->tenant->f.guaranteed_gpus);
}

void jobpool__sort_group(struct jobpool_group *g)
{
    struct sh_tree *heads = &g->tenant->heads[g->is_fixed];

    sort_in_tree(heads, &JOBPOOL_HEADS, &g->by_head, g->head && !is_shut(g));
}

bool jobpool_has_tenant(const struct jobpool_tenant *t, const struct snap_tenant *y)
{
    const struct snap_tenant *x = &t->f;

#define SAME(what) (x->what == y->what)
    return SAME(active) && SAME(weight) && SAME(guaranteed_gpus) && SAME(max_gpus) &&
           SAME(lending_limit) && SAME(max_running_jobs) && SAME(max_memory_bytes) &&
           SAME(usage_ns);
#undef SAME
}

void jobpool_set_tenant(struct jobpool *q, struct jobpool_tenant *t, const struct snap_tenant *f)
{
    const bool owes_anew = t->f.active != f->active || t->f.lending_limit != f->lending_limit ||
                           t->f.guaranteed_gpus != f->guaranteed_gpus;
    const bool resized =
        t->f.max_memory_bytes != f->max_memory_bytes || t->f.max_gpus != f->max_gpus ||
        t->f.guaranteed_gpus != f->guaranteed_gpus || (t->f.weight > 0) != (f->weight > 0);

    if (jobpool_has_tenant(t, f))
        return;
    t->f = *f;
    t->share = f->weight > 0 ? f->usage_ns / f->weight : INFINITY;
    for (struct sh_tree_node *n = resized ? sh_tree_first(&t->groups) : NULL; n;
         n = sh_tree_next(n))
        jobpool__sort_group(SH_TREE_OF(n, struct jobpool_group, by_key));
    if (owes_anew) {
        q->owed -= t->owed;
        t->owed = reserved_slots(t, 0);
        q->owed += t->owed;
    }
    jobpool__unsort(q, t);
}

void jobpool_scale_tenant(struct jobpool_tenant *t, int halvings)
{
    t->f.usage_ns = ldexp(t->f.usage_ns, -halvings);
    t->share = ldexp(t->share, -halvings);
    t->rank.share = ldexp(t->rank.share, -halvings);
    for (int when = 0; when < 2; when++)
        t->gives[when].rank.share = ldexp(t->gives[when].rank.share, -halvings);
}

void jobpool_del_tenant(struct jobpool *q, struct jobpool_tenant *t)
{
    jobpool__sort(q);
    q->reserved -= t->reserved;
    q->owed -= t->owed;
    *t = (struct jobpool_tenant){.n_jobs = 0};
}

/* ------------------------------------------------------------------ groups */

void jobpool__count_array(struct jobpool *q, struct jobpool_array *a, int change)
{
    if (!a)
        return;
    a->n += (uint32_t)change;
    for (struct jobpool_group *g = a->groups; g; g = g->in_array) {
        if (sh_tree_has(&g->by_head) == (g->head && !is_shut(g)))
            continue;
        jobpool__sort_group(g);
        jobpool__unsort(q, g->tenant);
    }
}

static int get_array(struct jobpool *q, uint64_t id, struct jobpool_array **out, struct sh_err *err)
{
    struct jobpool_array *a = id ? idmap_get(&q->arrays, id) : NULL;
    int rc;

    *out = NULL;
    if (!id)
        return SH_OK;
    if (a) {
        a->n_jobs++;
        *out = a;
        return SH_OK;
    }
    a = calloc(1, sizeof(*a));
    if (!a)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an array of jobs");
    *a = (struct jobpool_array){.id = id, .n_jobs = 1};
    rc = idmap_put(&q->arrays, id, a, err);
    if (rc)
        free(a);
    else
        *out = a;
    return rc;
}

static void drop_array(struct jobpool *q, struct jobpool_array *a)
{
    if (!a || --a->n_jobs)
        return;
    idmap_del(&q->arrays, a->id);
    free(a);
}

static int get_group(const struct jobpool_job_facts *f, struct jobpool_array *array,
                     struct jobpool_group **out, struct sh_err *err)
{
    const struct jobpool_group key = {.tenant = f->tenant,
                                      .array = array,
                                      .array_max = array ? f->is.array_max : 0,
                                      .is_fixed = f->is.is_fixed,
                                      .gpus = SH_MAX(f->is.gpus, 1u),
                                      .need_bytes = f->is.need_bytes,
                                      .version = f->is.version};
    struct sh_tree_node *n = sh_tree_find(&f->tenant->groups, &JOBPOOL_GROUPS, &key.by_key);
    struct jobpool_group *g = n ? SH_TREE_OF(n, struct jobpool_group, by_key) : NULL;

    *out = g;
    if (g)
        return SH_OK;
    g = calloc(1, sizeof(*g));
    if (!g)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a group of jobs");
    *g = key;
    if (array) {
        g->in_array = array->groups;
        array->groups = g;
    }
    sh_tree_add(&f->tenant->groups, &JOBPOOL_GROUPS, &g->by_key);
    *out = g;
    return SH_OK;
}

void jobpool__drop_empty(struct jobpool_group *g)
{
    if (g->line.n || g->n_backoff)
        return;
    if (g->array) {
        struct jobpool_group **at = &g->array->groups;

        while (*at != g)
            at = &(*at)->in_array;
        *at = g->in_array;
    }
    sh_tree_del(&g->tenant->groups, &JOBPOOL_GROUPS, &g->by_key);
    free(g);
}

void jobpool__touch(struct jobpool *q, struct jobpool_group *g)
{
    if (g->is_touched)
        return;
    g->is_touched = true;
    g->next_touched = q->touched;
    q->touched = g;
}

static void join_line(struct jobpool_job *j, struct jobpool_group *g)
{
    j->group = g;
    j->place = PLACE_LINE;
    sh_tree_add(&g->line, &JOBPOOL_LINE, &j->node);
    if (sh_tree_first(&g->line) != &j->node)
        return;
    g->head = j;
    jobpool__sort_group(g);
}

struct jobpool_job *jobpool__untaken(struct sh_tree_node *n)
{
    while (n && JOBPOOL_JOB(n)->taken)
        n = sh_tree_next(n);
    return n ? JOBPOOL_JOB(n) : NULL;
}

static void leave_line(struct jobpool *q, struct jobpool_job *j)
{
    struct jobpool_group *g = j->group;
    struct sh_tree_node *behind = sh_tree_next(&j->node);

    j->group = NULL;
    j->place = PLACE_NONE;
    sh_tree_del(&g->line, &JOBPOOL_LINE, &j->node);
    if (g->head == j) {
        g->head = jobpool__untaken(behind);
        jobpool__sort_group(g);
    }
    if (q->decides)
        jobpool__touch(q, g);
    else
        jobpool__drop_empty(g);
}

/* ------------------------------------------------------------------ jobs */

static bool is_waiting(const struct jobpool_job *j)
{
    return j->f.is.state == SNAP_QUEUED;
}

/* Among those of its tenant that may give way, now or later. */
static void enter_running(struct jobpool *q, struct jobpool_job *j)
{
    const struct snap_job *is = &j->f.is;
    const int64_t least_ns = is->min_run_ns > 0 ? is->min_run_ns : q->min_run_ns;
    const bool is_up = (is->state == SNAP_RUNNING || is->state == SNAP_STARTING) && j->f.is_on_exec;

    if (is_up && (is->fills || is->lasts_ns > 0))
        sh_tree_add(&q->off, &JOBPOOL_OFF, &j->off);
    if (is->state != SNAP_RUNNING || !j->f.is_on_exec || is->is_fixed)
        return;
    j->guarded_until_ns = is->may_suspend ? is->since_ns + least_ns : INT64_MAX;
    j->place = j->guarded_until_ns <= q->at.now_ns ? PLACE_RUNS : PLACE_GUARDED;
    sh_tree_add(&j->f.tenant->runs[j->place == PLACE_GUARDED], &JOBPOOL_RUNS, &j->node);
    if (j->place == PLACE_GUARDED)
        sh_tree_add(&q->guarded, &JOBPOOL_TIMES, &j->timed);
}

/* Where it counts, whatever state it is in; sign -1: no more. */
static void tally(struct jobpool *q, struct jobpool_job *j, int sign)
{
    struct jobpool_tenant *t = j->f.tenant;
    const enum snap_job_state state = j->f.is.state;
    const uint32_t gpus = (uint32_t)sign * jobpool__gpus(j);

    if (state == SNAP_QUEUED) {
        t->queued += (uint32_t)sign;
        return;
    }
    jobpool__count_array(q, j->array, sign);
    if (state == SNAP_LEFT)
        return;
    t->n_held += (uint32_t)sign;
    t->held += gpus;
    if (j->f.is.is_fixed)
        t->fixed += gpus;
    if (state != SNAP_STOPPING)
        t->running += gpus;
    else if (j->f.is_on_exec)
        q->coming += gpus;
}

void jobpool__enter(struct jobpool *q, struct jobpool_job *j, struct jobpool_group *g)
{
    const struct snap_job *is = &j->f.is;

    tally(q, j, 1);
    if (!is_waiting(j)) {
        enter_running(q, j);
    } else if (g && is->not_before_ns > q->at.now_ns) {
        j->group = g;
        j->place = PLACE_BACKOFF;
        g->n_backoff++;
        sh_tree_add(&q->later, &JOBPOOL_TIMES, &j->timed);
    } else if (g) {
        join_line(j, g);
    }
    jobpool__unsort(q, j->f.tenant);
}

void jobpool__leave(struct jobpool *q, struct jobpool_job *j)
{
    struct jobpool_tenant *t = j->f.tenant;

    leave_tree(&q->off, &JOBPOOL_OFF, &j->off);
    if (j->place == PLACE_LINE) {
        leave_line(q, j);
    } else if (j->place == PLACE_BACKOFF) {
        sh_tree_del(&q->later, &JOBPOOL_TIMES, &j->timed);
        j->group->n_backoff--;
        jobpool__drop_empty(j->group);
        j->group = NULL;
    } else if (j->place != PLACE_NONE) {
        sh_tree_del(&t->runs[j->place == PLACE_GUARDED], &JOBPOOL_RUNS, &j->node);
        if (j->place == PLACE_GUARDED)
            sh_tree_del(&q->guarded, &JOBPOOL_TIMES, &j->timed);
    }
    j->place = PLACE_NONE;
    tally(q, j, -1);
    jobpool__unsort(q, t);
}

/* A job or a tenant is as it should be again when its time has come. */
void jobpool__ripen(struct jobpool *q)
{
    struct sh_tree_node *n;

    while ((n = sh_tree_first(&q->later))) {
        struct jobpool_job *j = SH_TREE_OF(n, struct jobpool_job, timed);

        if (jobpool__ends_ns(j) > q->at.now_ns)
            break;
        sh_tree_del(&q->later, &JOBPOOL_TIMES, n);
        j->group->n_backoff--;
        join_line(j, j->group);
        jobpool__unsort(q, j->f.tenant);
    }
    while ((n = sh_tree_first(&q->guarded))) {
        struct jobpool_job *j = SH_TREE_OF(n, struct jobpool_job, timed);

        if (jobpool__ends_ns(j) > q->at.now_ns)
            break;
        sh_tree_del(&q->guarded, &JOBPOOL_TIMES, n);
        sh_tree_del(&j->f.tenant->runs[JOBPOOL_LATER], &JOBPOOL_RUNS, &j->node);
        j->place = PLACE_RUNS;
        sh_tree_add(&j->f.tenant->runs[JOBPOOL_NOW], &JOBPOOL_RUNS, &j->node);
        jobpool__unsort(q, j->f.tenant);
    }
}

bool jobpool_has_job(const struct jobpool_job *j, const struct jobpool_job_facts *b)
{
    const struct jobpool_job_facts *a = &j->f;
    const struct snap_job *x = &a->is, *y = b ? &b->is : NULL;

    if (!y)
        return !a->tenant;
#define SAME(what) (x->what == y->what)
    return a->tenant == b->tenant && a->array == b->array && a->is_on_exec == b->is_on_exec &&
           a->on == b->on && a->exec_bytes == b->exec_bytes && SAME(line_us) && SAME(level) &&
           SAME(id) && SAME(state) && SAME(priority) && SAME(queue_open) && SAME(model_ready) &&
           SAME(not_before_ns) && SAME(since_ns) && SAME(min_run_ns) && SAME(may_suspend) &&
           SAME(is_fixed) && SAME(fills) && SAME(gpus) && SAME(lasts_ns) && SAME(loss_ns) &&
           SAME(array_max) && SAME(need_bytes) && SAME(version);
#undef SAME
}

int jobpool_set_job(struct jobpool *q, struct jobpool_job *j, const struct jobpool_job_facts *f,
                    struct sh_err *err)
{
    struct jobpool_array *array = NULL;
    struct jobpool_group *g = NULL;
    int rc;

    if (jobpool_has_job(j, f))
        return SH_OK;
    jobpool_del_job(q, j);
    rc = get_array(q, f->array, &array, err);
    if (!rc && f->is.state == SNAP_QUEUED && f->is.queue_open && f->is.model_ready)
        rc = get_group(f, array, &g, err);
    if (rc) {
        drop_array(q, array);
        return rc;
    }
    j->f = *f;
    j->array = array;
    q->n_busy += f->tenant->n_jobs++ == 0;
    jobpool__enter(q, j, g);
    return SH_OK;
}

void jobpool_del_job(struct jobpool *q, struct jobpool_job *j)
{
    if (!j->f.tenant)
        return;
    jobpool__leave(q, j);
    q->n_busy -= --j->f.tenant->n_jobs == 0;
    drop_array(q, j->array);
    j->f.tenant = NULL;
    j->array = NULL;
}

/* ------------------------------------------------------------------ slots */

void jobpool__sort_slot(struct jobpool *q, struct jobpool_slot *x)
{
    sort_in_tree(&q->free, &JOBPOOL_FREE, &x->by_load, x->f.is_up && !x->f.is_taken);
}

void jobpool_set_slot(struct jobpool *q, struct jobpool_slot *x, const struct jobpool_slot_facts *f)
{
    const struct jobpool_slot_facts was = x->f;

    x->f = *f;
    if (sh_tree_has(&x->by_size) != f->is_up || was.pool_bytes != f->pool_bytes ||
        was.index != f->index) {
        leave_tree(&q->slots, &JOBPOOL_SLOTS, &x->by_size);
        if (f->is_up)
            sh_tree_add(&q->slots, &JOBPOOL_SLOTS, &x->by_size);
    }
    if (sh_tree_has(&x->by_load) != (f->is_up && !f->is_taken) || was.n_runs != f->n_runs ||
        was.pool_bytes != f->pool_bytes || was.index != f->index)
        jobpool__sort_slot(q, x);
}

void jobpool_forget_tenant(struct jobpool_tenant *t)
{
    struct sh_tree_node *n;

    while ((n = sh_tree_first(&t->groups))) {
        sh_tree_del(&t->groups, &JOBPOOL_GROUPS, n);
        free(SH_TREE_OF(n, struct jobpool_group, by_key));
    }
    *t = (struct jobpool_tenant){.n_jobs = 0};
}

void jobpool_fini(struct jobpool *q)
{
    for (size_t i = 0; i < q->arrays.cap; i++)
        free(q->arrays.slots[i].value);
    idmap_fini(&q->arrays);
    *q = (struct jobpool){0};
}
