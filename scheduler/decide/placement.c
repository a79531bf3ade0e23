/* placement.c - see placement.h. */
#include "scheduler/decide/placement.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HOMES 16384u
#define STEPS 20       /* of load, in which executors are ordered */
#define LEAST_MOST 0.2 /* a target that leaves less is missed on any device */
#define NO_TARGET 0.7
#define NEWEST 0.1 /* weight of a run among those before it */
#define LEAST_SAMPLES 0.01
#define FEW_EXTRA 2u
#define EXTRA_PART 4u /* of all executors, that load what could be elsewhere */

const char *const PLACE_WHY[PLACE_N_WHYS] = {"homeless", "grow", "apart", "moved", "shrunk"};

double place_most(int64_t run_ns, int64_t slo_ns, double percentile)
{
    const double miss = 1 - percentile / 100;
    double most;

    if (slo_ns <= 0 || run_ns <= 0 || miss <= 0 || miss >= 1)
        return NO_TARGET;
    if (slo_ns <= run_ns)
        return LEAST_MOST;
    most = 1 + log(miss) * (double)run_ns / (2 * (double)(slo_ns - run_ns));
    return SH_MIN(SH_MAX(most, LEAST_MOST), NO_TARGET);
}

static double faded(const struct place_demand *d, int64_t now_ns)
{
    const double ns = (double)SH_MAX(now_ns - d->at_ns, 0);

    return d->samples * exp2(-ns / (double)PLACE_HALF_LIFE_NS);
}

void place_ask(struct place_demand *d, uint32_t samples, int64_t now_ns)
{
    d->samples = faded(d, now_ns) + samples;
    d->at_ns = now_ns;
}

void place_ran(struct place_demand *d, uint32_t samples, int64_t device_ns, double speed)
{
    const double ns = (double)device_ns * speed / SH_MAX(samples, 1u);

    d->sample_ns = d->sample_ns > 0 ? d->sample_ns + NEWEST * (ns - d->sample_ns) : ns;
}

double place_load(const struct place_demand *d, int64_t guess_ns, int64_t now_ns)
{
    const double samples = faded(d, now_ns);

    if (samples < LEAST_SAMPLES)
        return 0;
    return samples * M_LN2 / (double)PLACE_HALF_LIFE_NS *
           (d->sample_ns > 0 ? d->sample_ns : (double)guess_ns);
}

double place_class(double speed)
{
    return exp2(round(2 * log2(speed)) / 2);
}

/* ------------------------------------------------------------------ executors */

static int by_exec_load(const struct sh_tree_node *a, const struct sh_tree_node *b)
{
    const struct place_exec *x = SH_TREE_OF(a, struct place_exec, node);
    const struct place_exec *y = SH_TREE_OF(b, struct place_exec, node);

    if (x->shown != y->shown)
        return x->shown < y->shown ? -1 : 1;
    return (x->f.index > y->f.index) - (x->f.index < y->f.index);
}

static uint64_t exec_host_left(const struct place_exec *x)
{
    if (!x->f.host_bytes)
        return UINT64_MAX;
    return x->f.host_bytes > x->host_used ? x->f.host_bytes - x->host_used : 0;
}

static bool sum_free_below(struct sh_tree_node *n)
{
    struct place_exec *x = SH_TREE_OF(n, struct place_exec, node);
    const uint64_t was = x->free_below;

    x->free_below = exec_host_left(x);
    for (int i = 0; i < 2; i++)
        if (n->kid[i])
            x->free_below =
                SH_MAX(x->free_below, SH_TREE_OF(n->kid[i], struct place_exec, node)->free_below);
    return x->free_below != was;
}

static const struct sh_tree_kind BY_LOAD = {by_exec_load, sum_free_below};

static void leave_execs(struct placement *p, struct place_exec *x)
{
    if (sh_tree_has(&x->node))
        sh_tree_del(&p->execs, &BY_LOAD, &x->node);
}

static void sort_exec(struct placement *p, struct place_exec *x)
{
    x->shown = (int)(x->load * STEPS + 0.5);
    if (!x->f.is_up)
        leave_execs(p, x);
    else if (sh_tree_has(&x->node))
        sh_tree_fix(&p->execs, &BY_LOAD, &x->node);
    else
        sh_tree_add(&p->execs, &BY_LOAD, &x->node);
}

void placement_set_exec(struct placement *p, struct place_exec *x, const struct place_exec_facts *f,
                        int64_t now_ns)
{
    if (x->f.is_up && !f->is_up)
        x->down_ns = now_ns;
    leave_execs(p, x); /* its index may be another one */
    x->f = *f;
    sort_exec(p, x);
}

