/* answer.c - see answer.h. */
#include "simulate/answer.h"

#include "common/json.h"
#include "common/mem.h"
#include "common/units.h"
#include "common/whatif.h"
#include "simulate/change.h"
#include "simulate/world.h"

#include <stdlib.h>

struct outcome { /* of a world */
    struct world w;
    struct sim_job *ends; /* OWNED; by job */
    double *share_ns;     /* OWNED; by tenant */
    struct job_result r;
    int64_t end_ns; /* the last job has ended */
};

static void outcome_fini(struct outcome *o)
{
    world_fini(&o->w);
    free(o->ends);
    free(o->share_ns);
}

/* ------------------------------------------------------------------ running it */

static int run_world(struct outcome *o, int64_t share_until_ns, struct sh_err *err)
{
    const struct job_world jw = {.jobs = o->w.more,
                                 .tenants = o->w.rules,
                                 .pools = o->w.pools,
                                 .n_lines = o->w.n_lines,
                                 .end_ns = SH_DAYS(ANSWER_DAYS),
                                 .share_until_ns = share_until_ns,
                                 .share_ns = o->share_ns};
    const struct job_conf conf = {.n_gpus = (uint32_t)o->w.n_gpus,
                                  .stop_ns = o->w.stop_ns,
                                  .min_run_ns = SH_MS(o->w.options.min_run_ms),
                                  .level_ns = SH_MS(o->w.options.level_ms),
                                  .half_life_s = (double)o->w.options.usage_half_life_s,
                                  .world = &jw,
                                  .ends = o->ends};
    int rc = SH_OK;

    if (!o->w.n_gpus)
        return SH_FAIL(err, SH_E_INVALID, "the snapshot has no GPU that is connected");
    for (size_t t = 0; t < o->w.tenants.n; t++)
        o->share_ns[t] = 0;
    if (o->w.jobs.n)
        rc = jobs_replay(&o->w.jobs, &JOBS_OURS, &conf, NULL, &o->r, err);
    o->end_ns = 0;
    for (size_t i = 0; !rc && i < o->w.jobs.n; i++)
        if (o->ends[i].state == SIM_OVER)
            o->end_ns = SH_MAX(o->end_ns, o->ends[i].end_ns);
    return rc;
}

static int begin_outcome(struct outcome *o, const json_t *snapshot, double hours, const char *trace,
                         struct sh_err *err)
{
    int rc = world_read(snapshot, hours, trace, &o->w, err);

    if (rc)
        return rc;
    o->ends = calloc(o->w.jobs.n + 1, sizeof(*o->ends));
    o->share_ns = calloc(o->w.tenants.n + 1, sizeof(*o->share_ns));
    if (!o->ends || !o->share_ns)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu jobs", o->w.jobs.n);
    return run_world(o, 0, err);
}

/* ------------------------------------------------------------------ what became of it */

struct sums {
    size_t n, n_ended, n_waited, n_stops;
    double *waits; /* of those that waited and started */
    double wait_s, longest_s, whole_s, gpu_s, end_s;
};

static void count_job(const struct outcome *o, size_t i, struct sums *s)
{
    const struct sim_job *j = &o->ends[i];
    const bool waited = o->w.more[i].gpu == SIM_NONE;
    const double wait_s = (double)(j->first_ns - j->of.at_ns) / 1e9;

    s->n++;
    s->gpu_s += (double)(j->had_ns - (waited ? 0 : -o->w.more[i].since_ns)) / 1e9;
    s->n_stops += j->n_stops;
    if (waited && j->first_ns >= 0) {
        s->waits[s->n_waited++] = wait_s;
        s->wait_s += wait_s;
        s->longest_s = SH_MAX(s->longest_s, wait_s);
    }
    if (j->state != SIM_OVER)
        return;
    s->n_ended++;
    s->whole_s += (double)(j->end_ns - j->of.at_ns) / 1e9;
    s->end_s = SH_MAX(s->end_s, (double)j->end_ns / 1e9);
}

static json_t *say_sums(struct sums *s)
{
    sh_sort_f64(s->waits, s->n_waited);
    return json_pack("{s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "jobs", (json_int_t)s->n,
                     "ended", (json_int_t)s->n_ended, "preemptions", (json_int_t)s->n_stops,
                     "mean_wait_s", s->n_waited ? s->wait_s / (double)s->n_waited : 0, "p95_wait_s",
                     s->n_waited ? s->waits[SH_MIN(s->n_waited * 95 / 100, s->n_waited - 1)] : 0,
                     "longest_wait_s", s->longest_s, "mean_s",
                     s->n_ended ? s->whole_s / (double)s->n_ended : 0, "last_end_s", s->end_s,
                     "gpu_s", s->gpu_s);
}

