/* kernels_dir.h - the folder in which the workers of a GPU keep their measurements of its kernels.
 *
 * It is the only place on disk where workers may create files, so it has a limit. A file that a
 * worker has removed but still holds open is not counted: it goes when that worker ends.
 */
#ifndef SH_EXECUTOR_POOL_KERNELS_DIR_H
#define SH_EXECUTOR_POOL_KERNELS_DIR_H

#include "common/err.h"

/* more than twice the limit of cuda_tune.h's file */
#define KERNELS_DIR_MAX_BYTES (UINT64_C(1) << 30)
#define KERNELS_DIR_MAX_FILES 256u

struct kernels_dir_conf {
    const char *executor, *device, *state_dir;
    uint32_t uid; /* of the workers */
};

/* *out: OWNED, the path; "" if the device has no such folder. If it cannot be created that is
 * logged and no failure: workers then measure again. */
int kernels_dir_make(const struct kernels_dir_conf *c, char **out, struct sh_err *err);
/* Did the folder hold more than max_bytes (KERNELS_DIR_MAX_BYTES), or too many files? If so it has
 * been emptied, at least in part: end the workers, and look again. Blocks while it looks at that
 * many entries. path "": false. */
bool kernels_dir_was_full(const char *path, uint64_t max_bytes);

#endif
