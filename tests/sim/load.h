/* load.h - what clients do to the database by way of an API process: jobs are submitted and
 * controlled, versions come and go, quotas change. What was acknowledged is remembered. */
#ifndef SH_TESTS_SIM_LOAD_H
#define SH_TESTS_SIM_LOAD_H

#include "tests/sim/api.h"

struct sim_load_kind {
    bool floods; /* arrays of hundreds of jobs, too */
    /* what a real executor needs; NULL: it is a simple one */
    void (*prepare)(struct database_job *j);
    uint64_t memory_bytes; /* of a device: a quota keeps some of it */
    bool limits_memory;    /* ... and bounds what a tenant may have of it */
};
/* In its process, at its start: so many actions in a second, until sim_load_stop(). KEEPS k. */
void sim_load_begin(struct sim_api *a, double per_s, const struct sim_load_kind *k);
/* No action begins any more. What clients hold, queues and tenants among it, is let go, so that
 * everything can come to its end. */
void sim_load_stop(void);

enum sim_ack_kind { SIM_ACK_SUBMIT, SIM_ACK_CANCEL };
struct sim_ack { /* a client was told that it is so */
    enum sim_ack_kind kind;
    int64_t id; /* of the job */
    char token[32];
};
const struct sim_ack *sim_acks(size_t *n);
/* Quotas were changed last then. */
int64_t sim_load_quota_ns(void);

#endif
