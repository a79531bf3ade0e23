/* run_part.h - one request's share of a run. */
#ifndef SH_EXECUTOR_REQUESTS_RUN_PART_H
#define SH_EXECUTOR_REQUESTS_RUN_PART_H

#include "common/msg.h"

struct run_part {
    uint64_t rid, api_id;
    uint32_t batch;
    char *tenant; /* OWNED; NULL: the run's */
    size_t n_in, n_out;
    struct msg_span *in, *out; /* OWNED */
    int rc;                    /* why this part has failed; SH_OK: it has not */
    char *msg;                 /* OWNED: the reason; NULL: no memory for it */
    int64_t sample;            /* index of the bad sample; < 0: none */
    bool is_cancelled; /* nobody waits for it any more; it is on the device, or is about to be */
    bool is_cut;       /* the API's connection ended meanwhile; its next one is not for this part */
};

#endif
