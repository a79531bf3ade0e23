/* aliases.c - aliases of models: names that stand for versions. Which one a request gets is decided
 * in cache/catalog.c, a rollback by itself in infer/alias_watch.c. */
#include "api/api.h"
#include "api/cache/catalog.h"
#include "api/control/models.h"
#include "api/handlers.h"
#include "api/request/noun.h"
#include "api/spec/alias.h"
#include "api/store/store.h"
#include "common/mem.h"

#include <stdlib.h>

static int check_alias_path(const struct api_req *q, struct sh_err *err)
{
    if (!noun_is_name(q->params[0]))
        return noun_missing("model", q->params[0], err);
    if (!sh_alias_is_name(q->params[1]))
        return noun_missing("alias", q->params[1], err);
    return SH_OK;
}

/* The same where the alias may be new. */
static int check_new_alias(const struct api_req *q, struct sh_err *err)
{
    if (!noun_is_name(q->params[0]))
        return noun_missing("model", q->params[0], err);
    if (!sh_alias_is_name(q->params[1]))
        return SH_FAIL(
            err, SH_E_INVALID,
            "\"%.80s\" cannot be an alias: it must be 1 to %d lower-case letters, digits "
            "or hyphens and begin with a letter",
            q->params[1], SH_ALIAS_NAME - 1);
    return SH_OK;
}

/* Requests that follow the answer find it, at least at this process. */
static int alias_reply(struct api_req *q, json_t *j, struct sh_err *err)
{
    catalog_refresh(q->api->catalog, q->db, NULL);
    return req_reply(q, j, NULL, err);
}

int aliases_list(struct api_req *q, struct sh_err *err)
{
    struct req_page page;
    json_t *j = NULL, *model = NULL;
    int rc = req_page(q, &page, err);

    if (!rc)
        rc = models_of_path(q, &model, err);
    json_decref(model);
    if (!rc)
        rc = store_alias_list(q, q->params[0], &page, &j, err);
    return noun_page_reply(q, rc, j, err);
}

int aliases_get(struct api_req *q, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = check_alias_path(q, err);

    if (!rc)
        rc = store_alias_get(q, q->params[0], q->params[1], &j, err);
    return noun_reply(q, rc, j, "alias", q->params[1], err);
}

/* Why nothing was changed. */
static int refuse_change(struct api_req *q, const char *match, const char *reason,
                         struct sh_err *err)
{
    json_t *model = NULL, *now = NULL;
    int rc = models_of_path(q, &model, err);

    if (!rc)
        rc = models_own(q, model, err);
    if (!rc)
        rc = store_alias_get(q, q->params[0], q->params[1], &now, err);
    if (!rc)
        rc = noun_refused(now, match, "alias", q->params[1], reason, err);
    json_decref(model);
    json_decref(now);
    return rc;
}

/* a: all but the names and If-Match. */
static int set_alias(struct api_req *q, struct store_alias *a, struct sh_err *err)
{
    char buf[24];
    json_t *j = NULL;
    int rc = req_if_match(q, buf, &a->if_match, err);

    a->model = q->params[0];
    a->alias = q->params[1];
    if (!rc)
        rc = store_alias_set(q, a, &j, err);
    if (!rc && !j)
        rc = refuse_change(q, a->if_match, "another request changed the alias; try again", err);
    return rc ? rc : alias_reply(q, j, err);
}

/* TAKES j; NULL: no memory. */
static int dump_owned(json_t *j, char **out, struct sh_err *err)
{
    int rc =
        j ? sh_json_dump(j, out, err) : SH_FAIL(err, SH_E_NOMEM, "could not allocate an alias");

    json_decref(j);
    return rc;
}

int aliases_put(struct api_req *q, struct sh_err *err)
{
    struct store_alias a = {.change = STORE_ALIAS_PUT};
    char *targets = NULL, *policy = NULL;
    struct alias_targets t;
    struct alias_policy p;
    json_t *list = NULL, *rollback = NULL;
    bool is_sticky = false;
    struct sh_json_field f[] = {
        {"targets", SH_JSON_ARR, &list, .required = true, .min = 1, .max = ALIAS_TARGETS},
        {"sticky", SH_JSON_BOOL, &is_sticky, .required = false},
        {"rollback", SH_JSON_OBJ, &rollback, .required = false},
    };
    int rc = check_new_alias(q, err);

    if (!rc)
        rc = noun_read(q, "", f, SH_ARRAY_LEN(f), err);
    if (!rc)
        rc = alias_read_targets(list, &t, err);
    if (!rc && rollback)
        rc = alias_read_policy(rollback, &p, err);
    if (!rc)
        rc = dump_owned(alias_targets_json(&t), &targets, err);
    if (!rc && rollback)
        rc = dump_owned(alias_policy_json(&p), &policy, err);
    a.targets = targets;
    a.policy = policy;
    a.sticky = is_sticky ? "true" : "false";
    if (!rc)
        rc = set_alias(q, &a, err);
    free(targets);
    free(policy);
    return rc;
}

int aliases_promote(struct api_req *q, struct sh_err *err)
{
    struct store_alias a = {.change = STORE_ALIAS_PROMOTE};
    struct alias_targets t = {.list = {{.weight = 1}}, .n = 1};
    char *targets = NULL;
    struct sh_json_field f[] = {
        {"version", SH_JSON_INT, &t.list[0].version, .min = 1, .max = INT32_MAX},
        {"from", SH_JSON_STR, &a.from, .min = 1, .max = SH_ALIAS_NAME - 1},
    };
    int rc = check_new_alias(q, err);

    if (!rc)
        rc = noun_read(q, "", f, SH_ARRAY_LEN(f), err);
    if (!rc && (t.list[0].version > 0) == (a.from != NULL))
        rc = sh_json_fail(err, "version", "give either \"version\" or \"from\", an alias");
    if (!rc && a.from && !sh_alias_is_name(a.from))
        rc = noun_missing("alias", a.from, err);
    if (!rc && !a.from)
        rc = dump_owned(alias_targets_json(&t), &targets, err);
    a.targets = targets;
    if (!rc)
        rc = set_alias(q, &a, err);
    free(targets);
    return rc;
}

int aliases_rollback(struct api_req *q, struct sh_err *err)
{
    const char *match;
    char buf[24];
    json_t *j = NULL;
    int rc = check_alias_path(q, err);

    if (!rc)
        rc = noun_read(q, "", NULL, 0, err);
    if (!rc)
        rc = req_if_match(q, buf, &match, err);
    if (!rc)
        rc = store_alias_rollback(q, q->params[0], q->params[1], match, &j, err);
    if (!rc && !j)
        rc = refuse_change(q, match,
                           "there is nothing to go back to: the alias was rolled back already, was "
                           "never changed, or the version before was deleted",
                           err);
    return rc ? rc : alias_reply(q, j, err);
}

int aliases_delete(struct api_req *q, struct sh_err *err)
{
    const char *match;
    char buf[24];
    json_t *j = NULL;
    int rc = check_alias_path(q, err);

    if (!rc)
        rc = req_if_match(q, buf, &match, err);
    if (!rc)
        rc = store_alias_delete(q, q->params[0], q->params[1], match, &j, err);
    if (!rc && !j)
        rc = refuse_change(q, match, "another request changed the alias; try again", err);
    if (!rc)
        catalog_refresh(q->api->catalog, q->db, NULL);
    json_decref(j);
    return rc;
}
