/* oracles_exec.c - see oracles_exec.h. */
#include "tests/sim/oracles_exec.h"

#include "common/ckpt.h"
#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"
#include "executor/memory/residency_int.h"
#include "executor/pool/waits.h"
#include "executor/runs/switch_int.h"
#include "executor/training/train_int.h"
#include "tests/sim/content.h"
#include "tests/sim/executor.h"
#include "tests/sim/shortage.h"
#include "tests/sim/worker.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_EXECS 64
#define CALM_NS SH_S(20)        /* after a disturbance */
#define STOP_BOUND_NS SH_MS(12) /* of an operation or an update, with the ways to and fro */

#define HUNG_NS SH_S(3) /* one that is silent is looked at so late, and gone */

#define DRIFT 1000 /* a clock of the simulation is off by less than one part in so many */
#define MAX_PIECE_NS (WAITS_NOBODY_NS + WAITS_NOBODY_NS / DRIFT) /* of one that takes runs */

#define LACKS_TURNS 16u /* of all executors: a look in so many */
#define BUDGET_NS SH_S(1)
#define TOLD_NS SH_S(1)
#define LULL_NS SH_MS(300) /* an executor has something to do more often */

#define MAX_TENANTS 8u /* of the simulation */
#define MAX_WORKERS 64u

static struct watched {
    const struct sim_exec *e;
    const struct exec *x; /* of which process what follows is */
    const struct job *job;
    int64_t max_step, newest_step; /* that it was at; of its newest copy, -1: it has none */
    uint32_t used[MAX_TENANTS];    /* blocks */
    struct at_work {
        pid_t pid;
        int64_t since_ns; /* 0: it has nothing to do */
    } at_work[MAX_WORKERS];
    struct seen_slot {
        bool is_valid;
        int64_t step;
        const void *base;
    } slots[JOB_N_SLOTS];
} watched[MAX_EXECS];

static struct told {
    const struct exec *x; /* NULL: nothing was told */
    char tenant[16];
    uint64_t min_bytes, max_bytes; /* whole blocks; max 0: all */
    uint64_t n_short;              /* sim_shortage_n() when it was told */
    unsigned host;                 /* of the scheduler */
    int64_t since_ns, turn_ns;
} tenants[MAX_TENANTS];

static int64_t calm_from_ns;
static bool have_lies;
static oracles_begun_fn *on_begun; /* NULL: nobody asks */

void oracles_exec_disturbed(int64_t for_ns)
{
    const int64_t until = sim_now() + for_ns + CALM_NS;

    calm_from_ns = SH_MAX(calm_from_ns, until);
}

void oracles_exec_on_begun(oracles_begun_fn *fn)
{
    on_begun = fn;
}

void oracles_exec_lies(void)
{
    have_lies = true;
}

static struct watched *watched_of(const struct sim_exec *e)
{
    size_t i = 0;

    while (watched[i].e && watched[i].e != e)
        i++;
    watched[i].e = e;
    if (watched[i].x != e->x)
        watched[i] = (struct watched){.e = e, .x = e->x};
    return &watched[i];
}

/* ------------------------------------------------------------------ device memory */

static void check_range(const struct exec *x, const struct space_range *r, enum arena_kind kind,
                        const char *what)
{
    const struct arena *a = residency_arena(space_residency(x->space));
    uint32_t at = r->blocks.first;
    const uint32_t end = at + r->blocks.n;

    while (at < end) {
        const struct arena_seg g = arena_seg_at(a, at);

        SIM_CHECK("memory", g.n > 0 && g.kind == kind, "block %u of the %s is of kind %d", at, what,
                  (int)g.kind);
        at += g.n;
    }
}

/* Who takes blocks that count as zeroed writes to them at once. */
static void check_scrubs(const struct exec *x, const struct arena *a)
{
    const struct sim_device *d = sim_device_of_mem(x->mem);
    const unsigned zero = 1u << SIM_LANE_ZERO;
    uint32_t n = 0;
    const struct arena_seg *segs = arena_segs(a, &n);

    if (!sim_device_will_write(d, zero, 0, dev_mem_bytes(x->mem)))
        return;
    for (uint32_t i = 0; i < n; i++)
        SIM_CHECK("scrub",
                  segs[i].tag != ARENA_CLEAN ||
                      !sim_device_will_write(d, zero, (size_t)segs[i].first * DEV_BLOCK,
                                             (size_t)segs[i].n * DEV_BLOCK),
                  "of %u blocks at %u, which count as zeroed, some are still to be", segs[i].n,
                  segs[i].first);
}

