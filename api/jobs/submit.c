/* submit.c - see submit.h. */
#include "api/jobs/submit.h"

#include "api/request/noun.h"
#include "api/store/idem.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int submit_init(struct submit *s, struct api_req *q, enum store_submit_way way, size_t n,
                struct sh_err *err)
{
    *s = (struct submit){.q = q, .way = way, .n = n};
    s->items = calloc(n ? n : 1, sizeof(*s->items));
    for (size_t i = 0; s->items && i < n; i++)
        s->items[i].index = -1;
    return s->items ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu jobs", n);
}

void submit_fini(struct submit *s)
{
    for (size_t i = 0; s->items && i < s->n; i++) {
        json_decref(s->items[i].job);
        json_decref(s->items[i].assumes);
        json_decref(s->items[i].faults.list);
    }
    free(s->items);
    *s = (struct submit){0};
}

void submit_read(struct submit_item *i, const json_t *body, struct sh_faults *faults)
{
    i->err.faults = faults;
    if (json_is_object(body))
        jobspec_read(body, &i->spec, &i->err);
    else
        sh_json_fail(&i->err, NULL, "a job must be an object");
}

/* ------------------------------------------------------------------ what jobs refer to */

struct known { /* looked up for this request */
    const struct jobspec *spec;
    struct store_parts parts;
};

struct lookup {
    struct known *items; /* OWNED */
    size_t n, cap;
};

static bool same_words(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Its outputs will count too: is there room? */
static int add_stored(struct api_req *q, struct store_parts *p, struct sh_err *err)
{
    int64_t stored;
    int rc = store_stored(q, &stored, err);

    if (!rc && json_object_set_new(p->dataset, "stored_bytes", json_integer(stored)))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not note what is stored");
    if (rc)
        store_parts_fini(p);
    return rc;
}

/* Jobs of a batch are much alike: the last one is the likeliest. */
static int find_parts(struct api_req *q, struct lookup *l, const struct jobspec *s,
                      const struct store_parts **out, struct sh_err *err)
{
    struct store_parts found;
    int rc;

    for (size_t i = l->n; i-- > 0;) {
        const struct jobspec *k = l->items[i].spec;

        if (k->version == s->version && k->is_batch == s->is_batch &&
            same_words(k->model, s->model) && same_words(k->dataset, s->dataset) &&
            same_words(k->eval_dataset, s->eval_dataset)) {
            *out = &l->items[i].parts;
            return SH_OK;
        }
    }
    rc = sh_grow(&l->items, &l->cap, l->n + 1, sizeof(*l->items), SUBMIT_MAX_JOBS, "jobs", err);
    if (!rc)
        rc = store_submit_parts(q, s, &found, err);
    if (!rc && s->is_batch && found.dataset)
        rc = add_stored(q, &found, err);
    if (rc)
        return rc;
    l->items[l->n] = (struct known){s, found};
    *out = &l->items[l->n++].parts;
    return SH_OK;
}

static int check_dataset(const struct jobspec *s, bool is_main, const struct store_parts *p,
                         struct sh_err *err)
{
    const char *name = is_main ? s->dataset : s->eval_dataset;
    const json_t *dataset = is_main ? p->dataset : p->eval_dataset;

    return dataset ? jobspec_fits_dataset(s, is_main, p->version, name, dataset, err)
                   : noun_missing("dataset", name, err);
}

static int check_job_parts(struct jobspec *s, const struct store_parts *p, struct sh_err *err)
{
    int rc = SH_OK;

    if (!p->version && s->version > 0)
        rc = SH_FAIL(err, SH_E_NOTFOUND, "there is no version %" PRId64 " of model \"%s\"",
                     s->version, s->model);
    else if (!p->version)
        rc = SH_FAIL(err, SH_E_NOTFOUND,
                     "there is no model \"%s\" of your own with an uploaded version", s->model);
    else if (jobspec_wants_upload(s) && json_is_integer(json_object_get(p->version, "source_job")))
        rc = SH_FAIL(err, SH_E_NOTFOUND,
                     "model \"%s\" has only versions that training made; to go on from one of them "
                     "give its number as \"version\", or \"latest\"",
                     s->model);
    if (!rc)
        rc = jobspec_fits_model(s, p->version, err);
    if (!rc)
        rc = check_dataset(s, true, p, err);
    if (!rc && s->eval_dataset)
        rc = check_dataset(s, false, p, err);
    return rc;
}

static int64_t submitted_id(const json_t *j)
{
    return json_integer_value(json_object_get(j, "id"));
}

/* What those items name that are right so far. */
static int find_items_parts(struct submit *s, struct sh_err *err)
{
    struct lookup l = {0};
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < s->n; i++) {
        struct submit_item *x = &s->items[i];
        const struct store_parts *p = NULL;

        if (x->err.rc)
            continue;
        rc = find_parts(s->q, &l, &x->spec, &p, err);
        if (rc || check_job_parts(&x->spec, p, &x->err))
            continue;
        json_decref(x->assumes); /* of a try that was undone */
        x->assumes = jobspec_assumes(&x->spec, p->version);
        x->version_id = submitted_id(p->version);
        x->version = json_integer_value(json_object_get(p->version, "version"));
        x->dataset_id = submitted_id(p->dataset);
        x->eval_dataset_id = x->spec.eval_dataset ? submitted_id(p->eval_dataset) : 0;
    }
    for (size_t i = 0; i < l.n; i++)
        store_parts_fini(&l.items[i].parts);
    free(l.items);
    return rc;
}

