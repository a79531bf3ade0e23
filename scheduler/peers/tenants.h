/* tenants.h - mirror of tenants and quotas, and their decayed usage. */
#ifndef SH_SCHEDULER_PEERS_TENANTS_H
#define SH_SCHEDULER_PEERS_TENANTS_H

#include "common/idmap.h"
#include "scheduler/database/store.h"
#include "scheduler/database/store_view.h"

struct tenant { /* deleted in the database: lives until its last request has ended, and until
                 * executors were told that its memory has no limits any more */
    int64_t id; /* 0: not seen in the database yet */
    char name[64];
    bool active;
    double guaranteed_gpus, max_gpus, weight, lending_limit;
    uint32_t max_running_jobs, max_requests;
    struct store_memory memory;
    uint64_t memory_change; /* number of its last change; 0: as by default, never changed */
    double usage_ns;        /* decayed, as of usage_at_ns */
    int64_t usage_at_ns;
    uint32_t n_requests; /* in the scheduler; request.c */
    uint32_t snap;       /* index in the snapshot of the present pass; pass.c */
    uint64_t seen_poll;
    int64_t n_jobs[JOB_N_STATES]; /* as of the last look at the database; not of final states */
    bool n_jobs_shown[JOB_N_STATES];
    struct store_share shown; /* what people were told last, as of shown_ns; shares.c */
    int64_t shown_ns;         /* 0: nothing yet */
};

struct tenants {
    struct tenant **items; /* OWNED; sorted by name */
    size_t n, cap;
    struct idmap by_id;
    uint64_t memory_changes; /* of all of them so far */
    double half_life_s;
};

void tenants_fini(struct tenants *t);
struct tenant *tenants_by_id(const struct tenants *t, int64_t id); /* NULL if unknown */
/* Finds it or makes one with the default quota: a key may be younger than our last look at the
 * database. Fails: SH_E_NOMEM, SH_E_TOOBIG, SH_E_INVALID (name). */
int tenants_get(struct tenants *t, const char *name, struct tenant **out, struct sh_err *err);
/* Those that are gone from the database, with nothing to tell and without a request, are freed. */
int tenants_merge(struct tenants *t, const struct store_view *v, uint64_t poll, int64_t now_ns,
                  struct sh_err *err);
double tenants_decay(const struct tenants *t, double usage_ns, int64_t age_ns);
void tenants_charge(struct tenants *t, struct tenant *x, int64_t gpu_ns, int64_t now_ns);
double tenants_usage_ns(const struct tenants *t, const struct tenant *x, int64_t now_ns);

#endif
