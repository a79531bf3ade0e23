/* due.h - what has to be looked at when a time has come, in the order of those times.
 *
 * A tree (tree.h) of entries that lie in what is due: nothing is allocated, nothing fails. Setting
 * a time takes steps in the number of levels. Not thread-safe.
 */
#ifndef SH_COMMON_DUE_H
#define SH_COMMON_DUE_H

#include "common/tree.h"

#include <stdint.h>

#define SH_DUE_NEVER INT64_MAX

struct sh_due { /* zeroed but for its id: never due */
    struct sh_tree_node node;
    int64_t at_ns; /* while it is in a tree */
    uint64_t id;   /* of no other in the tree: the order of those of one time */
};

/* SH_DUE_NEVER: takes it out of the tree. */
void sh_due_set(struct sh_tree *t, struct sh_due *d, int64_t at_ns);
int64_t sh_due_at(const struct sh_due *d); /* SH_DUE_NEVER: it is in no tree */
/* The first one whose time is now_ns or before; it stays in the tree. NULL: there is none. */
struct sh_due *sh_due_first(const struct sh_tree *t, int64_t now_ns);

#endif