static void check_memory(const struct exec *x)
{
    struct residency *r = space_residency(x->space);
    const struct arena *a = residency_arena(r);
    const struct job *j = x->train->job;
    uint32_t training = 0;
    struct sh_err err = {0};

    if (residency_check(r, &err))
        sim_broken("memory", "%s", err.msg);
    check_scrubs(x, a);
    if (j && job_has_state(j)) {
        check_range(x, &j->state, ARENA_TRAIN, "state");
        training += j->state.blocks.n;
    }
    if (j && job_has_ws(j)) {
        check_range(x, &j->ws, ARENA_TRAIN, "training's workspace");
        training += j->ws.blocks.n;
    }
    SIM_CHECK("memory", training == arena_count(a, ARENA_TRAIN),
              "training has %u blocks, and %u are its", training, arena_count(a, ARENA_TRAIN));
    if (j && job_has_state(j) && job_has_ws(j))
        SIM_CHECK("memory",
                  j->state.blocks.first + j->state.blocks.n <= j->ws.blocks.first ||
                      j->ws.blocks.first + j->ws.blocks.n <= j->state.blocks.first,
                  "state and workspace of training overlap");
}

/* Above what a tenant may have (a quota that was lowered) it gets no more. */
static void check_quotas(struct watched *k, const struct exec *x)
{
    const struct residency *r = space_residency(x->space);

    for (uint32_t tag = 1; tag < MAX_TENANTS; tag++) {
        const uint32_t used = residency_used(r, tag), max = residency_quota(r, tag).max_blocks;

        SIM_CHECK("memory-quota", used <= SH_MAX(max, k->used[tag]),
                  "tenant %u has %u blocks, had %u, and may have %u", tag, used, k->used[tag], max);
        k->used[tag] = used;
    }
}

static bool is_real(const struct residency *r)
{
    const struct sim_exec *e = sim_self() ? sim_exec_of(sim_self()) : NULL;
    const struct exec *x = e ? sim_exec_running(e) : NULL;

    return x && x->space && space_residency(x->space) == r;
}

static void note_used(const struct residency *r, uint32_t used[static MAX_TENANTS])
{
    for (uint32_t tag = 1; tag < MAX_TENANTS; tag++)
        used[tag] = residency_used(r, tag);
}

/* What a tenant has for it alone is not taken for another, unless there is no other way. */
static void check_kept(const struct residency *r, const uint32_t was[static MAX_TENANTS],
                       uint32_t own)
{
    for (uint32_t tag = 1; tag < MAX_TENANTS && !r->yields; tag++) {
        const uint32_t now = residency_used(r, tag), min = residency_quota(r, tag).min_blocks;

        SIM_CHECK("guaranteed", tag == own || now >= SH_MIN(was[tag], min),
                  "tenant %u had %u blocks, has %u for it alone, and %u are left to it", tag,
                  was[tag], min, now);
    }
}

int __wrap_residency_place(struct residency *r, uint32_t id, bool may_evict,
                           struct residency_place *out, struct sh_err *err)
{
    uint32_t was[MAX_TENANTS];
    int rc;

    if (!is_real(r))
        return residency_place(r, id, may_evict, out, err);
    note_used(r, was);
    rc = residency_place(r, id, may_evict, out, err);
    check_kept(r, was, residency_tag(r, id));
    return rc;
}

int __wrap_residency_alloc(struct residency *r, const struct residency_need *need,
                           struct arena_range *out, uint32_t *evicted_out, struct sh_err *err)
{
    uint32_t was[MAX_TENANTS];
    int rc;

    if (!is_real(r))
        return residency_alloc(r, need, out, evicted_out, err);
    note_used(r, was);
    rc = residency_alloc(r, need, out, evicted_out, err);
    check_kept(r, was, need->tag);
    return rc;
}

