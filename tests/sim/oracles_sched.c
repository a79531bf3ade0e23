/* oracles_sched.c - see oracles_sched.h.
 *
 * Some rules hold at every moment. Others bend for a moment, while a message or a write is on its
 * way: what is against them for longer than that breaks them. */
#include "tests/sim/oracles_sched.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"
#include "scheduler/apis.h"
#include "scheduler/sched.h"
#include "tests/sim/cluster.h"
#include "tests/sim/database.h"
#include "tests/sim/load.h"
#include "tests/sim/oracles_exec.h"
#include "tests/sim/oracles_sched_int.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS SH_MS(50)
#define TWICE_NS SH_S(3)       /* a job on two executors of one leader: until one has been told */
#define OLD_LEADER_NS SH_S(13) /* replaced: that others say so may be on its way so long */
#define AGAIN_NS SH_S(1)       /* a request that only its API knows */
#define ENDED_NS SH_S(2)       /* a request that its API has ended */
#define RESULT_NS SH_S(4)      /* one whose run is over: that its result is lost may show so late */
#define LOST_NS SH_S(10)       /* a job whose executor is away: the grace period, and a look */
#define CANCEL_NS SH_S(4)
#define STRAY_NS SH_MS(1500)
#define QUOTA_NS SH_S(8)    /* a change that others have to commit behind */
#define DEADLINE_NS SH_S(8) /* rows may be locked */
#define SAVE_NS SH_S(4)     /* a checkpoint that was asked for, and nobody is at it */
#define LOST_RUN_NS SH_S(3) /* that a run is lost is known to one side alone */
#define LEADER_NS SH_S(8)   /* nobody leads, though all could */
#define ANSWER_NS SH_S(6)
#define GUARANTEE_NS SH_S(10)
#define MORE_S 120 /* for jobs that take long, and versions */

static const struct oracles_world *world;
static int64_t healed_ns;

const struct oracles_world *oracles__world(void)
{
    return world;
}

/* ------------------------------------------------------------------ against it for how long */

struct against {
    const char *rule;
    int64_t id, since_ns, seen_ns;
};
static struct against *list;
static size_t n_list, cap_list;

void oracles__against(const char *rule, int64_t id, int64_t most_ns, const char *what)
{
    struct against *a = NULL;

    for (size_t i = 0; i < n_list && !a; i++)
        if (list[i].id == id && strcmp(list[i].rule, rule) == 0)
            a = &list[i];
    if (!a) {
        sim_grow(&list, &cap_list, n_list + 1, sizeof(*list));
        a = &list[n_list++];
        *a = (struct against){.rule = rule, .id = id};
    }
    if (sim_now() - a->seen_ns > 2 * LOOK_NS)
        a->since_ns = sim_now();
    a->seen_ns = sim_now();
    SIM_CHECK(rule, sim_now() - a->since_ns <= most_ns, "%s, %" PRId64 ", for %.3f s", what, id,
              (double)(sim_now() - a->since_ns) / 1e9);
}

/* ------------------------------------------------------------------ leaders */

/* That could act: NULL, there is none, or it is stopped. */
const struct sched *oracles__leader(void)
{
    const struct sched *best = NULL;

    for (size_t i = 0; i < world->n_schedulers; i++) {
        const struct sched *s = sim_scheduler_look(world->schedulers[i]);

        if (s && s->epoch && s->loaded && (!best || s->epoch > best->epoch) &&
            !sim_proc_is_paused(sim_scheduler_proc(world->schedulers[i])))
            best = s;
    }
    return best;
}

const struct tenant *oracles__tenant(const struct sched *s, int64_t id)
{
    for (size_t i = 0; i < s->tenants.n; i++)
        if (s->tenants.items[i]->id == id)
            return s->tenants.items[i];
    return NULL;
}

static bool has_api(const struct sched *s)
{
    for (size_t i = 0; i < s->sessions.n; i++)
        if (s->sessions.items[i]->api)
            return true;
    return false;
}

