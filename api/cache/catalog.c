/* catalog.c - see catalog.h. */
#include "api/cache/catalog.h"

#include "api/cache/rate.h"
#include "api/store/store.h"
#include "common/clock.h"
#include "common/field.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/sample.h"
#include "common/states.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define MARK_BYTES 320

struct cat_table {
    atomic_int refs;
    struct cat_version *rows; /* by model name, tenant's model id, version */
    size_t n;
    struct cat_alias *aliases; /* by model id, name */
    size_t n_aliases;
};

struct catalog {
    pthread_mutex_t lock;    /* table and checked_ns */
    pthread_mutex_t loading; /* one refresh at a time; taken before lock */
    struct cat_table *table;
    int64_t checked_ns;    /* when the table was last what the database had; 0: never */
    char mark[MARK_BYTES]; /* protected by `loading` */
    struct rate *lookups;
    int64_t max_age_ns;
};

static void free_rows(struct cat_version *rows, size_t n)
{
    for (size_t i = 0; rows && i < n; i++) {
        free(rows[i].inputs);
        free(rows[i].outputs);
    }
    free(rows);
}

static int by_model_name(const void *a, const void *b)
{
    const struct cat_version *x = a, *y = b;
    int c = strcmp(x->model, y->model);

    if (c)
        return c;
    if (x->model_id != y->model_id)
        return x->model_id < y->model_id ? -1 : 1;
    return x->version < y->version ? -1 : x->version > y->version;
}

int cat_table_new(struct cat_version *rows, size_t n, struct cat_table **out, struct sh_err *err)
{
    struct cat_table *t = calloc(1, sizeof(*t));

    *out = NULL;
    if (!t)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the model catalog");
    atomic_init(&t->refs, 1);
    t->rows = rows;
    t->n = n;
    if (n > 1)
        qsort(rows, n, sizeof(*rows), by_model_name);
    *out = t;
    return SH_OK;
}

void catalog_put(struct cat_table *t)
{
    if (!t || atomic_fetch_sub(&t->refs, 1) > 1)
        return;
    free_rows(t->rows, t->n);
    free(t->aliases);
    free(t);
}

void cat_table_add_aliases(struct cat_table *t, struct cat_alias *aliases, size_t n)
{
    free(t->aliases);
    t->aliases = aliases;
    t->n_aliases = n;
}

int catalog_new(int64_t max_age_ns, struct catalog **out, struct sh_err *err)
{
    struct catalog *c = calloc(1, sizeof(*c));
    int rc;

    *out = NULL;
    if (!c)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the model catalog");
    c->max_age_ns = max_age_ns;
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->loading, NULL);
    rc = cat_table_new(NULL, 0, &c->table, err);
    if (!rc)
        rc = rate_new(&c->lookups, err);
    if (rc) {
        catalog_free(c);
        return rc;
    }
    *out = c;
    return SH_OK;
}

void catalog_free(struct catalog *c)
{
    if (!c)
        return;
    catalog_put(c->table);
    rate_free(c->lookups);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->loading);
    free(c);
}

struct cat_table *catalog_get(struct catalog *c)
{
    struct cat_table *t;

    pthread_mutex_lock(&c->lock);
    t = c->table;
    atomic_fetch_add(&t->refs, 1);
    pthread_mutex_unlock(&c->lock);
    return t;
}

static int read_tensor(const json_t *j, const struct sh_symbols *s, struct cat_tensor *t,
                       struct sh_err *err)
{
    const char *name = json_string_value(json_object_get(j, "name"));
    const char *type = json_string_value(json_object_get(j, "datatype"));
    int rc;

    t->dtype = type ? sh_dtype_from_v2(type) : SH_N_DTYPES;
    if (!name || !sh_strlcpy(t->name, name, sizeof(t->name)) || t->dtype == SH_N_DTYPES)
        return SH_FAIL(err, SH_E_BUG, "a tensor of a model is not described as it should be");
    t->is_mask = json_is_true(json_object_get(j, "mask"));
    rc = sh_dims_read(j, s, t->axes, &t->rank, err);
    for (size_t i = 0; i < t->rank && !rc; i++)
        t->dims[i] = sh_dim_is_fixed(&t->axes[i])              ? t->axes[i].add
                     : sh_dim_is_of(&t->axes[i], SH_DIM_BATCH) ? -1
                                                               : CAT_OPEN;
    return rc;
}

