/* refresh.h - the thread that keeps the caches fresh: it listens to PostgreSQL, and also polls.
 * NOTIFY makes it quick; the timer makes it correct. */
#ifndef SH_API_REFRESH_H
#define SH_API_REFRESH_H

#include "api/api.h"
#include "common/err.h"

struct refresh;

int refresh_start(struct api *a, struct refresh **out, struct sh_err *err); /* KEEPS a */
void refresh_stop(struct refresh *r); /* joins and frees; NULL is allowed */

#endif