static int say_tenant(const struct outcome *o, uint32_t t, double given_ns, double *waits,
                      json_t *list, struct sh_err *err)
{
    struct sums s = {.waits = waits};
    json_t *row;

    for (size_t i = 0; i < o->w.jobs.n; i++)
        if (o->ends[i].of.tenant == t)
            count_job(o, i, &s);
    if (!s.n)
        return SH_OK;
    row = say_sums(&s);
    if (!row || json_object_set_new(row, "tenant", json_string(o->w.tenants.items[t])) ||
        json_object_set_new(row, "share",
                            json_real(given_ns > 0 ? o->share_ns[t] / given_ns : 0)) ||
        json_array_append(list, row)) {
        json_decref(row);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the answer");
    }
    json_decref(row);
    return SH_OK;
}

static int describe_outcome(const struct outcome *o, json_t **out, struct sh_err *err)
{
    struct sums s = {.waits = calloc(o->w.jobs.n + 1, sizeof(double))};
    json_t *all = NULL, *tenants = json_array();
    double given_ns = 0;
    int rc = s.waits && tenants ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate the answer");

    for (size_t t = 0; t < o->w.tenants.n; t++)
        given_ns += o->share_ns[t];
    for (uint32_t t = 0; t < o->w.tenants.n && !rc; t++)
        rc = say_tenant(o, t, given_ns, s.waits, tenants, err);
    for (size_t i = 0; !rc && i < o->w.jobs.n; i++)
        count_job(o, i, &s);
    if (!rc) {
        const double time_s = s.end_s * (double)o->w.n_gpus;

        all = say_sums(&s);
        if (!all || json_object_set_new(all, "gpus", json_integer((json_int_t)o->w.n_gpus)) ||
            json_object_set_new(all, "used", json_real(time_s > 0 ? s.gpu_s / time_s : 0)) ||
            json_object_set_new(all, "starts", json_integer((json_int_t)o->r.n_starts)))
            rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the answer");
    }
    if (!rc)
        *out = json_pack("{s:O, s:O}", "jobs", all, "tenants", tenants);
    if (!rc && !*out)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the answer");
    if (!rc)
        rc = answer__requests(&o->w, *out, err);
    json_decref(all);
    json_decref(tenants);
    free(s.waits);
    return rc;
}

/* ------------------------------------------------------------------ the question */

struct asked {
    json_t *snapshot;          /* BORROWED */
    json_t *changed, *changes; /* OWNED */
    double hours;
    const char *trace; /* BORROWED; NULL: none */
};

static int read_asked_question(const json_t *question, struct asked *q, struct sh_err *err)
{
    const struct sh_json_field f[] = {
        {"snapshot", SH_JSON_OBJ, &q->snapshot, .required = true},
        {"changes", SH_JSON_ARR, &q->changes, .max = CHANGE_MAX},
        {"hours", SH_JSON_F64, &q->hours, .max = SH_WHATIF_MAX_HOURS},
        {"trace", SH_JSON_STR, &q->trace, .max = 64 << 20},
    };
    int rc = sh_json_read(question, "question", f, SH_ARRAY_LEN(f), err);

    if (rc)
        return rc;
    if (q->changes)
        json_incref(q->changes);
    else
        q->changes = json_array();
    q->changed = json_deep_copy(q->snapshot);
    if (!q->changed || !q->changes)
        return SH_FAIL(err, SH_E_NOMEM, "could not copy the snapshot");
    return change_apply(q->changed, q->changes, err);
}

static int put_together(const struct asked *q, const struct outcome *before, json_t *was,
                        json_t *becomes, json_t **out, struct sh_err *err)
{
    const char *at = sh_json_text(q->snapshot, "at");
    const struct world_requests *r = &before->w.requests;

    *out =
        json_pack("{s:s, s:f, s:O, s:O, s:O, s:I, s:I, s:{s:f, s:f, s:I, s:I}}", "at", at, "hours",
                  q->hours, "changes", q->changes, "before", was, "after", becomes, "guessed",
                  (json_int_t)before->w.guessed, "left_out", (json_int_t)before->w.left_out,
                  "recorded", "from_s", r->from_s, "seconds", r->seconds, "left_out",
                  (json_int_t)r->left_out, "guessed", (json_int_t)r->guessed);
    return *out ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate the answer");
}

int answer(const json_t *question, json_t **out, struct sh_err *err)
{
    struct asked q = {0};
    struct outcome before = {0}, after = {0};
    json_t *was = NULL, *becomes = NULL;
    int rc = read_asked_question(question, &q, err);

    *out = NULL;
    if (!rc)
        rc = begin_outcome(&before, q.snapshot, q.hours, q.trace, err);
    if (!rc)
        rc = begin_outcome(&after, q.changed, q.hours, q.trace, err);
    /* Once more, now that the length of it is known: shares of both count to the same moment. */
    if (!rc) {
        const int64_t half_ns = SH_MIN(before.end_ns, after.end_ns) / 2;

        rc = run_world(&before, half_ns, err);
        if (!rc)
            rc = run_world(&after, half_ns, err);
    }
    if (!rc)
        rc = describe_outcome(&before, &was, err);
    if (!rc)
        rc = describe_outcome(&after, &becomes, err);
    if (!rc)
        rc = put_together(&q, &before, was, becomes, out, err);
    json_decref(was);
    json_decref(becomes);
    json_decref(q.changed);
    json_decref(q.changes);
    outcome_fini(&before);
    outcome_fini(&after);
    return rc;
}
