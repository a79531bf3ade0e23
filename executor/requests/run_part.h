/* run_part.h - one request's share of a run. */
#ifndef SH_EXECUTOR_REQUESTS_RUN_PART_H
#define SH_EXECUTOR_REQUESTS_RUN_PART_H

#include "common/msg.h"

struct run_part {
    uint64_t rid, api_id;
    uint32_t batch;
    size_t n_in, n_out;
    struct msg_span *in, *out; /* OWNED */
    int rc;                    /* it has failed, and not the run */
    char *msg;                 /* OWNED: why; NULL: no memory to say it */
    int64_t sample;            /* the one of it that is wrong; < 0: none of them */
    bool is_cut; /* the API's connection ended meanwhile: what comes over the next is not its own */
};

#endif
