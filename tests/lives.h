/* lives.h - every life there is (common/life.h), for the unit test that walks their tables and for
 * the simulation, which says which steps it has taken. Headers of two daemons cannot be included
 * together, so they are declared here. */
#ifndef SH_TESTS_LIVES_H
#define SH_TESTS_LIVES_H

#include "common/life.h"

extern const struct sh_life WORKER_LIFE, RUN_LIFE, MODEL_LIFE, TRAINING_LIFE, BUILD_LIFE, COPY_LIFE,
    SLOT_LIFE, FETCH_LIFE, TABLES_LIFE, JOB_LIFE, REQUEST_LIFE, VERSION_LIFE, APART_LIFE,
    SHARE_LIFE;

static const struct sh_life *const LIVES[] = {
    &WORKER_LIFE,  &RUN_LIFE,     &MODEL_LIFE, &TRAINING_LIFE, &BUILD_LIFE,
    &COPY_LIFE,    &TABLES_LIFE,  &SLOT_LIFE,  &FETCH_LIFE,    &JOB_LIFE,
    &REQUEST_LIFE, &VERSION_LIFE, &APART_LIFE, &SHARE_LIFE,
};
#define N_LIVES (sizeof(LIVES) / sizeof(LIVES[0]))

#endif
