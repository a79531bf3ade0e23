/* traffic.h - each model's requests in the last minute, as reported by the leading scheduler
 * (scheduler/peers/traffic.h). Thread-safe.
 */
#ifndef SH_API_INFER_TRAFFIC_H
#define SH_API_INFER_TRAFFIC_H

#include "common/json.h"
#include "common/msg.h"

struct traffic;

int traffic_new(struct traffic **out, struct sh_err *err); /* OWNED, traffic_free() */
void traffic_free(struct traffic *t);                      /* NULL is allowed */

/* For the link. */
void traffic_clear(struct traffic *t); /* no scheduler, or another one */
void traffic_note(struct traffic *t, const struct msg_model_traffic *m);

/* {"window_s","requests","per_s","p50_ms","p99_ms"}, latencies null if there were no requests; JSON
 * null: no scheduler has reported. OWNED; NULL: no memory. */
json_t *traffic_of(struct traffic *t, const char *tenant, const char *model);

#endif
