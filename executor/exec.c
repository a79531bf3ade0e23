/* exec.c - starts and stops the modules of an executor, and runs their turns. */
#include "executor/exec.h"

#include "common/ckpt.h"
#include "common/clock.h"
#include "common/conf.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"
#include "executor/agent.h"
#include "executor/batch/batch.h"
#include "executor/files/blobs.h"
#include "executor/files/disk.h"
#include "executor/files/push.h"
#include "executor/files/transfer.h"
#include "executor/hooks.h"
#include "executor/memory/locking.h"
#include "executor/models/keep.h"
#include "executor/models/kept_dir.h"
#include "executor/models/share.h"
#include "executor/models/store.h"
#include "executor/pool/pool.h"
#include "executor/report/gpu_watch.h"
#include "executor/report/usage.h"
#include "executor/requests/data.h"
#include "executor/requests/slabs.h"
#include "executor/route.h"
#include "executor/runs/switch.h"
#include "executor/training/job.h"
#include "executor/training/train.h"
#include "executor/turn.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#define IDLE_NS SH_MS(50)
#define REHEARSE_NS SH_MS(1)
#define GAUGE_NS SH_S(1)
#define KEPT_SWEEP_S 600u
#define STOP_NS SH_S(10)

static int make_dirs(const struct exec *x, struct sh_err *err)
{
    static const char *const DIRS[] = {"",          "blobs", "blobs/packages", "blobs/datasets",
                                       "blobs/tmp", "jobs",  "kept",           "shapes"};

    for (size_t i = 0; i < SH_ARRAY_LEN(DIRS); i++) {
        char *path = NULL;
        int rc = sh_asprintf(err, &path, "%s/%s", x->conf->state_dir, DIRS[i]);

        if (!rc && mkdir(path, 0750) < 0 && errno != EEXIST)
            rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make the folder %s", path);
        free(path);
        if (rc)
            return rc;
    }
    return SH_OK;
}

/* ------------------------------------------------------------------ time */

/* All that has to be done before this process ends is done. */
static bool is_exec_quiet(const struct exec *x)
{
    return train_is_quiet(x->train) && batch_is_quiet(x->batch) && switch_is_quiet(x->sw) &&
           x->report.logs.n == 0 && x->kept.n_writing == 0 && usage_drain(x->report.usage);
}

static void on_before_sleep(struct sh_loop *l, void *arg)
{
    struct exec *x = arg;

    if (turn_run(x) && x->is_stopping && is_exec_quiet(x))
        sh_loop_stop(l);
    usage_loads(x->report.usage, pool_compiles(x->pool));
    store_tell_evicted(x->store);
    agent_rest(x->agent);
}

static void on_idle(struct sh_loop *l, void *arg)
{
    struct exec *x = arg;
    double joules;

    (void)l;
    if (gpu_watch_joules(x->watch, &joules))
        usage_energy(x->report.usage, joules);
    usage_count_rest(x->report.usage);
    if (switch_is_idle(x->sw))
        space_idle(x->space, (uint32_t)x->conf->low_percent, (uint32_t)x->conf->high_percent);
}

static void on_gauges(struct sh_loop *l, void *arg)
{
    struct exec *x = arg;

    (void)l;
    space_update_metrics(x->space);
    store_update_metrics(x->store);
    pool_second(x->pool);
    store_second(x->store);
    if (!x->is_stopping) {
        keep_second(x->store);
        share_second(x->store);
    }
    agent_second(x->agent);
    usage_second(x->report.usage);
    if (++x->n_seconds % KEPT_SWEEP_S == 0)
        kept_dir_sweep(&x->kept);
}

static void on_stop_late(struct sh_loop *l, void *arg)
{
    struct exec *x = arg;

    if (!x->is_stopping)
        return;
    SH_WARN("executor.stop", "msg=\"something was still under way\"");
    sh_loop_stop(l);
}

void exec_stop(struct exec *x)
{
    if (x->is_stopping)
        return;
    x->is_stopping = true;
    agent_stopping(x->agent);
    pool_stop(x->pool);
    train_suspend(x->train);
    batch_suspend(x->batch);
    sh_timer_set(x->stop_timer, STOP_NS);
}

/* ------------------------------------------------------------------ start and end */