/* One that does not reach the database is told by APIs that others do, and stands down. */
static void look_at_old_leaders(void)
{
    for (size_t i = 0; i < world->n_schedulers; i++) {
        const struct sched *s = sim_scheduler_look(world->schedulers[i]);

        if (s && s->epoch && s->epoch < database.lease.epoch && has_api(s) &&
            !sim_proc_is_paused(sim_scheduler_proc(world->schedulers[i])))
            oracles__against("old-leader", (int64_t)i, OLD_LEADER_NS,
                             "a leader was replaced, and leads on");
    }
}

static void look_at_leaders(void)
{
    for (size_t i = 0; i < world->n_schedulers; i++) {
        const struct sched *a = sim_scheduler_look(world->schedulers[i]);

        SIM_CHECK("one-leader", !a || a->epoch <= database.lease.epoch,
                  "%s leads in epoch %" PRIu64 ", which nobody gave", a->holder, a->epoch);
        for (size_t k = 0; a && a->epoch && k < i; k++) {
            const struct sched *b = sim_scheduler_look(world->schedulers[k]);

            SIM_CHECK("one-leader", !b || b->epoch != a->epoch, "%s and %s lead in epoch %" PRIu64,
                      a->holder, b->holder, a->epoch);
        }
    }
    look_at_old_leaders();
    if (healed_ns && !oracles__leader())
        oracles__against("a-leader", 0, LEADER_NS, "nobody leads");
}

/* ------------------------------------------------------------------ what the leader counts */

static void count_requests(const struct sched *s)
{
    for (size_t t = 0; t < s->tenants.n; t++) {
        const struct tenant *x = s->tenants.items[t];
        uint32_t n = 0;

        for (size_t i = 0; i < s->requests.n; i++)
            n += s->requests.items[i]->tenant == x;
        SIM_CHECK("counts", n == x->n_requests, "tenant %s has %u requests, and %u are counted",
                  x->name, n, x->n_requests);
        if (n > x->max_requests && sim_now() - sim_load_quota_ns() > ANSWER_NS)
            oracles__against("max-requests", x->id, ANSWER_NS,
                             "a tenant has more requests than it may");
    }
    for (size_t i = 0; i < s->requests.n; i++) {
        const struct request *r = s->requests.items[i];

        SIM_CHECK("placed", !r->promised || r->exec,
                  "request %" PRIu64 " has a promise, and no executor", r->rid);
        if (r->state == REQUEST_LOST)
            oracles__against("lost-run", (int64_t)(r->api_id << 32 ^ r->rid), LOST_RUN_NS,
                             "a request has lost its run, and waits for word of that");
    }
    for (size_t m = 0; m < s->models.n; m++) {
        uint32_t n = 0;

        for (size_t i = 0; i < s->requests.n; i++)
            n += s->requests.items[i]->model == s->models.items[m];
        SIM_CHECK("counts", n == s->models.items[m]->n_requests,
                  "version %" PRId64 " has %u requests, and %u are counted",
                  s->models.items[m]->version_id, n, s->models.items[m]->n_requests);
    }
}

const struct sim_proc *oracles__proc(const char *name)
{
    for (unsigned i = 0; i < cluster_n_procs(); i++)
        if (cluster_proc(i) && strcmp(sim_proc_name(cluster_proc(i)), name) == 0)
            return cluster_proc(i);
    return NULL;
}

static unsigned host_of(const char *name)
{
    const struct sim_proc *p = oracles__proc(name);

    return p ? sim_proc_host(p) : 0;
}

/* Who waits hears of it: the leader has the request, or has refused it, or its result has come. */
static void look_at_waiting(const struct sim_proc *proc, uint64_t api_id, uint64_t rid,
                            const char *executor)
{
    const struct sched *s = oracles__leader();
    const unsigned host = sim_proc_host(proc);

    for (size_t i = 0; s && i < s->sessions.n; i++) {
        const struct api *a = s->sessions.items[i]->api;

        if (a && a->id == api_id && !idmap_get(&a->requests, rid) && !sim_proc_is_paused(proc) &&
            sim_net_is_well(host_of(s->conf->name), host) &&
            (!executor[0] || sim_net_is_well(host_of(executor), host)))
            oracles__against("again", (int64_t)(api_id << 32 ^ rid), AGAIN_NS,
                             executor[0] ? "a request has no run, and waits for its result"
                                         : "a request was to run again, and waits for nobody");
    }
}