void placement_del_exec(struct placement *p, struct place_exec *x)
{
    leave_execs(p, x);
    idmap_fini(&x->tenants);
    *x = (struct place_exec){0};
}

static uint64_t tenant_used(const struct place_exec *x, uint64_t tenant)
{
    return (uint64_t)(uintptr_t)idmap_get(&x->tenants, tenant);
}

/* ------------------------------------------------------------------ what homes count for */

static bool is_live_home(const struct place_home *h)
{
    return h->exec->f.is_up && !h->leaves;
}

static double speed_of_all(const struct place_version *v)
{
    double has = 0;

    for (size_t i = 0; i < v->n; i++)
        if (is_live_home(&v->homes[i]))
            has += v->homes[i].exec->f.speed;
    return has;
}

/* A tenant whose sum cannot be noted for lack of memory may have more than its part: the executor
 * itself refuses that. */
static void count_home_bytes(const struct place_version *v, struct place_home *h, uint64_t host,
                             uint64_t device)
{
    struct place_exec *x = h->exec;
    const uint64_t of_tenant = tenant_used(x, v->f.tenant) - h->host_counted + host;

    if (host == h->host_counted && device == h->device_counted)
        return;
    if (of_tenant == 0)
        idmap_del(&x->tenants, v->f.tenant);
    else if (idmap_put(&x->tenants, v->f.tenant, (void *)(uintptr_t)of_tenant, NULL))
        return;
    x->host_used += host - h->host_counted;
    x->device_used += device - h->device_counted;
    h->host_counted = host;
    h->device_counted = device;
}

static void count_home(struct placement *p, const struct place_version *v, struct place_home *h,
                       double share, bool is_there)
{
    struct place_exec *x = h->exec;
    const uint64_t host = h->is_aside || !is_there ? 0 : v->f.host_bytes;
    const bool same = share == h->share && host == h->host_counted;

    if (same && h->device_counted == (is_there ? v->f.device_bytes : 0))
        return;
    count_home_bytes(v, h, host, is_there ? v->f.device_bytes : 0);
    x->load = SH_MAX(x->load + share - h->share, 0.0);
    h->share = share;
    sort_exec(p, x);
}

/* The demand, among those that share it. */
static void spread_load(struct placement *p, struct place_version *v)
{
    const double has = speed_of_all(v);

    for (size_t i = 0; i < v->n; i++) {
        struct place_home *h = &v->homes[i];

        count_home(p, v, h, is_live_home(h) && has > 0 ? v->f.load / has : 0, true);
    }
}

void placement_set_version(struct place_version *v, struct placement *p,
                           const struct place_version_facts *f)
{
    v->f = *f;
    spread_load(p, v);
}

struct place_home *placement_home(const struct place_version *v, const struct place_exec *x)
{
    for (size_t i = 0; i < v->n; i++)
        if (v->homes[i].exec == x)
            return &v->homes[i];
    return NULL;
}

static void no_more_extra(struct placement *p, struct place_home *h)
{
    p->n_extra -= h->is_extra;
    h->is_extra = false;
}

int placement_put(struct placement *p, struct place_version *v, struct place_exec *x,
                  int64_t now_ns, struct sh_err *err)
{
    int rc;

    if (placement_home(v, x))
        return SH_OK;
    rc = sh_grow(&v->homes, &v->cap, v->n + 1, sizeof(*v->homes), MAX_HOMES, "homes of a version",
                 err);
    if (rc)
        return rc;
    v->homes[v->n++] = (struct place_home){.exec = x, .since_ns = now_ns};
    v->spare_ns = 0;
    spread_load(p, v);
    return SH_OK;
}

void placement_take(struct placement *p, struct place_version *v, struct place_exec *x)
{
    struct place_home *h = placement_home(v, x), *old;

    if (!h)
        return;
    old = h->replaces ? placement_home(v, h->replaces) : NULL;
    if (old)
        old->leaves = false;
    for (size_t i = 0; i < v->n; i++)
        if (v->homes[i].replaces == x)
            v->homes[i].replaces = NULL;
    no_more_extra(p, h);
    count_home(p, v, h, 0, false);
    *h = v->homes[--v->n];
    v->spare_ns = 0;
    spread_load(p, v);
}

void placement_del_version(struct placement *p, struct place_version *v)
{
    while (v->n)
        placement_take(p, v, v->homes[v->n - 1].exec);
    free(v->homes);
    *v = (struct place_version){0};
}

