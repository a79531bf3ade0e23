/* look.h - a GET that is answered again and again: what a stream of answers sends (watch.h).
 *
 * It keeps a copy of the request, since the connection may end while the handler runs, and the
 * digest of the last answer, since only another one is sent. Not thread-safe.
 */
#ifndef SH_API_JOBS_LOOK_H
#define SH_API_JOBS_LOOK_H

#include "api/request/req.h"

struct look;

/* q has been answered: its body is the first answer, which q no longer has. *text: OWNED, free();
 * compact JSON. *out: OWNED, look_free(). */
int look_new(struct api_req *q, struct look **out, char **text, struct sh_err *err);
void look_free(struct look *l); /* NULL is allowed */
/* Runs the handler again. *text: as above; NULL: it is the answer that was sent last. Fails as the
 * handler does. */
int look_again(struct look *l, struct db *db, char **text, struct sh_err *err);

#endif
