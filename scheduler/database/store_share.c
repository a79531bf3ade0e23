/* store_share.c - see store.h: shares of tenants. */
#include "common/buf.h"
#include "scheduler/database/store.h"
#include "scheduler/database/store_int.h"

#include <inttypes.h>

/* What people are shown of the decisions: the share's part of store.h. */

#define MAX_TEXT (1u << 20)

static const struct db_stmt SHARE_PUT = {
    "share_put",
    "INSERT INTO tenant_share (tenant_id, epoch, half_life_s, guaranteed_gpus, max_gpus, weight,"
    " running_gpus, waiting_gpus, fair_gpus, reserved_gpus, usage_ns)"
    " SELECT x.id, $2::bigint, $3::float8, x.guaranteed, x.most, x.weight, x.running, x.waiting,"
    " x.fair, x.reserved, x.usage_ns FROM jsonb_to_recordset($1::jsonb) AS x (id bigint,"
    " guaranteed float8, most float8, weight float8, running float8, waiting float8, fair float8,"
    " reserved float8, usage_ns float8) WHERE EXISTS (SELECT 1 FROM tenant t WHERE t.id = x.id)"
    " ON CONFLICT (tenant_id) DO UPDATE SET at = now(), epoch = excluded.epoch,"
    " half_life_s = excluded.half_life_s, guaranteed_gpus = excluded.guaranteed_gpus,"
    " max_gpus = excluded.max_gpus, weight = excluded.weight,"
    " running_gpus = excluded.running_gpus, waiting_gpus = excluded.waiting_gpus,"
    " fair_gpus = excluded.fair_gpus, reserved_gpus = excluded.reserved_gpus,"
    " usage_ns = excluded.usage_ns",
    3};

static int put_share_row(struct sh_buf *b, const struct store_share *r, struct sh_err *err)
{
    struct store_num most;

    return sh_buf_printf(
        b, err,
        "%s{\"id\":%" PRId64 ",\"guaranteed\":%.17g,\"most\":%s,\"weight\":%.17g,"
        "\"running\":%.17g,\"waiting\":%.17g,\"fair\":%.17g,\"reserved\":%.17g,\"usage_ns\":%.17g}",
        b->len ? "," : "[", r->tenant_id, r->guaranteed_gpus,
        r->max_gpus >= 0 ? store__f64(&most, r->max_gpus) : "null", r->weight, r->running_gpus,
        r->waiting_gpus, r->fair_gpus, r->reserved_gpus, r->usage_ns);
}

static int share_tx(struct db *db, const void *arg, struct sh_err *err)
{
    const struct store_shares *w = arg;
    struct store_num epoch, half_life;
    struct sh_buf rows;
    int rc = store__fence(db, &w->fence, err);

    sh_buf_init(&rows, MAX_TEXT);
    for (size_t i = 0; i < w->n && !rc; i++)
        rc = put_share_row(&rows, &w->rows[i], err);
    if (!rc)
        rc = sh_buf_puts(&rows, w->n ? "]" : "[]", err);
    if (!rc)
        rc = db_exec(db, &SHARE_PUT,
                     (const char *const[]){rows.data, store__i64(&epoch, (int64_t)w->fence.epoch),
                                           store__f64(&half_life, w->half_life_s)},
                     NULL, err);
    sh_buf_fini(&rows);
    return rc;
}

int store_share_put(struct db *db, void *arg, struct sh_err *err)
{
    return db_tx(db, "share_put", share_tx, arg, err);
}
