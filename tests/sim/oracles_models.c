/* oracles_models.c - see oracles_sched.h: versions and their homes. */
#include "common/clock.h"
#include "common/units.h"
#include "scheduler/models/homes.h"
#include "tests/sim/oracles_exec.h"
#include "tests/sim/oracles_sched_int.h"

#include <inttypes.h>
#include <string.h>

#define UNLOAD_NS SH_S(3)     /* a version that no executor has any more */
#define HOMELESS_NS SH_S(6)   /* all its homes are away: the grace period, and a look */
#define SAID_NS SH_S(2)       /* what an executor tells once a second */
#define EXECS 1000            /* more than there are */
#define TRY_AGAIN_NS SH_S(20) /* one that failed for now */

/* Where nothing of it is under way, an image is there for the leader as its executor said last. */
static void look_at_image(const struct sched *s, const struct model *m, size_t e)
{
    const struct exec *x = s->execs.items[e];
    const struct sim_proc *p = oracles__proc(x->info.name);
    const struct model_on *on = &m->on[e];
    bool is_under_way = x->ahead.version_id == m->version_id;

    for (const struct run *r = x->runs; r; r = r->next)
        is_under_way |= r->model == m;
    if (is_under_way || on->phase != MODEL_ON_READY || !p || sim_proc_is_paused(p) ||
        !sim_net_is_well(sim_proc_host(oracles__proc(s->conf->name)), sim_proc_host(p)) ||
        oracle_exec_has_said(p, m->version_id, on->resident_bytes, on->unpack_ns))
        return;
    oracles__against("said", m->version_id * EXECS + (int64_t)e, SAID_NS,
                     "an image is elsewhere, or packed, for the leader, and its executor has said "
                     "otherwise");
}

/* What the leader has to do soon about a version, by what it knows itself. */
static void look_at_version(const struct sched *s, const struct model *m)
{
    const int64_t id = (int64_t)s->epoch << 32 | m->version_id;
    bool is_somewhere = false, has_home = m->lives.n == 0, could_take = false;

    for (size_t i = 0; i < s->execs.n; i++) {
        const struct exec *e = s->execs.items[i];
        const struct model_on *on = &m->on[i];

        if (!exec_is_up(e))
            continue;
        is_somewhere |= on->phase != MODEL_ON_ABSENT;
        has_home |= homes_has(m, e);
        could_take |= on->phase == MODEL_ON_ABSENT;
        if (oracles__world()->n_fakes == 0)
            look_at_image(s, m, i);
    }
    if (m->state == MODEL_UNLOADING && !is_somewhere)
        oracles__against("unloaded", id, UNLOAD_NS, "no executor has a version that is unloading");
    if (!m->gone && m->state < MODEL_FAILED && m->n_failed < HOMES_MAX_FAILED && !has_home &&
        could_take)
        oracles__against("homeless", id, HOMELESS_NS,
                         "all homes of a version are away, others are there");
}

void oracles__look_at_versions(const struct sched *s)
{
    for (size_t i = 0; s->loaded && i < s->models.n; i++)
        look_at_version(s, s->models.items[i]);
}

/* One that failed for now is tried again soon. */
void oracles__look_at_retries(const struct sched *s)
{
    for (size_t i = 0; i < s->models.n; i++)
        for (size_t e = 0; e < s->execs.n; e++) {
            const struct model_on *on = &s->models.items[i]->on[e];

            SIM_CHECK("try-again",
                      on->phase != MODEL_ON_FAILED || on->retry_ns - sh_clock_ns() <= TRY_AGAIN_NS,
                      "%s failed to load version %" PRId64 " for now, and is asked again in %.3f s",
                      s->execs.items[e]->info.name, s->models.items[i]->version_id,
                      (double)(on->retry_ns - sh_clock_ns()) / 1e9);
        }
}

/* ------------------------------------------------------------------ at the end */

bool oracles__is_settled(const struct database_version *v)
{
    return strcmp(v->state, "READY") == 0 || strcmp(v->state, "FAILED") == 0 ||
           strcmp(v->state, "UNLOADED") == 0 || strcmp(v->state, "DELETED") == 0;
}

/* By the end, when nobody asks for it, a version has one home, which holds it or has put it aside,
 * and is nowhere else. What took long to load is kept for longer than that. */
static void check_places(const struct sched *s, const struct model *m)
{
    size_t homes = 0, loaded = 0, able = 0;

    if (m->gone || m->state != MODEL_READY)
        return;
    for (size_t e = 0; e < s->execs.n; e++) {
        const struct exec *x = s->execs.items[e];
        const struct model_on *on = &m->on[e];
        const bool is_home = homes_has(m, x);

        if (!exec_is_up(x))
            continue;
        homes += is_home;
        loaded += is_home && on->phase == MODEL_ON_READY;
        able += is_home || on->phase == MODEL_ON_ABSENT;
        SIM_CHECK("places", !is_home || on->phase != MODEL_ON_ABSENT,
                  "nobody asks %s for version %" PRId64 ", which lives there", x->info.name,
                  m->version_id);
        SIM_CHECK(
            "places", is_home || (on->phase != MODEL_ON_READY && on->phase != MODEL_ON_LOADING),
            "%s keeps version %" PRId64 ", which does not live there", x->info.name, m->version_id);
        SIM_CHECK("places",
                  oracles__world()->n_fakes == 0 || on->phase != MODEL_ON_FAILED || !on->retry_ns,
                  "nobody asks %s again for version %" PRId64 ", which failed for now",
                  x->info.name, m->version_id);
    }
    SIM_CHECK("places", homes > 0 || able == 0 || m->n_failed >= HOMES_MAX_FAILED,
              "version %" PRId64 " has no home", m->version_id);
    SIM_CHECK("places", loaded <= 1 || m->load_ns > SH_S(5) || oracles__world()->n_fakes == 0,
              "version %" PRId64 " is loaded at %zu homes, and nobody asks for it", m->version_id,
              loaded);
}

void oracles__check_versions(void)
{
    const struct sched *s = oracles__leader();

    for (size_t i = 0; s && i < s->models.n; i++)
        check_places(s, s->models.items[i]);
    for (size_t i = 0; i < database.n_versions; i++)
        SIM_CHECK("versions", oracles__is_settled(&database.versions[i]),
                  "version %" PRId64 " is still %s", database.versions[i].id,
                  database.versions[i].state);
}
