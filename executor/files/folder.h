/* folder.h - what several parts of an executor do with folders. Blocking. */
#ifndef SH_EXECUTOR_FILES_FOLDER_H
#define SH_EXECUTOR_FILES_FOLDER_H

#include "common/err.h"

#include <jansson.h>

/* The folder with its files; nothing is deeper. What is not there is no error. */
void folder_remove(const char *dir);
uint64_t folder_bytes(const char *path); /* of its files, or of the file itself; 0: not there */
/* To read: graph.json and weights.safetensors of a package. *fds: OWNED; -1 after a failure. */
int folder_open_package(const char *package, int fds[static 2], struct sh_err *err);

/* What shunt-import said, {"ok":true,...} or {"ok":false,"code":...,"error":...}; status: as from
 * waitpid. *out: OWNED. Fails with its code; SH_E_BUG: it said nothing that can be read. */
int import_verdict(const char *text, size_t len, int status, json_t **out, struct sh_err *err);

#endif