void placement_tell(struct placement *p, struct place_version *v, struct place_exec *x,
                    bool is_ready, bool is_aside, int64_t now_ns)
{
    struct place_home *h = placement_home(v, x);

    if (!h)
        return;
    if (is_ready && !h->is_ready) {
        no_more_extra(p, h);
        h->since_ns = now_ns;
    }
    h->is_ready = is_ready;
    h->is_aside = is_aside;
    spread_load(p, v);
}

/* ------------------------------------------------------------------ where to */

struct want { /* of a place for a version */
    const struct placement *p;
    const struct place_version *v;
    uint64_t bytes; /* of host memory */
    double has;     /* speed of those among which it is shared already */
};

static bool device_holds(const struct place_version *v, const struct place_exec *x)
{
    return x->device_used + v->f.device_bytes <= x->f.device_bytes;
}

static bool has_exec_room(const struct want *w, const struct place_exec *x)
{
    const struct place_version_facts *f = &w->v->f;
    const uint64_t most = f->tenant_host_bytes ? f->tenant_host_bytes : x->f.host_bytes / 2;

    if (f->device_bytes > x->f.device_bytes || (f->is_pinned && !device_holds(w->v, x)))
        return false;
    return w->bytes <= exec_host_left(x) && (!most || tenant_used(x, f->tenant) + w->bytes <= most);
}

static bool may(const struct want *w, const struct place_exec *x)
{
    return x->f.is_up && !placement_home(w->v, x) && w->p->takes(w->p->arg, w->v, x);
}

static double load_after(const struct want *w, const struct place_exec *x)
{
    return x->load + w->v->f.load / (w->has + x->f.speed);
}

static int rounded_load(double load)
{
    return (int)(load * 10 + 0.5);
}

static bool is_near_exec(const struct want *w, const struct place_exec *x)
{
    return w->p->is_near(w->p->arg, w->v, x);
}

/* Of one that is asked for: where it has least company. */
static int compare_used(const struct want *w, const struct place_exec *a,
                        const struct place_exec *b)
{
    const int la = rounded_load(load_after(w, a)), lb = rounded_load(load_after(w, b));

    if (la != lb)
        return la < lb ? -1 : 1;
    if (is_near_exec(w, a) != is_near_exec(w, b))
        return is_near_exec(w, a) ? -1 : 1;
    if (device_holds(w->v, a) != device_holds(w->v, b))
        return device_holds(w->v, a) ? -1 : 1;
    return a->device_used == b->device_used ? 0 : a->device_used < b->device_used ? -1 : 1;
}

/* Of one that hardly anybody asks for: where it fills what is not needed otherwise. */
static int compare_idle(const struct want *w, const struct place_exec *a,
                        const struct place_exec *b)
{
    const bool a_cool = a->load < PLACE_HOT / 2, b_cool = b->load < PLACE_HOT / 2;
    const bool a_holds = device_holds(w->v, a), b_holds = device_holds(w->v, b);

    if (a_cool != b_cool)
        return a_cool ? -1 : 1;
    if (a_holds != b_holds)
        return a_holds ? -1 : 1;
    if (is_near_exec(w, a) != is_near_exec(w, b))
        return is_near_exec(w, a) ? -1 : 1;
    if (a->device_used == b->device_used)
        return 0;
    return (a->device_used > b->device_used) == a_holds ? -1 : 1;
}

static bool is_better_exec(const struct want *w, const struct place_exec *a,
                           const struct place_exec *b)
{
    const int c = w->v->f.load < PLACE_SMALL ? compare_idle(w, a, b) : compare_used(w, a, b);

    return c ? c < 0 : a->f.index < b->f.index;
}

static bool one_has_room(const struct sh_tree_node *n, const void *arg)
{
    const struct want *w = arg;

    return exec_host_left(SH_TREE_OF(n, struct place_exec, node)) >= w->bytes;
}

static bool any_has_room(const struct sh_tree_node *n, const void *arg)
{
    const struct want *w = arg;

    return SH_TREE_OF(n, struct place_exec, node)->free_below >= w->bytes;
}

/* NULL: it fits nowhere. */
static struct place_exec *best_place(const struct want *w)
{
    const struct sh_tree_ask ask = {one_has_room, any_has_room, w};
    struct place_exec *best = NULL;
    struct sh_tree_node *n = sh_tree_first_with(&w->p->execs, &ask);

    for (unsigned seen = 0; n && (seen < PLACE_SEEN || !best); n = sh_tree_next_with(n, &ask)) {
        struct place_exec *x = SH_TREE_OF(n, struct place_exec, node);

        if (!may(w, x) || !has_exec_room(w, x))
            continue;
        seen++;
        if (!best || is_better_exec(w, x, best))
            best = x;
    }
    return best;
}

