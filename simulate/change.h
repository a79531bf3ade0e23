/* change.h - what is to be otherwise in a snapshot.
 *
 * A change is an object {"set": PATH, "to": VALUE}; a later one finds what earlier ones made.
 *
 *   gpus                      "+2": two more like the largest; "-1": without the last; 4: so many
 *   tenant.NAME.FIELD         a field of `shunt set quota` that the snapshot has, or `guarantee`
 *                             (guaranteed_gpus), `weight` (over_quota_weight), `active`
 *   model.NAME.FIELD          slo_ms, percentile, priority, on_miss, max_batch, homes ("gpu0,gpu1":
 *                             it lives there at first) of all its versions; TENANT/NAME: of one
 *                             tenant
 *   job.ID.FIELD              priority, preemptible, min_runtime_ms, gpus
 *   queue.NAME.open           of jobs that wait in queues of that name: true or false
 *   scheduler.FIELD           an option of SCHED_DECIDES_BY (scheduler/decide/conf.h)
 *
 * null takes a limit away.
 */
#ifndef SH_SIMULATE_CHANGE_H
#define SH_SIMULATE_CHANGE_H

#include "common/err.h"

#include <jansson.h>

#define CHANGE_MAX 64 /* in one question */

/* Changes the snapshot, which nobody else may use. Fails: SH_E_INVALID naming the change, also
 * if the snapshot has no such thing; SH_E_NOMEM. */
int change_apply(json_t *snapshot, const json_t *changes, struct sh_err *err);

#endif