/* What is copied goes to memory that somebody has. */
static void on_lane(struct sim_proc *owner, enum sim_lane_use use, size_t off, size_t bytes)
{
    const struct sim_exec *e = sim_exec_of(owner);
    const struct exec *x = e ? sim_exec_running(e) : NULL;
    const struct arena *a;

    if (!x || !x->space || use == SIM_LANE_ZERO)
        return;
    a = residency_arena(space_residency(x->space));
    for (size_t b = off / DEV_BLOCK; b * DEV_BLOCK < off + bytes; b++) {
        const struct arena_seg g = arena_seg_at(a, (uint32_t)b);

        SIM_CHECK("lane", g.n > 0 && g.kind != ARENA_FREE,
                  "a copy (use %d) of %zu bytes at %zu touches block %zu, which nobody has",
                  (int)use, bytes, off, b);
    }
}

/* ------------------------------------------------------------------ workers */

/* Who lacks models is looked for from time to time only. */
static void check_lacks(const struct exec *x)
{
    static unsigned n;

    SIM_CHECK("lacks", ++n % LACKS_TURNS || lacks_are_known(x->store),
              "workers lack other models than the store thinks");
}

/* One that stands still with work to do is ended in time, whatever else becomes of that work. */
static void check_silent(struct watched *k, const struct exec *x, size_t i)
{
    const struct worker *w = pool_at(x->pool, i);
    const bool works = w->preparing || w->job_compiling || w->state == WORKER_ACTIVE;
    struct at_work *a = &k->at_work[i];
    const int64_t hung_ns = sim_worker_hung_ns(w->pid);

    if (a->pid != w->pid || !works || !a->since_ns)
        *a = (struct at_work){w->pid, works ? sim_now() : 0};
    if (hung_ns && works && sim_now() > calm_from_ns)
        SIM_CHECK("hang",
                  sim_now() - SH_MAX(hung_ns, a->since_ns) <=
                      SH_MS(x->conf->compile_ms) + w->grace_ns + HUNG_NS,
                  "worker %zu stands still with work to do, and is left alone", i);
}

static bool takes_runs(const struct exec *x, const struct worker *w)
{
    const struct job *j = x->train->job;

    return worker_may_run(w) || (w->state == WORKER_ACTIVE && !(j && job_runs(j) && j->w == w));
}

/* What is told of a version is the wait for a worker that compiles, of this moment or of late, or
 * in its last load; or one that has the version is free. Of one that nobody could run for long it
 * is told that it is not READY. */
static void check_wait(const struct exec *x, const struct model *m)
{
    const int64_t told = m->wait_told_ns;
    int64_t longest = 0, least = 0;
    bool is_free = false, is_served = false;

    for (size_t i = 0; i < pool_size(x->pool); i++) {
        const struct worker *w = pool_at(x->pool, i);
        const struct sim_pieces p = sim_worker_pieces(w->pid);
        const bool serves = worker_has_model(w, m->handle) && takes_runs(x, w);

        longest = SH_MAX(longest, p.longest_ns);
        is_free |= serves && !w->preparing;
        is_served |= serves && (!w->preparing || p.present_ns < MAX_PIECE_NS);
        if (serves && w->preparing)
            least = SH_MAX(least, SH_MAX(p.present_ns, p.last_ns));
    }
    SIM_CHECK("served", is_served, "version %" PRId64 " is READY, and nobody takes runs of it",
              m->handle);
    if (told == WAITS_NOBODY_NS)
        return;
    SIM_CHECK("wait", told <= longest + longest / DRIFT + WAITS_STEP_NS,
              "a run waits %.3f ms for a worker, and no piece took longer than %.3f ms",
              (double)told / 1e6, (double)longest / 1e6);
    SIM_CHECK("wait", is_free || told >= least - least / DRIFT,
              "a run waits %.3f ms for a worker whose present or last piece has taken %.3f ms",
              (double)told / 1e6, (double)least / 1e6);
}

static void check_waits(const struct exec *x)
{
    for (struct model *m = store_next(x->store, NULL); m; m = store_next(x->store, m))
        if (m->is_served && m->handle > 0 && x->report.uplink.is_greeted)
            check_wait(x, m);
}

