/* share.h - chunks that images of one tenant have in common, held once in host memory.
 *
 * Versions of which only the head differs have the same bytes from the first layer on: weights lie
 * in the order in which they are used. A trunk has the chunks (SHARE_CHUNK) that images of one
 * tenant have alike, each at the place where it is in these images. Such an image is the trunk's
 * pages and its own, mapped one behind the other: whoever copies from it sees no difference.
 *
 *   image A   | 0 | 1 | 2 | a |     trunk   | 0 | 1 | 2 | a |
 *   image B   | 0 | 1 | 2 | b |     own     |   |   |   | b |
 *
 * Nothing waits for it. An image is loaded as always; then it is summed on the disk thread. If
 * another one of its tenant has equal sums at the same places, the first of the two is copied to a
 * new trunk, and the next ones are compared with that, byte by byte: a sum only says where to look.
 * Then the new memory waits to be page-locked (memory/locking.h), like all other memory, and the
 * image changes over to it, between two copies to the device; its old memory is unlocked in the
 * same way. Trunk and own part are memory that the executor alone has ever been able to write to,
 * so that no worker, which had the old memory, can change what others share. While one image is
 * copied its new memory is not counted, nor the old one while it goes; one is copied at a time.
 *
 * A chunk of the trunk counts in equal parts for the images that have it (host.h), and is freed
 * when the last one leaves host memory or goes. Images of two tenants never meet, so neither limits
 * nor times nor numbers say anything of another tenant's models. Not shared: what is mapped from
 * its file, tables that are read in place, and what is smaller than a chunk.
 */
#ifndef SH_EXECUTOR_MODELS_SHARE_H
#define SH_EXECUTOR_MODELS_SHARE_H

#include "executor/memory/leave.h"
#include "executor/models/store.h"

/* Once a second, but not while the executor stops. */
void share_second(struct store *s);
uint64_t share_saved_bytes(struct store *s); /* that would be held more often otherwise */
uint64_t share_trunk_bytes(struct store *s); /* for tests: as the kernel counts their memory */

/* ------------------------------------------------------------------ for this room */

uint64_t share__bytes(const struct model *m);  /* that count as its image's */
uint64_t share__shared(const struct model *m); /* of these, its part of what others have, too */
uint64_t share__frees(const struct model *m);  /* memory that becomes free if it leaves alone */
/* Memory that becomes free if those of these that are to leave do so together. */
uint64_t share__free_bytes(const struct leave_image *v, size_t n);
/* So many of the first bytes in host memory are the trunk's in both. */
uint64_t share__alike(const struct model *a, const struct model *b);
bool share__is_at(const struct model *m); /* it is being summed or copied: it cannot go */
void share__tick(struct store *s);
void share__leave(struct model *m);  /* before its memory goes */
void share__forget(struct model *m); /* the same, and what comes next may be another image */
void share__stop(struct store *s);   /* before it is freed: nothing is under way any more */

#endif
