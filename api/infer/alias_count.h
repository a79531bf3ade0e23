/* alias_count.h - counts how requests of aliases that may be rolled back by themselves went, by the
 * version that served them, and rolls such an alias back (spec/alias.h judges).
 *
 * As in slo_count.h a row holds all that this process counted in its time, and replaces what it
 * wrote before. A row is of ALIAS_SLICE_MS, and of one assignment of the alias (`generation`), so
 * that what a version did before a promotion is not held against it. Rows that are older than the
 * longest window are removed. While the database is down, at most ALIAS_MAX_LINES lines wait; more
 * are dropped. Thread-safe.
 */
#ifndef SH_API_INFER_ALIAS_COUNT_H
#define SH_API_INFER_ALIAS_COUNT_H

#include "api/cache/catalog.h"
#include "common/db.h"

#define ALIAS_SLICE_MS 10000
#define ALIAS_MAX_LINES 8192

struct alias_counts;

int alias_counts_new(struct alias_counts **out, struct sh_err *err); /* OWNED, .._free() */
void alias_counts_free(struct alias_counts *c);                      /* NULL is allowed */
/* A request of this alias that this version served, or was to serve. rc: what the client is told; a
 * mistake of its own, and a quota, are not counted. has_slo, met: the latency target's part. */
void alias_counts_add(struct alias_counts *c, const struct cat_alias *a, int64_t version, int rc,
                      bool has_slo, bool met, int64_t now_ms);
/* Writes what is new. A failure loses nothing. */
int alias_counts_flush(struct alias_counts *c, struct db *db, int64_t now_ms, struct sh_err *err);
/* Judges every alias that may be rolled back by itself, by the counts of all API processes, and
 * rolls back those for which a version fails, if a version that they go back to is READY. Of
 * several processes one does it. */
int alias_watch(struct db *db, struct sh_err *err);

#endif