/* ------------------------------------------------------------------ into the database */

static json_t *item_row(const struct submit_item *x, size_t place)
{
    const struct jobspec *s = &x->spec;
    json_t *labels = s->label_map ? json_incref((json_t *)s->label_map) : json_object();
    json_t *row = json_pack(
        "{s:I, s:s, s:s, s:s, s:I, s:I, s:I, s:O, s:s?, s:I, s:b, s:o, s:s?, s:I, s:b, s:I}",
        "place", (json_int_t)place, "kind", s->kind, "name", s->name, "queue", s->queue, "priority",
        (json_int_t)s->priority, "version_id", (json_int_t)x->version_id, "dataset_id",
        (json_int_t)x->dataset_id, "spec", s->spec, "client_token", s->client_token, "max_attempts",
        (json_int_t)s->max_attempts, "hold", s->hold, "labels", labels, "deadline", s->deadline,
        "min_runtime_ms", (json_int_t)s->min_runtime_ms, "preemptible", s->preemptible, "gpus",
        (json_int_t)s->gpus);

    if (x->eval_dataset_id)
        json_object_set_new(row, "eval_dataset_id", json_integer(x->eval_dataset_id));
    if (x->index >= 0)
        json_object_set_new(row, "array_index", json_integer(x->index));
    return row;
}

/* A token that comes back with other contents is a client's bug: silence would hide it. */
static void check_same(struct submit_item *x)
{
    const char *model = json_string_value(json_object_get(x->job, "model"));
    const char *dataset = json_string_value(json_object_get(x->job, "dataset"));

    if (same_words(model, x->spec.model) && same_words(dataset, x->spec.dataset) &&
        json_equal(json_object_get(x->job, "spec"), x->spec.spec))
        return;
    x->status = 422;
    SH_FAIL(&x->err, SH_E_CONFLICT,
            "job %" PRId64 " was submitted with this token and asks for something else; use a new "
            "token for a new job",
            x->id);
}

/* What the items before have shown; NULL: none. */
struct shown {
    const struct submit_item *queue;  /* the last one whose queue refused */
    const struct submit_item *silent; /* the database did not say why it was not made */
};

static int ask_why(struct submit *s, struct submit_item *x, const struct submit_item **queue)
{
    int rc = SH_OK;

    if (x->spec.client_token)
        rc = store_job_by_token(s->q, x->spec.client_token, &x->job, &x->err);
    if (rc)
        return rc;
    if (x->job) {
        x->made = SUBMIT_EARLIER;
        x->id = submitted_id(x->job);
        x->version = json_integer_value(json_object_get(x->job, "version"));
        check_same(x);
        return SH_OK;
    }
    if (*queue && same_words((*queue)->spec.queue, x->spec.queue)) {
        x->err = (*queue)->err;
        return SH_OK;
    }
    rc = store_queue_refuse(s->q, x->spec.queue, &x->err);
    if (rc != SH_E_CONFLICT && rc != SH_E_NOTFOUND)
        return rc;
    *queue = x;
    return SH_OK;
}