static void check_workers(struct watched *k, const struct exec *x)
{
    for (size_t i = 0; i < pool_size(x->pool); i++) {
        const struct worker *w = pool_at(x->pool, i);
        const bool serves =
            w->state == WORKER_ACTIVE || w->state == WORKER_PARKED || w->state == WORKER_CLEANING;

        SIM_CHECK("workers", w->state != WORKER_DEAD || w->pid == 0 || !w->wire,
                  "worker %zu is dead and has a process", i);
        SIM_CHECK("workers", !serves || w->pid > 0, "worker %zu serves and has no process", i);
        SIM_CHECK("workers", w->state != WORKER_PARKED || (x->train->job && x->train->job->w == w),
                  "worker %zu is parked, and no job is paused in it", i);
        check_silent(k, x, i);
    }
}

/* ------------------------------------------------------------------ the job */

static void check_words(const struct job *j, const struct slot *s)
{
    const uint64_t *w = s->mem.base;
    const size_t n = j->written_bytes / sizeof(*w);
    const size_t i = sim_state_look(sim_word_tenant(w[0]), j->id, s->step, w, 0, n);

    SIM_CHECK("state", i == n,
              "job %" PRId64 ": the copy of step %" PRId64 " has word %zu of step %" PRId64
              " (%016llx)",
              j->id, s->step, i, sim_state_step(w[i]), (unsigned long long)w[i]);
}

/* What no step writes is as the job began, as long as it is. */
static void check_fixed(const struct job *j)
{
    const size_t all = j->state_bytes / sizeof(uint64_t), at = sim_state_written(j->id, all);
    const uint64_t *w = j->fixed.base;
    size_t i;

    SIM_CHECK("state", j->written_bytes == at * sizeof(*w),
              "job %" PRId64 ": steps write %" PRIu64 " bytes, not %zu", j->id, j->written_bytes,
              at * sizeof(*w));
    if (at == all)
        return;
    i = sim_state_look(sim_word_tenant(w[0]), j->id, SIM_FIXED, w, at, all - at);
    SIM_CHECK("state", i == all - at, "job %" PRId64 ": word %zu of what no step writes is %016llx",
              j->id, at + i, (unsigned long long)w[i]);
}

/* A copy that becomes valid is whole, and of one step; so is it as long as it is. */
static void check_slots(struct watched *k, struct job *j)
{
    for (int i = 0; i < JOB_N_SLOTS; i++) {
        struct slot *s = &j->slots[i];
        const struct seen_slot now = {s->state == COPY_WHOLE, s->step, s->mem.base};

        if (now.is_valid && (!k->slots[i].is_valid || k->slots[i].step != now.step ||
                             k->slots[i].base != now.base || sim_below(64) == 0))
            check_words(j, s);
        SIM_CHECK("state", !now.is_valid || s != j->filling,
                  "job %" PRId64 ": a copy that counts is written to", j->id);
        k->slots[i] = now;
    }
}

/* One that was told to go just before waits for the state, which comes behind what else is on the
 * lane. */
static int64_t on_its_way_ns(const struct job *j)
{
    const double all = tx_lane_beta_ns(j->env->tx) * (double)dev_mem_bytes(j->env->mem);

    return j->stop_ns - j->go_ns < (int64_t)all ? (int64_t)all : 0;
}

static void check_job(struct watched *k, struct job *j)
{
    const bool is_new = k->job != j;
    const struct slot *newest;

    if (is_new) {
        k->job = j;
        k->max_step = 0;
        k->newest_step = -1;
        memset(k->slots, 0, sizeof(k->slots));
        if (on_begun && j->build == JOB_BUILT)
            on_begun(k->e->name, j->id, j->attempt, j->resume_step);
    }
    if (j->build != JOB_BUILT) {
        k->job = NULL; /* another one may lie where it lay */
        return;
    }
    check_slots(k, j);
    if (is_new || sim_below(64) == 0)
        check_fixed(j);
    newest = slots_newest(j);
    SIM_CHECK("steps", j->max_step >= k->max_step && j->step <= j->steps && j->max_step <= j->steps,
              "job %" PRId64 ": step %" PRId64 " (max %" PRId64 ", was %" PRId64 ") of %" PRId64,
              j->id, j->step, j->max_step, k->max_step, j->steps);
    k->max_step = j->max_step;
    SIM_CHECK("unsaved",
              job_has_state(j) || job_runs(j) || job_has_ended(j) || j->end == END_CANCEL ||
                  (newest && newest->step == j->step),
              "job %" PRId64 " has left the device at step %" PRId64
              ", and the newest copy of it is "
              "of step %" PRId64,
              j->id, j->step, newest ? newest->step : -1);
    SIM_CHECK("unsaved", (newest ? newest->step : -1) >= k->newest_step,
              "job %" PRId64 ": the copy of step %" PRId64 " is gone, and no newer one is whole",
              j->id, k->newest_step);
    k->newest_step = newest ? newest->step : -1;
    SIM_CHECK("steps", !job_runs(j) || (j->w && job_has_state(j) && job_has_ws(j)),
              "job %" PRId64 " runs without worker or memory", j->id);
    if ((j->stand == JOB_STOPPING || j->stand == JOB_YIELDING) && sim_now() > calm_from_ns)
        SIM_CHECK("stop", sh_clock_ns() - j->stop_ns < STOP_BOUND_NS + on_its_way_ns(j),
                  "job %" PRId64 " has not stopped %.3f ms after it was told", j->id,
                  (double)(sh_clock_ns() - j->stop_ns) / 1e6);
}

