/* exec.h - one executor: puts its modules together and moves them. No room includes this header.
 *
 * Modules stand in rooms, one above the other (README.md). Each is given what it uses of the lower
 * ones when it is made (its _conf or _env), from the ground up; what a lower one has to say to a
 * higher one goes through route.c.
 *
 * One loop, one thread. Handlers of events (a message, a mark, a death, a timer) change the state
 * of their module; before the loop sleeps, turn.h takes the steps that follow.
 */
#ifndef SH_EXECUTOR_EXEC_H
#define SH_EXECUTOR_EXEC_H

#include "common/conf.h"
#include "common/loop.h"
#include "common/wire_keys.h"
#include "executor/files/files.h"
#include "executor/models/kept_dir.h"
#include "executor/report/report.h"
#include "runtime/device/dev.h"

struct agent;
struct batch;
struct data;
struct exec_hooks;
struct pool;
struct slabs;
struct space;
struct store;
struct switcher;
struct train;
struct tx;

struct exec_conf {
    char *name, *scheduler, *data_addr, *state_dir, *device, *metrics_addr, *log_level;
    char *residency_policy;
    char *api, *api_key_file, *api_ca_file;
    struct sh_wire_key_conf link_key;
    int64_t api_retry_s, blob_cache_bytes, kept_bytes, keep_renew_s;
    int64_t scheduler_silence_ms, ordinal, pool_bytes, workers, threads, worker_uid;
    int64_t model_host_bytes, model_shapes;
    double copy_gb_per_s, copy_latency_us;
    int64_t checkpoint_interval_ms, max_queued_runs, hang_ms, compile_ms, run_ms;
    int64_t residency_chances, second_percent, low_percent, high_percent;
    int64_t stop_bound_us, busy_poll_us;
    bool deterministic;
};

extern const struct sh_conf_table EXEC_OPTIONS; /* of struct exec_conf */

struct exec {
    const struct exec_conf *conf;
    uint64_t incarnation;
    char *data_addr;                /* as APIs find it */
    const struct exec_hooks *hooks; /* of the laboratory; NULL in a release */
    uint64_t n_seconds;
    struct sh_loop *loop;
    struct files files;
    struct report report;
    struct kept_dir kept;
    struct dev_lib *lib;
    struct dev_mem *mem;
    struct tx *tx;
    struct space *space;
    struct store *store;
    struct pool *pool;
    struct slabs *slabs;
    struct switcher *sw;
    struct train *train;
    struct batch *batch;
    struct sh_wire_keys *link_keys;
    struct data *data;
    struct agent *agent;
    struct sh_timer *idle_timer, *gauge_timer, *stop_timer;
    bool is_stopping; /* SIGTERM came */
};

/* Reads the options into an executor: starts all modules. hooks: hooks.h, BORROWED; or NULL. */
int exec_start(struct exec *x, const struct exec_conf *conf, const struct exec_hooks *hooks,
               struct sh_loop *loop, struct sh_err *err);
/* Suspends what trains, ends the runs there are, then stops the loop; at most 10 s. */
void exec_stop(struct exec *x);
void exec_fini(struct exec *x);

#endif
