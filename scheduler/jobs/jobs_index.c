/* jobs_index.c - see jobs.h: which jobs are on an executor, and which the tick has to look at. Tens
 * of thousands are held; an event asks for one of them. */
#include "common/mem.h"
#include "scheduler/jobs/jobs.h"
#include "scheduler/sched.h"

#include <string.h>

#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

#define ON_EXEC(n) SH_TREE_OF(n, struct job, on_exec)

/* ------------------------------------------------------------------ on an executor */

static int by_exec(const struct sh_tree_node *a, const struct sh_tree_node *b)
{
    const int d = strcmp(ON_EXEC(a)->executor, ON_EXEC(b)->executor);

    return d ? d : ORDER(ON_EXEC(a)->id, ON_EXEC(b)->id);
}

static const struct sh_tree_kind EXECS = {by_exec, NULL};

static struct job *if_on(struct sh_tree_node *n, const char *exec)
{
    return n && strcmp(ON_EXEC(n)->executor, exec) == 0 ? ON_EXEC(n) : NULL;
}

struct job *jobs__first_on(const struct sched *s, const char *exec)
{
    struct job key = {.id = INT64_MIN};

    sh_strlcpy(key.executor, exec, sizeof(key.executor));
    return if_on(sh_tree_from(&s->jobs.on_execs, &EXECS, &key.on_exec), exec);
}

struct job *jobs__next_on(const struct job *j)
{
    return if_on(sh_tree_next(&j->on_exec), j->executor);
}

void jobs__enter_exec(struct sched *s, struct job *j)
{
    sh_tree_add(&s->jobs.on_execs, &EXECS, &j->on_exec);
}

void jobs__leave_exec(struct sched *s, struct job *j)
{
    if (sh_tree_has(&j->on_exec))
        sh_tree_del(&s->jobs.on_execs, &EXECS, &j->on_exec);
}

/* ------------------------------------------------------------------ by time */

void jobs__never_due(struct sched *s, struct job *j)
{
    sh_due_set(&s->jobs.timed, &j->due, SH_DUE_NEVER);
}

void jobs__set_due(struct sched *s, struct job *j)
{
    sh_due_set(&s->jobs.timed, &j->due, jobs__due_ns(s, j));
}

struct job *jobs__take_due(struct sched *s, int64_t now_ns)
{
    struct sh_due *d = sh_due_first(&s->jobs.timed, now_ns);
    struct job *j = d ? SH_TREE_OF(d, struct job, due) : NULL;

    if (!j)
        return NULL;
    jobs__never_due(s, j);
    jobs__touch(s, j);
    return j;
}