/* [{"name","datatype","shape","mask"}] */
static int read_io_tensors(const json_t *list, const struct sh_symbols *s, struct cat_tensor **out,
                           size_t *n, struct sh_err *err)
{
    size_t count = json_array_size(list);
    int rc = SH_OK;

    *n = 0;
    *out = NULL;
    if (count > CAT_MAX_IO)
        return SH_FAIL(err, SH_E_UNSUPPORTED, "a model has %zu tensors, at most %d can be served",
                       count, CAT_MAX_IO);
    *out = calloc(count + 1, sizeof(**out));
    if (!*out)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a model's tensors");
    for (size_t i = 0; !rc && i < count; i++)
        rc = read_tensor(json_array_get(list, i), s, &(*out)[i], err);
    if (!rc)
        *n = count;
    return rc;
}

static int64_t fixed_batch(const struct cat_version *v)
{
    int64_t fixed = SH_BATCH_OPEN;

    for (size_t i = 0; i < v->n_inputs; i++)
        fixed = sh_batch_next(fixed, v->inputs[i].rank,
                              v->inputs[i].dims[0] == -1 ? -1 : SH_MAX(v->inputs[i].dims[0], 1));
    return sh_batch_end(fixed);
}

void cat_version_finish(struct cat_version *v)
{
    v->usable = v->n_inputs > 0 && v->n_outputs > 0;
    v->batched = v->usable;
    for (size_t i = 0; i < v->n_inputs; i++)
        v->batched &= v->inputs[i].rank > 0 && v->inputs[i].dims[0] == -1;
    for (size_t i = 0; i < v->n_outputs; i++)
        v->batched &= v->outputs[i].rank > 0 && v->outputs[i].dims[0] == -1;
    v->fixed_batch = fixed_batch(v);
    v->ready = strcmp(v->state, "READY") == 0;
    v->is_coming = sh_words_have(SH_VERSION_COMING(SH_STATE_TEXT, ","), v->state);
}

/* s: of the inputs, which are read first; of outputs too. */
static int parse_tensors(const char *text, bool are_inputs, struct sh_symbols *s,
                         struct cat_tensor **out, size_t *n, struct sh_err *err)
{
    json_t *j = json_loads(text ? text : "[]", 0, NULL);
    int rc = j ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not read a model's tensors");

    if (!rc && are_inputs)
        rc = sh_symbols_read(j, s, err);
    if (!rc)
        rc = read_io_tensors(j, s, out, n, err);
    json_decref(j);
    return rc;
}

static int parse_buckets(const char *text, struct cat_version *v, struct sh_err *err)
{
    json_t *j = text ? json_loads(text, 0, NULL) : NULL;
    int rc = text && !j ? SH_FAIL(err, SH_E_NOMEM, "could not read a model's buckets")
                        : sh_buckets_read(j, &v->symbols, &v->buckets, err);

    json_decref(j);
    return rc;
}

static int read_version_row(const struct db_res *res, size_t i, struct cat_version *v,
                            struct sh_err *err)
{
    struct sh_err odd = {0};
    int rc;

