/* room.h - host memory of executors: what is idle goes for what is wanted, and comes back.
 *
 *   READY     -> UNLOADING  another version found no room, and nobody has asked for this one for
 *                           ROOM_IDLE_NS                                         [room_on_full]
 *   UNLOADING -> ASIDE      its executor has let it go                           [room_on_gone]
 *   ASIDE     -> LOADING    somebody asks for it                                 [models_want]
 *   LOADING   -> ASIDE      there is no room, and nobody waits for it any more   [room_on_full]
 *
 * The executor alone knows its limits: a version that finds no room FAILED there with QUOTA and
 * says by how much. Who waits for room tries again when those that go for it are gone.
 *
 * First goes what is not on the device, then what was not asked for for longest. Versions that are
 * pinned, have requests or serve a job of batch inference stay. Where the limit of all is reached
 * one of another tenant goes only while that tenant holds more: who fills its share hurts nobody.
 *
 * A version that is ASIDE counts as READY: a request brings it from the files that loading has
 * left, and waits for that as for any load (--load-wait-ms).
 */
#ifndef SH_SCHEDULER_MODELS_ROOM_H
#define SH_SCHEDULER_MODELS_ROOM_H

#include "common/msg.h"

#include <stdbool.h>

struct exec;
struct model;
struct sched;

#define ROOM_IDLE_NS INT64_C(5000000000)

/* m found no room on e. True: it waits for others to go, or stands aside itself; else it failed. */
bool room_on_full(struct sched *s, struct model *m, struct exec *e,
                  const struct msg_model_state *msg);
/* e has let m go, which was to stand aside. */
void room_on_gone(struct sched *s, struct model *m, struct exec *e);

#endif
