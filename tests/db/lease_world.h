/* lease_world.h - a migrated, filled database and a leader that has the lease; somebody else beside
 * it. For the tests of what a leader removes and makes. */
#ifndef SH_TESTS_DB_LEASE_WORLD_H
#define SH_TESTS_DB_LEASE_WORLD_H

#include "scheduler/store.h"
#include "tests/db/db_test.h"

struct world {
    struct db *a, *b; /* the leader, and somebody else */
    struct store_fence fence;
};

/* For a test's own set_up. fill: the rows to begin with. */
static inline int set_up_world(void **state, void (*fill)(struct db *db))
{
    struct world *w = calloc(1, sizeof(*w));
    struct store_lease lease = {.fence.holder = "a/1", .ttl_ms = 60000};
    struct sh_err err = {0};

    assert_non_null(w);
    w->a = open_db("leader");
    w->b = open_db("other");
    make_empty(w->a);
    migrate(w->a);
    fill(w->a);
    assert_ok_err(store_lease_acquire(w->a, &lease, &err), &err);
    w->fence = lease.fence;
    *state = w;
    return 0;
}

static inline int tear_down(void **state)
{
    struct world *w = *state;

    db_free(w->a);
    db_free(w->b);
    free(w);
    return 0;
}

#endif
