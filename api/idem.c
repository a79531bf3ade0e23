/* idem.c - see idem.h. What is kept: {"location","body"}. */
#include "api/idem.h"

#include "api/routes.h"
#include "api/store.h"
#include "common/mem.h"

struct once {
    struct api_req *q; /* its reply is made anew at each try of the transaction */
    const struct req_idem *idem;
};

static int replay(struct api_req *q, const json_t *kept, struct sh_err *err)
{
    q->reply.replayed = true;
    return req_reply(q, json_incref(json_object_get(kept, "body")),
                     json_string_value(json_object_get(kept, "location")), err);
}

/* The answer without its secret, which the database must never see. */
static int keep(struct api_req *q, const struct req_idem *idem, struct sh_err *err)
{
    json_t *body = json_copy(q->reply.body), *kept = NULL;
    int rc = SH_OK;

    if (!body || (q->reply.secret && json_object_set_new(body, q->reply.secret, json_null())) ||
        !(kept = json_pack("{s:s, s:O}", "location", q->reply.location, "body", body)))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate an answer to keep");
    if (!rc)
        rc = store_idem_keep(q, idem, kept, err);
    json_decref(kept);
    json_decref(body);
    return rc;
}

static int create_tx(struct db *db, const void *arg, struct sh_err *err)
{
    const struct once *o = arg;
    struct api_req *q = o->q;
    json_t *kept = NULL;
    int rc;

    (void)db;
    req_reply_free(&q->reply);
    rc = store_idem_begin(q, o->idem, &kept, err);
    if (!rc && kept)
        rc = replay(q, kept, err);
    else if (!rc)
        rc = q->route->fn(q, err);
    if (!rc && !kept)
        rc = keep(q, o->idem, err);
    json_decref(kept);
    return rc;
}

int idem_create(struct api_req *q, struct sh_err *err)
{
    struct req_idem idem;
    const struct once o = {.q = q, .idem = &idem};
    int rc = req_idem(q, &idem, err);

    if (!rc)
        rc = db_tx_around(q->db, "idem_create", create_tx, &o, err);
    if (rc)
        q->reply.location[0] = '\0';
    return rc;
}
