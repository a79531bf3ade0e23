/* metrics.h - counters, gauges and histograms from common/metrics.def, and their Prometheus text.
 *
 * Label values follow the order of the table's label list. A label set exists from its first use
 * until it is dropped. Thread-safe; takes no lock after the first use of a label set.
 *
 * Each metric has at most SH_METRIC_MAX_SERIES sets, a histogram SH_METRIC_MAX_HISTOGRAMS: so many
 * models, of whatever tenants, have series of their own. After that counters and histograms are
 * folded: a new set counts under model SH_METRIC_OTHER, and where a quarter more is used up under
 * tenant SH_METRIC_OTHER, too. So sums stay exact, and shunt_metric_series_folded_total says how
 * much has no name. Gauges cannot be added up: new ones are ignored, as is all that names neither,
 * and counted in shunt_metric_series_dropped_total.
 */
#ifndef SH_COMMON_METRICS_H
#define SH_COMMON_METRICS_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>

#define SH_METRIC_MAX_SERIES 4000 /* three outcomes of each model */
#define SH_METRIC_MAX_HISTOGRAMS 1000
#define SH_METRIC_OTHER "_other" /* no name of a tenant or model begins like this */
#define SH_METRIC_MAX_LABELS 4

enum sh_metric {
#define SH_METRIC(kind, name, labels, buckets, procs, help) M_##name,
#include "common/metrics.def"
#undef SH_METRIC
    SH_N_METRICS
};

/* labels: as many as the table says; NULL if it has none. */
void sh_metric_add(enum sh_metric m, const char *const *labels, double v);     /* counter */
void sh_metric_set(enum sh_metric m, const char *const *labels, double v);     /* gauge */
void sh_metric_observe(enum sh_metric m, const char *const *labels, double v); /* histogram */
void sh_metric_drop(enum sh_metric m, const char *const *labels); /* forgets a series */
/* Forgets every series with these labels, whatever its other labels: of a tenant (model NULL), of a
 * tenant's model, or of all models of this name (tenant NULL). If the name comes back its counters
 * start at 0. */
void sh_metrics_forget(const char *tenant, const char *model);
#define SH_LABELS(...) ((const char *const[]){__VA_ARGS__})

/* Prometheus text format 0.0.4, of the metrics whose `procs` column names `proc` (one letter: a:
 * api, s: scheduler, e: executor). */
int sh_metrics_render(char proc, struct sh_buf *out, struct sh_err *err);
void sh_metrics_print_docs(struct sh_buf *out); /* Markdown table for docs/metrics.md */
void sh_metrics_reset(void);                    /* tests */

/* Whether this process has what it needs for its work: what /readyz says. From any thread. */
void sh_metrics_set_ready(bool is_ready);
bool sh_metrics_is_ready(void);

/* Serves GET /metrics, /trace, /healthz (it is alive) and /readyz on addr ("127.0.0.1:9101"; port
 * 0: any), on its own thread. The only other user of libmicrohttpd. *out: OWNED,
 * sh_metrics_http_stop(). */
struct sh_metrics_http;
int sh_metrics_http_start(char proc, const char *addr, struct sh_metrics_http **out,
                          struct sh_err *err);
int sh_metrics_http_port(const struct sh_metrics_http *h);
void sh_metrics_http_stop(struct sh_metrics_http *h);

#endif
