/* ustar.h - the header of one entry of a tar file, as ustar and GNU tar write it. Pure.
 *
 * An entry is a header of one block, then its bytes, filled up to whole blocks. Sizes above 8 GiB
 * are binary, as GNU tar has it.
 */
#ifndef SH_COMMON_USTAR_H
#define SH_COMMON_USTAR_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USTAR_BLOCK 512u
#define USTAR_SHORT 100 /* names that fit without the prefix, with a terminating NUL */
#define USTAR_NAME 257  /* prefix, slash, name, NUL */

enum ustar_kind {
    USTAR_END, /* a block without a name: nothing follows */
    USTAR_FILE,
    USTAR_DIR,
    USTAR_PAX,        /* its bytes describe the next entry: ustar_pax */
    USTAR_PAX_GLOBAL, /* likewise, all that follow */
    USTAR_LONG,       /* its bytes are the name of the next entry, as GNU tar has it: ustar_long */
    USTAR_OTHER,      /* a link, a device, ... */
    USTAR_BAD         /* no header */
};

struct ustar_entry {
    char name[USTAR_NAME];
    uint64_t size;
};

/* A header of a regular file. Fails: SH_E_TOOBIG (its name has more than 99 bytes). */
int ustar_write(const char *name, uint64_t size, int64_t mtime_s, void *block, struct sh_err *err);
enum ustar_kind ustar_read(const void *block, struct ustar_entry *out);
/* What a PAX entry of n bytes says of the next one's name and size replaces what is in *e. False:
 * it cannot be read. */
bool ustar_pax(const char *text, size_t n, struct ustar_entry *e);
/* The same of a name of n bytes, perhaps with a NUL behind it. False: it is too long, or none. */
bool ustar_long(const char *text, size_t n, struct ustar_entry *e);
/* With the filling behind it. size: at most INT64_MAX, as ustar_read gives it. */
static inline uint64_t ustar_padded(uint64_t size)
{
    return (size + USTAR_BLOCK - 1) / USTAR_BLOCK * USTAR_BLOCK;
}

#endif
