/* main.c - shunt-api: start, signals, stop. */
#include "api/api.h"
#include "api/cache/auth.h"
#include "api/cache/catalog.h"
#include "api/cache/live.h"
#include "api/cache/rate.h"
#include "api/cache/waiters.h"
#include "api/console/console.h"
#include "api/files/blobs.h"
#include "api/files/upload.h"
#include "api/grpc/grpc.h"
#include "api/http/http.h"
#include "api/http/http_tls.h"
#include "api/infer/alias_count.h"
#include "api/infer/link.h"
#include "api/infer/parsed.h"
#include "api/infer/regions.h"
#include "api/infer/serving.h"
#include "api/infer/slo_count.h"
#include "api/infer/stats.h"
#include "api/infer/trace_shares.h"
#include "api/infer/traffic.h"
#include "api/jobs/watch.h"
#include "api/openapi.h"
#include "api/refresh.h"
#include "api/request.h"
#include "api/request/copiers.h"
#include "api/request/pool.h"
#include "api/request/slab.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/io.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/spawn.h"
#include "common/train_option.h"
#include "common/units.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define OTHER_DESCRIPTORS 512
#define METRICS_DOC_MAX ((size_t)1 << 20)

struct daemon {
    struct api api;
    struct sh_otlp *otlp;
    struct tls *tls;
    struct http *http;
    struct grpc *grpc;
    struct refresh *refresh;
    struct blobs *blobs;
    struct sh_metrics_http *metrics;
    struct sh_loop *loop;
    struct sh_timer *tick;
    int64_t drain_until_ns; /* 0 = not stopping */
};

static bool is_print_option(const char *arg)
{
    return strcmp(arg, "--print-openapi") == 0 || strcmp(arg, "--print-docs") == 0 ||
           strcmp(arg, "--print-metrics") == 0 || strcmp(arg, "--print-training") == 0;
}

