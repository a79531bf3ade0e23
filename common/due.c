/* due.c - see due.h. */
#include "common/due.h"

#define DUE(n) SH_TREE_OF(n, struct sh_due, node)
#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

static int by_due_time(const struct sh_tree_node *a, const struct sh_tree_node *b)
{
    const int d = ORDER(DUE(a)->at_ns, DUE(b)->at_ns);

    return d ? d : ORDER(DUE(a)->id, DUE(b)->id);
}

static const struct sh_tree_kind TIMES = {by_due_time, NULL};

void sh_due_set(struct sh_tree *t, struct sh_due *d, int64_t at_ns)
{
    if (sh_due_at(d) == at_ns)
        return;
    if (sh_tree_has(&d->node))
        sh_tree_del(t, &TIMES, &d->node);
    d->at_ns = at_ns;
    if (at_ns != SH_DUE_NEVER)
        sh_tree_add(t, &TIMES, &d->node);
}

int64_t sh_due_at(const struct sh_due *d)
{
    return sh_tree_has(&d->node) ? d->at_ns : SH_DUE_NEVER;
}

struct sh_due *sh_due_first(const struct sh_tree *t, int64_t now_ns)
{
    struct sh_tree_node *n = sh_tree_first(t);

    return n && DUE(n)->at_ns <= now_ns ? DUE(n) : NULL;
}
