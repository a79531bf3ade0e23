/* serving.h - what APIs are told of versions and executors: readiness is what the executors that
 * are connected now have loaded, and nothing else.
 *
 *   NONE     it is not to be served: unloaded, deleted, or not known
 *   ABSENT   no executor is connected
 *   LOADING  one loads it, or will at once, and none has it
 *   READY    at least one that takes runs has it, or has put it aside and would bring it back
 *   FAILED   every one of them has failed to load it
 */
#ifndef SH_SCHEDULER_MODELS_SERVING_H
#define SH_SCHEDULER_MODELS_SERVING_H

#include "common/msg.h"

struct model;
struct sched;
struct session;

#define SERVING_NEVER INT64_MAX

enum msg_up serving_state(const struct sched *s, const struct model *m);
/* When an executor is expected to have it: a moment ago (now_ns) if it is not known but near;
 * SERVING_NEVER. Only of one that is not READY. */
int64_t serving_expected_ns(const struct sched *s, const struct model *m, int64_t now_ns);
/* To all APIs: what has changed since the last call. Cheap when nothing has. */
void serving_tell(struct sched *s);
void serving_second(struct sched *s);                        /* their traffic, at times */
void serving_tell_api(struct sched *s, struct session *api); /* all of it, to a new one */
void serving_forget(struct sched *s, struct model *m);       /* it is deleted */

#endif