/* Where others that nobody asks for would have to make least room; or it fits nowhere, and who is
 * asked says why. */
static struct place_exec *fullest_place(const struct want *w)
{
    struct place_exec *best = NULL;
    struct sh_tree_node *n = sh_tree_first(&w->p->execs);

    for (unsigned seen = 0; n && (seen < PLACE_SEEN || !best); n = sh_tree_next(n)) {
        struct place_exec *x = SH_TREE_OF(n, struct place_exec, node);

        if (!may(w, x))
            continue;
        seen++;
        if (!best || exec_host_left(x) > exec_host_left(best))
            best = x;
    }
    return best;
}

static struct want want_of(const struct placement *p, const struct place_version *v)
{
    return (struct want){.p = p, .v = v, .bytes = v->f.host_bytes, .has = speed_of_all(v)};
}

/* ------------------------------------------------------------------ moves */

static bool is_worth(double gain, int64_t cost_ns)
{
    return gain * (double)PLACE_HORIZON_NS >= (double)cost_ns;
}

static bool add_home(struct placement *p, struct place_version *v, struct place_exec *x,
                     enum place_why why, int64_t now_ns, struct place_move *out)
{
    if (!x || placement_put(p, v, x, now_ns, NULL))
        return false;
    v->homes[v->n - 1].is_extra = why != PLACE_HOMELESS;
    p->n_extra += why != PLACE_HOMELESS;
    *out = (struct place_move){.why = why, .version = v, .exec = x};
    return true;
}

static bool drop_home(struct placement *p, struct place_version *v, struct place_exec *x,
                      enum place_why why, struct place_move *out)
{
    placement_take(p, v, x);
    *out = (struct place_move){.why = why, .is_drop = true, .version = v, .exec = x};
    return true;
}

bool placement_more(struct placement *p, struct place_version *v, int64_t now_ns,
                    struct place_move *out)
{
    const struct want w = want_of(p, v);

    return add_home(p, v, best_place(&w), PLACE_HOMELESS, now_ns, out);
}

/* One that is gone counts as a home for as long as it may be back, unless somebody waits. */
static bool counts_as_home(const struct placement *p, const struct place_version *v,
                           const struct place_home *h, int64_t now_ns)
{
    const bool is_used = v->f.is_urgent || v->f.is_pinned || v->f.load > 0;

    return h->exec->f.is_up || (!is_used && now_ns - h->exec->down_ns < p->grace_ns);
}

static bool find_home(struct placement *p, struct place_version *v, int64_t now_ns,
                      struct place_move *out)
{
    const struct want w = want_of(p, v);
    uint32_t n = 0, n_up = 0;
    struct place_exec *x;

    for (size_t i = 0; i < v->n; i++) {
        n += counts_as_home(p, v, &v->homes[i], now_ns);
        n_up += v->homes[i].exec->f.is_up;
    }
    if (n >= SH_MAX(v->f.min_copies, 1u) || n_up == p->execs.n)
        return false;
    x = best_place(&w);
    if (x || n_up)
        return add_home(p, v, x, PLACE_HOMELESS, now_ns, out);
    if (!add_home(p, v, fullest_place(&w), PLACE_HOMELESS, now_ns, out))
        return false;
    out->is_over = true;
    return true;
}

/* One that has gone is not waited for when others are there. */
static bool forget_home(struct placement *p, struct place_version *v, struct place_move *out)
{
    struct place_exec *gone = NULL;
    uint32_t n_up = 0;

    for (size_t i = 0; i < v->n; i++) {
        n_up += v->homes[i].exec->f.is_up;
        if (!v->homes[i].exec->f.is_up)
            gone = v->homes[i].exec;
    }
    return gone && n_up >= SH_MAX(v->f.min_copies, 1u) && drop_home(p, v, gone, PLACE_MOVED, out);
}

/* Where the old home is still held, another look will see. */
static bool finish_move(struct placement *p, struct place_version *v, struct place_move *out)
{
    for (size_t i = 0; i < v->n; i++) {
        struct place_home *h = &v->homes[i], *old;

        if (!h->is_ready || !h->replaces)
            continue;
        old = placement_home(v, h->replaces);
        if (old && old->is_held)
            continue;
        h->replaces = NULL;
        if (old)
            return drop_home(p, v, old->exec, PLACE_MOVED, out);
    }
    return false;
}

