/* idem.c - see idem.h. */
#include "api/store/idem.h"

#include "api/request/route.h"
#include "api/store/store.h"

struct once {
    struct api_req *q;
    const struct req_idem *idem;
    idem_fn *fn;
    void *arg;
    bool *replayed;
    json_t **out; /* reset at each try of the transaction */
};

static int once_tx(struct db *db, const void *arg, struct sh_err *err)
{
    const struct once *o = arg;
    int rc;

    (void)db;
    json_decref(*o->out);
    *o->out = NULL;
    rc = store_idem_begin(o->q, o->idem, o->out, err);
    *o->replayed = !rc && *o->out;
    if (rc || *o->replayed)
        return rc;
    rc = o->fn(o->arg, o->out, err);
    return rc ? rc : store_idem_keep(o->q, o->idem, *o->out, err);
}

int idem_run(struct api_req *q, const struct req_idem *idem, idem_fn *fn, void *arg, bool *replayed,
             json_t **out, struct sh_err *err)
{
    const struct once o = {q, idem, fn, arg, replayed, out};
    int rc = store_idem_find(q, idem, out, err);

    *replayed = !rc && *out;
    if (rc || *replayed)
        return rc;
    rc = db_tx_around(q->db, "idem", once_tx, &o, err);
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

/* ------------------------------------------------------------------ any handler */

/* {"location","body"} of the handler's answer, without its secret: the database must never see it.
 */
static int handle(void *arg, json_t **out, struct sh_err *err)
{
    struct api_req *q = arg;
    json_t *body;
    int rc;

    req_reply_free(&q->reply); /* of a try that was undone */
    rc = q->route->fn(q, err);
    if (rc)
        return rc;
    body = json_copy(q->reply.body);
    if (body && (!q->reply.secret || !json_object_set_new(body, q->reply.secret, json_null())))
        *out = json_pack("{s:s, s:O}", "location", q->reply.location, "body", body);
    json_decref(body);
    return *out ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate an answer to keep");
}

int idem_create(struct api_req *q, struct sh_err *err)
{
    struct req_idem idem;
    bool replayed = false;
    json_t *kept = NULL;
    int rc = req_idem(q, &idem, err);

    if (!rc)
        rc = idem_run(q, &idem, handle, q, &replayed, &kept, err);
    if (!rc && replayed) {
        req_reply_free(&q->reply);
        q->reply.replayed = true;
        rc = req_reply(q, json_incref(json_object_get(kept, "body")),
                       json_string_value(json_object_get(kept, "location")), err);
    }
    if (rc)
        q->reply.location[0] = '\0';
    json_decref(kept);
    return rc;
}
