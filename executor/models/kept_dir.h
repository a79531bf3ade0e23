/* kept_dir.h - the folder kept/ of the state folder: the results of loading models (model/kept.h),
 * so that a restarted executor is soon ready again.
 *
 * A file is named <digest of the package>-<key>.kept. The key is a digest of everything that its
 * contents depend on: package, precision, largest batch, the programs as built, the device and its
 * libraries (dev_identity). So no file has to be marked as outdated. The key also covers the
 * tenant, so that what one tenant's model did to a worker cannot reach another tenant through a
 * file that both would read (keep.h decides what is kept at all).
 *
 * The executor writes the files, on the disk thread: no worker has a file with which it could
 * fill the disk. A file has another name until it is complete. The folder holds at most
 * --kept-bytes; the least recently used files go first, and files of a deleted package go with it.
 * Several executors may share the folder.
 */
#ifndef SH_EXECUTOR_MODELS_KEPT_DIR_H
#define SH_EXECUTOR_MODELS_KEPT_DIR_H

#include "common/hash.h"
#include "common/shm.h"
#include "executor/files/files.h"
#include "runtime/model/kept.h"

struct kept_dir { /* the owner sets all but n_writing */
    const struct files *files;
    const char *device;   /* its kind */
    uint64_t max_bytes;   /* 0: nothing is kept */
    uint64_t incarnation; /* of this process: in the names of parts */
    uint32_t n_writing;   /* files being written; set by kept_dir_write() */
};

struct kept_file {
    char *path;              /* OWNED; NULL: nothing is kept */
    char key[SH_SHA256_HEX]; /* "" if path is NULL */
};

/* Names the file for what a worker of this identity makes of a tenant's package (a path). Sets
 * f->path to NULL if nothing is kept of it. */
int kept_dir_name(const struct kept_dir *k, const char *tenant, const char *package,
                  const char *what, const char *identity, struct kept_file *f, struct sh_err *err);
bool kept_dir_has(const struct kept_file *f);
int kept_dir_open(const struct kept_file *f); /* OWNED, to read; -1: there is none */
/* Is it safe to map, because nobody has it open for writing? */
bool kept_dir_is_still(int fd);
void kept_dir_used(const struct kept_file *f); /* notes a use */
/* Writes the file in the background and logs a failure. image: a memfd, BORROWED; sets a->key.
 * Fails: SH_E_QUEUEFULL, SH_E_NOMEM, SH_E_PROTO (not a suitable memfd). */
int kept_dir_write(struct kept_dir *k, const struct kept_file *f, struct kept_about *a,
                   const double *layer_ns, int image, struct sh_err *err);
/* The same of a whole file that another host has made of the same. image: TAKEN after success.
 * fn(arg) is called on the loop when it is there, or a failure was logged. */
int kept_dir_adopt(struct kept_dir *k, const struct kept_file *f, struct sh_shm *image,
                   void (*fn)(void *arg), void *arg, struct sh_err *err);
void kept_dir_drop(struct kept_file *f); /* f may be zeroed */
/* Removes files that exceed the limit, are of no more use, or were left by an executor that died.
 * Blocks while it looks at each file. */
void kept_dir_sweep(const struct kept_dir *k);

#endif
