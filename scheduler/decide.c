#include "scheduler/decide.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

#define DECIDE_MAX 1000000u
#define TIE_NS 100000 /* predictions closer than this count as equal */
#define RETRY_SOON_MS 1000
#define RETRY_MAX_MS 60000

struct ranked { /* a request in the order in which it is served */
    uint32_t i;
    int32_t priority;
    bool late;
    int64_t deadline_ns, arrived_ns;
};

struct plan {           /* what an executor has before it */
    int64_t start_ns;   /* when what was sent to it is done, and training has stopped */
    int64_t backlog_ns; /* requests placed here that are ahead in the order */
    uint32_t n_placed;
};

struct work {
    const struct snapshot *in;
    struct decisions *out;
    struct ranked *order;
    struct plan *plans;
    uint32_t *samples; /* [model * n_execs + exec]: in the batch that is being filled there */
    uint32_t *exec;    /* of each request, or SNAP_NONE */
    bool *done;        /* refused or in a run */
};

static const char *const REASON_NAMES[DECIDE_N_REASONS] = {
#define X(name, text) [DECIDE_##name] = (text),
    DECIDE_REASON_MAP(X)
#undef X
};

const char *decide_reason_name(enum decide_reason r)
{
    return (unsigned)r < DECIDE_N_REASONS ? REASON_NAMES[r] : "";
}

void decisions_fini(struct decisions *d)
{
    free(d->items);
    free(d->members);
    free(d->shares);
    free(d->scratch);
    *d = (struct decisions){0};
}

int decide__add(struct decisions *out, const struct decision *d, struct sh_err *err)
{
    int rc = sh_grow(&out->items, &out->cap, out->n + 1, sizeof(*out->items), DECIDE_MAX,
                     "decisions of one pass", err);

    if (rc)
        return rc;
    out->items[out->n++] = *d;
    return SH_OK;
}

/* Zeroed memory that lives until the next call. */
int decide__scratch(struct decisions *out, size_t bytes, void **p, struct sh_err *err)
{
    if (bytes > out->scratch_bytes) {
        void *grown = realloc(out->scratch, bytes * 2);

        if (!grown)
            return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu bytes for a pass", bytes * 2);
        out->scratch = grown;
        out->scratch_bytes = bytes * 2;
    }
    if (bytes)
        memset(out->scratch, 0, bytes);
    *p = out->scratch;
    return SH_OK;
}

static int64_t run_ns(const struct snapshot *in, uint32_t model, uint32_t batch)
{
    return in->models[model].run_ns[predict_bucket(batch)];
}

static int64_t missing_ns(const struct snapshot *in, uint32_t model, uint32_t e)
{
    const struct snap_model *m = &in->models[model];
    uint64_t resident = in->places[(size_t)model * in->n_execs + e].resident_bytes;

    if (resident >= m->image_bytes)
        return 0;
    return (int64_t)((double)(m->image_bytes - resident) * in->execs[e].ns_per_byte);
}

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->priority != y->priority)
        return x->priority > y->priority ? -1 : 1;
    if (x->late != y->late)
        return x->late ? 1 : -1;
    if (x->deadline_ns != y->deadline_ns)
        return x->deadline_ns < y->deadline_ns ? -1 : 1;
    if (x->arrived_ns != y->arrived_ns)
        return x->arrived_ns < y->arrived_ns ? -1 : 1;
    return (x->i > y->i) - (x->i < y->i);
}

static void rank(struct work *w)
{
    const struct snapshot *in = w->in;

    for (size_t i = 0; i < in->n_requests; i++) {
        const struct snap_request *r = &in->requests[i];
        bool late = r->on_miss == SNAP_BEST_EFFORT && r->deadline_ns != SNAP_NO_DEADLINE &&
                    in->now_ns + run_ns(in, r->model, r->batch) > r->deadline_ns;

        w->order[i] = (struct ranked){.i = (uint32_t)i,
                                      .priority = r->priority,
                                      .late = late,
                                      .deadline_ns = r->deadline_ns,
                                      .arrived_ns = r->arrived_ns};
        w->exec[i] = r->exec;
    }
    qsort(w->order, in->n_requests, sizeof(w->order[0]), by_rank);
}

