/* jobs_view.c - see jobs.h: merges a look at the database. */
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"
#include "scheduler/jobs/jobs.h"
#include "scheduler/sched.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is read of jobs, who wins when both sides changed, and which of those that wait are held. */

#define MAX_AHEAD_S 1e9
#define MAX_ASKED 1024    /* lines of one look */
#define FULL_LOOK_PART 20 /* of the time at most one part goes into full looks */
#define FORGET_EVERY_NS SH_S(5)
#define FORGET_BATCH 5000

void jobs__doubt(struct sched *s, struct job *j)
{
    j->doubtful = true;
    sched_poll(s);
}

bool jobs_in_window(const struct job *j)
{
    return j->state != JOB_QUEUED || j->retries || !j->line || line_covers(j->line, &j->place);
}

void jobs__left_line(struct sched *s, struct job *j)
{
    struct line *l = j->line;

    j->line = NULL;
    if (!l)
        return;
    l->n--; /* it was counted: only what its line covers starts */
    if (lines_is_low(&s->jobs.lines, l))
        sched_poll(s);
}

static struct line_key line_key_of(const struct job *j)
{
    return (struct line_key){.tenant_id = j->tenant_id,
                             .queue_id = j->queue_id,
                             .version_id = j->version_id,
                             .array_id = j->array_id,
                             .gpus = j->gpus,
                             .is_batch = j->is_batch,
                             .preemptible = j->preemptible};
}

/* ------------------------------------------------------------------ what the next look brings */

static int ask_doubtful(const struct jobs *js, struct store_view *v, struct sh_err *err)
{
    size_t n = 0;

    for (size_t i = 0; i < js->n; i++)
        n += js->items[i]->doubtful;
    v->doubtful = calloc(n + 1, sizeof(*v->doubtful));
    if (!v->doubtful)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a look at the database");
    for (size_t i = 0; i < js->n; i++)
        if (js->items[i]->doubtful)
            v->doubtful[v->n_doubtful++] = js->items[i]->id;
    return SH_OK;
}

static int ask_lines(const struct jobs *js, struct store_view *v, struct sh_err *err)
{
    v->window = lines_window(js->lines.n, js->lines.most);
    v->asked = calloc(MAX_ASKED, sizeof(*v->asked));
    if (!v->asked)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a look at the database");
    for (size_t i = 0; i < js->lines.n && v->n_asked < MAX_ASKED; i++) {
        const struct line *l = js->lines.items[i];

        if (lines_is_low(&js->lines, l))
            v->asked[v->n_asked++] = (struct store_place){.line = l->key, .place = l->edge};
    }
    return SH_OK;
}

int jobs_ask(struct sched *s, struct store_view *v, struct sh_err *err)
{
    struct jobs *js = &s->jobs;
    int64_t now = sh_clock_ns();
    int rc = SH_OK;

    v->full = !js->seen.open || now - js->full_ns >= SH_MAX(SH_MS(s->conf->full_look_ms),
                                                            FULL_LOOK_PART * js->full_took_ns);
    v->before = js->seen;
    v->before.open = NULL;
    if (js->seen.open)
        rc = sh_strdup(js->seen.open, &v->before.open, err);
    if (!rc)
        rc = ask_doubtful(js, v, err);
    if (!rc && !v->full)
        rc = ask_lines(js, v, err);
    if (v->full)
        js->full_ns = now;
    return rc;
}

/* ------------------------------------------------------------------ one job */

/* So many jobs are read at most, of lines and of others; between two full looks twice that. */
static size_t room_for_jobs(const struct sched *s)
{
    const struct store_limits most = limits_of(s);

    return 2 * (most.lines + most.busy);
}

static int job_from_row(struct sched *s, const struct store_job *row, enum job_state state,
                        struct job **out, struct sh_err *err)
{
    struct jobs *js = &s->jobs;
    struct job *j = NULL;
    int rc = sh_grow(&js->items, &js->cap, js->n + 1, sizeof(js->items[0]), 2 * room_for_jobs(s),
                     "jobs (--max-lines, --max-busy-jobs)", err);

