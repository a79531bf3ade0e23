/* conf.h - the options of shunt-scheduler. */
#ifndef SH_SCHEDULER_DECIDE_CONF_H
#define SH_SCHEDULER_DECIDE_CONF_H

#include "common/conf.h"
#include "common/otlp.h"
#include "common/wire_keys.h"

#include <stdbool.h>
#include <stdint.h>

struct sched_conf {
    char *listen, *db_url, *name, *metrics_addr, *log_level, *migrations_dir;
    struct sh_wire_key_conf link_key;
    struct sh_otlp_conf otlp;
    bool migrate_only;
    int64_t tick_ms, poll_ms, full_look_ms, lease_ttl_ms, grace_ms;
    int64_t max_requests, max_model_requests, request_timeout_ms, margin_us, max_runs, busy_poll_us,
        max_executors, min_copies;
    int64_t max_versions, max_tenants, max_lines, max_busy_jobs; /* tables of the leader */
    int64_t min_run_ms, max_min_run_ms, level_ms, usage_half_life_s, max_db_ops, max_sessions;
    int64_t keep_events_days, keep_jobs_days, keep_minutes_days, keep_usage_days, keep_audit_days;
    int64_t keep_keys_days, keep_deleted_days, load_wait_ms;
};

#define SCHED_MEMBER_BYTES 40

extern const struct sh_conf_table SCHED_CONF;

/* The options, all INT, that decisions rest on; the leader writes them down for what-if questions.
 * NULL ends them. */
extern const char *const SCHED_DECIDES_BY[];
/* As it is called there: with _ for each -. */
void sched_conf_member(const char *option, char out[static SCHED_MEMBER_BYTES]);
/* BORROWED: from conf. */
int64_t *sched_conf_int(struct sched_conf *conf, const char *option);

#endif
