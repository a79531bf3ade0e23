/* lease_world.h - a migrated, filled database and a leader that has the lease; somebody else beside
 * it. For the tests of what a leader writes, removes and makes. */
#ifndef SH_TESTS_DB_LEASE_WORLD_H
#define SH_TESTS_DB_LEASE_WORLD_H

#include "scheduler/database/store.h"
#include "tests/db/db_test.h"

struct world {
    struct db *a, *b; /* the leader, and somebody else */
    struct store_lease lease;
    struct store_fence fence; /* the lease's */
};

/* Two tenants; of the first a version that is READY, a dataset, and a job that waits. */
static inline void fill_job(struct db *db)
{
    run(db, "INSERT INTO tenant (name) VALUES ('research'), ('vision')");
    run(db, "INSERT INTO model (tenant_id, name) VALUES (1, 'digits')");
    run(db, "INSERT INTO model_version (model_id, version, state, digest, package, max_batch,"
            " precision) VALUES (1, 1, 'READY', repeat('a', 64), 'packages/a', 16, 'tf32')");
    run(db, "INSERT INTO dataset (tenant_id, name, state, digest, path, n_samples)"
            " VALUES (1, 'train', 'READY', repeat('b', 64), 'datasets/b', 10)");
    run(db, "INSERT INTO job (tenant_id, queue_id, kind, version_id, dataset_id, spec, priority)"
            " VALUES (1, 1, 'training', 1, 1, '{\"batch\":4}', 3)");
}

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
