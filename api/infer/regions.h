/* regions.h - shared memory of clients on this host ("system shared memory" of the protocol): a
 * tenant registers POSIX shared memory; inputs are read from it and outputs written to it.
 *
 * Nothing is mapped: bytes are copied with pread() and pwrite(), many of them by several threads at
 * once (api/request/copiers.h). So a client that truncates its memory gets an error, and one that
 * writes to it meanwhile harms only itself. Registrations belong to this process and end with it.
 * Thread-safe.
 */
#ifndef SH_API_INFER_REGIONS_H
#define SH_API_INFER_REGIONS_H

#include "common/err.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum regions_mode {
    REGIONS_OFF,
    REGIONS_OWN, /* only keys that begin with "/TENANT." */
    REGIONS_ANY, /* any key: for hosts whose tenants trust each other */
    REGIONS_N_MODES
};

struct copiers;
struct regions;
struct region; /* reference-counted: outlives its registration while requests use it */

int regions_mode_parse(const char *name, enum regions_mode *out, struct sh_err *err);
/* KEEPS copiers; NULL: nobody helps. *out: OWNED. */
int regions_new(enum regions_mode mode, size_t most, size_t most_of_tenant, struct copiers *copiers,
                struct regions **out, struct sh_err *err);
void regions_free(struct regions *r); /* NULL is allowed; all requests have ended */
int regions_check_on(const struct regions *r, struct sh_err *err); /* SH_E_UNSUPPORTED: off */

/* Registers bytes [offset, offset + bytes) of the shared memory `key`. Repeating it changes
 * nothing, except that memory created anew under the key replaces the old. Fails: SH_E_UNSUPPORTED
 * (off), SH_E_INVALID, SH_E_FORBIDDEN (another tenant's key), SH_E_NOTFOUND, SH_E_CONFLICT (the
 * name is taken), SH_E_QUOTA. */
int regions_add(struct regions *r, const char *tenant, const char *name, const char *key,
                uint64_t offset, uint64_t bytes, struct sh_err *err);
void regions_remove(struct regions *r, const char *tenant, const char *name); /* name NULL: all */
/* name NULL: all. *out: OWNED, a list of {"name", "key", "offset", "byte_size"}. Fails:
 * SH_E_NOTFOUND. */
int regions_list(struct regions *r, const char *tenant, const char *name, json_t **out,
                 struct sh_err *err);

/* *out: OWNED, region_put(); checks that bytes [offset, offset + bytes) of it exist. */
int regions_get(struct regions *r, const char *tenant, const char *name, uint64_t offset,
                uint64_t bytes, struct region **out, struct sh_err *err);
void region_put(struct region *g); /* NULL is allowed */
/* Fails: SH_E_INVALID: the memory has become shorter. */
int region_read(const struct region *g, uint64_t offset, void *to, size_t bytes,
                struct sh_err *err);
int region_write(const struct region *g, uint64_t offset, const void *from, size_t bytes,
                 struct sh_err *err);

#endif
