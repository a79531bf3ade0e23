/* zip.h - the files in a zip file, such as .npz. They are untrusted: every offset and length is
 * checked against the file, and unpacked data against the stated size. Blocks. */
#ifndef SH_CLI_DATA_ZIP_H
#define SH_CLI_DATA_ZIP_H

#include "common/err.h"

#include <stdint.h>

#define ZIP_MAX_FILES 65536u

struct zip_member {
    const char *zip, *name; /* BORROWED for the call: paths of the zip file, and inside it */
    int fd;                 /* of the zip file */
    uint64_t at, packed;    /* offset and number of its bytes in the zip file */
    uint64_t bytes;         /* unpacked */
    uint32_t crc;           /* CRC-32 of the unpacked bytes */
    bool is_packed;         /* with deflate */
};
typedef int zip_fn(const struct zip_member *m, void *arg, struct sh_err *err);

/* Calls fn for each file, in the order of the zip file's list, until it fails. Fails: SH_E_INVALID,
 * SH_E_UNSUPPORTED (encrypted, or packed other than with deflate). */
int zip_each(const char *path, zip_fn *fn, void *arg, struct sh_err *err);
/* Opens the member's bytes: *fd (OWNED, close()) from *from on, in the zip file itself or in a
 * nameless file in the folder tmp_dir. Reads them once for the checksum; if that is wrong fails
 * with SH_E_INVALID, naming the member. */
int zip_member_open(const struct zip_member *m, const char *tmp_dir, int *fd, uint64_t *from,
                    struct sh_err *err);

#endif
