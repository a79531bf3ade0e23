/* files.h - what higher rooms need of an executor's files: its folder, the thread that writes, and,
 * if the API's folder is not shared (--api), what is fetched and sent. */
#ifndef SH_EXECUTOR_FILES_FILES_H
#define SH_EXECUTOR_FILES_FILES_H

#include "common/err.h"

struct blobs;
struct disk;
struct transfers;

struct files {
    const char *state_dir, *executor; /* BORROWED: the folder; the executor's name */
    struct disk *disk;                /* OWNED; NULL during the last part of the shutdown */
    struct transfers *transfers;      /* OWNED; NULL: the folder is shared with the API */
    struct blobs *blobs;              /* OWNED; NULL as transfers */
};

/* Resolves a path from a command: absolute, or relative to <state-dir>/<root>. *out: OWNED,
 * free(). */
int files_path(const struct files *f, const char *root, const char *path, char **out,
               struct sh_err *err);

#endif
