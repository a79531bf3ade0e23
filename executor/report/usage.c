/* usage.c - see usage.h. */
#include "executor/report/usage.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"
#include "executor/report/device_time.h"
#include "executor/report/energy.h"

#include <inttypes.h>
#include <stdlib.h>

#define AGAIN_NS SH_S(5)  /* a batch that nobody has stored is said again */
#define ADOPT_NS SH_S(10) /* so often it is looked for what others have left */
#define WARN_MS 300000
#define MAX_ADOPTED 8

struct source {
    struct ledger *ledger; /* OWNED; NULL: none */
    int64_t said_ns;       /* when its batch was; 0: there is none, or it is to be said now */
    struct ledger_state shown;
};

struct usage {
    const char *executor;
    const struct uplink *up;
    char *folder;                      /* OWNED */
    struct source at[1 + MAX_ADOPTED]; /* the first one is ours */
    int64_t adopt_ns, drain_ns, warned_ns;
    uint64_t n_warned;
    struct device_time time;
    struct energy energy;
    struct recent recent;
    int64_t begun_ns, counted_ns;
    int64_t wall_ns; /* counted until then */
    struct msg_usage_row rows[LEDGER_BATCH];
};

static int64_t minute_now(void)
{
    return sh_clock_wall_ms() / 60000;
}

/* ------------------------------------------------------------------ counting */

static void count_time(struct usage *u, const char *tenant, enum msg_use use, int64_t ns)
{
    const char *const labels[] = {u->executor, tenant, SH_MSG_USE_NAME[use]};

    if (ns <= 0)
        return;
    u->counted_ns += ns;
    recent_use(&u->recent, tenant, use, ns);
    sh_metric_add(M_shunt_device_seconds_total, labels, (double)ns / 1e9);
    if (u->energy.is_known)
        sh_metric_add(M_shunt_device_joules_total, labels, energy_take(&u->energy, ns));
}

void usage_run(struct usage *u, const char *tenant, int64_t version_id, int64_t gpu_ns,
               size_t n_requests, int64_t n_samples)
{
    struct msg_usage_row row = {.kind = MSG_USAGE_RUNS,
                                .id = version_id,
                                .gpu_ns = SH_MAX(gpu_ns, (int64_t)0),
                                .requests = (int64_t)n_requests,
                                .samples = n_samples};

    if (!row.gpu_ns && !n_requests)
        return;
    sh_strlcpy(row.tenant, tenant, sizeof(row.tenant));
    ledger_count(u->at[0].ledger, minute_now(), &row);
    count_time(u, tenant, MSG_USE_INFERENCE, row.gpu_ns);
}

void usage_job(struct usage *u, const struct usage_job *j, int64_t gpu_ns, int64_t step,
               int64_t step_samples)
{
    const struct msg_usage_row row = {.kind = MSG_USAGE_JOB,
                                      .id = j->id,
                                      .gpu_ns = SH_MAX(gpu_ns, (int64_t)0),
                                      .samples = step_samples,
                                      .step = step};

    ledger_count(u->at[0].ledger, minute_now(), &row);
    count_time(u, j->tenant, j->use, row.gpu_ns);
}

void usage_switch(struct usage *u, const char *tenant, int64_t ns)
{
    count_time(u, tenant, MSG_USE_SWITCH, ns);
}

void usage_switched(struct usage *u, const struct msg_switch *s)
{
    recent_switch(&u->recent, s);
}

bool usage_has_training(const struct usage *u)
{
    return u->time.trains;
}

void usage_trains(struct usage *u, bool on, int64_t now_ns)
{
    device_time_trains(&u->time, on, now_ns);
}

void usage_runs(struct usage *u, bool on, int64_t now_ns)
{
    device_time_runs(&u->time, on, now_ns);
}

void usage_loads(struct usage *u, bool on)
{
    if (on != u->time.loads) /* as in few turns */
        device_time_loads(&u->time, on, sh_clock_ns());
}

int64_t usage_take_held(struct usage *u)
{
    return device_time_take_held(&u->time, sh_clock_ns());
}

void usage_count_rest(struct usage *u)
{
    const int64_t now = sh_clock_ns();
    int64_t load_ns, idle_ns;

    device_time_take_rest(&u->time, now, &load_ns, &idle_ns);
    count_time(u, "", MSG_USE_LOAD, load_ns);
    count_time(u, "", MSG_USE_IDLE, idle_ns);
    sh_metric_add(M_shunt_device_wall_seconds_total, SH_LABELS(u->executor),
                  (double)(now - u->wall_ns) / 1e9);
    u->wall_ns = now;
}

int64_t usage_uncounted_ns(const struct usage *u)
{
    struct device_time t = u->time;
    const int64_t now = sh_clock_ns(), held = device_time_take_held(&t, now);
    int64_t load, idle;

    device_time_take_rest(&t, now, &load, &idle);
    return now - u->begun_ns - u->counted_ns - held - load - idle;
}

void usage_energy(struct usage *u, double joules)
{
    energy_note(&u->energy, joules, sh_clock_ns());
}

/* ------------------------------------------------------------------ handing over */

