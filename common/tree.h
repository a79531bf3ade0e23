/* tree.h - a balanced tree whose nodes lie in what it orders: nothing is allocated, nothing fails.
 *
 * An AVL tree. Adding and removing take steps in the number of levels, going on to the next node
 * takes two steps on average, the first one is known. What a node is ordered by, or knows, must not
 * change while it is in the tree, except of one node at a time that sh_tree_fix() is told of.
 *
 * With `sum`, each node knows something of all below it (a least or a greatest value), so that
 * sh_tree_first_with() finds the first node that has what is asked for without looking at those
 * that have not. Not thread-safe.
 */
#ifndef SH_COMMON_TREE_H
#define SH_COMMON_TREE_H

#include <stdbool.h>
#include <stddef.h>

struct sh_tree_node {
    struct sh_tree_node *up, *kid[2];
    int height; /* 0: it is in no tree */
};

struct sh_tree { /* a zeroed one is empty */
    struct sh_tree_node *root, *first;
    size_t n;
};

struct sh_tree_kind {
    /* < 0: a goes before b. Never 0 for two nodes. */
    int (*cmp)(const struct sh_tree_node *a, const struct sh_tree_node *b);
    /* Works out what n knows of itself and its kids, each of which may be NULL. True: that is not
     * what it knew before. NULL: nothing. */
    bool (*sum)(struct sh_tree_node *n);
};

/* What a node lies in. */
#define SH_TREE_OF(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

void sh_tree_add(struct sh_tree *t, const struct sh_tree_kind *k, struct sh_tree_node *n);
void sh_tree_del(struct sh_tree *t, const struct sh_tree_kind *k, struct sh_tree_node *n);
/* What n is ordered by, or knows, has changed since it was added: it is put where it belongs. As
 * cheap as to look at its neighbours if that is where it is. */
void sh_tree_fix(struct sh_tree *t, const struct sh_tree_kind *k, struct sh_tree_node *n);

static inline bool sh_tree_has(const struct sh_tree_node *n)
{
    return n->height > 0;
}

static inline struct sh_tree_node *sh_tree_first(const struct sh_tree *t) /* NULL: it is empty */
{
    return t->first;
}

struct sh_tree_node *sh_tree_next(const struct sh_tree_node *n); /* NULL: it is the last */

struct sh_tree_ask {
    /* Is it n that is asked for? */
    bool (*is)(const struct sh_tree_node *n, const void *arg);
    /* Is it n or one below it? By what `sum` has worked out. True although none is: that takes a
     * look at its kids. */
    bool (*has)(const struct sh_tree_node *n, const void *arg);
    const void *arg;
};

/* NULL: there is none. _next_with(): behind n. */
struct sh_tree_node *sh_tree_first_with(const struct sh_tree *t, const struct sh_tree_ask *ask);
struct sh_tree_node *sh_tree_next_with(const struct sh_tree_node *n, const struct sh_tree_ask *ask);
/* The first node that does not go before `key`, a node that is in no tree; NULL: there is none. */
struct sh_tree_node *sh_tree_from(const struct sh_tree *t, const struct sh_tree_kind *k,
                                  const struct sh_tree_node *key);
/* The node that equals `key`, a node that is in no tree; NULL: none does. */
struct sh_tree_node *sh_tree_find(const struct sh_tree *t, const struct sh_tree_kind *k,
                                  const struct sh_tree_node *key);

#endif
