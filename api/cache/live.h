/* live.h - options that change while we run: those that the table marks SH_CONF_LIVE.
 *
 * What was changed is in the database (table config) and holds for every shunt-api there is; what
 * was not is as each was started. Each process reads it when PostgreSQL says shunt_config, and at
 * least every key-poll-ms. Thread-safe.
 */
#ifndef SH_API_CACHE_LIVE_H
#define SH_API_CACHE_LIVE_H

#include "api/options.h"
#include "common/json.h"

struct db;
struct live;

/* KEEPS table, and conf, whose values are those of the start, and changes it from then on. *out:
 * OWNED, live_free(). */
int live_new(const struct sh_conf_table *table, struct api_conf *conf, struct live **out,
             struct sh_err *err);
void live_free(struct live *l); /* NULL is allowed */
/* Reads what was changed and puts it in force, if that is not done already. */
int live_refresh(struct live *l, struct db *db, struct sh_err *err);
/* Every option, with the values that were changed: {"name": "text"}. *out: OWNED. */
int live_describe(struct live *l, const json_t *changed, json_t **out, struct sh_err *err);
const struct sh_conf_table *live_table(const struct live *l);
int64_t live_version(struct live *l); /* of what is in force; 0 = nothing was read yet */

#endif
