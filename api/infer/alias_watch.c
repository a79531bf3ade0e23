/* alias_watch.c - see alias_count.h: aliases that are rolled back by themselves. */
#include "api/infer/alias_count.h"
#include "api/store/store.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"

#include <inttypes.h>
#include <stdlib.h>

/* The columns of store_alias_cases(). */
enum { ID, ROW_VERSION, TENANT, MODEL, NAME, TARGETS, PREVIOUS, POLICY, PERCENTILE, COUNTS };

/* TAKES j; NULL: no memory. */
static int parse_row(json_t *j, int (*read)(const json_t *, struct sh_err *, void *), void *to,
                     struct sh_err *err)
{
    int rc = j ? read(j, err, to) : SH_FAIL(err, SH_E_NOMEM, "could not read an alias");

    json_decref(j);
    return rc;
}

static int to_targets(const json_t *j, struct sh_err *err, void *to)
{
    return alias_read_targets(j, to, err);
}

static int to_policy(const json_t *j, struct sh_err *err, void *to)
{
    return alias_read_policy(j, to, err);
}

static int64_t count_in(const json_t *row, const char *name)
{
    return (int64_t)json_number_value(json_object_get(row, name));
}

/* Of a version whose share grew what it did since then, of the others, to compare with, all. */
static int to_counts(const json_t *list, struct sh_err *err, void *to)
{
    struct alias_case *c = to;
    const json_t *row;
    size_t i;

    (void)err;
    json_array_foreach((json_t *)(uintptr_t)list, i, row)
    {
        int64_t version = count_in(row, "version");
        struct alias_count *x = c->counts;

        if (!alias_has(&c->now, version) && !alias_has(&c->before, version))
            continue;
        if (alias_has_grown(c, version) && !json_is_true(json_object_get(row, "is_current")))
            continue;
        while (x < c->counts + c->n_counts && x->version != version)
            x++;
        if (x == c->counts + c->n_counts)
            c->counts[c->n_counts++] = (struct alias_count){.version = version};
        x->answered += count_in(row, "answered");
        x->failed += count_in(row, "failed");
        x->met += count_in(row, "met");
        x->missed += count_in(row, "missed");
    }
    return SH_OK;
}

static int read_case(const struct db_res *r, size_t i, struct alias_case *c, struct sh_err *err)
{
    int rc;

    *c = (struct alias_case){.percentile = db_f64(r, i, PERCENTILE, 0)};
    rc = parse_row(sh_json_row(db_text(r, i, TARGETS)), to_targets, &c->now, err);
    if (!rc && db_text(r, i, PREVIOUS))
        rc = parse_row(sh_json_row(db_text(r, i, PREVIOUS)), to_targets, &c->before, err);
    if (!rc)
        rc = parse_row(sh_json_row(db_text(r, i, POLICY)), to_policy, &c->policy, err);
    if (!rc)
        rc = parse_row(sh_json_row(db_text(r, i, COUNTS)), to_counts, c, err);
    return rc;
}

static int go_back(struct db *db, const struct db_res *r, size_t i,
                   const struct alias_targets *left, enum alias_verdict v, const char *why,
                   struct sh_err *err)
{
    const char *tenant = db_text(r, i, TENANT), *model = db_text(r, i, MODEL);
    json_t *list = alias_targets_json(left);
    char *targets = NULL, quoted[600];
    bool is_done = false;
    int rc = list ? sh_json_dump(list, &targets, err)
                  : SH_FAIL(err, SH_E_NOMEM, "could not print an alias's targets");

    if (!rc)
        rc = store_alias_return(db, db_text(r, i, ID), db_text(r, i, ROW_VERSION), targets,
                                alias_verdict_code(v), why, &is_done, err);
    json_decref(list);
    free(targets);
    if (rc || !is_done)
        return rc;
    sh_metric_add(M_shunt_alias_rollbacks_total, SH_LABELS(tenant, model), 1);
    SH_WARN("alias.rolled_back", "tenant=%s model=%s alias=%s reason=%s msg=\"%s\"", tenant, model,
            db_text(r, i, NAME), alias_verdict_code(v), sh_log_quote(why, quoted, sizeof(quoted)));
    return SH_OK;
}

static int judge_row(struct db *db, const struct db_res *r, size_t i, struct sh_err *err)
{
    struct alias_case c;
    struct alias_targets left;
    enum alias_verdict v;
    char why[256];
    int rc = read_case(r, i, &c, err);

    if (rc)
        return rc;
    /* A counter that begins at 1 would tell Prometheus of no increase. */
    sh_metric_add(M_shunt_alias_rollbacks_total,
                  SH_LABELS(db_text(r, i, TENANT), db_text(r, i, MODEL)), 0);
    v = alias_judge(&c, &left, why);
    return v == ALIAS_KEEP ? SH_OK : go_back(db, r, i, &left, v, why, err);
}

int alias_watch(struct db *db, struct sh_err *err)
{
    struct db_res *r = NULL;
    int rc = store_alias_cases(db, &r, err);

    for (size_t i = 0; !rc && i < db_rows(r); i++)
        rc = judge_row(db, r, i, err);
    db_res_free(r);
    return rc;
}
