/* queue.c - see queue.h. */
#include "simulate/queue.h"

#include "common/mem.h"

#include <stdlib.h>

#define MAX_EVENTS 1000000000u
#define KIDS 4 /* as many as lie beside each other in two lines of a cache */

void queue_fini(struct queue *q)
{
    free(q->items);
    *q = (struct queue){0};
}

static bool is_event_before(const struct event *a, const struct event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

int queue_put(struct queue *q, struct event e, struct sh_err *err)
{
    int rc = sh_grow(&q->items, &q->cap, q->n + 1, sizeof(q->items[0]), MAX_EVENTS, "events", err);
    size_t i = q->n;

    if (rc)
        return rc;
    e.order = q->n_put++;
    for (q->n++; i > 0 && is_event_before(&e, &q->items[(i - 1) / KIDS]); i = (i - 1) / KIDS)
        q->items[i] = q->items[(i - 1) / KIDS];
    q->items[i] = e;
    return SH_OK;
}

bool queue_take(struct queue *q, struct event *out)
{
    struct event last;
    size_t i = 0;

    if (!q->n)
        return false;
    *out = q->items[0];
    last = q->items[--q->n];
    for (size_t kid; (kid = KIDS * i + 1) < q->n; i = kid) {
        const size_t end = SH_MIN(kid + KIDS, q->n);

        for (size_t k = kid + 1; k < end; k++)
            if (is_event_before(&q->items[k], &q->items[kid]))
                kid = k;
        if (!is_event_before(&q->items[kid], &last))
            break;
        q->items[i] = q->items[kid];
    }
    if (q->n)
        q->items[i] = last;
    return true;
}
