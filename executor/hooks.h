/* hooks.h - what the laboratory (lab/) changes in an executor: it leaves out something that makes a
 * switch fast, or makes training stop in another way than the memory asks for. Each room says in
 * its header what may be changed of it (pool/hook.h); a release changes nothing.
 */
#ifndef SH_EXECUTOR_HOOKS_H
#define SH_EXECUTOR_HOOKS_H

#include "executor/models/store.h"
#include "executor/pool/pool.h"
#include "executor/runs/switch.h"

struct exec;

struct exec_hooks {                           /* all are set */
    void (*begin)(void *arg, struct exec *x); /* the device is open */
    void (*hang_up)(void *arg);               /* SIGHUP came */
    void *arg;
    struct pool_hooks pool;
    struct store_hooks models;
    struct switch_hooks runs;
};

#endif