static int64_t held_by(const struct run *r)
{
    return r && r->is_own ? r->held_ns : 0;
}

/* Each moment is somebody's, and once: what is not counted yet is what the job, or a run of a job,
 * will count. */
static void check_time(const struct exec *x)
{
    const struct job *j = x->train->job;
    const int64_t runs = j && job_runs(j) ? sh_clock_ns() - j->go_ns : 0;
    int64_t due = j ? j->busy_ns + j->eval_ns + runs - j->counted_ns : 0;

    due += held_by(x->sw->current);
    for (const struct run *r = x->sw->queue; r; r = r->next)
        due += held_by(r);
    SIM_CHECK("time", usage_uncounted_ns(x->report.usage) == due,
              "%" PRId64 " ns of the device's time are not counted, and %" PRId64 " are to be",
              usage_uncounted_ns(x->report.usage), due);
}

/* ------------------------------------------------------------------ runs */

/* What holds the image of a version where it is: it is brought before somebody asks, it is copied,
 * the run needs it. */
static uint32_t n_holders(const struct exec *x, const struct model *m)
{
    const struct run *r = x->sw->current;
    const bool is_copied =
        m->is_placed || m->rest != MODEL_REST_NONE || m->has_mark || (m->is_broken && !m->is_lost);

    return (uint32_t)m->is_kept + is_copied + (r && r->has_pin && r->model == m);
}

/* A pin that is dropped too early lets a run compute with another's image; one that stays takes its
 * memory from all others. */
static void check_pins(const struct exec *x)
{
    for (const struct model *m = store_next(x->store, NULL); m; m = store_next(x->store, m)) {
        const uint32_t n =
            m->has_image ? residency_pins(space_residency(x->space), m->res) : n_holders(x, m);

        SIM_CHECK("pins", n == n_holders(x, m), "version %" PRId64 " has %u pins, and %u hold it",
                  m->handle, n, n_holders(x, m));
    }
}

/* Who waits is told in time that there will be nothing. */
static void check_budgets(const struct exec *x)
{
    const struct run *now = x->sw->current;
    int64_t first_ns = now && now->phase != RUN_ACTIVE ? now->deadline_ns : INT64_MAX;

    SIM_CHECK("queue", x->sw->n_queued <= (size_t)x->conf->max_queued_runs + 2 * MAX_WORKERS,
              "%zu runs wait", x->sw->n_queued);
    for (const struct run *r = x->sw->queue; r; r = r->next)
        first_ns = SH_MIN(first_ns, r->deadline_ns);
    SIM_CHECK("budget", sim_now() < calm_from_ns || sh_clock_ns() - BUDGET_NS < first_ns,
              "a run waits on the device, and its time was over %.3f s ago",
              (double)(sh_clock_ns() - first_ns) / 1e9);
}

/* ------------------------------------------------------------------ what was said of tenants */

void oracles_exec_told(const struct sim_exec *e, unsigned tenant, const struct msg_tenant_memory *m)
{
    struct told *t = &tenants[tenant];

    *t = (struct told){.x = sim_exec_running(e),
                       .n_short = sim_shortage_n(),
                       .min_bytes = m->min_bytes,
                       .max_bytes = m->max_bytes,
                       .host = sim_proc_host(sim_self()),
                       .since_ns = sim_now()};
    sh_strlcpy(t->tenant, m->tenant, sizeof(t->tenant));
}

