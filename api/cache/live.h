/* live.h - options that change while we run: those marked SH_CONF_LIVE in the table.
 *
 * Changes are in the database (table config) and apply to every shunt-api; other options are as
 * each process was started. Each process reads the changes when PostgreSQL notifies shunt_config,
 * and at least every key-poll-ms. Thread-safe.
 */
#ifndef SH_API_CACHE_LIVE_H
#define SH_API_CACHE_LIVE_H

#include "api/options.h"
#include "common/json.h"

struct db;
struct live;

/* KEEPS table and conf; conf has the values at start and is changed from then on. *out: OWNED,
 * live_free(). */
int live_new(const struct sh_conf_table *table, struct api_conf *conf, struct live **out,
             struct sh_err *err);
void live_free(struct live *l); /* NULL is allowed */
/* Reads the changes and applies them, unless that is done already. A database that has taken over
 * may lack some: then they are undone. */
int live_refresh(struct live *l, struct db *db, struct sh_err *err);
/* Every option; changed: the changed values: {"name": "text"}. *out: OWNED. */
int live_describe(struct live *l, const json_t *changed, json_t **out, struct sh_err *err);
const struct sh_conf_table *live_table(const struct live *l);
int64_t live_version(struct live *l); /* version of what is applied; 0: nothing was read yet */

#endif
