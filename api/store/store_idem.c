/* store_idem.c - the answers that an Idempotency-Key repeats.
 *
 * The lock, the look-up, what the request creates and its answer are one transaction: a request
 * that died half-way leaves nothing, and one that was answered is never done twice. The advisory
 * lock is only tried, so that a second request with the key learns at once that the first is still
 * running.
 */
#include "api/store/store.h"
#include "common/mem.h"

#include <stdlib.h>

/* clang-format off */
static const struct db_stmt IDEM_LOCK = {
    "idem_lock",
    "SELECT pg_try_advisory_xact_lock(hashtextextended($1 || ':' || $2, 0))",
    2,
};

static const struct db_stmt IDEM_FIND = {
    "idem_find",
    "SELECT response, fingerprint = $3 FROM idempotency_key WHERE tenant_id = $1::bigint AND key = "
    "$2 AND expires_at > now()",
    3,
};

/* Old ones go as new ones come, so the table does not need a sweep of its own. */
static const struct db_stmt IDEM_KEEP = {
    "idem_keep",
    "WITH d AS (DELETE FROM idempotency_key WHERE (tenant_id, key) IN (SELECT tenant_id, key FROM "
    "idempotency_key WHERE expires_at < now() AND (tenant_id, key) <> ($1::bigint, $2) ORDER BY "
    "expires_at LIMIT 20 FOR UPDATE SKIP LOCKED)) "
    "INSERT INTO idempotency_key (tenant_id, key, fingerprint, response) VALUES ($1::bigint, $2, "
    "$3, $4::jsonb) ON CONFLICT (tenant_id, key) DO UPDATE SET fingerprint = excluded.fingerprint, "
    "response = excluded.response, created_at = now(), expires_at = excluded.expires_at",
    4,
};
/* clang-format on */

int store_idem_find(struct api_req *q, const struct req_idem *i, json_t **out, struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(i->scope), i->key, i->fingerprint};
    struct db_res *res = NULL;
    int rc = db_exec(q->db, &IDEM_FIND, p, &res, err);
    bool found = !rc && db_rows(res) > 0;

    *out = NULL;
    if (found && db_bool(res, 0, 1))
        rc = store_json(db_text(res, 0, 0), IDEM_FIND.name, out, err);
    else if (found) {
        q->reply.status = 422;
        rc = SH_FAIL(
            err, SH_E_CONFLICT,
            "this Idempotency-Key was used for another request; use a new key for a new request");
    }
    db_res_free(res);
    return rc;
}

int store_idem_begin(struct api_req *q, const struct req_idem *i, json_t **out, struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(i->scope), i->key};
    struct db_res *res = NULL;
    int rc = db_exec(q->db, &IDEM_LOCK, p, &res, err);

    *out = NULL;
    if (!rc && !db_bool(res, 0, 0))
        rc = SH_FAIL(err, SH_E_CONFLICT,
                     "a request with this Idempotency-Key is being carried out; ask again in a "
                     "moment");
    db_res_free(res);
    return rc ? rc : store_idem_find(q, i, out, err);
}

int store_idem_keep(struct api_req *q, const struct req_idem *i, const json_t *answer,
                    struct sh_err *err)
{
    char *text = NULL;
    int rc = sh_json_dump(answer, &text, err);

    if (!rc) {
        const char *p[] = {STORE_TEXT(i->scope), i->key, i->fingerprint, text};

        rc = db_exec(q->db, &IDEM_KEEP, p, NULL, err);
    }
    free(text);
    return rc;
}
