/* zip.h - the files in a zip file, such as .npz. They are strangers' files: every place and length
 * is checked against the file, and what is unpacked against what was said. Blocking. */
#ifndef SH_CLI_DATA_ZIP_H
#define SH_CLI_DATA_ZIP_H

#include "common/err.h"

#include <stdint.h>

#define ZIP_MAX_FILES 65536u

struct zip_member {
    const char *zip, *name; /* BORROWED for the call: paths of the zip file, and in it */
    int fd;                 /* of the zip file */
    uint64_t at, packed;    /* where its bytes are in that, and how many */
    uint64_t bytes;         /* unpacked */
    uint32_t crc;           /* CRC-32 of them */
    bool is_packed;         /* by deflate */
};
typedef int zip_fn(const struct zip_member *m, void *arg, struct sh_err *err);

/* Calls fn for each file, in the order of the zip file's list, until it fails. Fails:
 * SH_E_INVALID, SH_E_UNSUPPORTED (encrypted, or packed otherwise than by deflate). */
int zip_each(const char *path, zip_fn *fn, void *arg, struct sh_err *err);
/* The member's bytes: those of *fd (OWNED, close()) from *from on, in the zip file itself, or in a
 * file of no name in the folder tmp_dir. All are read once for their checksum: SH_E_INVALID with
 * the name of the member where it is another one than the zip file says. */
int zip_member_open(const struct zip_member *m, const char *tmp_dir, int *fd, uint64_t *from,
                    struct sh_err *err);

#endif
