/* kept_dir.h - the folder kept/ of the state folder: what loading models has made (model/kept.h),
 * so that what was ready is ready again soon after a restart.
 *
 * A file is named <digest of the package>-<key>.kept; the key is a digest of all on which its
 * contents depend: package, precision, largest batch, the programs as they were built, the device
 * and its libraries (dev_identity). So nothing has to be marked as old. Who may use a model is
 * decided before a package is named here: two tenants with the same file share it, as they share
 * its package.
 *
 * A worker writes to a file of another name, which gets its own when the worker says that it is
 * whole. At most --kept-bytes: the least recently used go first. What belongs to a package that is
 * gone goes with it. Several executors may share the folder.
 */
#ifndef SH_EXECUTOR_KEPT_DIR_H
#define SH_EXECUTOR_KEPT_DIR_H

#include "common/hash.h"
#include "common/msg.h"
#include "executor/exec.h"

struct kept_file {
    char *path, *part;       /* OWNED; part: while a worker may write to it */
    char key[SH_SHA256_HEX]; /* "": nothing is kept */
};

/* What a worker of this identity makes of a package (a path). f->path is NULL if nothing is kept of
 * it. */
int kept_dir_name(const struct exec *x, const char *package, const char *what, const char *identity,
                  struct kept_file *f, struct sh_err *err);
bool kept_dir_has(const struct kept_file *f);
/* *part: a new file; *old: the one that is there, or -1. Both OWNED. */
int kept_dir_open(struct kept_file *f, int *part, int *old, struct sh_err *err);
/* Is `old` a file that nobody can write to any more, so that it may be mapped? A worker that made
 * it may still have it open. */
bool kept_dir_is_still(int old);
void kept_dir_done(struct kept_file *f, enum msg_kept how);
void kept_dir_drop(struct kept_file *f); /* forgets it, and what is half written; zeroed is fine */
/* Removes what is too much, of no use any more, or was left behind by a worker that died. Blocking,
 * for a look at each file. */
void kept_dir_sweep(const struct exec *x);

#endif