/* Its result has come, and others of its run are still to run, one at a time, since it failed. */
static bool is_done_before_others(const struct request *r, const struct sim_proc *executor)
{
    return r->state == REQUEST_RUNNING && r->run->n_parts > 1 &&
           oracle_exec_is_through(executor, r->api_id, r->rid);
}

/* A request for which nobody waits is not to run: its inputs do not come, and whoever is let in
 * behind it waits for them. */
static void look_at_ended(const struct sched *s)
{
    const unsigned host = host_of(s->conf->name);

    for (size_t i = 0; i < s->requests.n; i++) {
        const struct request *r = s->requests.items[i];
        const struct sim_proc *api = r->api ? sim_api_ended(r->api_id, r->rid) : NULL;
        const struct sim_proc *e = r->exec ? oracles__proc(r->exec->info.name) : NULL;

        if (api && e && !r->cancelled && r->state != REQUEST_LOST && !sim_proc_is_paused(api) &&
            !sim_proc_is_paused(e) && sim_net_is_well(host, sim_proc_host(api)) &&
            sim_net_is_well(host, sim_proc_host(e)) && !is_done_before_others(r, e))
            oracles__against("ended", (int64_t)(r->api_id << 32 ^ r->rid), ENDED_NS,
                             "a request has an executor, and its API has ended it");
    }
}

static void count_runs(const struct sched *s)
{
    for (size_t e = 0; e < s->execs.n; e++) {
        const struct exec *x = s->execs.items[e];
        uint32_t n = 0;

        for (const struct run *r = x->runs; r; r = r->next)
            n++;
        SIM_CHECK("counts", n == x->n_runs, "%s has %u runs, and %u are counted", x->info.name, n,
                  x->n_runs);
        SIM_CHECK("max-runs", n <= (uint32_t)s->conf->max_runs, "%s has %u runs", x->info.name, n);
        SIM_CHECK("max-runs", x->session || n == 0, "%s is away, and has %u runs", x->info.name, n);
    }
}

/* ------------------------------------------------------------------ jobs */

static const struct fake *fake_named(const char *name)
{
    for (size_t i = 0; i < world->n_fakes; i++)
        if (strcmp(sim_proc_name(fake_proc(world->fakes[i])), name) == 0)
            return world->fakes[i];
    return NULL;
}

/* What it decides from is what there is. */
static void look_at_pool(const struct sched *s)
{
    const char *fault = s->loaded ? jobs_pool_fault(s) : NULL;

    SIM_CHECK("pool", !fault, "the leader decides from what is no more: %s", fault);
    SIM_CHECK("times", requests_are_timed(s), "a request is not looked at when it is due");
}

/* A client waits for a checkpoint of a job that runs: its executor is told of that, or has it to
 * do, or the leader has its word, which is being recorded. */
static bool is_forgotten_save(const struct sched *s, const struct job *j, const struct fake *f)
{
    const struct database_job *d = &database.jobs[j->id - 1];

    return d->save_asked > d->save_done && d->state == JOB_RUNNING && j->state == JOB_RUNNING &&
           !j->stopping && !j->writing && !j->n_pending && !j->saved.asked &&
           !sim_proc_is_paused(fake_proc(f)) && fake_synced_with(f) == s->epoch &&
           !fake_has_to_save(f, j->id) && database_is_reached_from(host_of(s->conf->name)) &&
           sim_net_is_well(host_of(s->conf->name), sim_proc_host(fake_proc(f)));
}