/* What docs/print.sh makes files from. */
static int print_description(const char *what, struct sh_err *err)
{
    struct sh_buf metrics;
    json_t *doc = NULL;
    int rc = openapi_build(&doc, err);

    sh_buf_init(&metrics, METRICS_DOC_MAX);
    if (!rc && strcmp(what, "--print-docs") == 0) {
        openapi_print_docs(stdout);
    } else if (!rc && strcmp(what, "--print-metrics") == 0) {
        sh_metrics_print_docs(&metrics);
        fwrite(metrics.data, 1, metrics.len, stdout);
    } else if (!rc && strcmp(what, "--print-training") == 0) {
        train_print_docs(stdout);
    } else if (!rc) {
        json_dumpf(doc, stdout, JSON_INDENT(1));
    }
    if (!rc)
        putchar('\n');
    if (!rc && fflush(stdout) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write to standard output");
    sh_buf_fini(&metrics);
    json_decref(doc);
    return rc;
}

static int make_process_key(struct db *db, const char *role, const char *file, struct sh_err *err)
{
    bool made = false;
    int rc = file && file[0] ? auth_bootstrap(db, role, file, &made, err) : SH_OK;

    if (made)
        SH_INFO("key.made", "role=%s file=\"%s\"", role, file);
    return rc;
}

/* The database may start after us; only a schema that we do not know is final. */
static int wait_for_database(struct api *a, struct sh_err *err)
{
    const struct api_conf *conf = a->conf;
    struct db *db = NULL;
    bool said = false;
    int rc = db_new(conf->db_url, "shunt-api", &db, err);

    while (!rc) {
        struct sh_err one = {0};

        rc = db_ready(db, DB_SCHEMA_VERSION, &one);
        if (!rc)
            break;
        if (rc != SH_E_DBDOWN && rc != SH_E_DBSOFT) {
            sh_err_copy(err, &one);
            break;
        }
        if (!said)
            sh_log_err(SH_LOG_WARN, "database.wait", &one);
        said = true;
        rc = SH_OK;
        usleep(300000);
    }
    if (!rc)
        rc = make_process_key(db, "admin", conf->admin_key_file, err);
    if (!rc)
        rc = make_process_key(db, "executor", conf->executor_key_file, err);
    if (!rc) /* in force from the first request on */
        rc = live_refresh(a->live, db, err);
    db_free(db);
    return rc;
}

static int start_regions(struct api *a, struct sh_err *err)
{
    const struct api_conf *c = a->conf;
    enum regions_mode shm;
    int rc = regions_mode_parse(c->client_shm, &shm, err);

    if (!rc && shm != REGIONS_OFF)
        rc = copiers_new(c->copy_threads < 0 ? copiers_by_cores(sh_cores())
                                             : (unsigned)c->copy_threads,
                         &a->copiers, err);
    if (!rc)
        rc = regions_new(shm, (size_t)c->max_regions, (size_t)c->max_tenant_regions, a->copiers,
                         &a->regions, err);
    return rc;
}

static int start_parts(struct daemon *d, struct sh_err *err)
{
    struct api *a = &d->api;
    const struct api_conf *c = a->conf;
    int rc = sh_otlp_start(&c->otlp, "shunt-api", c->name, &d->otlp, err); /* the first thread */

    peers_init(&a->peers);
    if (!rc)
        rc = openapi_new(&a->openapi, err);
    if (!rc)
        rc = console_new(&a->console, err);
    if (!rc)
        rc = upload_prepare_dirs(c->state_dir, err);
    if (!rc)
        rc = cursor_key_load(c->state_dir, a->cursor_key, err);
    if (!rc)
        rc = sh_random(a->request_secret, sizeof(a->request_secret), err);
    if (!rc)
        rc = slab_new((size_t)c->slab_bytes, api_conf_tenant_slab(c), &a->slab, err);
    if (!rc)
        rc = start_regions(a, err);
    if (!rc)
        rc = stats_new(&a->stats, err);
    if (!rc)
        rc = rate_new(&a->rate, err);
    if (!rc)
        rc = trace_shares_new(&a->trace_shares, err);
    if (!rc)
        rc = slo_counts_new(&a->slo, err);
    if (!rc)
        rc = alias_counts_new(&a->aliases, err);
    if (!rc)
        rc = waiters_new((size_t)c->max_waits, &a->waiters, err);
    if (!rc)
        rc = serving_new(&a->serving, err);
    if (!rc)
        rc = traffic_new(&a->traffic, err);
    if (!rc)
        rc = parsed_new(&a->parsed, err);
    if (!rc)
        rc = auth_new(&a->auth, err);
    if (!rc)
        rc = catalog_new(SH_MS(2 * c->model_poll_ms + 1000), &a->catalog, err);
    if (!rc)
        rc = pool_new("shunt-api", c->db_url, &a->db_news, (size_t)c->db_threads,
                      (size_t)c->db_queue, &a->ctl, err);
    if (!rc)
        rc = pool_new("shunt-api-bulk", c->db_url, &a->db_news, (size_t)c->bulk_threads,
                      4 * (size_t)c->max_uploads, &a->bulk, err);
    if (!rc)
        rc = blobs_new(a, &d->blobs, err);
    if (!rc)
        rc = link_start(a, &a->link, err);
    if (!rc)
        rc = watch_start(a, &a->watch, err);
    if (!rc)
        rc = refresh_start(a, &d->refresh, err);
    if (!rc && c->metrics_addr && c->metrics_addr[0])
        rc = sh_metrics_http_start('a', c->metrics_addr, &d->metrics, err);
    if (!rc)
        rc = tls_start(c, &d->tls, err);
    if (!rc)
        rc = http_start(a, &REQUEST_STEPS, d->tls, &d->http, err);
    if (!rc)
        rc = grpc_start(a, &REQUEST_STEPS, d->tls, &d->grpc, err);
    return rc;
}

/* Order: nobody new, those in flight end, what is left is woken, then threads and memory. */
static void stop_parts(struct daemon *d)
{
    struct api *a = &d->api;

    link_stop(a->link); /* wakes every request that waits for a result */
    waiters_close(a->waiters);
    pool_stop(a->ctl); /* runs what is queued: every request that waits for a thread is woken */
    pool_stop(a->bulk);
    watch_stop(a->watch); /* wakes every stream */
    http_stop(d->http);
    grpc_stop(d->grpc);
    sh_otlp_stop(d->otlp);
    tls_free(d->tls);
    watch_free(a->watch);
    pool_free(a->ctl);
    pool_free(a->bulk);
    blobs_free(d->blobs);
    refresh_stop(d->refresh);
    link_free(a->link);
    sh_wire_keys_free(a->link_keys);
    sh_metrics_http_stop(d->metrics);
    catalog_free(a->catalog);
    auth_free(a->auth);
    slo_counts_free(a->slo);
    alias_counts_free(a->aliases);
    waiters_free(a->waiters);
    serving_free(a->serving);
    traffic_free(a->traffic);
    parsed_free(a->parsed);
    trace_shares_free(a->trace_shares);
    rate_free(a->rate);
    stats_free(a->stats);
    regions_free(a->regions);
    copiers_free(a->copiers);
    free(a->uploads.owner);
    peers_fini(&a->peers);
    slab_free(a->slab);
    console_free(a->console);
    openapi_free(a->openapi);
}

static int n_active(const struct daemon *d)
{
    return http_active(d->http) + grpc_active(d->grpc);
}

static void on_tick(struct sh_loop *l, void *arg)
{
    struct daemon *d = arg;

    http_sweep(d->http);
    tls_tick(d->tls);
    if (d->drain_until_ns == 0) {
        blobs_tick(d->blobs);
        return;
    }
    if (n_active(d) == 0 || sh_clock_ns() >= d->drain_until_ns)
        sh_loop_stop(l);
}

static void on_term(struct sh_loop *l, void *arg)
{
    struct daemon *d = arg;

    if (d->drain_until_ns) { /* asked twice: at once */
        sh_loop_stop(l);
        return;
    }
    atomic_store(&d->api.stopping, true);
    http_quiesce(d->http);
    grpc_quiesce(d->grpc);
    d->drain_until_ns = sh_clock_ns() + SH_S(SH_CONF_NOW(d->api.conf->drain_s));
    SH_INFO("api.draining", "requests=%d", n_active(d));
    sh_timer_set(d->tick, 0);
}

static void on_hup(struct sh_loop *l, void *arg)
{
    struct daemon *d = arg;

    (void)l;
    tls_reload(d->tls);
}

static void fit_option(int64_t *most, int64_t room, const char *option)
{
    if (*most <= room)
        return;
    SH_WARN("api.descriptors",
            "option=%s value=%lld room=%lld msg=\"the limit of open files leaves room for fewer "
            "connections; raise it (ulimit -Hn, LimitNOFILE=)\"",
            option, (long long)*most, (long long)room);
    *most = room;
}

/* A connection is a descriptor, and the database, uploads and executors need some too. */
static void fit_connections(struct api_conf *c)
{
    const int64_t room = SH_MAX(sh_raise_open_files() - OTHER_DESCRIPTORS, 16);
    const bool grpc = c->grpc_listen && c->grpc_listen[0];

    if (grpc)
        fit_option(&c->grpc_max_connections, SH_MAX(room / 4, 8), "grpc-max-connections");
    fit_option(&c->max_connections, grpc ? SH_MAX(room - c->grpc_max_connections, 16) : room,
               "max-connections");
}

static int serve_api(struct daemon *d, struct sh_err *err)
{
    const struct api_conf *c = d->api.conf;
    int rc = sh_wire_keys_open(&c->link_key, (const char *const[]){c->scheduler, NULL},
                               &d->api.link_keys, err);

    if (!rc) /* before TERM is ours: until then it ends us at once */
        rc = wait_for_database(&d->api, err);
    if (!rc)
        rc = sh_loop_new(&d->loop, err);
    if (!rc)
        rc = sh_loop_signals(d->loop, on_term, on_hup, d, err);
    if (!rc)
        rc = start_parts(d, err);
    if (!rc)
        rc = sh_timer_add(d->loop, SH_MS(200), SH_MS(200), on_tick, d, &d->tick, err);
    if (!rc) {
        sh_metric_set(M_shunt_build_info, SH_LABELS(sh_conf_version(), ""), 1);
        if (http_admin_port(d->http))
            SH_INFO("api.admin_ready", "listen=\"%s\" port=%d", c->admin_listen,
                    http_admin_port(d->http));
        if (grpc_port(d->grpc))
            SH_INFO("api.grpc_ready", "listen=\"%s\" port=%d", c->grpc_listen, grpc_port(d->grpc));
        SH_INFO("api.ready", "listen=\"%s\" port=%d", c->listen, http_port(d->http));
        rc = sh_loop_run(d->loop, err);
        SH_INFO("api.stopping", "requests=%d", n_active(d));
    }
    stop_parts(d);
    sh_timer_del(d->tick);
    sh_loop_free(d->loop);
    return rc;
}

int main(int argc, char **argv)
{
    struct api_conf conf = {0};
    struct daemon d = {.api = {.conf = &conf, .uploads.lock = PTHREAD_MUTEX_INITIALIZER}};
    enum sh_conf_action action = SH_CONF_RUN;
    enum sh_log_level level = SH_LOG_INFO;
    struct sh_err err = {0};
    int rc;

    sh_log_init("shunt-api", level);
    if (argc == 2 && is_print_option(argv[1])) {
        rc = print_description(argv[1], &err);
        if (rc)
            sh_log_err(SH_LOG_ERROR, "api.print", &err);
        return rc ? 1 : 0;
    }
    signal(SIGPIPE, SIG_IGN);
    rc = sh_conf_load(&API_CONF_TABLE, &conf, argc, argv, NULL, NULL, &action, &err);
    if (!rc && action == SH_CONF_RUN) {
        rc = api_conf_check(&conf, &err);
        if (!rc)
            rc = sh_log_level_parse(conf.log_level, &level, &err);
        if (!rc) {
            sh_log_set_level(level);
            sh_conf_log(&API_CONF_TABLE, &conf);
            fit_connections(&conf);
            rc = live_new(&API_CONF_TABLE, &conf, &d.api.live, &err);
            if (!rc)
                rc = serve_api(&d, &err);
            live_free(d.api.live);
        }
    }
    if (rc)
        sh_log_err(SH_LOG_ERROR, "api.failed", &err);
    sh_conf_free(&API_CONF_TABLE, &conf);
    return rc ? 1 : 0;
}
