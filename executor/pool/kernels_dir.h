/* kernels_dir.h - the folder in which the workers of a GPU keep what they measured of its kernels.
 *
 * It is the one place on a disk where they may make files, so it has a limit. What a worker has
 * removed and still holds open is not seen here: it goes when that worker ends.
 */
#ifndef SH_EXECUTOR_POOL_KERNELS_DIR_H
#define SH_EXECUTOR_POOL_KERNELS_DIR_H

#include "common/err.h"

#define KERNELS_DIR_MAX_BYTES (UINT64_C(1) << 30) /* twice cuda_tune.h's file, and some */
#define KERNELS_DIR_MAX_FILES 256u

struct kernels_dir_conf {
    const char *executor, *device, *state_dir;
    uint32_t uid; /* of workers */
};

/* *out: OWNED, its path; "" where the device has none. One that cannot be made is no failure:
 * workers then measure anew. */
int kernels_dir_make(const struct kernels_dir_conf *c, char **out, struct sh_err *err);
/* Is more in it than this (KERNELS_DIR_MAX_BYTES), or more files than there may be? Then it has
 * been emptied, or begun to be: end the workers, and look again. Blocking, for so many entries.
 * "": no. */
bool kernels_dir_was_full(const char *path, uint64_t max_bytes);

#endif
