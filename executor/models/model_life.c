/* model_life.c - the phases of a model, as in the table of store.h; the states of an image that
 * comes from another executor, as in that of model_int.h; those of one that stays packed, as in
 * that of apart.c; of tables, as in that of tables.h; and of what is shared, as in that of
 * model_int.h. */
#include "common/life.h"
#include "executor/models/model_int.h"
#include "executor/models/tables.h"

static const char *const PHASE_NAME[MODEL_N_PHASES] = {
    [MODEL_BUILDING] = "building",
    [MODEL_READY] = "ready",
    [MODEL_FAILED] = "failed",
    [MODEL_GOING] = "going",
};
static const unsigned NEXT[MODEL_N_PHASES] = {
    [MODEL_BUILDING] = SH_LIFE(MODEL_READY) | SH_LIFE(MODEL_FAILED) | SH_LIFE(MODEL_GOING),
    [MODEL_READY] = SH_LIFE(MODEL_GOING),
    [MODEL_FAILED] = SH_LIFE(MODEL_BUILDING) | SH_LIFE(MODEL_GOING),
};
const struct sh_life MODEL_LIFE = {"model", MODEL_N_PHASES, PHASE_NAME, NEXT};

static const char *const FETCH_NAME[FETCH_N_STATES] = {"asking", "wrong", "keeping", "over"};
static const unsigned FETCH_NEXT[FETCH_N_STATES] = {
    [FETCH_ASKING] = SH_LIFE(FETCH_WRONG) | SH_LIFE(FETCH_KEEPING) | SH_LIFE(FETCH_OVER),
    [FETCH_WRONG] = SH_LIFE(FETCH_OVER),
    [FETCH_KEEPING] = SH_LIFE(FETCH_OVER),
};
static const char *const TABLES_NAME[TABLES_N_AT] = {"away", "coming", "here"};
static const unsigned TABLES_NEXT[TABLES_N_AT] = {
    [TABLES_AWAY] = SH_LIFE(TABLES_COMING),
    [TABLES_COMING] = SH_LIFE(TABLES_HERE) | SH_LIFE(TABLES_AWAY),
    [TABLES_HERE] = SH_LIFE(TABLES_AWAY),
};
const struct sh_life TABLES_LIFE = {"tables", TABLES_N_AT, TABLES_NAME, TABLES_NEXT};

const struct sh_life FETCH_LIFE = {"image from elsewhere", FETCH_N_STATES, FETCH_NAME, FETCH_NEXT};

static const char *const APART_NAME[APART_N_STATES] = {"none", "coming", "whole"};
static const unsigned APART_NEXT[APART_N_STATES] = {
    [APART_NONE] = SH_LIFE(APART_COMING),
    [APART_COMING] = SH_LIFE(APART_WHOLE) | SH_LIFE(APART_NONE),
    [APART_WHOLE] = SH_LIFE(APART_NONE),
};
const struct sh_life APART_LIFE = {"packed copy", APART_N_STATES, APART_NAME, APART_NEXT};

static const char *const SHARE_NAME[SHARE_N_AT] = {"rest", "sums", "copies", "locks", "waits"};
static const unsigned SHARE_NEXT[SHARE_N_AT] = {
    [SHARE_REST] = SH_LIFE(SHARE_SUMS) | SH_LIFE(SHARE_COPIES),
    [SHARE_SUMS] = SH_LIFE(SHARE_REST),
    [SHARE_COPIES] = SH_LIFE(SHARE_LOCKS) | SH_LIFE(SHARE_WAITS) | SH_LIFE(SHARE_REST),
    [SHARE_LOCKS] = SH_LIFE(SHARE_WAITS) | SH_LIFE(SHARE_REST),
    [SHARE_WAITS] = SH_LIFE(SHARE_REST),
};
const struct sh_life SHARE_LIFE = {"equal chunks", SHARE_N_AT, SHARE_NAME, SHARE_NEXT};