static void plan_execs(struct work *w)
{
    const struct snapshot *in = w->in;

    for (size_t e = 0; e < in->n_execs; e++) {
        const struct snap_exec *x = &in->execs[e];

        w->plans[e].start_ns = SH_MAX(in->now_ns, x->busy_until_ns);
        if (x->n_runs == 0 && x->trains)
            w->plans[e].start_ns += x->stop_ns;
    }
}

/* What the request adds to the executor's backlog: it may join the batch being filled there. */
static int64_t added_ns(const struct work *w, const struct snap_request *r, uint32_t e)
{
    const struct snapshot *in = w->in;
    uint32_t have = w->samples[(size_t)r->model * in->n_execs + e];
    int64_t whole;

    if (have == 0)
        return missing_ns(in, r->model, e) + run_ns(in, r->model, r->batch);
    if (have + r->batch > in->models[r->model].max_batch)
        return run_ns(in, r->model, r->batch);
    whole = run_ns(in, r->model, have + r->batch) - run_ns(in, r->model, have);
    return SH_MAX(whole, 0);
}

static void charge(struct work *w, const struct snap_request *r, uint32_t e)
{
    const struct snapshot *in = w->in;
    uint32_t *have = &w->samples[(size_t)r->model * in->n_execs + e];

    w->plans[e].backlog_ns += added_ns(w, r, e);
    w->plans[e].n_placed++;
    if (*have + r->batch > in->models[r->model].max_batch)
        *have = 0;
    *have += r->batch;
}

static int refuse(struct work *w, uint32_t i, int rc, enum decide_reason why, int64_t finish_ns,
                  struct sh_err *err)
{
    const struct snap_request *r = &w->in->requests[i];
    struct decision d = {.kind = DECISION_REFUSE,
                         .request = i,
                         .exec = SNAP_NONE,
                         .rc = rc,
                         .reason = why,
                         .retry_after_ms = RETRY_SOON_MS,
                         .predicted_ns = finish_ns - r->arrived_ns};

    if (why == DECIDE_DEADLINE && run_ns(w->in, r->model, r->batch) > r->limit_ns - r->arrived_ns) {
        d.retry_after_ms = 0; /* not even alone: asking again does not help */
    } else if (why == DECIDE_DEADLINE) {
        int64_t late_ms = (finish_ns - r->limit_ns) / 1000000 + 1;

        d.retry_after_ms = SH_MIN(SH_MAX(late_ms, 1), RETRY_MAX_MS);
    }
    w->done[i] = true;
    return decide__add(w->out, &d, err);
}

/* Is executor a, with finish fa, the better place than b? */
static bool better(const struct work *w, uint32_t model, uint32_t a, int64_t fa, uint32_t b,
                   int64_t fb)
{
    const struct snapshot *in = w->in;
    uint64_t ra = in->places[(size_t)model * in->n_execs + a].resident_bytes;
    uint64_t rb = in->places[(size_t)model * in->n_execs + b].resident_bytes;

    if (fa + TIE_NS < fb || fb + TIE_NS < fa)
        return fa < fb;
    if (ra != rb)
        return ra > rb;
    return in->execs[a].n_runs + w->plans[a].n_placed < in->execs[b].n_runs + w->plans[b].n_placed;
}

/* No executor has its model. It stays where it is if one will have it soon enough. */
static int wait_for_model(struct work *w, uint32_t i, bool any_up, struct sh_err *err)
{
    const struct snapshot *in = w->in;
    const struct snap_request *r = &in->requests[i];
    const struct snap_model *m = &in->models[r->model];
    enum decide_reason why = m->failed ? DECIDE_MODEL_FAILED
                             : any_up  ? DECIDE_MODEL_LOADING
                                       : DECIDE_NO_EXECUTOR;
    int64_t late_ms = m->expected_ns == SNAP_NEVER ? 0 : (m->expected_ns - in->now_ns) / 1000000;
    int rc;

    if (in->now_ns < r->wait_ns && m->expected_ns <= SH_MIN(r->wait_ns, r->limit_ns))
        return SH_OK;
    rc = refuse(w, i, SH_E_UNAVAILABLE, why, in->now_ns, err);
    if (!rc)
        w->out->items[w->out->n - 1].retry_after_ms =
            SH_MIN(SH_MAX(late_ms, RETRY_SOON_MS), RETRY_MAX_MS);
    return rc;
}

