/* ahead.h - weights come to a device before the first request for them: to a new home of a version,
 * and to an executor that was restarted.
 *
 * In an idle moment an executor is told to bring what it lacks of the version that is most in
 * demand, of those that are READY there: device time a time of each home, then runs so far. Idle:
 * it has no run, nobody waits there, no copy is on its way. It stops as soon as something else is
 * to be done (executor/models/ahead.c), takes free memory, and for a version that was asked for in
 * the last AHEAD_FRESH_NS that of images that nobody has used for a minute. So no request waits for
 * it for longer than a group of layers, training goes on, and what is used more stays.
 *
 * One version at a time for each executor, and the same one there once in AHEAD_AGAIN_NS. Looked at
 * once a second, and at each tick while there is something to bring; that costs the homes that lack
 * weights.
 */
#ifndef SH_SCHEDULER_MODELS_AHEAD_H
#define SH_SCHEDULER_MODELS_AHEAD_H

#include "common/units.h"

#include <stdint.h>

#define AHEAD_AGAIN_NS SH_S(10)
#define AHEAD_FRESH_NS SH_S(10)

struct sched;

void ahead_tick(struct sched *s);
void ahead_second(struct sched *s);

#endif
