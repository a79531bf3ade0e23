/* perfetto.h - the traces of several processes as one file for Perfetto (ui.perfetto.dev), in the
 * JSON of Chrome's trace viewer.
 *
 * Processes of one host share its monotonic clock; hosts are put side by side by their wall clocks.
 * Spans that overlap on a track get lanes of their own, what belongs to one request or run stays
 * together. Requests are joined across processes by (api, rid) and runs: each span names the ids
 * under which clients know them, and arrows follow a request from process to process.
 */
#ifndef SH_CLI_DATA_PERFETTO_H
#define SH_CLI_DATA_PERFETTO_H

#include "common/json.h"

struct perfetto_source {
    const char *name; /* of the process */
    json_t *trace;    /* what its /trace said; the caller's */
};

/* *out: OWNED, json_decref(). *n_spans, *n_cut: how many spans there are, and processes whose ring
 * was too small for the time asked for. Fails: SH_E_INVALID (not a trace), SH_E_NOMEM. */
int perfetto_merge(const struct perfetto_source *sources, size_t n, json_t **out, size_t *n_spans,
                   size_t *n_cut, struct sh_err *err);

#endif
