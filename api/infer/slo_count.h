/* slo_count.h - how requests of models with a latency target went, by minute.
 *
 * Counted in memory, written to the database every SLO_FLUSH_MS and at the end of the process: what
 * a killed process had not written, at most that much time, is lost. A row holds all that this
 * process counted in its minute and replaces what it wrote before, so that a write repeated after
 * a lost connection counts nothing twice. Rows older than STORE_SLO_KEEP_H hours go. While the
 * database is away lines wait, at most SLO_MAX_LINES of them; what finds no line then is dropped,
 * and the log says how much.
 *
 * Latencies are counted in the buckets of common/latency.h. Thread-safe.
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
/* now_ms: wall clock. latency_ns does not count for a rejected one. */
void slo_counts_add(struct slo_counts *c, int64_t model_id, enum slo_outcome o, int64_t latency_ns,
                    int64_t now_ms);
/* Writes what has changed. A failure loses nothing. */
int slo_counts_flush(struct slo_counts *c, struct db *db, int64_t now_ms, struct sh_err *err);

#endif
