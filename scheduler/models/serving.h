/* serving.h - tells the APIs about versions and executors. Whether a version is ready depends only
 * on what the connected executors have loaded.
 *
 *   NONE     not to be served: unloaded, deleted, or unknown
 *   ABSENT   no executor is connected
 *   LOADING  one loads it, or soon will, and none has it
 *   READY    at least one that takes runs has it, or has put it aside and would bring it back
 *   FAILED   all of them have failed to load it
 */
#ifndef SH_SCHEDULER_MODELS_SERVING_H
#define SH_SCHEDULER_MODELS_SERVING_H

#include "common/msg.h"

struct model;
struct sched;
struct session;

#define SERVING_NEVER INT64_MAX

enum msg_up serving_state(const struct sched *s, const struct model *m);
/* When an executor is expected to have it; now_ns: soon, but the time is unknown; SERVING_NEVER.
 * Only for a version that is not READY. */
int64_t serving_expected_ns(const struct sched *s, const struct model *m, int64_t now_ns);
/* Tells all APIs what has changed since the last call. Cheap if nothing has. */
void serving_tell(struct sched *s);
/* Tells them the traffic, from time to time. */
void serving_second(struct sched *s);
void serving_tell_api(struct sched *s, struct session *api); /* tells a new API everything */
void serving_forget(struct sched *s, struct model *m);       /* m is deleted */

#endif
