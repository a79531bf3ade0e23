/* trace.h - what this process did in its last moments, for `shunt trace`.
 *
 * Spans are kept in a ring of fixed size; the oldest make room. Recording one takes some
 * forty nanoseconds, no lock and no memory, so it is always on. Readers skip a slot that is being
 * written, and so does a writer that is a whole round ahead: its span is lost. Names and tracks are
 * literals of the program; what a client chose is copied into `what` and `id`.
 *
 * A request is (api, rid) in every process, a run of several requests is `run` between a scheduler
 * and its executors. `id` is how the client knows the request (X-Request-ID, or the trace of its
 * traceparent); only an API knows it, and `shunt trace` joins the rest.
 *
 * A collector gets the spans of some requests (common/otlp.h). Which ones, an API says when a
 * request is over: it wishes for them here, and sends its wish to the others (SPANS_WANTED).
 *
 * Thread-safe.
 */
#ifndef SH_COMMON_TRACE_H
#define SH_COMMON_TRACE_H

#include "common/buf.h"
#include "common/msg.h"

#include <stdbool.h>
#include <stdint.h>

#define SH_TRACE_SPANS 16384u /* of one process; 4 MiB */
#define SH_TRACE_ID 72
#define SH_TRACE_WHAT 56
#define SH_TRACE_MAX_S 3600
#define SH_TRACE_STAGES 5 /* at most */
#define SH_TRACE_ID_BYTES 16
#define SH_TRACE_WISHES 4096u /* that nobody has taken yet */

struct sh_trace_span {
    const char *name, *track; /* static */
    int64_t begin_ns, end_ns; /* sh_clock_ns(); end_ns 0: now. Equal: an instant */
    uint64_t api, rid, run;   /* 0: none */
    uint64_t bytes;           /* copied; 0: none */
    int64_t job;              /* 0: none */
    int rc;                   /* how it ended */
    const char *what;         /* of a client: model, state; NULL: none. Cut to SH_TRACE_WHAT */
    const char *id;           /* of a request, by its client; NULL: none */
    /* Its stages, which follow each other from begin_ns to end_ns without a gap: static names, with
     * a NULL behind the last, and the end of each but the last. NULL: none. */
    const char *const *stages;
    int64_t stage_ends_ns[SH_TRACE_STAGES - 1];
};
void sh_trace_add(const struct sh_trace_span *s);
#define SH_TRACE(...) sh_trace_add(&(const struct sh_trace_span){__VA_ARGS__})

/* For some seconds, what costs more than a record is traced too: the arrival of each group. */
void sh_trace_detail(double seconds);
bool sh_trace_is_detailed(void);

/* Appends {"boot","now_ns","wall_ns","spans":[...],"is_cut"}: what ended in the last seconds, about
 * in order of its end. boot: whose clock it is, one for all processes of a host; wall_ns: Unix time
 * at now_ns, so that several hosts share an axis. is_cut: some of that time had to make room. */
int sh_trace_render(double seconds, struct sh_buf *out, struct sh_err *err);

/* Calls fn with each span that is kept, the oldest first. *s and its texts: BORROWED for the
 * call. */
typedef void sh_trace_span_fn(const struct sh_trace_span *s, void *arg);
void sh_trace_each(sh_trace_span_fn *fn, void *arg);

/* The spans of a request are wanted, as part of a trace. */
struct sh_trace_wish {
    uint64_t api, rid;
    uint8_t trace[SH_TRACE_ID_BYTES];
    uint64_t parent; /* id of the span above all of these, in another process; 0: none */
    uint64_t self;   /* id of the first of these; 0: any */
};
/* Until somebody takes wishes, they are ignored. */
void sh_trace_set_wishing(bool does);
bool sh_trace_is_wishing(void);
/* Never blocks. False: there are too many. */
bool sh_trace_wish(const struct sh_trace_wish *w);
/* What an API has sent. */
void sh_trace_wish_all(uint64_t api, const struct msg_spans_wanted *m);
/* Moves out at most n, the oldest first. *lost: those that found no room since the last call. */
size_t sh_trace_take_wishes(struct sh_trace_wish *out, size_t n, uint64_t *lost);
/* The id of the k-th stage of a span that a collector gets. Never 0. */
uint64_t sh_trace_stage_id(uint64_t span, unsigned k);

#endif
