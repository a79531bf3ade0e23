/* stage.c - see stage.h. */
#include "api/request/stage.h"

#include "api/request/front.h"
#include "common/log.h"

#include <stddef.h>

static void run_on_pool(struct pool_task *t, struct db *db)
{
    struct stage *s = (struct stage *)((char *)t - offsetof(struct stage, task));
    struct api_req *q = s->q;
    int rc;

    q->db = db;
    {
        SH_LOG_SCOPE(.tenant = q->tenant[0] ? q->tenant : NULL);
        rc = s->fn(q, s->err);
    }
    if (rc == API_WAIT)
        return; /* someone else wakes it, perhaps has already: it must not be touched */
    s->rc = rc;
    s->has_result = true;
    req_wake(q);
}

int stage_submit(struct stage *s, api_fn *fn, struct pool *pool)
{
    int rc;

    s->fn = fn;
    s->task.run = run_on_pool;
    s->task.owner = s->q->who.key_id[0] ? s->q->who.tenant_id : POOL_STRANGER;
    rc = pool_submit(pool, &s->task, s->err);
    return rc ? rc : API_WAIT;
}

bool stage_take(struct stage *s, int *rc)
{
    if (!s->has_result)
        return false;
    s->has_result = false;
    *rc = s->rc;
    return true;
}

int stage_run(struct stage *s, api_fn *fn, bool here, struct pool *pool)
{
    int rc;

    s->q->db = NULL;
    if (stage_take(s, &rc))
        return rc;
    rc = here ? fn(s->q, s->err) : API_AGAIN;
    return rc == API_AGAIN ? stage_submit(s, fn, pool) : rc;
}
