/* request_due.c - see request.h: when time alone ends a request, or a doubt about it. */
#include "common/mem.h"
#include "scheduler/sched.h"

#define TIMED(n) SH_TREE_OF(n, struct request, timed)

static int by_time(const struct sh_tree_node *a, const struct sh_tree_node *b)
{
    const struct request *x = TIMED(a), *y = TIMED(b);

    if (x->due_ns != y->due_ns)
        return x->due_ns < y->due_ns ? -1 : 1;
    return (x->serial > y->serial) - (x->serial < y->serial);
}

static const struct sh_tree_kind TIMES = {by_time, NULL};

/* When requests_expire() has to look at it. */
static int64_t due_ns(const struct request *r)
{
    const bool is_over = r->state == REQUEST_RUNNING && r->cancelled; /* its run ends it */
    const int64_t expires_ns = is_over ? INT64_MAX : r->expires_ns;

    return r->doubt_ns ? SH_MIN(expires_ns, r->doubt_ns + REQUEST_DOUBT_NS + 1) : expires_ns;
}

void requests__never_due(struct sched *s, struct request *r)
{
    if (sh_tree_has(&r->timed))
        sh_tree_del(&s->requests.timed, &TIMES, &r->timed);
}

void requests__set_due(struct sched *s, struct request *r)
{
    requests__never_due(s, r);
    r->due_ns = due_ns(r);
    if (r->due_ns != INT64_MAX)
        sh_tree_add(&s->requests.timed, &TIMES, &r->timed);
}

bool requests_are_timed(const struct sched *s)
{
    for (size_t i = 0; i < s->requests.n; i++) {
        const struct request *r = s->requests.items[i];

        if (r->due_ns != due_ns(r) || sh_tree_has(&r->timed) != (r->due_ns != INT64_MAX))
            return false;
    }
    return true;
}

struct request *requests__first_due(const struct sched *s, int64_t now_ns)
{
    struct sh_tree_node *n = sh_tree_first(&s->requests.timed);

    return n && TIMED(n)->due_ns <= now_ns ? TIMED(n) : NULL;
}