    if (rc)
        return rc;
    j = calloc(1, sizeof(*j));
    if (!j)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a job");
    j->id = row->id;
    j->due.id = (uint64_t)row->id;
    j->tenant_id = row->line.tenant_id;
    j->version_id = row->line.version_id;
    j->model_id = row->model_id;
    j->attempt = row->attempt;
    j->progress = row->progress;
    j->base = row->base;
    jobs__judge(j);
    j->checkpoint_step = -1;
    if (row->not_before_s > 0) /* a back-off that began under another leader */
        j->not_before_ns = sh_clock_ns() + (int64_t)(row->not_before_s * 1e9);
    sh_strlcpy(j->tenant, row->tenant, sizeof(j->tenant));
    sh_strlcpy(j->model, row->model, sizeof(j->model));
    sh_strlcpy(j->reason, row->reason, sizeof(j->reason));
    sh_strlcpy(j->reason_written, row->reason, sizeof(j->reason_written));
    job_adopt_state(j, state);
    if (job_state_has_executor(state)) {
        struct exec *e = execs_find(&s->execs, row->executor);

        sh_strlcpy(j->executor, row->executor, sizeof(j->executor));
        j->lost_ns = j->since_ns = sh_clock_ns();
        j->since_step = j->progress.step;
        if (e) {
            e->job = j->id;
            exec_changed(&s->execs, e);
        }
    }
    rc = idmap_put(&js->by_id, (uint64_t)j->id, j, err);
    if (rc) {
        job_free(j);
        return rc;
    }
    j->at = js->n;
    *out = js->items[js->n++] = j;
    if (j->executor[0])
        jobs__enter_exec(s, j);
    jobs__touch(s, j);
    return SH_OK;
}

void jobs__follow(struct sched *s, struct job *j, enum job_state db_state)
{
    if (db_state == j->state)
        return;
    SH_INFO("job.changed", "job=%" PRId64 " from=%s to=%s", j->id, job_state_name(j->state),
            job_state_name(db_state));
    job_adopt_state(j, db_state);
    jobs__touch(s, j);
    if (db_state == JOB_CANCELLING) {
        if (!j->executor[0])
            jobs__change(s, j, JOB_CANCELLED, "Cancelled");
        else
            jobs__stop(s, j, MSG_JOB_HOW_CANCEL, "Cancelled");
    } else if (job_state_has_executor(db_state) && !j->executor[0]) {
        jobs__change(s, j, JOB_QUEUED, "Lost"); /* nobody runs it */
    } else if (!job_state_has_executor(db_state) && j->executor[0]) {
        jobs__stop(s, j, MSG_JOB_HOW_CANCEL, "Cancelled");
        jobs__leave(s, j);
    }
}

static bool queue_is_open(const struct store_job *row)
{
    return strcmp(row->queue_state, "HELD") != 0;
}

/* What a client may change of a job at any time. */
static void take_fields(struct job *j, const struct store_job *row)
{
    j->queue_id = row->line.queue_id;
    j->is_batch = row->line.is_batch;
    j->preemptible = row->line.preemptible;
    j->gpus = row->line.gpus;
    j->queued_us = row->queued_us;
    j->place = row->place;
    j->retries = isfinite(row->not_before_s);
    j->line = NULL;
    j->priority = row->priority;
    j->max_attempts = row->max_attempts;
    j->min_run_ns = SH_MS(row->min_runtime_ms);
    j->deadline_ns = 0;
    if (isfinite(row->deadline_s)) /* the year 2999 is too far away for nanoseconds */
        j->deadline_ns = sh_clock_ns() + (int64_t)(SH_MIN(row->deadline_s, MAX_AHEAD_S) * 1e9);
    j->queue_open = queue_is_open(row);
    j->publishes = row->publishes;
    j->array_id = row->line.array_id;
    j->array_max = row->array_max;
    j->step_samples = row->step_samples;
    j->all_steps = row->all_steps;
    /* Training compiles for itself: it does not need a version that was unloaded to be back. */
    j->model_ready = strcmp(row->version_state, "READY") == 0 ||
                     (!j->is_batch && (strcmp(row->version_state, "UNLOADING") == 0 ||
                                       strcmp(row->version_state, "UNLOADED") == 0));
    /* FAILED and DELETED: starting finds out and ends the job with the reason. */
    j->model_gone =
        strcmp(row->version_state, "FAILED") == 0 || strcmp(row->version_state, "DELETED") == 0;
}

static enum job_wish wish_of(const struct store_job *row)
{
    return strcmp(row->wish, "SUSPEND") == 0   ? JOB_WISH_SUSPEND
           : strcmp(row->wish, "REQUEUE") == 0 ? JOB_WISH_REQUEUE
                                               : JOB_WISH_NONE;
}

static int64_t save_of(const struct store_job *row)
{
    return row->save_asked > row->save_done ? row->save_asked : 0;
}