static int open_device(struct exec *x, struct sh_err *err)
{
    struct dev_mem_conf c = {.ordinal = (uint32_t)x->conf->ordinal,
                             .pool_bytes = (size_t)x->conf->pool_bytes,
                             .copy_gb_per_s = x->conf->copy_gb_per_s,
                             .copy_latency_us = x->conf->copy_latency_us};
    struct residency_conf residency = {.max_images = 2 * (uint32_t)x->conf->max_versions,
                                       .n_chance = (uint32_t)x->conf->residency_chances,
                                       .n_costly = (uint32_t)x->conf->costly_chances,
                                       .second_share = (double)x->conf->second_percent / 100};
    int rc = residency_policy(x->conf->residency_policy, &residency.policy, err);

    links_lanes(&c, (uint32_t)x->conf->copy_links);
    if (!rc)
        rc = dev_lib_open(x->conf->device, &x->lib, err);
    if (!rc)
        rc = dev_mem_open(x->lib, &c, &x->mem, err);
    if (!rc)
        rc = tx_new(x->loop, x->mem, x->conf->name, &x->tx, err);
    if (!rc)
        rc = locking_new(x->loop, x->mem, &x->locking, err);
    if (!rc)
        rc = space_new(x->tx, x->conf->name, &residency, &x->space, err);
    return rc;
}

/* Nothing depends on it. */
static void watch_device(struct exec *x)
{
    const char *said = x->conf->nvml ? x->conf->nvml : "auto";
    const char *pci = strcmp(said, "auto") == 0 ? dev_mem_pci_bus_id(x->mem) : said;
    struct sh_err err = {0};

    if (!pci[0] || strcmp(said, "off") == 0)
        return;
    if (gpu_watch_start(pci, NULL, &x->watch, &err))
        sh_log_err(SH_LOG_WARN, "gpu.watch", &err);
}

static int start_remote(struct exec *x, struct sh_err *err)
{
    const struct exec_conf *c = x->conf;
    const struct transfer_conf there = {.executor = c->name,
                                        .api = c->api,
                                        .key_file = c->api_key_file,
                                        .ca_file = c->api_ca_file,
                                        .retry_s = c->api_retry_s};
    const struct blobs_conf here = {
        .state_dir = c->state_dir, .executor = c->name, .cache_bytes = c->blob_cache_bytes};
    int rc;

    if (!c->api || !c->api[0])
        return SH_OK;
    rc = transfers_new(&there, x->loop, &x->files.transfers, err);
    if (!rc)
        rc = blobs_new(&here, x->files.transfers, &x->files.blobs, err);
    if (!rc)
        push_sweep_jobs(&x->files);
    return rc;
}

static int start_files(struct exec *x, struct sh_err *err)
{
    int rc = start_remote(x, err);

    if (!rc)
        rc = usage_new(x->conf->state_dir, x->conf->name, &x->report.uplink, &x->report.usage, err);
    return rc ? rc : disk_new(x->loop, &x->files.disk, err);
}

static int make_pool(struct exec *x, struct sh_err *err)
{
    const struct exec_conf *c = x->conf;
    const struct pool_handler handler = route_of_workers(x);
    const struct pool_conf conf = {.executor = c->name,
                                   .device = c->device,
                                   .state_dir = c->state_dir,
                                   .n_workers = (uint32_t)c->workers,
                                   .ordinal = (uint32_t)c->ordinal,
                                   .threads = (uint32_t)c->threads,
                                   .uid = (uint32_t)c->worker_uid,
                                   .stop_bound_us = (uint32_t)c->stop_bound_us,
                                   .busy_poll_us = (uint32_t)c->busy_poll_us,
                                   .max_models = (size_t)(c->max_versions + c->max_shapes),
                                   .hang_ms = c->hang_ms,
                                   .compile_ms = c->compile_ms,
                                   .deterministic = c->deterministic,
                                   .verify_launches = c->verify_launches,
                                   .hooks = x->hooks ? &x->hooks->pool : NULL};

    return pool_new(&conf, x->loop, x->mem, &handler, &x->pool, err);
}

static int listen_to_apis(struct exec *x, struct sh_err *err)
{
    const struct data_conf c = {.executor = x->conf->name,
                                .addr = x->conf->data_addr,
                                .keys = x->link_keys,
                                .incarnation = x->incarnation,
                                .run_ms = (uint64_t)x->conf->run_ms,
                                .max_apis = (size_t)x->conf->max_apis,
                                .on_gone = route_api_gone,
                                .on_image = route_image,
                                .arg = x};

    return data_new(&c, x->loop, x->slabs, &x->data, err);
}

struct choice { /* of an option that is auto, on or off */
    const char *name, *how;
    uint32_t gains, on, off; /* auto: where the device has a link, only what gains something */
};

static int choose_how(const struct exec *x, const struct choice *c, uint32_t *out,
                      struct sh_err *err)
{
    int rc = SH_OK;

    *out = c->off;
    if (strcmp(c->how, "auto") == 0)
        *out = dev_mem_is_queued(x->mem) ? c->gains : c->off;
    else if (strcmp(c->how, "on") == 0)
        *out = c->on;
    else if (strcmp(c->how, "off") != 0)
        rc = SH_FAIL(err, SH_E_INVALID, "%s must be auto, on or off, not \"%s\"", c->name, c->how);
    return rc;
}

