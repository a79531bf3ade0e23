/* user_file.h - a file that a user names, to be read. */
#ifndef SH_CLI_FILES_USER_FILE_H
#define SH_CLI_FILES_USER_FILE_H

#include "common/err.h"
#include "common/filekind.h"

#include <stdint.h>

/* Opens a non-empty file on a disk. *fd: OWNED, close(). */
int user_file_open(const char *file, int *fd, int64_t *bytes, struct sh_err *err);
int user_file_kind(const char *file, enum sh_file_kind *out, struct sh_err *err);

#endif