    v->id = db_i64(res, i, 0, 0);
    v->model_id = db_i64(res, i, 1, 0);
    sh_strlcpy(v->tenant, db_text(res, i, 3), sizeof(v->tenant));
    sh_strlcpy(v->model, db_text(res, i, 4), sizeof(v->model));
    v->version = db_i64(res, i, 5, 0);
    sh_strlcpy(v->state, db_text(res, i, 6), sizeof(v->state));
    v->shared = db_bool(res, i, 7);
    v->max_batch = db_i64(res, i, 8, 1);
    sh_strlcpy(v->precision, db_text(res, i, 9), sizeof(v->precision));
    v->has_slo = db_text(res, i, 12) != NULL;
    v->slo_ms = db_f64(res, i, 12, 0);
    v->slo_percentile = db_f64(res, i, 18, 0);
    v->slo_priority = db_i64(res, i, 13, 0);
    sh_strlcpy(v->on_miss, v->has_slo ? db_text(res, i, 14) : "", sizeof(v->on_miss));
    sh_strlcpy(v->reason, db_text(res, i, 15), sizeof(v->reason));
    sh_strlcpy(v->reason_code, db_text(res, i, 16), sizeof(v->reason_code));
    rc = parse_tensors(db_text(res, i, 10), true, &v->symbols, &v->inputs, &v->n_inputs, &odd);
    if (!rc)
        rc = parse_tensors(db_text(res, i, 11), false, &v->symbols, &v->outputs, &v->n_outputs,
                           &odd);
    if (!rc && v->n_inputs > 0) /* before the file came, nobody knows what it leaves open */
        rc = parse_buckets(db_text(res, i, 17), v, &odd);
    if (rc == SH_E_NOMEM)
        return sh_err_copy(err, &odd);
    cat_version_finish(v);
    if (rc) { /* one odd row must not take the others out of service */
        v->usable = v->ready = false;
        sh_strlcpy(v->reason, odd.msg, sizeof(v->reason));
    }
    return SH_OK;
}

static int read_alias_targets(const char *text, struct alias_targets *out, struct sh_err *err)
{
    json_t *j = text ? sh_json_row(text) : NULL;
    int rc = SH_OK;

    *out = (struct alias_targets){0};
    if (text)
        rc = j ? alias_read_targets(j, out, err)
               : SH_FAIL(err, SH_E_NOMEM, "could not read an alias");
    json_decref(j);
    return rc;
}