static int place(struct work *w, uint32_t i, struct sh_err *err)
{
    const struct snapshot *in = w->in;
    const struct snap_request *r = &in->requests[i];
    uint32_t best = SNAP_NONE;
    int64_t best_finish = INT64_MAX;
    bool any_up = false;

    for (uint32_t e = 0; e < in->n_execs; e++) {
        int64_t finish;

        if (!in->execs[e].up)
            continue;
        any_up = true;
        if (!in->places[(size_t)r->model * in->n_execs + e].ready)
            continue;
        finish = w->plans[e].start_ns + w->plans[e].backlog_ns + added_ns(w, r, e);
        if (best == SNAP_NONE || better(w, r->model, e, finish, best, best_finish)) {
            best = e;
            best_finish = finish;
        }
    }
    if (best == SNAP_NONE)
        return wait_for_model(w, i, any_up, err);
    if (best_finish + in->margin_ns > r->limit_ns)
        return refuse(w, i, SH_E_SLO, DECIDE_DEADLINE, best_finish + in->margin_ns, err);
    w->exec[i] = best;
    charge(w, r, best);
    return decide__add(w->out,
                       &(struct decision){.kind = DECISION_PLACE,
                                          .request = i,
                                          .exec = best,
                                          .predicted_ns = best_finish - r->arrived_ns},
                       err);
}

/* In order: places what is new, counts what is placed, gives up what can no longer be in time. */
static int admit(struct work *w, struct sh_err *err)
{
    const struct snapshot *in = w->in;
    int rc = SH_OK;

    for (size_t k = 0; k < in->n_requests && !rc; k++) {
        uint32_t i = w->order[k].i;
        const struct snap_request *r = &in->requests[i];
        int64_t alone_ns = in->now_ns + run_ns(in, r->model, r->batch);

        if (r->exec == SNAP_NONE)
            rc = place(w, i, err);
        else if (r->state == SNAP_READY && alone_ns > r->limit_ns)
            rc = refuse(w, i, SH_E_SLO, DECIDE_DEADLINE, alone_ns, err);
        else
            charge(w, r, r->exec);
    }
    return rc;
}

/* The latest end of the run that leaves every other request on e, of at least this priority, its
 * deadline; those that miss theirs even if the run ended at now_end do not count. */
static int64_t latest_end(const struct work *w, uint32_t e, uint32_t head, int64_t now_end)
{
    const struct snapshot *in = w->in;
    const struct snap_request *h = &in->requests[head];
    int64_t limit = INT64_MAX;

    for (size_t i = 0; i < in->n_requests; i++) {
        const struct snap_request *o = &in->requests[i];
        int64_t end;

        if (w->done[i] || w->exec[i] != e || o->state != SNAP_READY ||
            o->deadline_ns == SNAP_NO_DEADLINE || o->priority < h->priority ||
            (o->model == h->model && o->tenant == h->tenant))
            continue;
        end = o->deadline_ns - run_ns(in, o->model, o->batch);
        if (end >= now_end)
            limit = SH_MIN(limit, end);
    }
    return limit;
}

static int add_member(struct work *w, struct decision *d, uint32_t i, struct sh_err *err)
{
    struct decisions *out = w->out;
    int rc = sh_grow(&out->members, &out->cap_members, out->n_members + 1, sizeof(*out->members),
                     DECIDE_MAX, "requests of one pass", err);

    if (rc)
        return rc;
    out->members[out->n_members++] = i;
    w->done[i] = true;
    d->n++;
    d->batch += w->in->requests[i].batch;
    return SH_OK;
}

