/* link_ask.c - questions to the scheduler: see link.h. */
#include "api/infer/link_int.h"
#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"

#define MAX_ASKS 32u /* an answer costs the scheduler a look at every job that waits */
#define ASK_NS SH_S(2)

static void ask_finish(struct link_ask *a, int rc)
{
    a->rc = rc;
    a->done(a->arg);
}

void link_ask(struct link *l, struct link_ask *a)
{
    bool ended;

    a->rid = atomic_fetch_add(&l->next_rid, 1);
    a->deadline_ns = sh_clock_ns() + ASK_NS;
    pthread_mutex_lock(&l->lock);
    ended = l->ended;
    if (!ended) {
        a->next = l->new_asks;
        l->new_asks = a;
    }
    pthread_mutex_unlock(&l->lock);
    if (ended)
        ask_finish(a, SH_E_UNAVAILABLE);
    else
        sh_loop_wake(l->loop);
}

void link__ask_send(struct link *l)
{
    struct link_ask *a, *next;

    pthread_mutex_lock(&l->lock);
    a = l->new_asks;
    l->new_asks = NULL;
    pthread_mutex_unlock(&l->lock);
    for (; a; a = next) {
        next = a->next;
        if (!atomic_load(&l->up) || l->n_asks == MAX_ASKS) {
            ask_finish(a, atomic_load(&l->up) ? SH_E_QUEUEFULL : SH_E_UNAVAILABLE);
            continue;
        }
        l->n_asks++;
        a->next = l->asks;
        l->asks = a;
        link__send(l, &(struct sh_msg){.type = MSG_JOB_EXPLAIN,
                                       .u.job_explain = {.rid = a->rid, .job = a->job}});
    }
}

void link__ask_answer(struct link *l, const struct msg_job_explained *m)
{
    struct link_ask **at = &l->asks, *a;

    while (*at && (*at)->rid != m->rid)
        at = &(*at)->next;
    a = *at;
    if (!a)
        return; /* its time was over */
    *at = a->next;
    l->n_asks--;
    ask_finish(a, m->rc ? (int)m->rc : sh_strdup(m->text, &a->text, NULL));
}

void link__ask_sweep(struct link *l, bool all)
{
    struct link_ask **at = &l->asks;
    int64_t now = sh_clock_ns();

    while (*at) {
        struct link_ask *a = *at;

        if (!all && now < a->deadline_ns) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        l->n_asks--;
        ask_finish(a, all ? SH_E_UNAVAILABLE : SH_E_TIMEOUT);
    }
}
