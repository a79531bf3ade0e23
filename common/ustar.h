/* ustar.h - the header of one entry of a tar file, as ustar and GNU tar write it. Pure.
 *
 * An entry is a header of one block, then its data, padded to whole blocks. Sizes above 8 GiB are
 * binary, as in GNU tar.
 */
#ifndef SH_COMMON_USTAR_H
#define SH_COMMON_USTAR_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USTAR_BLOCK 512u
#define USTAR_SHORT 100 /* names that fit without the prefix, including the NUL */
#define USTAR_NAME 257  /* prefix, slash, name, NUL */

enum ustar_kind {
    USTAR_END, /* a block without a name: nothing follows */
    USTAR_FILE,
    USTAR_DIR,
    USTAR_PAX,        /* its data describes the next entry: ustar_pax */
    USTAR_PAX_GLOBAL, /* its data describes all following entries */
    USTAR_LONG,       /* its data is the name of the next entry, as in GNU tar: ustar_long */
    USTAR_OTHER,      /* a link, a device, ... */
    USTAR_BAD         /* not a header */
};

struct ustar_entry {
    char name[USTAR_NAME];
    uint64_t size;
};

/* A header of a regular file. Fails: SH_E_TOOBIG (its name has more than 99 bytes). */
int ustar_write(const char *name, uint64_t size, int64_t mtime_s, void *block, struct sh_err *err);
enum ustar_kind ustar_read(const void *block, struct ustar_entry *out);
/* Replaces name and size in *e by those of a PAX entry with n bytes. False: it cannot be read. */
bool ustar_pax(const char *text, size_t n, struct ustar_entry *e);
/* The same for a name of n bytes, perhaps followed by a NUL. False: too long, or empty. */
bool ustar_long(const char *text, size_t n, struct ustar_entry *e);
/* Size including the padding. size: at most INT64_MAX, as ustar_read() returns it. */
static inline uint64_t ustar_padded(uint64_t size)
{
    return (size + USTAR_BLOCK - 1) / USTAR_BLOCK * USTAR_BLOCK;
}

#endif