/* What the leader has to do soon about a job and the executor that it thinks has it. */
static void look_at_places(const struct sched *s)
{
    for (size_t i = 0; i < s->jobs.n; i++) {
        const struct job *j = s->jobs.items[i];
        const struct exec *e = j->executor[0] ? execs_find(&s->execs, j->executor) : NULL;
        const struct fake *f = e ? fake_named(j->executor) : NULL;

        if (j->executor[0] && !j->starting_write && (!e || !e->session))
            oracles__against(
                "lost-executor", (int64_t)s->epoch << 32 | j->id, LOST_NS,
                "a job stays with an executor that is away"); /* a new leader waits anew */
        if (e && e->synced && f && !sim_proc_is_paused(fake_proc(f)) &&
            fake_synced_with(f) == s->epoch && j->state == JOB_CANCELLING && !j->n_pending)
            oracles__against("cancel", j->id, CANCEL_NS, "a job that was cancelled goes on");
        if (e && e->synced && f && is_forgotten_save(s, j, f))
            oracles__against("save", (int64_t)s->epoch << 32 | j->id, SAVE_NS,
                             "a checkpoint was asked for, and nobody is at it");
    }
}

/* What an executor runs, and has told its leader of, but is not its to run. */
static void look_for_strays(const struct sched *s)
{
    for (size_t i = 0; i < world->n_fakes; i++) {
        const struct fake *f = world->fakes[i];
        uint32_t attempt = 0;
        uint64_t epoch;
        const int64_t id = fake_live_job(f, &attempt, &epoch);
        const struct job *j = NULL;

        for (size_t k = 0; k < s->jobs.n && id; k++)
            if (s->jobs.items[k]->id == id)
                j = s->jobs.items[k];
        if (id && fake_synced_with(f) == s->epoch && !sim_proc_is_paused(fake_proc(f)) &&
            sim_net_is_well(host_of(s->conf->name), sim_proc_host(fake_proc(f))) &&
            (!j || j->attempt != attempt || strcmp(j->executor, sim_proc_name(fake_proc(f))) != 0))
            oracles__against("stray", (int64_t)i, STRAY_NS,
                             "an executor runs a job that is not its own");
    }
}

/* Both have told the newest leader all that they hold, and both go on. */
static void look_for_twins(void)
{
    for (size_t i = 0; i < world->n_fakes; i++) {
        uint32_t attempt;
        uint64_t epoch;
        int64_t job = fake_live_job(world->fakes[i], &attempt, &epoch);

        for (size_t k = 0; k < i && job; k++)
            if (fake_live_job(world->fakes[k], &attempt, &epoch) == job &&
                fake_synced_with(world->fakes[i]) == database.lease.epoch &&
                fake_synced_with(world->fakes[k]) == database.lease.epoch &&
                !sim_proc_is_paused(fake_proc(world->fakes[i])) &&
                !sim_proc_is_paused(fake_proc(world->fakes[k])))
                oracles__against("one-attempt", job, TWICE_NS,
                                 "a job runs on two executors of one leader");
    }
}

static uint32_t n_running(int64_t tenant_id)
{
    uint32_t n = 0;

    for (size_t i = 0; i < database.n_jobs; i++) {
        const struct database_job *j = &database.jobs[i];

        n += job_state_has_executor(j->state) && j->tenant_id == tenant_id;
    }
    return n;
}

/* ------------------------------------------------------------------ limits */

/* As of the last look: what was let in before a limit was lowered is not against it. */
struct known {
    uint64_t epoch;
    int64_t id;
    uint32_t n_new, most; /* at the last look; most: the highest since */
};
static struct known *known;
static size_t n_known, cap_known;

static struct known *find_known(const struct sched *s, int64_t id)
{
    for (size_t i = 0; i < n_known; i++)
        if (known[i].epoch == s->epoch && known[i].id == id)
            return &known[i];
    return NULL;
}

/* Something was let in since the last look, for n_new has grown, though there are more than may be:
 * n, by either look and by all that was heard in between. */
