/* refresh.h - the thread that keeps the caches fresh: listens to PostgreSQL, polls besides.
 *
 * NOTIFY is a hint to be quick; the timer makes it right. */
#ifndef SH_API_REFRESH_H
#define SH_API_REFRESH_H

#include "api/api.h"
#include "common/err.h"

struct refresh;

int refresh_start(struct api *a, struct refresh **out, struct sh_err *err); /* KEEPS a */
void refresh_stop(struct refresh *r); /* joins and frees; NULL is allowed */

#endif
