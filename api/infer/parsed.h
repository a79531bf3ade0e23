/* parsed.h - the JSON parts of requests that came lately, parsed.
 *
 * A client sends the same JSON before the binary tensors of each request, and to parse it takes
 * longer than anything else that the API does for a small request. So what was parsed stays for a
 * while, and who sends the same bytes for the same version shares it. Thread-safe.
 */
#ifndef SH_API_INFER_PARSED_H
#define SH_API_INFER_PARSED_H

#include "common/json.h"

#define PARSED_MAX_BYTES 1024u /* longer ones have numbers in them, each its own */
#define PARSED_N 64u

struct parsed;
struct parsed_text;

int parsed_new(struct parsed **out, struct sh_err *err); /* OWNED, parsed_free() */
void parsed_free(struct parsed *p);                      /* what was got stays */
/* The JSON of n bytes at text: OWNED, parsed_put(). NULL: it is too long, or wrong, and parsing it
 * by itself says how. */
struct parsed_text *parsed_get(struct parsed *p, int64_t version_id, const char *text, size_t n);
const json_t *parsed_json(const struct parsed_text *t); /* BORROWED from t; NULL: t is NULL */
void parsed_put(struct parsed_text *t);                 /* NULL is allowed */

#endif
