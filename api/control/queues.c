/* queues.c - the queues that a tenant may use: its own, and shared ones.
 *
 * Shared queues belong to the admin. As everywhere, an admin's key names a tenant with ?tenant=;
 * without it the shared queue is meant. */
#include "api/api.h"
#include "api/handlers.h"
#include "api/infer/link.h"
#include "api/request/noun.h"
#include "api/store/store_job.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

#define NO_PRIORITY INT64_MAX
#define MAX_PRIORITY 1000

int queues_list(struct api_req *q, struct sh_err *err)
{
    struct req_page page;
    json_t *j = NULL;
    int rc = req_page(q, &page, err); /* a cursor is good for one tenant's list */

    if (!rc)
        rc = store_queue_list(q, &page, &j, err);
    return noun_page_reply(q, rc, j, err);
}

static int get_queue(struct api_req *q, json_t **out, struct sh_err *err)
{
    int rc = store_queue_get(q, q->params[0], out, err);

    if (!rc && !*out)
        rc = noun_missing("queue", q->params[0], err);
    return rc;
}

int queues_get(struct api_req *q, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = get_queue(q, &j, err);

    return rc ? rc : req_reply(q, j, NULL, err);
}

/* The queue that the path names, if this key may change it. out: tenant_id and name. */
static int own_queue(struct api_req *q, struct store_queue *out, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = get_queue(q, &j, err);
    bool shared = json_is_true(json_object_get(j, "shared"));

    json_decref(j);
    if (!rc && shared && q->who.role != ROLE_ADMIN)
        rc = SH_FAIL(err, SH_E_FORBIDDEN,
                     "the queue \"%.64s\" is shared by all tenants: this needs an admin key",
                     q->params[0]);
    out->tenant_id = shared ? 0 : q->tenant_id;
    out->name = q->params[0];
    return rc;
}

static int check_state(const struct store_queue *x, struct sh_err *err)
{

    return x->state ? noun_check_choice("state", x->state, SH_QUEUE_STATES(SH_STATE_TEXT, ","), err)
                    : SH_OK;
}

int queues_create(struct api_req *q, struct sh_err *err)
{
    struct store_queue x = {.priority = NO_PRIORITY};
    char location[128];
    struct sh_json_field f[] = {
        {"name", SH_JSON_STR, &x.name, .required = true, .min = 1, .max = 63},
        {"state", SH_JSON_STR, &x.state},
        {"priority", SH_JSON_INT, &x.priority, .min = -MAX_PRIORITY, .max = MAX_PRIORITY},
    };
    json_t *j = NULL, *there = NULL;
    int rc = noun_read(q, "", f, SH_ARRAY_LEN(f), err);

    if (!rc)
        rc = noun_check_tenant_name("name", x.name, err);
    if (!rc)
        rc = check_state(&x, err);
    x.has_priority = x.priority != NO_PRIORITY;
    x.tenant_id = q->tenant_id;
    if (!rc)
        rc = store_queue_create(q, &x, &j, err);
    if (!rc && !j) {
        rc = store_queue_get(q, x.name, &there, err);
        if (!rc && !there && x.tenant_id == 0)
            rc = SH_FAIL(err, SH_E_CONFLICT,
                         "a tenant has a queue \"%s\", or there are %d shared ones already", x.name,
                         STORE_MAX_QUEUES);
        else if (!rc)
            rc = there
                     ? SH_FAIL(err, SH_E_CONFLICT, "the queue \"%s\" exists already", x.name)
                     : SH_FAIL(err, SH_E_QUOTA, "a tenant has at most %d queues", STORE_MAX_QUEUES);
        json_decref(there);
    }
    if (rc)
        return rc;
    snprintf(location, sizeof(location), "/api/v1/queues/%s", x.name);
    return req_reply(q, j, location, err);
}

int queues_patch(struct api_req *q, struct sh_err *err)
{
    struct store_queue x = {.priority = NO_PRIORITY};
    const char *match;
    char buf[24];
    struct sh_json_field f[] = {
        {"state", SH_JSON_STR, &x.state},
        {"priority", SH_JSON_INT, &x.priority, .min = -MAX_PRIORITY, .max = MAX_PRIORITY},
    };
    json_t *j = NULL, *now = NULL;
    int rc = noun_read(q, "", f, SH_ARRAY_LEN(f), err);

    x.has_priority = x.priority != NO_PRIORITY;
    if (!rc && json_object_size(q->json) == 0)
        rc = SH_FAIL(err, SH_E_INVALID, "give \"state\", \"priority\" or both");
    if (!rc)
        rc = check_state(&x, err);
    if (!rc)
        rc = req_if_match(q, buf, &match, err);
    if (!rc)
        rc = own_queue(q, &x, err);
    if (!rc)
        rc = store_queue_patch(q, &x, match, &j, err);
    if (!rc && !j) {
        rc = store_queue_get(q, x.name, &now, err);
        if (!rc)
            rc = noun_refused(now, match, "queue", x.name, "the queue was changed", err);
        json_decref(now);
    }
    if (rc)
        return rc;
    link_hint(q->api->link, "jobs");
    return req_reply(q, j, NULL, err);
}

int queues_delete(struct api_req *q, struct sh_err *err)
{
    struct store_queue x = {0};
    const char *match;
    char buf[24];
    json_t *j = NULL, *now = NULL;
    int rc = req_if_match(q, buf, &match, err);

    if (!rc)
        rc = own_queue(q, &x, err);
    if (!rc && x.tenant_id == 0 && strcmp(x.name, "default") == 0)
        rc = SH_FAIL(err, SH_E_CONFLICT,
                     "the queue \"default\" cannot be deleted: it takes jobs that name no queue");
    if (!rc)
        rc = store_queue_delete(q, &x, match, &j, err);
    if (!rc && !j) {
        rc = store_queue_get(q, x.name, &now, err);
        if (!rc)
            rc = noun_refused(now, match, "queue", x.name,
                              "the queue has live jobs; let them end (DRAINING) or cancel them",
                              err);
    }
    json_decref(now);
    json_decref(j);
    return rc;
}