void oracles_exec_told_nothing(void)
{
    memset(tenants, 0, sizeof(tenants));
}

/* It goes by the newest quota that it was told, once that has come. */
static void check_told(const struct exec *x, unsigned host)
{
    const uint64_t all = arena_blocks(residency_arena(space_residency(x->space)));

    for (size_t i = 0; i < MAX_TENANTS; i++) {
        struct told *t = &tenants[i];
        struct residency_quota q;
        uint32_t tag;

        /* It was stopped, perhaps, or what was said is on its way. */
        if (sim_now() - t->turn_ns > LULL_NS || !sim_net_is_well(host, t->host))
            t->since_ns = SH_MAX(t->since_ns, sim_now());
        t->turn_ns = sim_now();
        if (sim_now() - t->since_ns < TOLD_NS && sim_shortage_n() != t->n_short)
            t->x = NULL; /* it may have had no memory for it */
        if (t->x != x || sim_now() - t->since_ns < TOLD_NS ||
            space_tag(x->space, t->tenant, &tag, NULL))
            continue;
        q = residency_quota(space_residency(x->space), tag);
        SIM_CHECK("quota",
                  q.min_blocks == SH_MIN(t->min_bytes / DEV_BLOCK, all) &&
                      q.max_blocks ==
                          (t->max_bytes ? SH_MIN(t->max_bytes / DEV_BLOCK, all) : RESIDENCY_NO_MAX),
                  "tenant %s has %" PRIu64 " bytes for it alone and at most %" PRIu64
                  ", and goes by %u blocks and %u",
                  t->tenant, t->min_bytes, t->max_bytes, q.min_blocks, q.max_blocks);
    }
}

static void on_turn(struct sim_proc *p)
{
    const struct sim_exec *e = sim_exec_of(p);
    const struct exec *x = e ? sim_exec_running(e) : NULL;

    if (!x || !x->agent)
        return;
    check_workers(watched_of(e), x);
    check_waits(x);
    check_lacks(x);
    check_memory(x);
    check_quotas(watched_of(e), x);
    check_time(x);
    check_pins(x);
    oracles__check_packed(x);
    oracles__check_shared(x);
    check_budgets(x);
    check_told(x, sim_proc_host(p));
    if (x->train->job)
        check_job(watched_of(e), x->train->job);
}

void oracles_exec_begin(void)
{
    sim_on_turn(on_turn);
    sim_device_watch(on_lane);
}

static bool has_part(const struct run *r, uint64_t api_id, uint64_t rid)
{
    for (size_t i = 0; r && !r->is_own && i < r->n_parts + r->n_rest; i++)
        if (r->parts[i].api_id == api_id && r->parts[i].rid == rid)
            return true;
    return false;
}

bool oracle_exec_is_through(const struct sim_proc *executor, uint64_t api_id, uint64_t rid)
{
    const struct sim_exec *e = sim_exec_of(executor);
    const struct exec *x = e ? sim_exec_running(e) : NULL;
    bool has = !x || has_part(x->sw->current, api_id, rid);

    for (const struct run *r = has ? NULL : x->sw->queue; r; r = r->next)
        has = has || has_part(r, api_id, rid);
    return !has;
}

bool oracle_exec_has_said(const struct sim_proc *executor, int64_t version_id,
                          uint64_t device_bytes, int64_t unpack_ns)
{
    const struct sim_exec *e = sim_exec_of(executor);
    const struct exec *x = e ? sim_exec_running(e) : NULL;
    const struct model *m = x ? store_next(x->store, NULL) : NULL;

    while (m && m->handle != version_id)
        m = store_next(x->store, m);
    return !m || (m->told.device_bytes == device_bytes && m->told.unpack_ns == unpack_ns);
}

/* ------------------------------------------------------------------ files */

/* A final state has all weights. A checkpoint has t0, t1 and t2, and those of t3 and t4 that steps
 * write. */
static size_t tensors_in_file(bool is_final, int64_t job)
{
    const size_t parts = sim_state_written(job, SIM_STATE_PARTS);

    return is_final ? 4 : parts == SIM_STATE_PARTS ? 5 : parts > 4 ? 4 : 3;
}

