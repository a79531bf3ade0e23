/* conf.c - see conf.h: the options of shunt-scheduler. */
#include "scheduler/decide/conf.h"

#include "common/mem.h"
#include "common/msg.h"
#include "scheduler/decide/lines.h"

#define STR(field, name, def, flags, help) \
    SH_OPT_STR(struct sched_conf, field, name, def, flags, help)
#define INT(field, name, def, min, max, help) \
    SH_OPT_INT(struct sched_conf, field, name, def, min, max, 0, help)

static const struct sh_conf_opt SCHED_OPTS[] = {
    STR(listen, "listen", "unix:.shunt/run/scheduler.sock", 0,
        "addresses for APIs and executors, comma-separated: unix:/path or tcp:host:port"),
    SH_OPTS_WIRE_KEY(struct sched_conf, link_key),
    STR(db_url, "db-url", "postgresql:///shunt", SH_CONF_SECRET, "libpq connection string"),
    STR(name, "name", "scheduler", 0, "name of this scheduler in the lease and in the log"),
    STR(metrics_addr, "metrics-addr", "127.0.0.1:9102", 0,
        "address of /metrics and /healthz; empty: none"),
    STR(log_level, "log-level", "info", 0, "error, warn, info or debug"),
    SH_OPTS_OTLP(struct sched_conf, otlp),
    SH_OPT_BOOL(struct sched_conf, migrate_only, "migrate-only", false, 0,
                "apply migrations, then exit"),
    STR(migrations_dir, "migrations-dir", "migrations", 0, "folder of NNNN_name.sql"),
    INT(tick_ms, "tick-ms", 100, 10, 10000,
        "longest wait between two checks of the queues, ms; each checks 256 executors, in turn"),
    INT(poll_ms, "poll-ms", 500, 50, 60000, "longest time between two reads of the database, ms"),
    INT(full_look_ms, "full-look-ms", 30000, 100, 86400000,
        "time between two full reads of the database, which must find nothing new, ms"),
    INT(lease_ttl_ms, "lease-ttl-ms", 2000, 500, 600000,
        "a lease that was not renewed for this long may be taken over, ms"),
    INT(grace_ms, "grace-ms", 3000, 0, 600000,
        "how long an executor may be disconnected before its jobs return to the queue, ms"),
    INT(max_requests, "max-requests", 4096, 1, 1000000,
        "requests in the scheduler, all tenants; each takes about 1 KB (4,096: 4 MB)"),
    INT(max_model_requests, "max-model-requests", 1024, 1, 1000000,
        "requests in the scheduler for one model version"),
    INT(request_timeout_ms, "request-timeout-ms", 30000, 10, 3600000,
        "timeout of requests that set none, ms"),
    INT(load_wait_ms, "load-wait-ms", 5000, 0, 600000,
        "longest wait of a request while its model loads or its executor is away; it gets 503 at "
        "once if that is not expected to be enough, ms"),
    INT(margin_us, "margin-us", 1000, 0, 1000000,
        "safety margin between the predicted end and the deadline, us"),
    INT(busy_poll_us, "busy-poll-us", 0, 0, 10000000,
        "after a request, poll this long before sleeping, us; occupies a core meanwhile; `shunt "
        "up` chooses it"),
    INT(max_runs, "max-runs", 2, 1, 16, "outstanding runs per executor"),
    INT(min_run_ms, "min-run-ms", 30000, 0, 86400000,
        "shortest time that a training job keeps its executor, ms"),
    INT(max_min_run_ms, "max-min-run-ms", 600000, 0, 86400000,
        "upper limit for the min_runtime_ms of jobs, ms"),
    INT(level_ms, "level-ms", 60000, 0, 3600000,
        "device time from which a job counts as queued later than others of its tenant, by all "
        "the device time that it needs, ms; 0: first come, first served"),
    INT(usage_half_life_s, "usage-half-life-s", 3600, 1, 31536000,
        "half-life of past usage in the fair share, s"),
    INT(max_db_ops, "max-db-ops", 20000, 100, 1000000, "writes that wait for the database"),
    INT(keep_events_days, "keep-events-days", 90, 0, 36500,
        "remove events of ended jobs after this, by whole partitions, days; 0 = never"),
    INT(keep_jobs_days, "keep-jobs-days", 365, 0, 36500,
        "remove ended jobs after this, with their events and checkpoints, days; 0 = never"),
    INT(keep_minutes_days, "keep-minutes-days", 30, 0, 36500,
        "merge usage per minute into usage per hour after this, days; 0 = never"),
    INT(keep_usage_days, "keep-usage-days", 800, 0, 36500,
        "remove usage after this, by whole partitions, days; 0 = never"),
    INT(keep_audit_days, "keep-audit-days", 800, 0, 36500,
        "remove audit entries after this, by whole partitions, days; 0 = never"),
    INT(keep_keys_days, "keep-keys-days", 90, 0, 36500,
        "remove revoked and expired API keys after this, days; 0 = never"),
    INT(keep_deleted_days, "keep-deleted-days", 90, 0, 36500,
        "remove rows of deleted models, versions and datasets after this, once no job, usage or "
        "file refers to them, days; 0 = never"),
    INT(max_executors, "max-executors", 1024, 1, SH_MAX_EXECUTORS,
        "executors; each takes about 3 KB, and 220 bytes for every model version"),
    INT(max_versions, "max-versions", 5000, 1, 100000,
        "model versions that are loaded or loading; requests for further ones are refused; each "
        "takes about 15 KB, and 220 bytes for every executor (5,000 and 16 executors: 93 MB)"),
    INT(max_tenants, "max-tenants", 20000, 1, 50000,
        "tenants; requests and jobs of further ones, whose quotas are not known, are not served; "
        "each takes about 1.1 KB (20,000: 22 MB)"),
    INT(max_lines, "max-lines", LINES_MAX, 16, 262144,
        "queued jobs in memory, and lines of them (of one tenant, queue, version and array), with "
        "at least one job each; further ones stay in the database until others end; each takes "
        "about 4 KB (16,384: 66 MB)"),
    INT(max_busy_jobs, "max-busy-jobs", 50000, 16, 500000,
        "jobs that wait for their next attempt, in memory, beside those on executors; the next "
        "attempt of further ones comes later; each takes about 4 KB (50,000: 200 MB)"),
    INT(min_copies, "min-copies", 1, 1, 64,
        "least number of executors on which each version is loaded, if there are so many; demand "
        "adds more"),
    INT(max_sessions, "max-sessions", 2048, 2, 20000, "connections of APIs and executors"),
};

const struct sh_conf_table SCHED_CONF = {
    .program = "shunt-scheduler",
    .purpose =
        "Decides which executor runs which request and which job. One leads, others stand by.",
    .opts = SCHED_OPTS,
    .n_opts = SH_ARRAY_LEN(SCHED_OPTS),
    .struct_bytes = sizeof(struct sched_conf),
};

const char *const SCHED_DECIDES_BY[] = {"min-run-ms",         "max-min-run-ms",     "level-ms",
                                        "usage-half-life-s",  "max-runs",           "margin-us",
                                        "load-wait-ms",       "request-timeout-ms", "max-requests",
                                        "max-model-requests", "min-copies",         NULL};

void sched_conf_member(const char *option, char out[static SCHED_MEMBER_BYTES])
{
    sh_strlcpy(out, option, SCHED_MEMBER_BYTES);
    for (char *p = out; *p; p++)
        *p = *p == '-' ? '_' : *p;
}

int64_t *sched_conf_int(struct sched_conf *conf, const char *option)
{
    return (int64_t *)(void *)((char *)conf + sh_conf_find(&SCHED_CONF, option)->offset);
}