static bool is_over(const struct sched *s, int64_t id, uint32_t n, uint32_t n_new, uint32_t most)
{
    struct known *k = find_known(s, id);
    bool is;

    if (!k) {
        sim_grow(&known, &cap_known, n_known + 1, sizeof(*known));
        k = &known[n_known++];
        *k = (struct known){.epoch = s->epoch, .id = id, .n_new = n_new, .most = most};
    }
    is = n_new > k->n_new && n > SH_MAX(most, k->most);
    k->n_new = n_new;
    k->most = most;
    return is;
}

static void raise_known(const struct sched *s, int64_t id, uint32_t most)
{
    struct known *k = find_known(s, id);

    if (k)
        k->most = SH_MAX(k->most, most);
}

/* Jobs of a tenant, or of an array. */
static uint32_t n_placed(const struct sched *s, int64_t tenant_id, int64_t array_id,
                         uint32_t *starting)
{
    uint32_t n = 0;

    *starting = 0;
    for (size_t i = 0; i < s->jobs.n; i++) {
        const struct job *j = s->jobs.items[i];

        if (!j->executor[0] || (array_id ? j->array_id != array_id : j->tenant_id != tenant_id))
            continue;
        n++;
        *starting += j->starting_write;
    }
    return n;
}

/* While a change of it reaches the leader, job by job: the highest that it knows. */
static uint32_t most_of_array(const struct sched *s, int64_t array)
{
    uint32_t most = 0;

    for (size_t i = 0; i < s->jobs.n; i++) {
        const struct job *j = s->jobs.items[i];

        if (j->array_id == array)
            most = SH_MAX(most, j->array_max ? j->array_max : UINT32_MAX); /* 0: no limit */
    }
    return most;
}

static void look_at_limits(const struct sched *s)
{
    uint32_t n, starting;

    for (size_t i = 0; i < s->tenants.n; i++) {
        const struct tenant *t = s->tenants.items[i];

        n = t->n_requests;
        SIM_CHECK("max-requests", !is_over(s, 3 * t->id, n, n, t->max_requests),
                  "tenant %s has %u requests, and may have %u", t->name, n, t->max_requests);
        n = n_placed(s, t->id, 0, &starting);
        SIM_CHECK("max-running", !is_over(s, 3 * t->id + 1, n, starting, t->max_running_jobs),
                  "tenant %s has %u jobs running, and may have %u", t->name, n,
                  t->max_running_jobs);
    }
    for (size_t i = 0; i < database.n_arrays; i++) {
        const int64_t array = (int64_t)i + 1;
        const uint32_t most = most_of_array(s, array);

        n = n_placed(s, 0, array, &starting);
        SIM_CHECK("max-parallel", !is_over(s, 3 * array + 2, n, starting, most),
                  "array %" PRId64 " has %u jobs running, and may have %u", array, n, most);
    }
}

/* A limit may come and go between two looks, when two changes of it are heard at once. */
static void note_limits(const struct sched *s)
{
    for (size_t i = 0; i < s->tenants.n; i++) {
        const struct tenant *t = s->tenants.items[i];

        raise_known(s, 3 * t->id, t->max_requests);
        raise_known(s, 3 * t->id + 1, t->max_running_jobs);
    }
    for (int64_t array = 1; array <= (int64_t)database.n_arrays; array++)
        raise_known(s, 3 * array + 2, most_of_array(s, array));
}

/* Limits change where a leader takes in what it has read. */
static void on_turn(struct sim_proc *p)
{
    static uint64_t n_polls[CLUSTER_N_SCHEDULERS];

    for (size_t i = 0; i < world->n_schedulers; i++) {
        const struct sched *s = sim_scheduler_look(world->schedulers[i]);

        if (sim_scheduler_proc(world->schedulers[i]) != p || !s || !s->epoch)
            continue;
        oracles__look_at_slots(s, i);
        if (n_polls[i] == s->n_polls)
            continue;
        n_polls[i] = s->n_polls;
        note_limits(s);
        oracles__look_at_retries(s);
    }
}

/* Jobs that could start at once: nothing holds them back but the devices. */
static bool could_start(const struct database_job *j)
{
    return j->state == JOB_QUEUED && !j->not_before_ns && !j->array_id &&
           strcmp(database.versions[j->version_id - 1].state, "READY") == 0 &&
           strcmp(j->reason, "GpuMemory") != 0;
}