static bool may_load_more(const struct placement *p, const struct place_version *v)
{
    size_t ready = 0, coming = 0;

    for (size_t i = 0; i < v->n; i++) {
        ready += v->homes[i].is_ready;
        coming += !v->homes[i].is_ready;
    }
    return coming < ready && p->n_extra < SH_MAX(FEW_EXTRA, p->execs.n / EXTRA_PART);
}

static struct place_home *hottest(const struct place_version *v)
{
    struct place_home *worst = NULL;

    for (size_t i = 0; i < v->n; i++)
        if (is_live_home(&v->homes[i]) && (!worst || v->homes[i].exec->load > worst->exec->load))
            worst = &v->homes[i];
    return worst;
}

static bool grow_homes(struct placement *p, struct place_version *v, int64_t now_ns,
                       struct place_move *out)
{
    const struct want w = want_of(p, v);
    const struct place_home *worst = hottest(v);
    struct place_exec *x;

    if (v->f.load <= v->f.most * w.has || !worst || !may_load_more(p, v) ||
        !is_worth(v->f.load - v->f.most * w.has, v->f.load_ns))
        return false;
    x = best_place(&w);
    return x && load_after(&w, x) < worst->exec->load && add_home(p, v, x, PLACE_GROW, now_ns, out);
}

/* Away from an executor that others use as well. */
static bool move_apart(struct placement *p, struct place_version *v, int64_t now_ns,
                       struct place_move *out)
{
    struct place_home *h = hottest(v);
    struct place_exec *from = h ? h->exec : NULL, *x;
    struct want w = want_of(p, v);
    double load, after;

    if (!h || !h->is_ready || h->is_held || h->replaces || from->load < PLACE_HOT ||
        !may_load_more(p, v) || h->share < PLACE_SMALL || from->load - h->share < PLACE_SMALL)
        return false;
    w.has -= from->f.speed;
    load = from->load;
    x = best_place(&w);
    if (!x)
        return false;
    after = SH_MAX(load_after(&w, x), load - h->share);
    if (load - after < PLACE_MARGIN || !is_worth(load - after, v->f.load_ns))
        return false;
    if (!add_home(p, v, x, PLACE_APART, now_ns, out))
        return false;
    v->homes[v->n - 1].replaces = from;
    placement_home(v, from)->leaves = true;
    spread_load(p, v);
    return true;
}

static bool is_less(const struct want *w, const struct place_home *a, const struct place_home *b)
{
    return a->is_aside != b->is_aside ? a->is_aside : is_better_exec(w, b->exec, a->exec);
}

/* The home that is missed least; NULL: all are needed. */
static struct place_home *spare(const struct placement *p, const struct place_version *v)
{
    struct want w = want_of(p, v);
    struct place_home *worst = NULL;
    uint32_t n_up = 0;

    for (size_t i = 0; i < v->n; i++) {
        struct place_home *h = &v->homes[i];

        if (!is_live_home(h) || (!h->is_ready && !h->is_aside))
            continue;
        n_up++;
        if (!h->is_held && !h->replaces && (!worst || is_less(&w, h, worst)))
            worst = h;
    }
    if (!worst || n_up <= SH_MAX(v->f.min_copies, 1u))
        return NULL;
    w.has -= worst->exec->f.speed;
    return v->f.load <= PLACE_SHRINK * v->f.most * w.has ? worst : NULL;
}

static bool shrink_homes(struct placement *p, struct place_version *v, int64_t now_ns,
                         struct place_move *out)
{
    const struct place_home *h = spare(p, v);
    const int64_t hold = SH_MIN(PLACE_HOLD_NS + v->f.load_ns, PLACE_MAX_HOLD_NS);
    int64_t since_ns;

    if (!h)
        v->spare_ns = 0;
    else if (!v->spare_ns)
        v->spare_ns = now_ns;
    if (!h || now_ns - SH_MAX(v->spare_ns, h->since_ns) < hold)
        return false;
    since_ns = v->spare_ns;
    drop_home(p, v, h->exec, PLACE_SHRUNK, out);
    v->spare_ns = since_ns; /* those that are as little needed go at once */
    return true;
}

bool placement_look(struct placement *p, struct place_version *v, int64_t now_ns,
                    struct place_move *out)
{
    if (finish_move(p, v, out))
        return true;
    if (!v->f.is_wanted)
        return false;
    return find_home(p, v, now_ns, out) || forget_home(p, v, out) ||
           grow_homes(p, v, now_ns, out) || move_apart(p, v, now_ns, out) ||
           shrink_homes(p, v, now_ns, out);
}