/* It has ended, or its row is gone. */
static void drop_ended(struct sched *s, struct job *j)
{
    jobs__stop(s, j, MSG_JOB_HOW_CANCEL, "Cancelled");
    jobs__leave(s, j);
    jobs__end(s, j);
}

/* Of a line that nobody has heard of and that has no room any more: it has to wait for a full look.
 * The same holds without memory for it. */
static bool is_line_covered(struct sched *s, const struct line_key *key,
                            const struct line_place *place, struct line **line_out)
{
    return !lines_get(&s->jobs.lines, key, line_out, NULL) && line_covers(*line_out, place);
}

/* Is a job that is not held to be held? One with a deadline may be here because that has come. */
static bool is_row_wanted(struct sched *s, const struct store_job *row, enum job_state state)
{
    struct line *l;

    if (job_state_has_executor(state) || isfinite(row->deadline_s))
        return true;
    if (state == JOB_QUEUED && isfinite(row->not_before_s))
        return s->jobs.n < room_for_jobs(s); /* else a later full look takes it up */
    return state == JOB_QUEUED && is_line_covered(s, &row->line, &row->place, &l);
}

static int take_job(struct sched *s, const struct store_job *row, struct sh_err *err)
{
    struct job *j = idmap_get(&s->jobs.by_id, (uint64_t)row->id);
    enum job_state state = JOB_CANCELLED;
    int rc = row->gone ? SH_OK : job_state_parse(row->state, &state, err);

    if (rc || (!j && job_state_is_final(state)))
        return rc;
    if (j && job_state_is_final(state)) {
        j->doubtful = jobs__is_busy(j);
        if (!j->doubtful)
            drop_ended(s, j);
        return SH_OK;
    }
    if (!j && !is_row_wanted(s, row, state))
        return SH_OK;
    if (!j)
        rc = job_from_row(s, row, state, &j, err);
    if (rc)
        return rc;
    j->seen_poll = s->n_polls;
    jobs__touch(s, j);
    take_fields(j, row);
    j->doubtful = jobs__is_busy(j); /* its state and wishes: when our write has arrived */
    if (j->doubtful)
        return SH_OK;
    jobs__follow(s, j, state);
    if (state == j->state) {
        j->wish = wish_of(row);
        j->save_asked = save_of(row);
        jobs__follow_wishes(s, j);
    }
    return SH_OK;
}

/* ------------------------------------------------------------------ a full look */

static void say_difference(int64_t job, const char *what)
{
    sh_metric_add(M_shunt_view_differences_total, NULL, 1);
    SH_ERROR("view.difference", "job=%" PRId64 " what=\"%s\"", job, what);
}

/* Before a full look is taken: is it as it was known? Its version's state is not looked at: the
 * leader knows of that before the database does. */
static void check_row(const struct sched *s, const struct store_job *row)
{
    const struct job *j = idmap_get(&s->jobs.by_id, (uint64_t)row->id);
    const struct line *l = lines_find(&s->jobs.lines, &row->line);
    bool in_line = strcmp(row->state, "QUEUED") == 0 && !isfinite(row->not_before_s);

    if (j && (j->doubtful || jobs__is_busy(j)))
        return;
    if (!j) {
        if (!in_line || (l ? line_covers(l, &row->place) : !s->jobs.lines.crowded))
            say_difference(row->id, "not held");
        return;
    }
    if (strcmp(job_state_name(j->state), row->state) != 0 ||
        (j->executor[0] && strcmp(j->executor, row->executor) != 0))
        say_difference(row->id, "state");
    else if (line_place_cmp(&j->place, &row->place) != 0 || j->priority != row->priority ||
             j->retries != isfinite(row->not_before_s))
        say_difference(row->id, "place");
    else if (j->wish != wish_of(row) || j->save_asked != save_of(row) ||
             j->queue_open != queue_is_open(row) || j->max_attempts != row->max_attempts ||
             j->min_run_ns != SH_MS(row->min_runtime_ms) || j->array_max != row->array_max)
        say_difference(row->id, "wishes");
}

/* What was held and is not among all that there is. */
static void drop_unseen(struct sched *s, const struct store_view *v, bool checks)
{
    struct jobs *js = &s->jobs;

    for (size_t i = js->n; i-- > 0;) {
        struct job *j = js->items[i];
        struct line_key key = line_key_of(j);
        struct line *l;

        if (j->seen_poll == s->n_polls || jobs__is_busy(j))
            continue;
        if (j->state == JOB_QUEUED && !j->retries && !is_line_covered(s, &key, &j->place, &l))
            continue; /* behind what is held now: tidy() */
        if (v->is_busy_cut && j->state == JOB_QUEUED && j->retries)
            continue; /* it may be there */
        if (checks && !j->doubtful)
            say_difference(j->id, "not in the database");
        drop_ended(s, j);
    }
}

