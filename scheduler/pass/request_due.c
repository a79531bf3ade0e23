/* request_due.c - see request.h: when time alone ends a request, or a doubt about it. */
#include "common/mem.h"
#include "scheduler/sched.h"

/* When requests_expire() has to look at it. */
static int64_t due_ns(const struct request *r)
{
    const bool is_over = r->state == REQUEST_RUNNING && r->cancelled; /* its run ends it */
    const int64_t expires_ns = is_over ? SH_DUE_NEVER : r->expires_ns;

    return r->doubt_ns ? SH_MIN(expires_ns, r->doubt_ns + REQUEST_DOUBT_NS + 1) : expires_ns;
}

void requests__never_due(struct sched *s, struct request *r)
{
    sh_due_set(&s->requests.timed, &r->due, SH_DUE_NEVER);
}

void requests__set_due(struct sched *s, struct request *r)
{
    sh_due_set(&s->requests.timed, &r->due, due_ns(r));
}

bool requests_are_timed(const struct sched *s)
{
    for (size_t i = 0; i < s->requests.n; i++)
        if (sh_due_at(&s->requests.items[i]->due) != due_ns(s->requests.items[i]))
            return false;
    return true;
}

struct request *requests__first_due(const struct sched *s, int64_t now_ns)
{
    struct sh_due *d = sh_due_first(&s->requests.timed, now_ns);

    return d ? SH_TREE_OF(d, struct request, due) : NULL;
}
