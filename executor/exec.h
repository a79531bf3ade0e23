/* exec.h - one executor: connects its modules and moves them. Only the laboratory (lab/) includes
 * this header from below.
 *
 * Modules live in rooms, ordered from the bottom up (README.md). Each module is given the lower
 * modules that it uses when it is created (its _conf or _env). A lower module reaches a higher one
 * through route.c.
 *
 * One loop, one thread. An event handler (message, mark, death, timer) changes only the state of
 * its own module; before the loop sleeps, turn.h takes the steps that follow.
 */
#ifndef SH_EXECUTOR_EXEC_H
#define SH_EXECUTOR_EXEC_H

#include "common/conf.h"
#include "common/loop.h"
#include "common/otlp.h"
#include "common/wire_keys.h"
#include "executor/files/files.h"
#include "executor/models/kept_dir.h"
#include "executor/report/report.h"
#include "runtime/device/dev.h"

struct agent;
struct batch;
struct data;
struct exec_hooks;
struct gpu_watch;
struct pool;
struct slabs;
struct space;
struct store;
struct switcher;
struct train;
struct tx;

struct exec_conf {
    char *name, *scheduler, *data_addr, *state_dir, *device, *metrics_addr, *log_level;
    char *residency_policy, *nvml, *pack_images, *tables_in_place;
    char *api, *api_key_file, *api_ca_file;
    struct sh_wire_key_conf link_key;
    struct sh_otlp_conf otlp;
    int64_t api_retry_s, blob_cache_bytes, kept_bytes, keep_renew_s;
    int64_t scheduler_silence_ms, ordinal, pool_bytes, workers, threads, worker_uid;
    int64_t model_host_bytes, model_shapes, max_versions, max_shapes, max_apis;
    double copy_gb_per_s, copy_latency_us;
    int64_t checkpoint_interval_ms, max_queued_runs, hang_ms, compile_ms, run_ms;
    int64_t residency_chances, costly_chances, second_percent, low_percent, high_percent;
    int64_t stop_bound_us, busy_poll_us, request_weight;
    int64_t keep_packed_percent, copy_links;
    bool deterministic, verify_launches, share_images;
};

extern const struct sh_conf_table EXEC_OPTIONS; /* fills a struct exec_conf */

struct exec {
    const struct exec_conf *conf;
    uint64_t incarnation;
    char *data_addr;                /* the address that APIs connect to */
    const struct exec_hooks *hooks; /* of the laboratory; NULL in a release */
    uint64_t n_seconds;
    struct sh_loop *loop;
    struct files files;
    struct report report;
    struct kept_dir kept;
    struct dev_lib *lib;
    struct dev_mem *mem;
    struct gpu_watch *watch; /* NULL: NVML knows nothing of the device */
    struct tx *tx;
    struct locking *locking;
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
    struct sh_timer *idle_timer, *gauge_timer, *rehearse_timer, *stop_timer;
    bool is_stopping; /* SIGTERM has arrived */
};

/* Starts all modules. KEEPS conf, loop and hooks (hooks.h; NULL: none). On failure the caller still
 * calls exec_fini(). */
int exec_start(struct exec *x, const struct exec_conf *conf, const struct exec_hooks *hooks,
               struct sh_loop *loop, struct sh_err *err);
/* Suspends training and batch inference and lets the current runs finish, then stops the loop;
 * stops it after 10 s in any case. */
void exec_stop(struct exec *x);
void exec_fini(struct exec *x);

#endif
