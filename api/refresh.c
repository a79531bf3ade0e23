/* refresh.c - see refresh.h. */
#include "api/refresh.h"

#include "api/cache/auth.h"
#include "api/cache/catalog.h"
#include "api/cache/live.h"
#include "api/cache/waiters.h"
#include "api/infer/alias_count.h"
#include "api/infer/link.h"
#include "api/infer/slo_count.h"
#include "api/store/store.h"
#include "common/clock.h"
#include "common/db.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct refresh {
    struct api *api;
    struct db *db;
    int wake_fd; /* readable = stop */
    pthread_t thread;
    bool has_thread;
    uint64_t listens; /* db_generation() of the connection that listens; 0: none */
    bool was_down;
    int64_t keys_ns, models_ns; /* last time each was read */
    int64_t slo_ns;             /* ... and counts were written */
    int64_t used_ns;            /* last time the uses of keys were written */
    int64_t config_ns;
    bool keys_due, models_due, config_due;
};

static void drain_notifications(struct refresh *r)
{
    char channel[64], payload[64];

    while (db_notification(r->db, channel, payload)) {
        r->keys_due |= strcmp(channel, "shunt_keys") == 0;
        r->models_due |= strcmp(channel, "shunt_models") == 0;
        r->config_due |= strcmp(channel, "shunt_config") == 0;
    }
}

/* What was counted, and what follows from it. */
static int write_counts(struct refresh *r, struct sh_err *err)
{
    struct cat_table *t;
    int rc = slo_counts_flush(r->api->slo, r->db, sh_clock_wall_ms(), err);

    if (!rc)
        rc = alias_counts_flush(r->api->aliases, r->db, sh_clock_wall_ms(), err);
    t = catalog_get(r->api->catalog);
    if (!rc && cat_counts_aliases(t))
        rc = alias_watch(r->db, err);
    catalog_put(t);
    return rc;
}

static int refresh_once(struct refresh *r, struct sh_err *err)
{
    int64_t now = sh_clock_ns();
    int rc = SH_OK;

    /* One that was lost between two statements and made again unseen does not listen either. */
    if (db_fd(r->db) < 0 || r->listens != db_generation(r->db)) {
        uint64_t connection;

        rc = db_ready(r->db, 0, err);
        connection = db_generation(r->db);
        if (!rc)
            rc = store_key_listen(r->db, err);
        r->listens = rc ? 0 : connection;
        r->keys_due = r->models_due = r->config_due =
            true; /* what was said meanwhile was not heard */
    }
    if (!rc && (r->models_due || now - r->models_ns >= SH_MS(r->api->conf->model_poll_ms))) {
        r->models_due = false;
        r->models_ns = now;
        rc = catalog_refresh(r->api->catalog, r->db, err);
    }
    if (!rc && (r->keys_due || now - r->keys_ns >= SH_MS(r->api->conf->key_poll_ms))) {
        r->keys_due = false;
        r->keys_ns = now;
        rc = auth_refresh(r->api->auth, r->db, err);
    }
    if (!rc && (r->config_due || now - r->config_ns >= SH_MS(r->api->conf->key_poll_ms))) {
        r->config_due = false;
        r->config_ns = now;
        rc = live_refresh(r->api->live, r->db, err);
    }
    if (!rc && now - r->slo_ns >= SH_MS(SLO_FLUSH_MS)) {
        r->slo_ns = now;
        rc = write_counts(r, err);
    }
    if (!rc && now - r->used_ns >= SH_MS(r->api->conf->key_poll_ms)) {
        r->used_ns = now;
        rc = auth_write_used(r->api->auth, r->db, err);
    }
    waiters_wake(r->api->waiters);
    /* A scheduler that does not reach it may want to know that we do. Reading is not enough: where
     * commits hang for all, nobody else could take its lease. */
    if (!rc && now == r->models_ns) {
        rc = store_commit(r->db, err);
        if (!rc)
            link_hint(r->api->link, "reached");
    }
    return rc;
}

static void *refresh_main(void *arg)
{
    struct refresh *r = arg;

    for (;;) {
        struct sh_err err = {0};
        struct pollfd p[2] = {{.fd = r->wake_fd, .events = POLLIN}, {.events = POLLIN}};
        int rc = refresh_once(r, &err);
        bool is_due;

        sh_metric_set(M_shunt_db_up, NULL, rc ? 0 : 1);
        if (rc && !r->was_down)
            sh_log_err(SH_LOG_WARN, "database.down", &err);
        else if (!rc && r->was_down)
            SH_INFO("database.up", "msg=\"caches are fresh again\"");
        r->was_down = rc != SH_OK;
        drain_notifications(r); /* some came with answers to statements: poll() does not see them */
        is_due = !rc && (r->keys_due || r->models_due || r->config_due);
        p[1].fd = db_fd(r->db);
        if (poll(p, 2, is_due ? 0 : (int)SH_MIN(r->api->conf->model_poll_ms, 1000)) < 0 &&
            errno != EINTR)
            SH_WARN("refresh.poll", "errno=%d", errno);
        if (p[0].revents)
            break;
        drain_notifications(r);
    }
    auth_write_used(r->api->auth, r->db, NULL);
    slo_counts_flush(r->api->slo, r->db, sh_clock_wall_ms(), NULL);
    alias_counts_flush(r->api->aliases, r->db, sh_clock_wall_ms(), NULL);
    return NULL;
}

int refresh_start(struct api *a, struct refresh **out, struct sh_err *err)
{
    struct refresh *r = calloc(1, sizeof(*r));
    int rc;

    *out = NULL;
    if (!r)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the refresh thread");
    r->api = a;
    r->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rc = r->wake_fd < 0 ? SH_FAIL_ERRNO(err, SH_E_IO, "could not make an event")
                        : db_new(a->conf->db_url, "shunt-api-refresh", &r->db, err);
    if (!rc) {
        db_share(r->db, &a->db_news);
        r->has_thread = pthread_create(&r->thread, NULL, refresh_main, r) == 0;
        if (!r->has_thread)
            rc = SH_FAIL(err, SH_E_NOMEM, "could not start the refresh thread");
    }
    if (rc) {
        refresh_stop(r);
        return rc;
    }
    *out = r;
    return SH_OK;
}

void refresh_stop(struct refresh *r)
{
    uint64_t one = 1;

    if (!r)
        return;
    if (r->has_thread) {
        while (write(r->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
            ;
        pthread_join(r->thread, NULL);
    }
    db_free(r->db);
    if (r->wake_fd >= 0)
        close(r->wake_fd);
    free(r);
}
