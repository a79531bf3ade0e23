/* hooks.h - what the laboratory (lab/) can change in an executor: it disables one of the things
 * that make a switch fast, or forces how training stops. Each room declares its own hooks in its
 * header (common/hook.h). A release sets none.
 */
#ifndef SH_EXECUTOR_HOOKS_H
#define SH_EXECUTOR_HOOKS_H

#include "executor/models/store.h"
#include "executor/pool/pool.h"
#include "executor/runs/switch.h"

struct exec;

struct exec_hooks {                           /* all are set */
    void (*begin)(void *arg, struct exec *x); /* called once the device is open */
    void (*hang_up)(void *arg);               /* SIGHUP has arrived */
    void *arg;
    struct pool_hooks pool;
    struct store_hooks models;
    struct switch_hooks runs;
};

#endif