static int start_models(struct exec *x, struct sh_err *err)
{
    const struct store_users users = route_of_models(x);
    const struct choice how[] = {
        {"pack-images", x->conf->pack_images, MSG_PACK_GAINS, MSG_PACK_ALWAYS, MSG_PACK_NEVER},
        {"tables-in-place", x->conf->tables_in_place, MSG_TABLES_GAIN, MSG_TABLES_ALWAYS,
         MSG_TABLES_NEVER}};
    uint32_t packs = 0, tables = 0;
    const int rc_packs = choose_how(x, &how[0], &packs, err);
    const int rc = rc_packs ? rc_packs : choose_how(x, &how[1], &tables, err);
    const struct store_env env = {.executor = x->conf->name,
                                  .host_bytes = x->conf->model_host_bytes,
                                  .max_shapes = x->conf->model_shapes,
                                  .max_versions = x->conf->max_versions,
                                  .max_all_shapes = x->conf->max_shapes,
                                  .renew_s = x->conf->keep_renew_s,
                                  .packs = (enum msg_pack)packs,
                                  .keep_packed_percent = (uint32_t)x->conf->keep_packed_percent,
                                  .tables = (enum msg_tables)tables,
                                  .shares = x->conf->share_images,
                                  .hooks = x->hooks ? &x->hooks->models : NULL,
                                  .loop = x->loop,
                                  .link_keys = x->link_keys,
                                  .tx = x->tx,
                                  .mem = x->mem,
                                  .locking = x->locking,
                                  .space = x->space,
                                  .pool = x->pool,
                                  .files = &x->files,
                                  .up = &x->report.uplink,
                                  .kept = &x->kept};

    return rc ? rc : store_new(&env, &users, &x->store, err);
}

static int start_runs(struct exec *x, struct sh_err *err)
{
    const struct switch_rival rival = route_of_runs(x);
    const struct switch_env env = {.executor = x->conf->name,
                                   .run_ms = x->conf->run_ms,
                                   .max_queued = (size_t)x->conf->max_queued_runs,
                                   .request_weight = x->conf->request_weight,
                                   .hooks = x->hooks ? &x->hooks->runs : NULL,
                                   .loop = x->loop,
                                   .mem = x->mem,
                                   .tx = x->tx,
                                   .space = x->space,
                                   .report = &x->report,
                                   .pool = x->pool,
                                   .slabs = x->slabs,
                                   .data = x->data,
                                   .store = x->store};

    return switch_new(&env, &rival, &x->sw, err);
}

static int start_jobs(struct exec *x, struct sh_err *err)
{
    const struct train_env train = {.executor = x->conf->name,
                                    .checkpoint_interval_ms = x->conf->checkpoint_interval_ms,
                                    .loop = x->loop,
                                    .mem = x->mem,
                                    .locking = x->locking,
                                    .tx = x->tx,
                                    .space = x->space,
                                    .files = &x->files,
                                    .report = &x->report,
                                    .pool = x->pool,
                                    .slabs = x->slabs,
                                    .store = x->store,
                                    .sw = x->sw};
    const struct batch_env batch = {.checkpoint_interval_ms = x->conf->checkpoint_interval_ms,
                                    .loop = x->loop,
                                    .files = &x->files,
                                    .report = &x->report,
                                    .slabs = x->slabs,
                                    .store = x->store,
                                    .sw = x->sw};
    int rc = train_new(&train, &x->train, err);

    return rc ? rc : batch_new(&batch, &x->batch, err);
}

static void on_rehearse(struct sh_loop *l, void *arg)
{
    struct exec *x = arg;

    (void)l;
    tx_rehearse(x->tx);
}

static int start_timers(struct exec *x, struct sh_err *err)
{
    int rc = sh_timer_add(x->loop, IDLE_NS, IDLE_NS, on_idle, x, &x->idle_timer, err);

    /* Who polls has a processor of its own; others sleep. */
    if (!rc && x->conf->busy_poll_us > 0 && dev_mem_is_queued(x->mem))
        rc = sh_timer_add(x->loop, REHEARSE_NS, REHEARSE_NS, on_rehearse, x, &x->rehearse_timer,
                          err);
    if (!rc)
        rc = sh_timer_add(x->loop, 0, GAUGE_NS, on_gauges, x, &x->gauge_timer, err);
    return rc ? rc : sh_timer_add(x->loop, -1, 0, on_stop_late, x, &x->stop_timer, err);
}

