/* tenants.h - a mirror of tenants and quotas, and their decayed usage. */
#ifndef SH_SCHEDULER_PEERS_TENANTS_H
#define SH_SCHEDULER_PEERS_TENANTS_H

#include "common/idmap.h"
#include "scheduler/database/store.h"
#include "scheduler/database/store_view.h"
#include "scheduler/decide/jobpool.h"

/* What of a tenant may wait (records/oldest.h). */
enum tenant_wait { TENANT_WAIT_REQUEST, TENANT_WAIT_JOB, TENANT_N_WAITS };
extern const char *const TENANT_WAIT_NAME[TENANT_N_WAITS];

struct tenant { /* if deleted: lives until its last request has ended, no job of it is held, and
                 * executors were told that its memory has no limits any more */
    int64_t id; /* 0: not seen in the database yet */
    char name[64];
    bool active;
    double guaranteed_gpus, max_gpus, weight, lending_limit;
    uint32_t max_running_jobs, max_requests;
    struct store_memory memory;
    uint64_t memory_change; /* number of its last change; 0: never changed from the default */
    double usage_ns;        /* decayed, as of usage_at_ns */
    int64_t usage_at_ns;
    uint32_t n_requests; /* in the scheduler; request.c */
    int64_t turn_ns;     /* the next one's, if it comes soon; request.c */
    uint32_t snap;       /* index in the current pass's snapshot; pass.c */
    uint64_t seen_poll;
    int64_t n_jobs[JOB_N_STATES]; /* as of the last look at the database; final states excluded */
    bool n_jobs_shown[JOB_N_STATES];
    int64_t oldest_ns[TENANT_N_WAITS]; /* as last shown */
    struct store_share shown;          /* as last shown, at shown_ns; shares.c */
    int64_t shown_ns;                  /* 0: nothing yet */
    struct jobpool_tenant pooled;
    struct tenant *next_touched, **touched_at; /* touched_at NULL: it is not in tenants.touched */
};

struct tenants {
    struct tenant **items; /* OWNED; sorted by name */
    size_t n, cap;
    size_t most; /* of one look at the database, which may add as many to those before. Set it */
    struct idmap by_id;
    uint64_t memory_changes; /* of all tenants so far */
    double half_life_s;
    struct jobpool *pool;   /* BORROWED: who has jobs is in it; NULL: there is none */
    struct tenant *touched; /* changed since jobs_sync(): list, by next_touched */
};

void tenants_fini(struct tenants *t);
void tenants_untouch(struct tenant *x);
struct snap_tenant tenant_facts(const struct tenant *t);                /* all but its usage */
struct tenant *tenants_by_id(const struct tenants *t, int64_t id);      /* NULL if unknown */
struct tenant *tenants_find(const struct tenants *t, const char *name); /* the same */
/* Finds the tenant or adds one with the default quota, since a key may be newer than our last look
 * at the database. Fails: SH_E_NOMEM, SH_E_TOOBIG, SH_E_INVALID (name). */
int tenants_get(struct tenants *t, const char *name, struct tenant **out, struct sh_err *err);
/* v: rows in the order of their ids; if there are `most`, there may be others behind them. Frees
 * those that left the database, have no request and no job, and about which nothing has to be
 * told. */
int tenants_merge(struct tenants *t, const struct store_view *v, uint64_t poll, int64_t now_ns,
                  struct sh_err *err);
double tenants_decay(const struct tenants *t, double usage_ns, int64_t age_ns);
void tenants_charge(struct tenants *t, struct tenant *x, int64_t gpu_ns, int64_t now_ns);
double tenants_usage_ns(const struct tenants *t, const struct tenant *x, int64_t now_ns);

#endif