/* Its next batch, if none is on its way or nobody has answered for long. */
static void say_batch(struct usage *u, struct source *s)
{
    int64_t now = sh_clock_ns();
    struct sh_msg m = {.type = MSG_USAGE};
    size_t n = 0;

    if (!s->ledger || !uplink_is_up(u->up) || (s->said_ns && now - s->said_ns < AGAIN_NS))
        return;
    m.u.usage.source = ledger_source(s->ledger);
    m.u.usage.number = ledger_batch(s->ledger, sh_clock_wall_ms() / 1000, u->rows, &n);
    m.u.usage.rows = (struct sh_blob){u->rows, n * sizeof(u->rows[0])};
    s->said_ns = n ? now : 0;
    if (n)
        uplink_send(u->up, &m);
}

static void say_batches(struct usage *u)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(u->at); i++)
        say_batch(u, &u->at[i]);
}

void usage_on_up(struct usage *u)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(u->at); i++)
        u->at[i].said_ns = 0;
    say_batches(u);
}

static void drop_source(struct source *s)
{
    ledger_close(s->ledger);
    *s = (struct source){0};
}

void usage_on_stored(struct usage *u, const struct msg_usage_stored *m)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(u->at); i++) {
        struct source *s = &u->at[i];
        size_t before, after;

        if (!s->ledger || strcmp(ledger_source(s->ledger), m->source) != 0)
            continue;
        before = ledger_state(s->ledger).n_rows;
        ledger_stored(s->ledger, m->number);
        after = ledger_state(s->ledger).n_rows;
        s->said_ns = 0;
        if (i > 0 && after == 0)
            drop_source(s);
        else if (before - after == LEDGER_BATCH || i > 0)
            say_batch(u, s); /* there was more than a batch holds */
    }
}

/* What others have left, one file at a time. */
static void adopt(struct usage *u)
{
    int64_t now = sh_clock_ns();
    struct sh_err err = {0};

    if (now - u->adopt_ns < ADOPT_NS)
        return;
    u->adopt_ns = now;
    for (size_t i = 1; i < SH_ARRAY_LEN(u->at); i++) {
        struct source *s = &u->at[i];
        struct ledger_state st;

        if (s->ledger)
            continue;
        if (ledger_adopt(u->folder, &s->ledger, &err) &&
            sh_log_ratelimit(&u->warned_ns, &u->n_warned, WARN_MS))
            sh_log_err(SH_LOG_WARN, "usage.folder", &err);
        if (!s->ledger)
            return;
        st = ledger_state(s->ledger);
        SH_INFO("usage.adopt", "source=%s rows=%zu", ledger_source(s->ledger), st.n_rows);
        if (st.n_rows == 0)
            drop_source(s);
    }
}

static void show_usage_metrics(struct usage *u)
{
    const char *name = u->executor;
    size_t n_rows = 0;
    int64_t oldest = 0;

    for (size_t i = 0; i < SH_ARRAY_LEN(u->at); i++) {
        struct source *s = &u->at[i];
        struct ledger_state st;

        if (!s->ledger)
            continue;
        st = ledger_state(s->ledger);
        n_rows += st.n_rows;
        if (st.oldest_minute && (!oldest || st.oldest_minute < oldest))
            oldest = st.oldest_minute;
        sh_metric_add(M_shunt_usage_merged_total, SH_LABELS(name),
                      (double)(st.merged - s->shown.merged));
        sh_metric_add(M_shunt_usage_dropped_total, SH_LABELS(name),
                      (double)(st.dropped - s->shown.dropped));
        if (st.dropped != s->shown.dropped)
            SH_ERROR("usage.dropped",
                     "records=%" PRIu64 " msg=\"more tenants and models than %u are not written\"",
                     st.dropped - s->shown.dropped, LEDGER_ROWS);
        s->shown = st;
    }
    sh_metric_set(M_shunt_usage_unwritten_rows, SH_LABELS(name), (double)n_rows);
    sh_metric_set(M_shunt_usage_unwritten_age_seconds, SH_LABELS(name),
                  oldest ? (double)(sh_clock_wall_ms() / 1000 - oldest * 60) : 0);
}

void usage_second(struct usage *u)
{
    adopt(u);
    say_batches(u);
    recent_say(&u->recent, u->up);
    show_usage_metrics(u);
}

bool usage_drain(struct usage *u)
{
    bool done = true;

    if (!u->drain_ns)
        u->drain_ns = sh_clock_ns();
    say_batches(u);
    for (size_t i = 0; i < SH_ARRAY_LEN(u->at); i++)
        done &= !u->at[i].ledger || ledger_state(u->at[i].ledger).n_rows == 0;
    return done || !uplink_is_up(u->up) || sh_clock_ns() - u->drain_ns > USAGE_DRAIN_NS;
}

/* ------------------------------------------------------------------ start and end */

int usage_new(const char *state_dir, const char *executor, const struct uplink *up,
              struct usage **out, struct sh_err *err)
{
    struct usage *u = calloc(1, sizeof(*u));
    int rc;

    *out = NULL;
    if (!u)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the account of usage");
    u->executor = executor;
    u->up = up;
    u->time.at_ns = u->wall_ns = u->begun_ns = sh_clock_ns();
    rc = sh_asprintf(err, &u->folder, "%s/usage", state_dir);
    if (!rc)
        rc = ledger_open(u->folder, &u->at[0].ledger, err);
    if (rc) {
        usage_free(u);
        return rc;
    }
    *out = u;
    return SH_OK;
}

void usage_free(struct usage *u)
{
    if (!u)
        return;
    for (size_t i = 0; i < SH_ARRAY_LEN(u->at); i++)
        drop_source(&u->at[i]);
    free(u->folder);
    free(u);
}
