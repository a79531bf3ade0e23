/* job_life.c - the states of a training job, as in the tables of job.h. */
#include "common/life.h"
#include "executor/training/job.h"

static const char *const STAND_NAME[JOB_N_STANDS] = {
    [JOB_OFF] = "off",         [JOB_LOADED] = "loaded",     [JOB_READY] = "ready",
    [JOB_RUNNING] = "running", [JOB_STOPPING] = "stopping", [JOB_YIELDING] = "yielding",
    [JOB_PAUSED] = "paused",   [JOB_LOST] = "lost",
};
static const unsigned STAND_NEXT[JOB_N_STANDS] = {
    [JOB_OFF] = SH_LIFE(JOB_LOADED),
    [JOB_LOADED] = SH_LIFE(JOB_READY) | SH_LIFE(JOB_OFF),
    [JOB_READY] = SH_LIFE(JOB_RUNNING) | SH_LIFE(JOB_LOADED),
    [JOB_RUNNING] =
        SH_LIFE(JOB_STOPPING) | SH_LIFE(JOB_YIELDING) | SH_LIFE(JOB_PAUSED) | SH_LIFE(JOB_LOST),
    [JOB_STOPPING] = SH_LIFE(JOB_PAUSED) | SH_LIFE(JOB_LOST),
    [JOB_YIELDING] = SH_LIFE(JOB_PAUSED) | SH_LIFE(JOB_LOST),
    [JOB_PAUSED] = SH_LIFE(JOB_RUNNING) | SH_LIFE(JOB_LOADED) | SH_LIFE(JOB_LOST),
    [JOB_LOST] = SH_LIFE(JOB_OFF),
};
const struct sh_life TRAINING_LIFE = {"training", JOB_N_STANDS, STAND_NAME, STAND_NEXT};

static const char *const BUILD_NAME[JOB_N_BUILDS] = {"raw", "reading", "built"};
static const unsigned BUILD_NEXT[JOB_N_BUILDS] = {
    [JOB_RAW] = SH_LIFE(JOB_READING),
    [JOB_READING] = SH_LIFE(JOB_BUILT) | SH_LIFE(JOB_RAW),
};
const struct sh_life BUILD_LIFE = {"start of a job", JOB_N_BUILDS, BUILD_NAME, BUILD_NEXT};

static const char *const COPY_NAME[COPY_N_STATES] = {"empty", "filling", "torn", "whole"};
static const unsigned COPY_NEXT[COPY_N_STATES] = {
    [COPY_EMPTY] = SH_LIFE(COPY_FILLING) | SH_LIFE(COPY_TORN) | SH_LIFE(COPY_WHOLE),
    [COPY_FILLING] = SH_LIFE(COPY_WHOLE),
    [COPY_TORN] = SH_LIFE(COPY_EMPTY),
    [COPY_WHOLE] = SH_LIFE(COPY_EMPTY),
};
const struct sh_life COPY_LIFE = {"copy of a state", COPY_N_STATES, COPY_NAME, COPY_NEXT};
