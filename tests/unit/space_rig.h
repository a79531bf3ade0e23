/* space_rig.h - device memory of the cpu device with its copies and its space, for tests. */
#ifndef SH_TESTS_UNIT_SPACE_RIG_H
#define SH_TESTS_UNIT_SPACE_RIG_H

#include "common/loop.h"
#include "executor/memory/space.h"
#include "executor/memory/transmit.h"
#include "tests/unit/sh_test.h"

struct space_rig {
    struct sh_loop *loop;
    struct dev_lib *lib;
    struct dev_mem *mem;
    struct tx *tx;
    struct space *s;
};

static inline void space_rig_open(struct space_rig *r, uint32_t blocks)
{
    const struct dev_mem_conf c = {.pool_bytes = blocks * DEV_BLOCK, .n_lanes = 2};
    struct sh_err err = {0};

    *r = (struct space_rig){0};
    assert_ok(sh_loop_new(&r->loop, NULL));
    assert_ok_err(dev_lib_open("cpu", &r->lib, &err), &err);
    assert_ok_err(dev_mem_open(r->lib, &c, &r->mem, &err), &err);
    assert_ok_err(tx_new(r->loop, r->mem, "e", &r->tx, &err), &err);
    assert_ok_err(space_new(r->tx, "e", &(struct residency_conf){0}, &r->s, &err), &err);
}

static inline void space_rig_close(struct space_rig *r)
{
    space_free(r->s);
    tx_free(r->tx);
    dev_mem_close(r->mem);
    dev_lib_close(r->lib);
    sh_loop_free(r->loop);
}

#endif
