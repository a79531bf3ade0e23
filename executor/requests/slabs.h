/* slabs.h - memory for the payloads of requests: an API's, or the executor's own.
 *
 * On a device with its own memory every worker has all slabs (docs/security.md). Otherwise workers
 * have none, and payload.h gives a worker what it needs. The copy lane reads slabs that could be
 * page-locked, which happens between runs (executor/memory/locking.h). Pages that their API has not
 * touched yet are made before that, by the thread for slow work, for one slab at a time: zeroing
 * them takes longer than locking them.
 *
 * Belongs to the loop's thread.
 */
#ifndef SH_EXECUTOR_REQUESTS_SLABS_H
#define SH_EXECUTOR_REQUESTS_SLABS_H

#include "executor/files/disk.h"
#include "executor/memory/locking.h"
#include "executor/memory/transmit.h"
#include "executor/pool/pool.h"

struct slabs;

/* KEEPS all of these; the lane of tx may read slabs. disk ends before slabs_free(). *out: OWNED,
 * slabs_free(). */
int slabs_new(struct pool *pool, struct tx *tx, struct locking *locking, struct disk *disk,
              size_t max_apis, struct slabs **out, struct sh_err *err);
void slabs_free(struct slabs *s);
bool slabs_are_hidden(const struct slabs *s); /* workers have no slabs */

/* A new api_id for a slab of the executor itself, for an evaluation or a job. Never given out
 * twice, so that a run that outlives its owner cannot meet another's slab. No API has such an id:
 * theirs are random 64-bit numbers. */
uint64_t slabs_own_id(struct slabs *s);
/* Tells every worker. Duplicates fd. Fails if sh_shm_map() refuses it. */
int slabs_add(struct slabs *s, uint64_t api_id, int fd, uint64_t bytes, struct sh_err *err);
/* The memory is freed when the lane can no longer read it. */
void slabs_drop(struct slabs *s, uint64_t api_id);
void slabs_greet(struct slabs *s, struct worker *w); /* w is new: tells it of all slabs */
/* BORROWED until dropped; NULL: not found. slabs_find_locked(): NULL too if the copy lane cannot
 * read it, or not yet. */
const struct sh_shm *slabs_find(const struct slabs *s, uint64_t api_id);
const struct sh_shm *slabs_find_locked(const struct slabs *s, uint64_t api_id);

#endif
