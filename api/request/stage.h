/* stage.h - runs a step of a request where it may run: on the thread of its front end, or on a pool
 * thread, whose end wakes the request. A stage belongs to the front end's thread, and to the pool's
 * while it runs there. */
#ifndef SH_API_REQUEST_STAGE_H
#define SH_API_REQUEST_STAGE_H

#include "api/request/pool.h"
#include "api/request/req.h"

struct stage {
    struct api_req *q;  /* BORROWED */
    struct sh_err *err; /* BORROWED: of the request */
    struct pool_task task;
    api_fn *fn;
    bool has_result; /* it ran on the pool and returned rc */
    int rc;
};

/* Runs fn here if it may run here, and on the pool if not, or if it returns API_AGAIN. API_WAIT:
 * call it again, with the same fn, after the wake-up. */
int stage_run(struct stage *s, api_fn *fn, bool here, struct pool *pool);
/* The same, on the pool at once; stage_take() has the result after the wake-up. */
int stage_submit(struct stage *s, api_fn *fn, struct pool *pool);
/* The result of a stage that ran on the pool, once. False: there is none. */
bool stage_take(struct stage *s, int *rc);

#endif