/* The alias of this name; NULL: none. */
static const struct cat_alias *alias_in(const struct cat_table *t, int64_t model_id,
                                        const char *name)
{
    size_t lo = 0, hi = t->n_aliases;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const struct cat_alias *a = &t->aliases[mid];
        int c = a->model_id == model_id ? strcmp(a->name, name) : a->model_id < model_id ? -1 : 1;

        if (c == 0)
            return a;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* Most have not changed since `old` was read. */
static int read_alias_row(const struct db_res *r, size_t i, const struct cat_table *old,
                          struct cat_alias *a, struct sh_err *err)
{
    const struct cat_alias *was;
    int rc;

    *a = (struct cat_alias){.id = db_i64(r, i, 0, 0),
                            .model_id = db_i64(r, i, 1, 0),
                            .generation = db_i64(r, i, 5, 0),
                            .row_version = db_i64(r, i, 8, 0),
                            .is_sticky = db_bool(r, i, 6),
                            .is_counted = db_bool(r, i, 7)};
    sh_strlcpy(a->name, db_text(r, i, 2), sizeof(a->name));
    was = old ? alias_in(old, a->model_id, a->name) : NULL;
    if (was && was->id == a->id && was->row_version == a->row_version) {
        a->now = was->now;
        a->before = was->before;
        return SH_OK;
    }
    rc = read_alias_targets(db_text(r, i, 3), &a->now, err);
    return rc ? rc : read_alias_targets(db_text(r, i, 4), &a->before, err);
}

static int aliases_load(struct db *db, const struct cat_table *old, struct cat_table *t,
                        struct sh_err *err)
{
    struct cat_alias *all = NULL;
    struct db_res *r = NULL;
    int rc = store_catalog_aliases(db, &r, err);
    size_t n = rc ? 0 : db_rows(r);

    if (!rc)
        all = calloc(n + 1, sizeof(*all));
    if (!rc && !all)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the aliases");
    for (size_t i = 0; !rc && i < n; i++)
        rc = read_alias_row(r, i, old, &all[i], err);
    if (rc)
        free(all);
    else
        cat_table_add_aliases(t, all, n);
    db_res_free(r);
    return rc;
}

/* old: NULL: it is of another life of the database */
static int table_load(struct db *db, const struct cat_table *old, struct cat_table **out,
                      struct sh_err *err)
{
    struct db_res *res = NULL;
    struct cat_version *rows = NULL;
    size_t n = 0;
    int rc = store_catalog_load(db, &res, err);

    if (rc)
        return rc;
    n = db_rows(res);
    rows = calloc(n + 1, sizeof(*rows));
    if (!rows)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the model catalog");
    for (size_t i = 0; !rc && i < n; i++)
        rc = read_version_row(res, i, &rows[i], err);
    if (!rc)
        rc = cat_table_new(rows, n, out, err);
    if (rc)
        free_rows(rows, n);
    db_res_free(res);
    if (!rc)
        rc = aliases_load(db, old, *out, err);
    if (rc) {
        catalog_put(*out);
        *out = NULL;
    }
    return rc;
}

/* Is there a version of this model? id 0: of any model of the name. */
static bool has_model(const struct cat_table *t, const char *model, int64_t id)
{
    size_t lo = 0, hi = t->n;

    while (lo < hi) { /* the first row that is not less */
        size_t mid = lo + (hi - lo) / 2;
        const struct cat_version *v = &t->rows[mid];
        int c = strcmp(v->model, model);

        if (c < 0 || (c == 0 && v->model_id < id))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < t->n && strcmp(t->rows[lo].model, model) == 0 &&
           (id == 0 || t->rows[lo].model_id == id);
}

void cat_forget_gone(const struct cat_table *old, const struct cat_table *now)
{
    for (size_t i = 0; i < old->n; i++) {
        const struct cat_version *v = &old->rows[i];

        if ((i == 0 || v[-1].model_id != v->model_id) && !has_model(now, v->model, v->model_id))
            sh_metrics_forget(has_model(now, v->model, 0) ? v->tenant : NULL, v->model);
    }
}

/* Are these marks of one life of the database? */
static bool is_same_life(const char *a, const char *b)
{
    const size_t n = strcspn(a, ".");

    return n == strcspn(b, ".") && strncmp(a, b, n) == 0;
}

int catalog_refresh(struct catalog *c, struct db *db, struct sh_err *err)
{
    struct cat_table *fresh = NULL, *old = NULL;
    char mark[MARK_BYTES];
    int64_t now;
    int rc;

    if (db_in_transaction(db))
        return SH_OK;
    pthread_mutex_lock(&c->loading);
    now = sh_clock_ns();
    /* The mark is read before the rows: a change in between is seen again next time. */
    rc = store_catalog_mark(db, mark, sizeof(mark), err);
    if (!rc && strcmp(mark, c->mark) != 0)
        rc = table_load(db, is_same_life(mark, c->mark) ? c->table : NULL, &fresh,
                        err); /* nobody else replaces it meanwhile */
    if (rc)
        goto out;
    pthread_mutex_lock(&c->lock);
    c->checked_ns = now;
    if (fresh) {
        old = c->table;
        c->table = fresh;
    }
    pthread_mutex_unlock(&c->lock);
    if (old)
        cat_forget_gone(old, fresh);
    catalog_put(old);
    memcpy(c->mark, mark, sizeof(mark));
out:
    pthread_mutex_unlock(&c->loading);
    return rc;
}

bool catalog_should_ask(struct catalog *c, int64_t tenant_id, int64_t now_ns)
{
    int64_t checked_ns;

    pthread_mutex_lock(&c->lock);
    checked_ns = c->checked_ns;
    pthread_mutex_unlock(&c->lock);
    return rate_take(c->lookups, tenant_id, CAT_LOOKUPS_PER_S, 0, now_ns) == 0 || !checked_ns ||
           now_ns - checked_ns > c->max_age_ns;
}

bool cat_sees(const struct cat_version *v, const char *tenant)
{
    return v->shared || strcmp(v->tenant, tenant) == 0;
}

/* First row of the name; n if there is none. */
static size_t first_of_model(const struct cat_table *t, const char *model)
{
    size_t lo = 0, hi = t->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (strcmp(t->rows[mid].model, model) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static int rank_of(const struct cat_version *v)
{
    return v->ready ? 2 : v->is_coming;
}

const struct cat_version *cat_find(const struct cat_table *t, const char *tenant, const char *model,
                                   int64_t version)
{
    const struct cat_version *best = NULL;
    int64_t model_id = 0;
    size_t first = first_of_model(t, model);

    /* Which model: our own, else the oldest shared one (rows are in order of model id). */
    for (size_t i = first; i < t->n && strcmp(t->rows[i].model, model) == 0; i++) {
        const struct cat_version *v = &t->rows[i];

        if (strcmp(v->tenant, tenant) == 0) {
            model_id = v->model_id;
            break;
        }
        if (v->shared && model_id == 0)
            model_id = v->model_id;
    }
    for (size_t i = first; i < t->n && strcmp(t->rows[i].model, model) == 0; i++) {
        const struct cat_version *v = &t->rows[i];

        if (v->model_id != model_id || (version > 0 && v->version != version))
            continue;
        if (!best || rank_of(v) >= rank_of(best)) /* versions ascend */
            best = v;
    }
    return best;
}

const struct cat_version *cat_exact(const struct cat_table *t, const char *tenant,
                                    const char *owner, const char *model, int64_t version)
{
    if (!owner)
        return cat_find(t, tenant, model, version);
    for (size_t i = first_of_model(t, model); i < t->n && strcmp(t->rows[i].model, model) == 0; i++)
        if (t->rows[i].version == version && strcmp(t->rows[i].tenant, owner) == 0)
            return &t->rows[i];
    return NULL;
}

/* ---------------------------------------------------------------- aliases */

const struct cat_alias *cat_alias(const struct cat_table *t, const char *tenant, const char *model,
                                  const char *name)
{
    const struct cat_version *v = t->n_aliases ? cat_find(t, tenant, model, 0) : NULL;

    return v ? alias_in(t, v->model_id, name) : NULL;
}

struct found { /* the versions of some targets */
    struct alias_target ready[ALIAS_TARGETS];
    const struct cat_version *rows[ALIAS_TARGETS]; /* theirs */
    const struct cat_version *first;               /* the one with the largest weight */
    size_t n;
    bool is_unloaded; /* one of them, by somebody */
};

static const struct cat_version *of_model(const struct cat_table *t, const char *model,
                                          int64_t model_id, int64_t version)
{
    for (size_t i = first_of_model(t, model); i < t->n && strcmp(t->rows[i].model, model) == 0; i++)
        if (t->rows[i].model_id == model_id && t->rows[i].version == version)
            return &t->rows[i];
    return NULL;
}

static void split_targets(const struct cat_table *t, const struct cat_alias *a,
                          const struct alias_targets *of, const char *model, struct found *f)
{
    int64_t most = 0;

    *f = (struct found){0};
    for (size_t i = 0; i < of->n; i++) {
        const struct cat_version *v = of_model(t, model, a->model_id, of->list[i].version);

        if (!v)
            continue;
        if (of->list[i].weight > most) {
            most = of->list[i].weight;
            f->first = v;
        }
        if (v->ready) {
            f->ready[f->n] = of->list[i];
            f->rows[f->n++] = v;
        }
        f->is_unloaded |= strcmp(v->state, "UNLOADING") == 0 || strcmp(v->state, "UNLOADED") == 0;
    }
}

static const struct alias_target *heaviest(const struct alias_target *t, size_t n)
{
    const struct alias_target *best = t;

    for (size_t i = 1; i < n; i++)
        if (t[i].weight > best->weight)
            best = &t[i];
    return best;
}

const struct cat_version *cat_serving(const struct cat_table *t, const struct cat_alias *a,
                                      const char *model, const char *key)
{
    const struct alias_target *one;
    struct found now, before = {0};
    const struct found *f = &now;

    split_targets(t, a, &a->now, model, &now);
    if (now.n == 0 && !now.is_unloaded) {
        split_targets(t, a, &a->before, model, &before);
        f = &before;
    }
    if (f->n == 0)
        return now.first;
    one = key ? alias_choose(f->ready, f->n, a->id, key) : heaviest(f->ready, f->n);
    return f->rows[one - f->ready];
}

bool cat_counts_aliases(const struct cat_table *t)
{
    for (size_t i = 0; i < t->n_aliases; i++)
        if (t->aliases[i].is_counted)
            return true;
    return false;
}

size_t cat_count(const struct cat_table *t)
{
    return t->n;
}

const struct cat_version *cat_at(const struct cat_table *t, size_t i)
{
    return &t->rows[i];
}
