/* slo_count.h - counts, by minute, how requests of models with a latency target went.
 *
 * Counts are kept in memory and written to the database every SLO_FLUSH_MS and at the end of the
 * process; a killed process loses at most that much. A row holds everything that this process
 * counted in its minute and replaces what it wrote before, so a write repeated after a lost
 * connection counts nothing twice. Rows older than STORE_SLO_KEEP_H hours are removed. While the
 * database is down, at most SLO_MAX_LINES lines wait; further counts are dropped, and the log says
 * how many.
 *
 * Latencies use the buckets of common/latency.h. Thread-safe.
 */
#ifndef SH_API_INFER_SLO_COUNT_H
#define SH_API_INFER_SLO_COUNT_H

#include "common/db.h"
#include "common/json.h"

#define SLO_FLUSH_MS 5000
#define SLO_MAX_LINES 16384

enum slo_outcome { SLO_MET, SLO_MISSED, SLO_REJECTED, SLO_N_OUTCOMES };

struct slo_counts;

int slo_counts_new(struct slo_counts **out, struct sh_err *err); /* OWNED, slo_counts_free() */
void slo_counts_free(struct slo_counts *c);
/* now_ms: wall clock. latency_ns is ignored for a rejected request. */
void slo_counts_add(struct slo_counts *c, int64_t model_id, enum slo_outcome o, int64_t latency_ns,
                    int64_t now_ms);
/* Writes the changed rows. A failure loses nothing. */
int slo_counts_flush(struct slo_counts *c, struct db *db, int64_t now_ms, struct sh_err *err);

#endif
