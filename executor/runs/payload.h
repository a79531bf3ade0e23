/* payload.h - what a run reads and writes of requests, so that no worker sees an API's slab.
 *
 * On a device whose memory is the host's a worker has a piece of memory of its own instead, as
 * large as its runs need: the executor puts the inputs of a run there, of which the worker checks
 * the values even if they go to the device by themselves (inputs.h), and takes the outputs out.
 * Between two runs it is empty. To the worker
 * it is a slab like any other.
 *
 * On a GPU a worker has the slabs: there the copies that this takes would be a part of each switch
 * that counts (docs/security.md).
 */
#ifndef SH_EXECUTOR_RUNS_PAYLOAD_H
#define SH_EXECUTOR_RUNS_PAYLOAD_H

#include "common/err.h"
#include "common/shm.h"

struct run;
struct run_part;
struct worker;

/* What a part reads is here at this moment. If not, its worker is told of a slab that nobody has,
 * and fails that part alone. */
bool payload_has_part(const struct run *r, const struct run_part *p);
/* All of them do nothing where workers have the slabs. */
/* Before a run is sent. Fails: SH_E_NOMEM, SH_E_TOOBIG. */
int payload_lend(const struct run *r, struct worker *w, struct sh_err *err);
void payload_send_parts(const struct run *r, struct worker *w);
/* The run is done; outputs reach those APIs that are still there. */
void payload_take_back(const struct run *r, struct worker *w, bool is_good);
void payload_forget(struct worker *w); /* its process is gone */

#endif
