/* file.h - files and folders, written completely or not at all. */
#ifndef SH_CLI_FILES_FILE_H
#define SH_CLI_FILES_FILE_H

#include "common/json.h"

#include <sys/types.h>

/* Puts the current folder before a path that does not begin with '/'. *out: OWNED, free(). */
int file_absolute(const char *path, char **out, struct sh_err *err);
/* Files. Atomic write: temporary file and rename. */
int file_write(const char *path, const char *text, size_t len, mode_t mode, struct sh_err *err);
int file_write_json(const char *path, const json_t *j, mode_t mode, struct sh_err *err);
int file_read(const char *path, size_t max, char **out, size_t *len, struct sh_err *err);
int file_make_dir(const char *path, mode_t mode, struct sh_err *err); /* with parents; may exist */
int file_remove_tree(const char *path, struct sh_err *err); /* absent is fine; follows no link */

#endif
