/* stats.h - counters of each model version since start, for the statistics extension. Thread-safe.
 */
#ifndef SH_API_INFER_STATS_H
#define SH_API_INFER_STATS_H

#include "api/cache/catalog.h"

struct stats;
struct stats_sample { /* one request */
    bool ok;
    int64_t batch, run_batch; /* samples of the request, and of its whole run */
    int64_t total_ns, queue_ns, copy_ns, compute_ns;
};

int stats_new(struct stats **out, struct sh_err *err); /* OWNED, stats_free() */
void stats_free(struct stats *s);
void stats_add(struct stats *s, int64_t version_id, const struct stats_sample *one);
/* One element of "model_stats". *out: OWNED. */
int stats_get(struct stats *s, const struct cat_version *v, json_t **out, struct sh_err *err);

#endif