/* No row was made of it. Not to learn why is a failure of this item alone, since others may have
 * been made, and of all behind it: each question may take as long as a statement may. In a
 * transaction it is a failure of the whole, for that is undone. */
static int why_not(struct submit *s, struct submit_item *x, struct shown *shown, struct sh_err *err)
{
    x->made = SUBMIT_UNMADE;
    if (shown->silent) {
        x->err = shown->silent->err;
        return SH_OK;
    }
    if (ask_why(s, x, &shown->queue) == SH_OK)
        return SH_OK;
    shown->silent = x;
    return s->is_alone ? SH_OK : sh_err_copy(err, &x->err);
}

static int take_shown_row(struct submit *s, const struct db_res *res, size_t row,
                          struct shown *shown, struct sh_err *err)
{
    struct submit_item *x = &s->items[db_i64(res, row, 0, 0)];
    const char *job = db_text(res, row, 2);

    x->id = db_i64(res, row, 1, 0);
    if (!x->id)
        return why_not(s, x, shown, err);
    x->made = SUBMIT_MADE;
    s->array_id = db_i64(res, row, 3, 0);
    return job ? store_json(job, "submit", &x->job, err) : SH_OK;
}

static int submitted_rows(const struct submit *s, json_t **out, struct sh_err *err)
{
    json_t *rows = json_array();
    bool ok = rows;

    for (size_t i = 0; ok && i < s->n; i++)
        if (!s->items[i].err.rc)
            ok = json_array_append_new(rows, item_row(&s->items[i], i)) == 0;
    *out = rows;
    return ok ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu jobs", s->n);
}

int submit_store(struct submit *s, struct sh_err *err)
{
    struct shown shown = {NULL, NULL};
    struct db_res *res = NULL;
    json_t *rows = NULL;
    int rc;

    for (size_t i = 0; i < s->n; i++) { /* of a try that was undone */
        struct submit_item *x = &s->items[i];

        if (x->made != SUBMIT_REFUSED)
            x->err = (struct sh_err){0};
        json_decref(x->job);
        x->job = NULL;
        x->made = SUBMIT_REFUSED;
        x->status = 0;
    }
    s->array_id = 0;
    rc = submitted_rows(s, &rows, err);
    if (!rc && json_array_size(rows) > 0)
        rc = store_submit(s->q, s->way, rows, s->array, &res, err);
    for (size_t i = 0; !rc && i < db_rows(res); i++)
        rc = s->array && !db_text(res, 0, 3) ? SH_OK : take_shown_row(s, res, i, &shown, err);
    db_res_free(res);
    json_decref(rows);
    return rc;
}

void submit_say_assumes(const struct submit *s, json_t *answer)
{
    size_t i = 0;

    while (i < s->n && !s->items[i].assumes)
        i++;
    if (i < s->n)
        json_object_set(answer, "training_assumes", s->items[i].assumes);
}

/* ------------------------------------------------------------------ once */

struct making {
    struct submit *s;
    submit_fn *fn;
    json_t **out; /* reset at each try of the transaction */
};

static int submit_make(void *arg, json_t **out, struct sh_err *err)
{
    const struct making *m = arg;
    int rc = find_items_parts(m->s, err);

    return rc ? rc : m->fn(m->s, out, err);
}

static int make_tx(struct db *db, const void *arg, struct sh_err *err)
{
    struct making m = *(const struct making *)arg;

    (void)db;
    json_decref(*m.out);
    *m.out = NULL;
    return submit_make(&m, m.out, err);
}

int submit_once(struct submit *s, submit_fn *fn, json_t **out, struct sh_err *err)
{
    struct making m = {s, fn, out};
    struct req_idem idem;
    int rc = req_idem(s->q, &idem, err);

    *out = NULL;
    if (rc)
        return rc;
    if (idem.key[0])
        return idem_run(s->q, &idem, submit_make, &m, &s->q->reply.replayed, out, err);
    /* The answer of an array is read once more; what a job or a batch lacks is an item's fault. */
    s->is_alone = !s->array;
    rc = s->is_alone ? db_tx_alone(s->q->db, "submit", make_tx, &m, err)
                     : db_tx(s->q->db, "submit", make_tx, &m, err);
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}
