/* waiting.c - see waiting.h. */
#include "scheduler/pass/waiting.h"

#include "scheduler/sched.h"

#define TICK_EXECS 256u
#define TICK_REQUESTS 256u

static void append_waiting(struct exec_requests *l, struct request *r)
{
    r->list = l;
    r->before = l->last;
    r->behind = NULL;
    *(l->last ? &l->last->behind : &l->first) = r;
    l->last = r;
    l->n++;
}

static void list_leave(struct request *r)
{
    struct exec_requests *l = r->list;

    if (!l)
        return;
    *(r->before ? &r->before->behind : &l->first) = r->behind;
    *(r->behind ? &r->behind->before : &l->last) = r->before;
    l->n--;
    r->list = NULL;
}

void waiting_touch(struct sched *s, struct exec *e)
{
    if (e->is_touched || e->snap != SNAP_NONE) /* a pass is about it already */
        return;
    e->is_touched = true;
    e->next_touched = s->requests.waiting.touched;
    s->requests.waiting.touched = e;
}

void waiting_leave(struct sched *s, struct request *r)
{
    list_leave(r);
    if (r->exec)
        waiting_touch(s, r->exec);
}

void waiting_sort(struct sched *s, struct request *r)
{
    waiting_leave(s, r);
    if (r->state == REQUEST_OPEN || r->state == REQUEST_READY)
        append_waiting(r->exec ? &r->exec->waiting : &s->requests.waiting.fresh, r);
}

void waiting_touch_all(struct sched *s)
{
    for (size_t i = 0; i < s->execs.n; i++)
        if (s->execs.items[i]->waiting.n)
            waiting_touch(s, s->execs.items[i]);
    waiting_unpark(s);
}

void waiting_unpark(struct sched *s)
{
    while (s->requests.waiting.parked.first)
        waiting_sort(s, s->requests.waiting.parked.first);
}

void waiting_tick(struct sched *s)
{
    struct waiting *w = &s->requests.waiting;
    const size_t n = s->execs.n;

    for (size_t i = 0; i < n && i < TICK_EXECS; i++) {
        struct exec *e = s->execs.items[w->next_exec++ % n];

        if (e->waiting.n)
            waiting_touch(s, e);
    }
    for (size_t i = 0; w->parked.first && i < TICK_REQUESTS; i++)
        waiting_sort(s, w->parked.first);
}

struct request *waiting_take(struct sched *s)
{
    struct waiting *w = &s->requests.waiting;
    struct request *r = w->fresh.first;

    if (!r)
        return NULL;
    list_leave(r);
    append_waiting(&w->parked, r);
    return r;
}

struct exec *waiting_take_exec(struct sched *s)
{
    struct waiting *w = &s->requests.waiting;
    struct exec *e = w->touched;

    if (!e)
        return NULL;
    w->touched = e->next_touched;
    e->is_touched = false;
    return e;
}
