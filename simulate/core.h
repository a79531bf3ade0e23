/* core.h - the scheduler's own parts with no process around them, for benches and replays.
 *
 * Executors are there at once and answer nothing by themselves; what is sent to peers goes to the
 * hooks. There is no database. A program links core.o and the scheduler's objects with
 *     -Wl,--wrap=session_send,--wrap=session_refuse,--wrap=sched_count
 *     -Wl,--wrap=dbthread_is_up,--wrap=jobs_train_on
 */
#ifndef SH_SIMULATE_CORE_H
#define SH_SIMULATE_CORE_H

#include "scheduler/apis.h"
#include "scheduler/sched.h"

struct core_hooks { /* each may be NULL */
    void *ctx;
    void (*send)(void *ctx, uint32_t exec, const struct sh_msg *m); /* to an executor */
    void (*refuse)(void *ctx, uint64_t rid, const char *rule);      /* rule: docs/rules.md */
    bool (*trains)(void *ctx, uint32_t exec);
};

struct core {
    struct sched_conf conf;
    struct sched s;
    struct api api;
    struct session api_session;
    struct session *sessions; /* OWNED: of the executors */
    uint32_t n_execs;
    struct core_hooks hooks;
};

/* n_execs executors with pool_bytes of device memory each. Fails: as the scheduler's parts. */
int core_init(struct core *c, const struct core_hooks *hooks, uint32_t n_execs, uint64_t pool_bytes,
              struct sh_err *err);
void core_fini(struct core *c);
int core_models(struct core *c, const struct store_model *rows, size_t n, struct sh_err *err);
/* An executor has loaded it; resident_bytes of it are on the device. */
void core_loaded(struct core *c, uint32_t exec, int64_t version_id, uint64_t image_bytes,
                 uint64_t resident_bytes, const struct msg_profile *profile, size_t n_profile);
int core_tenant(struct core *c, const char *name, struct sh_err *err);
int core_tenants(struct core *c, const struct store_tenant *rows, size_t n, struct sh_err *err);
/* As the leader decides whose options these are (SCHED_DECIDES_BY). */
void core_decide_by(struct core *c, const struct sched_conf *conf);
/* Where an executor has unloaded it. */
void core_gone(struct core *c, uint32_t exec, int64_t version_id);
void core_open(struct core *c, uint64_t rid, const char *tenant, int64_t version_id,
               int64_t budget_ns /* 0: none */);
void core_ready(struct core *c, uint64_t rid, uint32_t batch);
void core_run_done(struct core *c, uint32_t exec, const struct msg_run_done *m);

#endif