/* Were there more lines than are taken up? Those of a tenant are, up to its part of all. */
static bool is_crowded(const struct lines *ls)
{
    size_t n_tenants = 0, most = 0, n = 0;

    for (size_t i = 0; i < ls->n; i++) {
        bool first = i == 0 || ls->items[i]->key.tenant_id != ls->items[i - 1]->key.tenant_id;

        n_tenants += first;
        n = first ? 1 : n + 1;
        most = SH_MAX(most, n);
    }
    return ls->n && most >= SH_MAX(ls->most / n_tenants, (size_t)1);
}

/* Lines as they were read: all anew, or on from where they were cut. */
static int take_line_places(struct sched *s, const struct store_view *v, struct sh_err *err)
{
    struct lines *ls = &s->jobs.lines;
    int rc = SH_OK;

    if (v->full) {
        for (size_t i = 0; i < s->jobs.n; i++)
            s->jobs.items[i]->line = NULL;
        lines_fini(ls);
    }
    /* Nothing is left of those asked for, but for what follows; a line that is cut stays. */
    for (size_t i = 0; !v->full && i < v->n_asked; i++)
        line_read_to(lines_find(ls, &v->asked[i].line), NULL, false);
    for (size_t i = 0, n = 0; i < v->n_places && !rc; i++) {
        const struct store_place *p = &v->places[i];
        bool last = i + 1 == v->n_places || line_key_cmp(&p[1].line, &p->line) != 0;
        struct line *l;

        n++;
        if (!last)
            continue;
        rc = lines_get(ls, &p->line, &l, err);
        if (!rc)
            line_read_to(l, &p->place, n >= v->window);
        n = 0;
    }
    if (v->full) {
        ls->crowded = is_crowded(ls);
        limits_note(s, LIMIT_LINES, ls->crowded);
    }
    return rc;
}

/* ------------------------------------------------------------------ counts */

static void add_counts(struct sched *s, const struct store_count *c, size_t n, int sign)
{
    for (size_t i = 0; i < n; i++) {
        struct tenant *t = tenants_by_id(&s->tenants, c[i].tenant_id);
        enum job_state state;

        if (t && !job_state_parse(c[i].state, &state, NULL) && !job_state_is_final(state))
            t->n_jobs[state] += sign * c[i].n;
    }
}

static void take_counts(struct sched *s, const struct store_view *v, bool checks)
{
    add_counts(s, v->counts, v->n_counts, 1);
    if (!v->full)
        return;
    add_counts(s, v->totals, v->n_totals, -1); /* nothing remains of what was right */
    for (size_t i = 0; i < s->tenants.n; i++) {
        for (int k = 0; k < JOB_N_STATES; k++) {
            if (checks && s->tenants.items[i]->n_jobs[k])
                say_difference(0, "counts");
            s->tenants.items[i]->n_jobs[k] = 0;
        }
    }
    add_counts(s, v->totals, v->n_totals, 1);
}

/* ------------------------------------------------------------------ who is held */

/* Counts the jobs of each line and removes what is not to be held. */
static void keep_wanted(struct sched *s)
{
    struct jobs *js = &s->jobs;
    int64_t now = sh_clock_ns();

    for (size_t i = 0; i < js->lines.n; i++)
        js->lines.items[i]->n = 0;
    for (size_t i = js->n; i-- > 0;) {
        struct job *j = js->items[i];
        struct line_key key = line_key_of(j);
        bool in_line = j->state == JOB_QUEUED && !j->retries;

        if (!in_line)
            j->line = NULL;
        if (job_state_has_executor(j->state) || (j->state == JOB_QUEUED && j->retries))
            continue;
        if (in_line && (j->line || !lines_get(&js->lines, &key, &j->line, NULL)) &&
            line_covers(j->line, &j->place)) {
            j->line->n++;
            continue;
        }
        jobs__touch(s, j); /* what its line covers may have changed */
        if (!jobs__is_busy(j))
            jobs__expire(s, j, now);
        if (!jobs__is_busy(j))
            jobs__remove(s, j);
    }
}

static int shrink_line(struct sched *s, struct line *l, struct sh_err *err)
{
    struct line_place *places = calloc(l->n, sizeof(*places));
    size_t n = 0;

    if (!places)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a line of jobs");
    for (size_t i = 0; i < s->jobs.n && n < l->n; i++)
        if (s->jobs.items[i]->line == l)
            places[n++] = s->jobs.items[i]->place;
    line_shrink(l, places, n, lines_window(s->jobs.lines.n, s->jobs.lines.most));
    free(places);
    return SH_OK;
}

