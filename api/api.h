/* api.h - what the parts of shunt-api share. main.c fills it in; after that it never changes, and
 * every member is itself thread-safe. Read live options of conf with SH_CONF_NOW. */
#ifndef SH_API_API_H
#define SH_API_API_H

#include "api/files/upload.h"
#include "api/options.h"
#include "api/request/cursor.h"
#include "api/request/peers.h"
#include "common/db.h"

#include <stdatomic.h>
#include <stdbool.h>

struct api {
    const struct api_conf *conf;
    struct db_news db_news; /* shared by all database connections */
    struct pool *ctl;       /* short database work */
    struct pool *bulk;      /* uploads: disk and imports */
    struct auth *auth;
    struct catalog *catalog;
    struct slab *slab;
    struct copiers *copiers; /* NULL: clients have no shared memory */
    struct regions *regions; /* clients' shared memory */
    struct serving *serving;
    struct link *link;
    struct sh_wire_keys *link_keys; /* for the link's thread only */
    struct stats *stats;
    struct rate *rate;
    struct trace_shares *trace_shares;
    struct slo_counts *slo;
    struct alias_counts *aliases;
    struct traffic *traffic;
    struct parsed *parsed; /* JSON of requests */
    struct waiters *waiters;
    struct watch *watch;     /* event streams */
    struct live *live;       /* options that change */
    struct openapi *openapi; /* the OpenAPI document, ready to send */
    struct console *console; /* the pages for browsers, ready to send */
    uint8_t cursor_key[CURSOR_KEY_BYTES];
    uint8_t request_secret[16]; /* random, drawn at start: request ids are made from it */
    _Atomic uint64_t n_request_ids;
    atomic_bool stopping; /* draining: no longer ready */
    struct uploads uploads;
    struct peers peers;     /* who has how many connections */
    atomic_bool simulating; /* a snapshot is being taken, or a question about one answered */
};

#endif
