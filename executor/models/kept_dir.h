/* kept_dir.h - the folder kept/ of the state folder: what loading models has made (model/kept.h),
 * so that what was ready is ready again soon after a restart.
 *
 * A file is named <digest of the package>-<key>.kept; the key is a digest of all on which its
 * contents depend: package, precision, largest batch, the programs as they were built, the device
 * and its libraries (dev_identity). So nothing has to be marked as old. The tenant is a part of the
 * key, too: what a tenant's model has made of a worker must not reach another tenant by a file that
 * both would read (keep.h says whose work is kept at all).
 *
 * The executor writes them, on the thread of checkpoints: no worker has a file that it could fill
 * the disk with. A file has another name until it is whole. At most --kept-bytes: the least
 * recently used go first. What belongs to a package that is gone goes with it. Several executors
 * may share the folder.
 */
#ifndef SH_EXECUTOR_MODELS_KEPT_DIR_H
#define SH_EXECUTOR_MODELS_KEPT_DIR_H

#include "common/hash.h"
#include "executor/files/files.h"
#include "runtime/model/kept.h"

struct kept_dir { /* the owner sets all but the last */
    const struct files *files;
    const char *device;   /* its kind */
    uint64_t max_bytes;   /* 0: nothing is kept */
    uint64_t incarnation; /* of this process: in the names of parts */
    uint32_t n_writing;   /* files; kept by kept_dir_write() */
};

struct kept_file {
    char *path;              /* OWNED; NULL: nothing is kept */
    char key[SH_SHA256_HEX]; /* likewise "" */
};

/* What a worker of this identity makes of a tenant's package (a path). f->path is NULL if nothing
 * is kept of it. */
int kept_dir_name(const struct kept_dir *k, const char *tenant, const char *package,
                  const char *what, const char *identity, struct kept_file *f, struct sh_err *err);
bool kept_dir_has(const struct kept_file *f);
int kept_dir_open(const struct kept_file *f); /* OWNED, to be read; -1: there is none */
/* Is it a file that nobody can write to any more, so that it may be mapped? */
bool kept_dir_is_still(int fd);
void kept_dir_used(const struct kept_file *f); /* it was read, and is worth to be kept */
/* In the background, and with a line in the log if that fails. image: a memfd, which stays the
 * caller's; a->key is set. Fails: SH_E_QUEUEFULL, SH_E_NOMEM, SH_E_PROTO (no such memfd). */
int kept_dir_write(struct kept_dir *k, const struct kept_file *f, struct kept_about *a,
                   const double *layer_ns, int image, struct sh_err *err);
void kept_dir_drop(struct kept_file *f); /* zeroed is fine */
/* Removes what is too much, of no use any more, or was left behind by an executor that died.
 * Blocking, for a look at each file. */
void kept_dir_sweep(const struct kept_dir *k);

#endif
