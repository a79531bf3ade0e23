/* folder.h - operations on folders. All block. */
#ifndef SH_EXECUTOR_FILES_FOLDER_H
#define SH_EXECUTOR_FILES_FOLDER_H

#include "common/err.h"

#include <jansson.h>

/* Removes the folder and its files; it must hold no folders. A missing folder is no error. */
void folder_remove(const char *dir);
uint64_t folder_bytes(const char *path); /* sum of its files, or of one file; 0: missing */
/* Opens graph.json and weights.safetensors of a package to read. *fds: OWNED; -1 after a
 * failure. */
int folder_open_package(const char *package, int fds[static 2], struct sh_err *err);

/* Reads what shunt-import printed: {"ok":true,...} or {"ok":false,"code":...,"error":...}. status:
 * as from waitpid. *out: OWNED. Fails with the code printed; SH_E_BUG: the text cannot be read. */
int import_verdict(const char *text, size_t len, int status, json_t **out, struct sh_err *err);

#endif
