/* room.h - host memory of executors: idle versions make room for wanted ones, and come back.
 *
 *   READY     -> UNLOADING  another version found no room, and nobody has asked for this one for
 *                           ROOM_IDLE_NS                                         [room_on_full]
 *   UNLOADING -> ASIDE      its executor has unloaded it                         [room_on_gone]
 *   ASIDE     -> LOADING    somebody asks for it                                 [homes_want]
 *   LOADING   -> ASIDE      there is no room, and nobody waits for it any more   [room_on_full]
 *
 * Only the executor knows its limits: a version that finds no room FAILED there with QUOTA and the
 * amount that was missing. If it fits elsewhere, and no job of that executor uses it, it goes there
 * (homes.h); else it is retried when the versions that leave for it are gone.
 *
 * Versions that are not on the device leave first, then the least recently requested. Pinned ones,
 * ones with requests, and ones that serve batch inference stay. If the limit for all tenants is
 * reached, a version of another tenant leaves only while that tenant holds more: a tenant that
 * fills its share harms nobody. What versions of a tenant share (executor/models/share.h) is free
 * when all of them that share have left; else one frees only what it has for itself.
 *
 * A version that is ASIDE counts as READY: a request brings it back from the kept files, and waits
 * for it as for any load (--load-wait-ms).
 */
#ifndef SH_SCHEDULER_MODELS_ROOM_H
#define SH_SCHEDULER_MODELS_ROOM_H

#include "common/msg.h"
#include "common/units.h"

#include <stdbool.h>

struct exec;
struct model;
struct sched;

#define ROOM_IDLE_NS SH_S(5)

/* m found no room on e. True: it waits for others to leave, or is put aside itself; false: it
 * failed. */
bool room_on_full(struct sched *s, struct model *m, struct exec *e,
                  const struct msg_model_state *msg);
/* e has unloaded m, which was to be put aside. */
void room_on_gone(struct sched *s, struct model *m, struct exec *e);

#endif
