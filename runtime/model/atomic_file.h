/* atomic_file.h - writes a file so that its name never shows a partial one.
 *
 *   open (temporary name in the same folder) -> write... -> commit (fsync, rename, fsync folder)
 *   close at any time: removes an uncommitted file
 */
#ifndef SH_RUNTIME_MODEL_ATOMIC_FILE_H
#define SH_RUNTIME_MODEL_ATOMIC_FILE_H

#include "common/err.h"

#include <stdio.h>

struct atomic_file {
    FILE *f;    /* for the writer */
    char *path; /* final */
    char *temp;
};

int atomic_file_open(struct atomic_file *a, const char *path, struct sh_err *err);
int atomic_file_commit(struct atomic_file *a, struct sh_err *err);
void atomic_file_close(struct atomic_file *a); /* a zeroed struct is fine */

#endif