static uint32_t n_could_start(int64_t tenant_id)
{
    uint32_t n = 0;

    for (size_t k = 0; k < database.n_jobs; k++)
        n += database.jobs[k].tenant_id == tenant_id && could_start(&database.jobs[k]);
    return n;
}

/* Jobs of a tenant, or of all (0), whose devices nobody can take: what they made is imported. */
static uint32_t n_completing(int64_t tenant_id)
{
    uint32_t n = 0;

    for (size_t k = 0; k < database.n_jobs; k++)
        n += database.jobs[k].state == JOB_COMPLETING &&
             (!tenant_id || database.jobs[k].tenant_id == tenant_id);
    return n;
}

/* Guarantees that add up to more than there is are nobody's alone. */
static bool are_kept_to_all(const struct sched *s)
{
    double owed = 0, n_up = -(double)n_completing(0);

    for (size_t i = 0; i < database.n_tenants; i++) {
        const struct database_tenant *t = &database.tenants[i];
        const double wants = n_running(t->id) - n_completing(t->id) + n_could_start(t->id);

        owed += SH_MIN(wants, t->quota.guaranteed_gpus);
    }
    for (size_t e = 0; e < s->execs.n; e++)
        n_up += exec_is_up(s->execs.items[e]);
    return owed <= n_up;
}

/* When all is well a tenant that has work gets what it is guaranteed, whoever else wants more. */
static void look_at_guarantees(const struct sched *s)
{
    for (size_t i = 0; i < database.n_tenants && are_kept_to_all(s); i++) {
        const struct database_tenant *t = &database.tenants[i];

        if (n_could_start(t->id) && n_running(t->id) < (uint32_t)t->quota.guaranteed_gpus)
            oracles__against("guarantee", t->id, GUARANTEE_NS,
                             "a tenant has less than it is guaranteed");
    }
}

/* A change of its quota is known soon. */
static void look_at_tenants(const struct sched *s)
{
    for (size_t i = 0; i < database.n_tenants; i++) {
        const struct database_tenant *d = &database.tenants[i];
        const struct tenant *t = oracles__tenant(s, d->id);

        if (t && dbthread_is_up(s->db) &&
            (t->max_running_jobs != d->quota.max_running_jobs ||
             t->max_requests != d->quota.max_concurrent_requests ||
             t->guaranteed_gpus != d->quota.guaranteed_gpus || t->active != d->is_active ||
             t->memory.min_bytes != d->quota.memory.min_bytes ||
             t->memory.max_bytes != d->quota.memory.max_bytes ||
             t->memory.share != d->quota.memory.share))
            oracles__against("quota", (int64_t)s->epoch << 32 | t->id, QUOTA_NS,
                             "a tenant's quota was changed, and the leader goes by the old one");
    }
}

/* What waits beyond its deadline ends. */
static void look_at_deadlines(const struct sched *s)
{
    for (size_t i = 0; i < database.n_jobs && dbthread_is_up(s->db); i++) {
        const struct database_job *j = &database.jobs[i];

        if (j->deadline_ns && sim_now() > j->deadline_ns &&
            (j->state == JOB_QUEUED || j->state == JOB_HELD || j->state == JOB_SUSPENDED))
            oracles__against("deadline", (int64_t)s->epoch << 32 | j->id, DEADLINE_NS,
                             "a job waits, and its deadline has passed");
    }
}