/* The first ready request of e leads; others join while nobody misses a deadline by it. */
static int form_run(struct work *w, uint32_t e, size_t k, int64_t start_ns, struct sh_err *err)
{
    const struct snapshot *in = w->in;
    uint32_t head = w->order[k].i;
    const struct snap_request *h = &in->requests[head];
    struct decision d = {.kind = DECISION_RUN,
                         .exec = e,
                         .request = head,
                         .job = SNAP_NONE,
                         .first = (uint32_t)w->out->n_members};
    int64_t end = start_ns + run_ns(in, h->model, h->batch);
    int64_t earliest = h->deadline_ns, limit = latest_end(w, e, head, end);
    int rc = add_member(w, &d, head, err);

    /* A head that is late anyway must not stop others from joining. */
    if (end > earliest)
        earliest = SNAP_NO_DEADLINE;
    for (k++; k < in->n_requests && !rc && d.batch < in->models[h->model].max_batch; k++) {
        uint32_t i = w->order[k].i;
        const struct snap_request *r = &in->requests[i];
        int64_t due;

        if (w->done[i] || w->exec[i] != e || r->state != SNAP_READY || r->model != h->model ||
            r->tenant != h->tenant || d.batch + r->batch > in->models[h->model].max_batch)
            continue;
        end = start_ns + run_ns(in, h->model, d.batch + r->batch);
        due = start_ns + run_ns(in, r->model, r->batch) > r->deadline_ns ? SNAP_NO_DEADLINE
                                                                         : r->deadline_ns;
        if (end > earliest || end > due || end > limit)
            continue;
        earliest = SH_MIN(earliest, due);
        rc = add_member(w, &d, i, err);
    }
    d.predicted_ns = run_ns(in, h->model, d.batch);
    return rc ? rc : decide__add(w->out, &d, err);
}

static int dispatch(struct work *w, uint32_t e, struct sh_err *err)
{
    const struct snapshot *in = w->in;
    uint32_t n_runs = in->execs[e].n_runs;
    int64_t start_ns = w->plans[e].start_ns;
    int rc = SH_OK;

    for (size_t k = 0; k < in->n_requests && n_runs < in->max_runs && !rc; k++) {
        uint32_t i = w->order[k].i;
        const struct snap_request *r = &in->requests[i];

        if (w->done[i] || w->exec[i] != e || r->state != SNAP_READY ||
            !in->places[(size_t)r->model * in->n_execs + e].ready)
            continue;
        start_ns += missing_ns(in, r->model, e);
        rc = form_run(w, e, k, start_ns, err);
        if (!rc)
            start_ns += w->out->items[w->out->n - 1].predicted_ns;
        n_runs++;
    }
    return rc;
}

static int decide_requests(const struct snapshot *in, struct decisions *out, struct sh_err *err)
{
    struct work w = {.in = in, .out = out};
    size_t at_plans = in->n_requests * sizeof(*w.order);
    size_t at_samples = at_plans + in->n_execs * sizeof(*w.plans);
    size_t at_exec = at_samples + in->n_models * in->n_execs * sizeof(*w.samples);
    size_t at_done = at_exec + in->n_requests * sizeof(*w.exec);
    void *p;
    int rc = decide__scratch(out, at_done + in->n_requests * sizeof(*w.done), &p, err);

    if (rc)
        return rc;
    w.order = p;
    w.plans = (void *)((char *)p + at_plans);
    w.samples = (void *)((char *)p + at_samples);
    w.exec = (void *)((char *)p + at_exec);
    w.done = (void *)((char *)p + at_done);
    plan_execs(&w);
    rank(&w);
    rc = admit(&w, err);
    for (uint32_t e = 0; e < in->n_execs && !rc; e++) {
        if (in->execs[e].up)
            rc = dispatch(&w, e, err);
    }
    return rc;
}

int decide(const struct snapshot *in, struct decisions *out, struct sh_err *err)
{
    int rc = SH_OK;

    out->n = 0;
    out->n_members = 0;
    if (in->n_requests)
        rc = decide_requests(in, out, err);
    if (!rc && in->with_jobs)
        rc = decide__jobs(in, out, err);
    return rc;
}
