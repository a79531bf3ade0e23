/* tier.h - images in host memory, and below it on disk.
 *
 *   HOST    all of it is in host memory
 *   DISK    its memory went to others; what is kept of it (kept_dir.h) stays open
 *   COMING  pieces are read, first those that the device lacks; copies to the device follow them
 *   HOST -> DISK    another image or program needs the memory (leave.h)        [tier_make_room]
 *   DISK -> COMING  a run, a pin or PREPARE needs it                           [tier_bring]
 *   COMING -> HOST  the last piece is there                                    [on_read]
 *
 * A version stays READY whatever the tier of its image, and workers keep their programs. Only an
 * image of which a whole file is kept can leave, and none that is pinned, used by a run, or on its
 * way to the device. A file that turns out to be damaged is removed, and the version unloads
 * itself: the scheduler loads it again.
 */
#ifndef SH_EXECUTOR_MODELS_TIER_H
#define SH_EXECUTOR_MODELS_TIER_H

#include "executor/models/store.h"

/* Images leave until `bytes` are free; spare stays. only_tag: of this tenant, or LEAVE_ANY. Returns
 * what has become free. */
uint64_t tier_make_room(struct store *s, uint64_t bytes, uint32_t only_tag,
                        const struct model *spare);
/* So much could. */
uint64_t tier_room(struct store *s, uint32_t only_tag, const struct model *spare);
/* Reads what the device lacks behind its first `from` bytes, then the rest, and says in m->tx what
 * is still to come. must: even if host memory is then above its limit, because nothing more can
 * leave yet: tier_tick() tries again. Fails: SH_E_QUOTA, SH_E_NOMEM, SH_E_UNAVAILABLE (it is
 * lost). */
int tier_bring(struct model *m, uint64_t from, bool must, struct sh_err *err);
/* The device has the first `from` bytes, and needs the others. */
void tier_needs(struct model *m, uint64_t from);
bool tier_is_reading(const struct model *m);
uint64_t tier_disk_bytes(const struct model *m); /* of the image, that host memory lacks */
/* Its bytes are not what they were: the version unloads itself; the scheduler loads it again. */
void tier_lose(struct model *m, const struct sh_err *why);
void tier_tick(struct model *m);
void tier_free(struct model *m);          /* nothing is being read */
double tier_bytes_per_s(struct store *s); /* of the disk, as measured */

#endif