static void on_look(void *arg, uint64_t n)
{
    const struct sched *s = oracles__leader();

    (void)arg, (void)n;
    look_at_leaders();
    for (size_t i = 0; i < world->n_schedulers; i++) {
        const struct sched *x = sim_scheduler_look(world->schedulers[i]);

        if (x && x->epoch && !sim_proc_is_paused(sim_scheduler_proc(world->schedulers[i]))) {
            count_requests(x);
            count_runs(x);
            oracles__look_at_runs(x);
            look_at_ended(x);
            look_at_pool(x);
        }
    }
    if (s) {
        look_at_limits(s);
        look_at_places(s);
        look_at_tenants(s);
        look_at_deadlines(s);
        oracles__look_at_versions(s);
        look_for_strays(s);
    }
    sim_api_each_waiting(look_at_waiting);
    look_for_twins();
    oracles__look_at_starts(healed_ns);
    if (s && healed_ns && sim_now() - healed_ns > SETTLE_NS)
        look_at_guarantees(s);
    if (healed_ns && sim_now() - healed_ns > SETTLE_NS)
        sim_api_settled();
    sim_world_after(LOOK_NS, on_look, NULL, 0);
}

void oracles_sched_begin(const struct oracles_world *w)
{
    world = w;
    sim_on_turn(on_turn);
    sim_world_after(LOOK_NS, on_look, NULL, 0);
}

void oracles_sched_healed(void)
{
    healed_ns = sim_now();
}

/* ------------------------------------------------------------------ at the end */

static void check_jobs(void)
{
    for (size_t i = 0; i < database.n_jobs; i++) {
        const struct database_job *j = &database.jobs[i];
        size_t n_versions = 0;

        SIM_CHECK("all-end", job_state_is_final(j->state),
                  "job %" PRId64 " is %s, reason %s, executor \"%s\", attempt %u, step %" PRId64
                  " of %" PRId64,
                  j->id, job_state_name(j->state), j->reason, j->executor, j->attempt,
                  j->progress.step, j->all_steps);
        SIM_CHECK("wishes", j->wish == JOB_WISH_NONE, "job %" PRId64 " has ended with a wish",
                  j->id);
        if (j->state != JOB_SUCCEEDED)
            continue;
        SIM_CHECK("all-steps", j->progress.step == j->all_steps || j->may_stop,
                  "job %" PRId64 " has succeeded after %" PRId64 " of %" PRId64 " steps", j->id,
                  j->progress.step, j->all_steps);
        for (size_t k = 0; k < database.n_versions; k++)
            n_versions += database.versions[k].source_job == j->id;
        SIM_CHECK("one-version", n_versions == j->publishes,
                  "job %" PRId64 " has made %zu versions", j->id, n_versions);
    }
}

static void check_acks(void)
{
    size_t n;
    const struct sim_ack *acks = sim_acks(&n);

    for (size_t i = 0; i < n; i++) {
        const struct database_job *j =
            acks[i].id <= (int64_t)database.n_jobs ? &database.jobs[acks[i].id - 1] : NULL;

        SIM_CHECK("acknowledged", j, "job %" PRId64 " is lost", acks[i].id);
        if (acks[i].kind == SIM_ACK_SUBMIT)
            SIM_CHECK("acknowledged", strcmp(j->token, acks[i].token) == 0,
                      "job %" PRId64 " is not the one that was submitted", j->id);
        else
            SIM_CHECK("acknowledged", j->state == JOB_CANCELLED,
                      "job %" PRId64 " was cancelled, and is %s", j->id, job_state_name(j->state));
    }
}

static void check_usage(void)
{
    size_t n;
    const struct fake_used *used = fake_used(&n);
    int64_t gpu_ns[2] = {0}, requests[2] = {0}, samples[2] = {0};

    if (world->n_fakes == 0)
        return; /* real ones have it in files of their own */
    SIM_CHECK("usage", fake_all_stored(), "an executor still has usage that is not stored");
    for (size_t i = 0; i < n; i++) {
        gpu_ns[0] += used[i].gpu_ns;
        requests[0] += used[i].requests;
        samples[0] += used[i].is_job ? used[i].step * used[i].step_samples : used[i].samples;
    }
    for (size_t i = 0; i < database.n_usage; i++) {
        gpu_ns[1] += database.usage[i].gpu_ns;
        requests[1] += database.usage[i].requests;
        samples[1] += database.usage[i].samples;
    }
    SIM_CHECK("usage",
              gpu_ns[0] == gpu_ns[1] && requests[0] == requests[1] && samples[0] == samples[1],
              "executors counted %" PRId64 " ns, %" PRId64 " requests, %" PRId64
              " samples, and the database has %" PRId64 ", %" PRId64 ", %" PRId64,
              gpu_ns[0], requests[0], samples[0], gpu_ns[1], requests[1], samples[1]);
}