/* Does any step write the tensor that begins with this word? */
static bool is_written(uint64_t word)
{
    return sim_state_step(word) != SIM_FIXED;
}

static size_t number(const char *name)
{
    return (size_t)(name[0] == 't' ? name[1] - '0' : 99);
}

int64_t oracle_state_file(const char *path, bool is_final)
{
    struct sh_st *f = NULL;
    struct sh_err err = {0};
    int64_t step = -1, job = 0;
    size_t n = 0;

    SIM_CHECK("files", !sh_st_open(path, &f, &err), "%s cannot be read: %s", path, err.msg);
    for (size_t i = 0; i < sh_st_count(f); i++) {
        const struct sh_st_tensor *t = sh_st_at(f, i);
        uint64_t first, w;

        if (number(t->name) > 9 || strchr(t->name, '#') || t->bytes < sizeof(w))
            continue; /* of the best one so far, beside it */
        n++;
        memcpy(&first, t->data, sizeof(first));
        job = sim_state_job(first);
        SIM_CHECK("files", step < 0 || !is_written(first) || sim_state_step(first) == step,
                  "%s mixes step %" PRId64 " and %" PRId64, path, step, sim_state_step(first));
        step = is_written(first) ? sim_state_step(first) : step;
        for (size_t k = 0; k < t->bytes / sizeof(w); k++) {
            memcpy(&w, (const char *)t->data + k * sizeof(w), sizeof(w));
            SIM_CHECK("files", (w >> 16) == (first >> 16) && (w & 0xffff) == ((first + k) & 0xffff),
                      "%s: word %zu of %s is %016llx behind %016llx", path, k, t->name,
                      (unsigned long long)w, (unsigned long long)first);
        }
    }
    SIM_CHECK("files", n == tensors_in_file(is_final, job), "%s has %zu tensors, not %zu", path, n,
              tensors_in_file(is_final, job));
    sh_st_close(f);
    return step;
}

int64_t oracle_job_folder(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int64_t best = -1;

    while (d && (e = readdir(d))) {
        const int64_t step = sh_ckpt_step(e->d_name);
        char path[512];

        if (step < 0)
            continue;
        snprintf(path, sizeof(path), "%.200s/%.200s", dir, e->d_name);
        SIM_CHECK("files", oracle_state_file(path, false) == (step & 0xfffff),
                  "%s is of another step", path);
        best = SH_MAX(best, step);
    }
    if (d)
        closedir(d);
    return best;
}

/* ------------------------------------------------------------------ logs */

void __real_sh_log(enum sh_log_level level, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void __real_sh_log_err(enum sh_log_level level, const char *event, const struct sh_err *err);

/* One that lies can make an executor say that a message is none. */
static bool is_bug(const char *event)
{
    const size_t n = strlen(event);

    return n > 4 && strcmp(event + n - 4, ".bug") == 0 &&
           (!have_lies || strcmp(event, "worker.message.bug") != 0);
}

/* Unless a fault made it stand still (and check_silent() says when that must be seen), it waits for
 * what never comes. */
static void check_hang(const char *text)
{
    const struct sim_exec *e = sim_exec_of(sim_self());
    const struct exec *x = e ? sim_exec_running(e) : NULL;
    unsigned i = 0;

    SIM_CHECK("hang",
              x && sscanf(text, "worker=%u", &i) == 1 && i < pool_size(x->pool) &&
                  sim_worker_hung_ns(pool_at(x->pool, i)->pid),
              "%s", text);
}

void __wrap_sh_log(enum sh_log_level level, const char *event, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    if (level > sh_log_get_level() && !is_bug(event))
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (sim_self() && is_bug(event))
        sim_broken("log", "%s %s", event, text);
    if (sim_self() && sim_now() > calm_from_ns && strcmp(event, "worker.hang") == 0)
        check_hang(text);
    __real_sh_log(level, event, "%s", text);
}

void __wrap_sh_log_err(enum sh_log_level level, const char *event, const struct sh_err *err)
{
    /* shunt-import is killed, or finds no room to answer: no bug of the executor's. */
    if (sim_self() && err->rc == SH_E_BUG && !have_lies && strcmp(event, "job.finish") != 0)
        sim_broken("log", "%s: %s", event, err->msg);
    __real_sh_log_err(level, event, err);
}
