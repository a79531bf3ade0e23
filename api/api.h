/* api.h - what the parts of shunt-api share. Filled by main.c, then never changed: every member is
 * safe for threads by itself. Of conf what is live is read with SH_CONF_NOW. */
#ifndef SH_API_API_H
#define SH_API_API_H

#include "api/files/upload.h"
#include "api/options.h"
#include "api/request/cursor.h"
#include "common/db.h"

#include <stdatomic.h>
#include <stdbool.h>

struct api {
    const struct api_conf *conf;
    struct db_news db_news; /* of all connections to the database */
    struct pool *ctl;       /* short database work */
    struct pool *bulk;      /* uploads: disk and imports */
    struct auth *auth;
    struct catalog *catalog;
    struct slab *slab;
    struct regions *regions; /* clients' shared memory */
    struct serving *serving;
    struct link *link;
    struct sh_wire_keys *link_keys; /* the link's thread alone */
    struct stats *stats;
    struct rate *rate;
    struct slo_counts *slo;
    struct traffic *traffic;
    struct waiters *waiters;
    struct watch *watch;     /* event streams */
    struct live *live;       /* options that change */
    struct openapi *openapi; /* the description, ready to be sent */
    uint8_t cursor_key[CURSOR_KEY_BYTES];
    uint8_t request_secret[16]; /* drawn at start: what ids of requests are made from */
    _Atomic uint64_t n_request_ids;
    atomic_bool stopping; /* draining: not ready any more */
    struct uploads uploads;
};

#endif
