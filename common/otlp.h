/* otlp.h - sends spans to a collector: the OpenTelemetry protocol over HTTP, as JSON.
 *
 * Each process sends its own spans, as any that is instrumented does, and names itself by
 * service.name. It sends those of the requests that an API wishes for (common/trace.h), which it
 * finds in the ring that it keeps anyway: nothing is decided, marked or kept while a request runs.
 * Runs that outlast their request are waited for, half a minute at most.
 *
 *   request     SERVER   an API's; its parent is the client's span, if there is one
 *     body      INTERNAL
 *     answer    CLIENT
 *       queue   SERVER   the scheduler's
 *       run     CLIENT
 *       part    SERVER   the executor's
 *         wait, memory, ...   INTERNAL: the stages of its run
 *     reply     INTERNAL
 *
 * One thread collects and sends; nobody waits for it. Its queue holds SH_OTLP_QUEUE spans. A batch
 * is sent again after 429, 502, 503 and 504 and if the collector cannot be reached, after the time
 * that it asks for or 1, 2, 4 ... 30 s; the fifth time is the last. What is not sent is counted in
 * shunt_otlp_dropped_spans_total, by reason.
 */
#ifndef SH_COMMON_OTLP_H
#define SH_COMMON_OTLP_H

#include "common/conf.h"

#define SH_OTLP_QUEUE 8192u /* spans; 2.5 MB */
#define SH_OTLP_BATCH 512u

struct sh_otlp_conf {
    char *endpoint, *headers_file, *ca_file;
};

#define SH_OPTS_OTLP(st, field)                                                                  \
    SH_OPT_STR(st, field.endpoint, "otlp-endpoint", "", 0,                                       \
               "OpenTelemetry collector, http://host:4318 or https://host:port, that gets the "  \
               "spans of requests which asked for it (traceparent) or were slow, by POST to "    \
               "/v1/traces there; an API chooses the requests, and each process sends its own "  \
               "spans; empty: none"),                                                            \
        SH_OPT_STR(st, field.headers_file, "otlp-headers-file", "", 0,                           \
                   "file with at most 3 headers for the collector, a line each (Authorization: " \
                   "Basic ...), mode 0600; empty: none"),                                        \
        SH_OPT_STR(st, field.ca_file, "otlp-ca-file", "", 0,                                     \
                   "with --otlp-endpoint https://...: PEM file with the CA of its certificate; " \
                   "empty: the CAs that the host trusts")

struct sh_otlp;
/* Starts the thread, if there is an endpoint; before the process has others. service, instance:
 * what this process calls itself (BORROWED for the call). *out: OWNED, sh_otlp_stop(); NULL: no
 * endpoint. Fails: SH_E_INVALID, saying which option. */
int sh_otlp_start(const struct sh_otlp_conf *c, const char *service, const char *instance,
                  struct sh_otlp **out, struct sh_err *err);
/* Sends what is left, for at most a second or two. NULL is allowed. */
void sh_otlp_stop(struct sh_otlp *o);

#endif
