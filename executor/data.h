/* data.h - where payloads come from and results go to: one connection for each API process.
 *
 * An API on this host hands over its slab's descriptor: workers read inputs from it and write
 * outputs to it, and nothing is copied on the way. For one on another host a mirror of the slab is
 * made here; DATA_CHUNK frames fill it, DATA_END says that the input of a request is complete, and
 * the outputs go back as chunks before the RESULT.
 */
#ifndef SH_EXECUTOR_DATA_H
#define SH_EXECUTOR_DATA_H

#include "executor/switch.h"

#define DATA_MAX_PEERS 56u
#define DATA_CHUNK_BYTES ((size_t)1 << 20)

struct data;

int data_new(struct exec *x, struct data **out,
             struct sh_err *err); /* listens; OWNED, data_free() */
void data_free(struct data *d);
/* Is the input of this request here? True also when its API is unknown: the run then says so. */
bool data_is_complete(const struct data *d, uint64_t api_id, uint64_t rid);
/* Outputs first, for a peer on another host. Dropped when the API is gone. */
void data_result(struct data *d, const struct run_part *p, const struct msg_result *r);

#endif