static void check_executors(void)
{
    for (size_t i = 0; i < world->n_fakes; i++) {
        uint32_t attempt;
        uint64_t epoch;

        SIM_CHECK("strays", fake_live_job(world->fakes[i], &attempt, &epoch) == 0,
                  "%s still has job %" PRId64, sim_proc_name(fake_proc(world->fakes[i])),
                  fake_live_job(world->fakes[i], &attempt, &epoch));
        SIM_CHECK("strays", fake_n_runs(world->fakes[i]) == 0, "%s still has %zu runs",
                  sim_proc_name(fake_proc(world->fakes[i])), fake_n_runs(world->fakes[i]));
    }
}

/* What the leader believes of the database at rest. */
static void check_view(void)
{
    const struct sched *s = oracles__leader();

    SIM_CHECK("a-leader", s, "nobody leads at the end");
    SIM_CHECK("view", s->jobs.n == 0, "the leader still holds %zu jobs", s->jobs.n);
    for (size_t t = 0; t < s->tenants.n; t++)
        for (int k = 0; k < JOB_N_STATES; k++)
            SIM_CHECK("view", s->tenants.items[t]->n_jobs[k] == 0,
                      "the leader counts %" PRId64 " jobs of %s that are %s",
                      s->tenants.items[t]->n_jobs[k], s->tenants.items[t]->name,
                      job_state_name((enum job_state)k));
    for (size_t i = 0; i < s->execs.n; i++)
        SIM_CHECK("view", s->execs.items[i]->job == 0 && s->execs.items[i]->leaving == 0,
                  "%s has the place of job %" PRId64 " (%" PRId64 ") at the end",
                  s->execs.items[i]->info.name, s->execs.items[i]->job, s->execs.items[i]->leaving);
}

static bool all_ended(void)
{
    for (size_t i = 0; i < database.n_jobs; i++)
        if (!job_state_is_final(database.jobs[i].state))
            return false;
    for (size_t i = 0; i < database.n_versions; i++)
        if (!oracles__is_settled(&database.versions[i]))
            return false; /* it waits for a real executor that has to compile them all */
    return true;
}

void oracles_sched_finish(void)
{
    const struct sim_api_counts *c = sim_api_counts();

    for (int i = 0; i < MORE_S && !all_ended(); i++)
        sim_run(sim_now() + SH_S(1));
    /* The last writes, looks and usage; and a home that is not needed is held for a while. */
    sim_run(sim_now() + SH_S(12));
    check_jobs();
    check_acks();
    check_usage();
    oracles__check_versions();
    check_executors();
    check_view();
    SIM_CHECK("all-answered", sim_api_n_open() == 0, "%zu requests have no answer, one for %.3f s",
              sim_api_n_open(), (double)sim_api_waits_ns() / 1e9);
    /* Nothing goes wrong any more, and there is room: what was let in is served in its time. */
    SIM_CHECK("promise", c->settled_late <= 2 + c->settled / 50,
              "of %" PRIu64 " requests that were let in when all was well %" PRIu64 " were late",
              c->settled, c->settled_late);
    SIM_CHECK("some-good", c->good > 0 && c->opened > 20, "of %" PRIu64 " requests none was served",
              c->opened);
    sim_trace("settled=%" PRIu64 " late=%" PRIu64, c->settled, c->settled_late);
    sim_trace("requests opened=%" PRIu64 " good=%" PRIu64 " refused=%" PRIu64 " gone=%" PRIu64
              " lost=%" PRIu64 " late=%" PRIu64 " jobs=%zu versions=%zu",
              c->opened, c->good, c->refused, c->gone, c->lost, c->late, database.n_jobs,
              database.n_versions);
}
