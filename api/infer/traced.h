/* traced.h - which requests a collector of traces gets (common/otlp.h), and by which identifiers.
 *
 * Those whose client asks for it, by a traceparent with the flag `sampled`, and those that were
 * slow: what they will be is known at their end only, so it is decided there, for all processes.
 */
#ifndef SH_API_INFER_TRACED_H
#define SH_API_INFER_TRACED_H

#include "api/infer/infer_request.h"

/* Its headers are there. */
void traced_begin(const struct api_req *q, struct infer *i);
/* It is over, ns after its first line, and its span is recorded. was_answered: by the link, with a
 * result or a refusal. */
void traced_end(const struct infer *i, int rc, int64_t ns, bool was_answered);

#endif
