/* lease_world.h - a migrated, filled database and a leader that has the lease; somebody else beside
 * it. For the tests of what a leader writes, removes and makes. */
#ifndef SH_TESTS_DB_LEASE_WORLD_H
#define SH_TESTS_DB_LEASE_WORLD_H

#include "scheduler/store.h"
#include "tests/db/db_test.h"

struct world {
    struct db *a, *b; /* the leader, and somebody else */
    struct store_lease lease;
    struct store_fence fence; /* the lease's */
};

/* For a test's own set_up. fill: the rows to begin with. */
static inline int set_up_world(void **state, void (*fill)(struct db *db))
{
    struct world *w = calloc(1, sizeof(*w));
    struct sh_err err = {0};

    assert_non_null(w);
    w->a = open_db("leader");
    w->b = open_db("other");
    make_empty(w->a);
    migrate(w->a);
    fill(w->a);
    w->lease = (struct store_lease){.fence.holder = "a/1", .ttl_ms = 60000};
    assert_ok_err(store_lease_acquire(w->a, &w->lease, &err), &err);
    assert_true(w->lease.held);
    w->fence = w->lease.fence;
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
