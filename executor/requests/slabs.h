/* slabs.h - memory that requests come in and results go to: an API's, or one of the executor's own.
 *
 * Where a device's memory is not the host's, every worker has all slabs (docs/security.md); else
 * none, and payload.h gives a worker what it needs. The copy lane reads those that could be
 * page-locked.
 */
#ifndef SH_EXECUTOR_REQUESTS_SLABS_H
#define SH_EXECUTOR_REQUESTS_SLABS_H

#include "executor/memory/transmit.h"
#include "executor/pool/pool.h"

struct slabs;

/* KEEPS pool, and tx, whose lane may read slabs. *out: OWNED, slabs_free(). */
int slabs_new(struct pool *pool, struct tx *tx, struct slabs **out, struct sh_err *err);
void slabs_free(struct slabs *s);
bool slabs_are_hidden(const struct slabs *s); /* workers have none of them */

/* The api_id of a slab of the executor itself, for an evaluation or a job. None is given out twice,
 * so that a run which outlives its owner cannot meet another's slab; no API has one of them: theirs
 * are random numbers of 64 bits. */
uint64_t slabs_own_id(struct slabs *s);
/* Tells every worker. The descriptor is duplicated; fails if it is not what sh_shm_map() takes. */
int slabs_add(struct slabs *s, uint64_t api_id, int fd, uint64_t bytes, struct sh_err *err);
/* The memory goes when the lane has passed all that it may read of it. */
void slabs_drop(struct slabs *s, uint64_t api_id);
void slabs_greet(struct slabs *s, struct worker *w); /* it is new: tells it of all */
/* BORROWED until it is dropped; NULL: there is none. Of the second: or the copy lane cannot read
 * it. */
const struct sh_shm *slabs_find(const struct slabs *s, uint64_t api_id);
const struct sh_shm *slabs_find_locked(const struct slabs *s, uint64_t api_id);

#endif
