/* job_life.c - where a training job may stand after where it stood: the table of job.h. */
#include "common/life.h"
#include "executor/training/job.h"

static const char *const STAND_NAME[JOB_N_STANDS] = {
    [JOB_OFF] = "off",         [JOB_LOADED] = "loaded",     [JOB_READY] = "ready",
    [JOB_RUNNING] = "running", [JOB_STOPPING] = "stopping", [JOB_PAUSED] = "paused",
    [JOB_LOST] = "lost",
};
static const unsigned NEXT[JOB_N_STANDS] = {
    [JOB_OFF] = SH_LIFE(JOB_LOADED),
    [JOB_LOADED] = SH_LIFE(JOB_READY) | SH_LIFE(JOB_OFF),
    [JOB_READY] = SH_LIFE(JOB_RUNNING) | SH_LIFE(JOB_LOADED),
    [JOB_RUNNING] = SH_LIFE(JOB_STOPPING) | SH_LIFE(JOB_PAUSED) | SH_LIFE(JOB_LOST),
    [JOB_STOPPING] = SH_LIFE(JOB_PAUSED) | SH_LIFE(JOB_LOST),
    [JOB_PAUSED] = SH_LIFE(JOB_RUNNING) | SH_LIFE(JOB_LOADED) | SH_LIFE(JOB_LOST),
    [JOB_LOST] = SH_LIFE(JOB_OFF),
};
const struct sh_life TRAINING_LIFE = {"training", JOB_N_STANDS, STAND_NAME, NEXT};