/* From below: each gets what it stands on when it is made. */
static int start_modules(struct exec *x, struct sh_err *err)
{
    int rc = start_files(x, err);

    if (!rc)
        rc = make_pool(x, err);
    if (!rc)
        rc = slabs_new(x->pool, x->tx, x->locking, x->files.disk, (size_t)x->conf->max_apis,
                       &x->slabs, err);
    if (!rc)
        rc = listen_to_apis(x, err);
    if (!rc)
        rc = start_models(x, err);
    if (!rc)
        rc = start_runs(x, err);
    if (!rc)
        rc = start_jobs(x, err);
    if (!rc)
        rc = start_timers(x, err);
    if (!rc)
        rc = agent_new(x, &x->agent, err);
    return rc ? rc : pool_start(x->pool, err);
}

int exec_start(struct exec *x, const struct exec_conf *conf, const struct exec_hooks *hooks,
               struct sh_loop *loop, struct sh_err *err)
{
    int rc;

    *x = (struct exec){.conf = conf,
                       .hooks = hooks,
                       .loop = loop,
                       .files = {.state_dir = conf->state_dir, .executor = conf->name},
                       .report.logs = {.files = &x->files, .device = conf->device}};
    if (!sh_ckpt_is_executor(conf->name))
        return SH_FAIL(
            err, SH_E_INVALID,
            "--name must be at most %d letters, digits, \".\", \"_\" and \"-\", and begin "
            "with a letter or digit: files are called by it",
            SH_CKPT_EXECUTOR_MAX);
    x->kept = (struct kept_dir){
        .files = &x->files, .device = conf->device, .max_bytes = (uint64_t)conf->kept_bytes};
    rc = sh_wire_keys_open(&conf->link_key,
                           (const char *const[]){conf->scheduler, conf->data_addr, NULL},
                           &x->link_keys, err);
    if (!rc)
        rc = sh_wire_absolute(conf->data_addr, &x->data_addr, err);
    if (!rc)
        rc = sh_random(&x->incarnation, sizeof(x->incarnation), err);
    x->kept.incarnation = x->incarnation;
    if (!rc)
        rc = make_dirs(x, err);
    if (!rc)
        finish_sweep(&x->files, conf->name);
    if (!rc)
        kept_dir_sweep(&x->kept);
    if (!rc)
        rc = open_device(x, err);
    if (!rc)
        watch_device(x);
    if (!rc)
        HOOK_TELL(hooks, begin, x);
    if (!rc)
        rc = start_modules(x, err);
    if (rc)
        return rc;
    sh_metric_set(M_shunt_build_info, SH_LABELS(sh_conf_version(), conf->device), 1);
    sh_loop_before_sleep(loop, on_before_sleep, x);
    sh_loop_busy_poll(loop, SH_US(conf->busy_poll_us));
    SH_INFO("executor.start",
            "name=%s device=%s pool_bytes=%zu workers=%lld link_gb_per_s=%.2f link_latency_us=%.1f",
            conf->name, conf->device, dev_mem_bytes(x->mem), (long long)conf->workers,
            1.0 / tx_beta_ns(x->tx), tx_alpha_ns(x->tx) / 1e3);
    return SH_OK;
}

/* Copies on their way still use host memory: they end before it is freed. */
static void drain_exec(struct exec *x)
{
    int64_t end = sh_clock_ns() + STOP_NS / 2;

    while (x->tx && tx_is_busy(x->tx) && sh_clock_ns() < end)
        if (sh_loop_once(x->loop, SH_MS(10), NULL))
            return;
}

void exec_fini(struct exec *x)
{
    if (!x->loop)
        return;
    free(x->data_addr);
    x->data_addr = NULL;
    sh_loop_before_sleep(x->loop, NULL, NULL);
    x->is_stopping = true;
    if (x->pool)
        pool_stop(x->pool);
    agent_free(x->agent);
    x->agent = NULL;
    if (x->data)
        data_close(x->data);
    sh_wire_keys_free(x->link_keys);
    drain_exec(x);
    disk_free(x->files.disk);
    x->files.disk = NULL;
    transfers_free(x->files.transfers);
    x->files.transfers = NULL;
    train_free(x->train);
    batch_free(x->batch);
    outcomes_fini(&x->report.outcomes);
    switch_free(x->sw);
    store_free(x->store);
    blobs_free(x->files.blobs);
    pool_free(x->pool);
    data_free(x->data);
    slabs_free(x->slabs);
    usage_free(x->report.usage);
    sh_timer_del(x->idle_timer);
    sh_timer_del(x->rehearse_timer);
    sh_timer_del(x->gauge_timer);
    sh_timer_del(x->stop_timer);
    gpu_watch_stop(x->watch);
    space_free(x->space);
    tx_free(x->tx);
    locking_free(x->locking);
    dev_mem_close(x->mem);
    dev_lib_close(x->lib);
}
