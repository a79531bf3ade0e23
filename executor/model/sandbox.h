/* sandbox.h - gives up what a process does not need, before it reads a file of a stranger.
 *
 * Limits on memory, processor time and file size; no new privileges; system calls by a list that
 * has no network, no new programs, no processes, no tracing (a call outside it kills the process);
 * and, where the kernel knows Landlock, no files but the named ones. There is no way back.
 */
#ifndef SH_EXECUTOR_MODEL_SANDBOX_H
#define SH_EXECUTOR_MODEL_SANDBOX_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sandbox {
    const char *const *read_paths; /* files that may be read; NULL-terminated */
    const char *write_dir;         /* folder in which files may be made, read and replaced */
    int64_t memory_bytes, cpu_seconds, file_bytes;
};

/* Builds with sanitizers get no limit on memory and no list of system calls: both need more. */
int sandbox_enter(const struct sandbox *s, struct sh_err *err);
bool sandbox_hides_files(void); /* does the kernel know Landlock? */

#endif
