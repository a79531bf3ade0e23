/* payload.h - lends a run's payload to its worker, so that no worker sees an API's slab.
 *
 * If the device shares the host's memory, each worker has its own piece of memory, as large as its
 * runs need. The executor copies a run's inputs there (even those that inputs.h also sends to the
 * device, for the worker to check) and copies the outputs out. Between two runs it is cleared. To
 * the worker it is a slab like any other.
 *
 * On a GPU workers have the slabs: these copies would lengthen the switches that matter
 * (docs/security.md).
 */
#ifndef SH_EXECUTOR_RUNS_PAYLOAD_H
#define SH_EXECUTOR_RUNS_PAYLOAD_H

#include "common/err.h"
#include "common/shm.h"

struct run;
struct run_part;
struct worker;

/* Are the slabs that the part reads here now? If not, its worker is given a slab that nobody has,
 * and fails that part alone. */
bool payload_has_part(const struct run *r, const struct run_part *p);
/* The calls below do nothing if workers have the slabs. */
/* Before a run is sent. Fails: SH_E_NOMEM, SH_E_TOOBIG. */
int payload_lend(const struct run *r, struct worker *w, struct sh_err *err);
void payload_send_parts(const struct run *r, struct worker *w);
/* The run is done: copies outputs to the APIs that are still there. */
void payload_take_back(const struct run *r, struct worker *w, bool is_good);
void payload_forget(struct worker *w); /* its process is gone */

#endif
