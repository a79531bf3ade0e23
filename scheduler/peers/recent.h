/* recent.h - who had an executor's device over the last minute, and its last switches.
 *
 * For people to look at (EXEC_USE): it is written with the executor's row. A new leader begins with
 * nothing. Belongs to the loop's thread. */
#ifndef SH_SCHEDULER_PEERS_RECENT_H
#define SH_SCHEDULER_PEERS_RECENT_H

#include "common/msg.h"

#include <jansson.h>

#define RECENT_CELLS 30    /* one for each report of executors */
#define RECENT_SWITCHES 16 /* that are kept */

struct recent;

int recent_new(struct recent **out, struct sh_err *err); /* *out: OWNED, recent_free() */
void recent_free(struct recent *r);                      /* NULL is allowed */
/* now_ms: wall time. What makes no sense in the message is left out. */
void recent_add(struct recent *r, const struct msg_exec_use *m, int64_t now_ms);
/* Ends the present cell and shows all. OWNED; NULL: no memory, or r is NULL.
 * {"cells": [{"at", "ms", "parts": [{"tenant", "use", "us"}]}], "switches": [{"at", ...}]};
 * at: Unix ms, of a cell its end. */
json_t *recent_show(struct recent *r, int64_t now_ms);

#endif