static int tidy(struct sched *s, struct sh_err *err)
{
    struct lines *ls = &s->jobs.lines;
    bool over = false, low = false;
    int rc = SH_OK;

    keep_wanted(s);
    for (size_t i = 0; i < ls->n && !rc; i++) {
        if (!lines_is_over(ls, ls->items[i]))
            continue;
        over = true;
        rc = shrink_line(s, ls->items[i], err);
    }
    if (over && !rc)
        keep_wanted(s);
    lines_drop_empty(ls);
    for (size_t i = 0; i < ls->n; i++)
        low = low || lines_is_low(ls, ls->items[i]);
    if (low)
        sched_poll(s);
    return rc;
}

/* A queue was held, or a version is ready now: the jobs of theirs are read again. */
static void doubt_theirs(struct sched *s, const struct store_view *v)
{
    for (size_t i = 0; i < s->jobs.n && (v->n_queues || v->n_versions || v->n_arrays); i++) {
        struct job *j = s->jobs.items[i];
        bool theirs = false;

        for (size_t k = 0; k < v->n_queues; k++)
            theirs = theirs || v->queues[k] == j->queue_id;
        for (size_t k = 0; k < v->n_versions; k++)
            theirs = theirs || v->versions[k] == j->version_id;
        for (size_t k = 0; k < v->n_arrays; k++)
            theirs = theirs || v->arrays[k] == j->array_id;
        if (theirs)
            jobs__doubt(s, j);
    }
}

int jobs_merge(struct sched *s, struct store_view *v, struct sh_err *err)
{
    bool checks = v->full && v->before.open && !v->is_anew;
    int rc = SH_OK;

    take_counts(s, v, checks);
    if (!v->full)
        rc = take_line_places(s, v, err);
    for (size_t i = 0; i < v->n_told && !rc; i++)
        rc = take_job(s, &v->jobs[i], err);
    doubt_theirs(s, v);
    for (size_t i = v->n_told; i < v->n_jobs && checks && !rc; i++)
        check_row(s, &v->jobs[i]);
    if (!rc && v->full)
        rc = take_line_places(s, v, err);
    for (size_t i = v->full ? 0 : v->n_told; i < v->n_jobs && !rc; i++)
        rc = take_job(s, &v->jobs[i], err);
    if (rc)
        return rc;
    if (v->full) {
        limits_note(s, LIMIT_BUSY, v->is_busy_cut);
        drop_unseen(s, v, checks);
        s->jobs.full_took_ns = sh_clock_ns() - s->poll_at_ns;
    }
    if (v->is_anew)
        s->jobs.forgotten = 0; /* transactions may have lower numbers now */
    store_seen_free(&s->jobs.seen);
    s->jobs.seen = v->now;
    v->now = (struct store_seen){0};
    return tidy(s, err);
}

/* ------------------------------------------------------------------ changes that were seen */

static void on_forgotten(void *ctx, void *arg, int rc, const struct sh_err *err)
{
    struct sched *s = ctx;
    const struct store_forget *f = arg;

    s->jobs.forgetting = false;
    if (!sched_op_ok(s, "changes.forget", rc, err))
        return;
    s->jobs.forgotten = f->n_rows < f->batch ? f->before : f->last;
    if (f->n_rows == f->batch)
        s->jobs.forgot_ns = 0; /* there is more */
}

/* Begins where it has ended before: what is dead there stands in no index scan's way while some
 * old transaction keeps it. */
void jobs__forget_changes(struct sched *s, int64_t now_ns)
{
    static const struct sched_op OP = {"changes.forget", store_changes_forget, on_forgotten, free,
                                       DBOP_FAIL_FAST};
    struct jobs *js = &s->jobs;
    struct store_forget *f;
    struct sh_err err = {0};

    if (js->forgetting || !js->seen.open || js->seen.xmin <= js->forgotten ||
        now_ns - js->forgot_ns < FORGET_EVERY_NS)
        return;
    f = calloc(1, sizeof(*f));
    if (!f)
        return; /* the next second tries again */
    *f = (struct store_forget){.fence = sched_fence(s),
                               .from = js->forgotten,
                               .before = js->seen.xmin,
                               .batch = FORGET_BATCH};
    js->forgot_ns = now_ns;
    js->forgetting = sched_submit(s, &OP, f, &err) == SH_OK;
}
