/* tree.c - see tree.h. */
#include "common/tree.h"

#include "common/mem.h"

static int height(const struct sh_tree_node *n)
{
    return n ? n->height : 0;
}

/* True: those above it have to know. */
static bool work_out(const struct sh_tree_kind *k, struct sh_tree_node *n)
{
    const int was = n->height;

    n->height = 1 + SH_MAX(height(n->kid[0]), height(n->kid[1]));
    return (k->sum && k->sum(n)) || n->height != was;
}

/* Where n hangs. */
static struct sh_tree_node **link_of(struct sh_tree *t, const struct sh_tree_node *n)
{
    return n->up ? &n->up->kid[n->up->kid[1] == n] : &t->root;
}

/* The kid on that side takes the place of n, which becomes its kid on the other. */
static struct sh_tree_node *rotate(struct sh_tree *t, const struct sh_tree_kind *k,
                                   struct sh_tree_node *n, int side)
{
    struct sh_tree_node *kid = n->kid[side], *between = kid->kid[!side];

    *link_of(t, n) = kid;
    kid->up = n->up;
    kid->kid[!side] = n;
    n->up = kid;
    n->kid[side] = between;
    if (between)
        between->up = n;
    work_out(k, n);
    work_out(k, kid);
    return kid;
}

/* From n upwards, below which something has changed. What `heir` knows, which is n or above it, is
 * not what those above it go by; NULL: there is no such node. */
static void balance(struct sh_tree *t, const struct sh_tree_kind *k, struct sh_tree_node *n,
                    const struct sh_tree_node *heir)
{
    for (; n; n = n->up) {
        const int left = height(n->kid[0]), right = height(n->kid[1]);
        const bool is_heir = n == heir;

        if (left > right + 1 || right > left + 1) {
            const int side = right > left;
            const struct sh_tree_node *kid = n->kid[side];

            if (height(kid->kid[!side]) > height(kid->kid[side]))
                rotate(t, k, n->kid[side], !side);
            n = rotate(t, k, n, side);
        } else if (!work_out(k, n) && !heir) {
            return;
        }
        if (is_heir)
            heir = NULL;
    }
}

void sh_tree_add(struct sh_tree *t, const struct sh_tree_kind *k, struct sh_tree_node *n)
{
    struct sh_tree_node **at = &t->root, *up = NULL;

    while (*at) {
        up = *at;
        at = &up->kid[k->cmp(n, up) > 0];
    }
    *n = (struct sh_tree_node){.up = up};
    *at = n;
    if (!up || at == &t->first->kid[0])
        t->first = n;
    t->n++;
    work_out(k, n);
    balance(t, k, up, NULL);
}

void sh_tree_del(struct sh_tree *t, const struct sh_tree_kind *k, struct sh_tree_node *n)
{
    struct sh_tree_node *heir = n->kid[0] ? n->kid[0] : n->kid[1], *from = n->up;
    const bool has_both = n->kid[0] && n->kid[1];

    if (t->first == n)
        t->first = sh_tree_next(n);
    if (has_both) { /* the next one takes its place */
        heir = n->kid[1];
        while (heir->kid[0])
            heir = heir->kid[0];
        from = heir->up == n ? heir : heir->up;
        heir->height = n->height; /* what it is now shows when balance() comes past */
        *link_of(t, heir) = heir->kid[1];
        if (heir->kid[1])
            heir->kid[1]->up = heir->up;
        for (int side = 0; side < 2; side++) {
            heir->kid[side] = n->kid[side];
            if (heir->kid[side])
                heir->kid[side]->up = heir;
        }
    }
    *link_of(t, n) = heir;
    if (heir)
        heir->up = n->up;
    t->n--;
    *n = (struct sh_tree_node){.height = 0};
    balance(t, k, from, has_both ? heir : NULL);
}

static struct sh_tree_node *leftmost(struct sh_tree_node *n)
{
    while (n && n->kid[0])
        n = n->kid[0];
    return n;
}

struct sh_tree_node *sh_tree_next(const struct sh_tree_node *n)
{
    if (n->kid[1])
        return leftmost(n->kid[1]);
    while (n->up && n->up->kid[1] == n)
        n = n->up;
    return n->up;
}

static const struct sh_tree_node *one_before(const struct sh_tree_node *n)
{
    if (n->kid[0]) {
        for (n = n->kid[0]; n->kid[1];)
            n = n->kid[1];
        return n;
    }
    while (n->up && n->up->kid[0] == n)
        n = n->up;
    return n->up;
}

void sh_tree_fix(struct sh_tree *t, const struct sh_tree_kind *k, struct sh_tree_node *n)
{
    const struct sh_tree_node *before = one_before(n), *behind = sh_tree_next(n);

    if ((before && k->cmp(before, n) > 0) || (behind && k->cmp(n, behind) > 0)) {
        sh_tree_del(t, k, n);
        sh_tree_add(t, k, n);
        return;
    }
    while (k->sum && n && k->sum(n))
        n = n->up;
}

/* As deep as the tree is high. */
static struct sh_tree_node *first_below(struct sh_tree_node *n, const struct sh_tree_ask *ask)
{
    while (n && ask->has(n, ask->arg)) {
        struct sh_tree_node *found = first_below(n->kid[0], ask);

        if (found)
            return found;
        if (ask->is(n, ask->arg))
            return n;
        n = n->kid[1];
    }
    return NULL;
}

struct sh_tree_node *sh_tree_first_with(const struct sh_tree *t, const struct sh_tree_ask *ask)
{
    return first_below(t->root, ask);
}

struct sh_tree_node *sh_tree_next_with(const struct sh_tree_node *n, const struct sh_tree_ask *ask)
{
    struct sh_tree_node *found = first_below(n->kid[1], ask);

    while (!found && n->up) {
        if (n->up->kid[0] == n)
            found = ask->is(n->up, ask->arg) ? n->up : first_below(n->up->kid[1], ask);
        n = n->up;
    }
    return found;
}

struct sh_tree_node *sh_tree_find(const struct sh_tree *t, const struct sh_tree_kind *k,
                                  const struct sh_tree_node *key)
{
    struct sh_tree_node *n = t->root;
    int d;

    while (n && (d = k->cmp(key, n)) != 0)
        n = n->kid[d > 0];
    return n;
}

struct sh_tree_node *sh_tree_from(const struct sh_tree *t, const struct sh_tree_kind *k,
                                  const struct sh_tree_node *key)
{
    struct sh_tree_node *best = NULL;

    for (struct sh_tree_node *n = t->root; n;) {
        if (k->cmp(n, key) >= 0)
            best = n;
        n = n->kid[best != n];
    }
    return best;
}
