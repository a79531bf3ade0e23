/* cuda_fault.c - a device that misbehaves on demand: what one worker's fault does to the others can
 * only be tested with a fault.
 *
 * For tests alone. SHUNT_CUDA_DEBUG_FAULT, in the executor's environment, names a file. It says
 * which fault, "illegal" (a kernel writes where no memory is) or "endless" (a kernel never ends),
 * and of what, "run" or "train": `echo illegal run >FILE`. The next worker that runs such a plan
 * removes the file and enqueues the fault before the operations, so each file is one fault. Without
 * the variable a run costs one comparison.
 */
#include "common/conf.h"
#include "runtime/device/cuda/cuda.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

const char *cuda__debug_fault_file(void)
{
    return sh_conf_env("SHUNT_CUDA_DEBUG_FAULT");
}

/* The first line; empty if there is no file. */
static void read_fault_line(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);

    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

int cuda__debug_fault(const struct cuda_plan *p, struct sh_err *err)
{
    const struct cuda_dev *d = cuda__dev(p);
    char text[32], *space;

    read_fault_line(d->debug_fault, text, sizeof(text));
    space = strchr(text, ' ');
    if (!space || strcmp(space + 1, p->is_training ? "train" : "run") != 0)
        return SH_OK;
    *space = '\0';
    if (strcmp(text, "illegal") != 0 && strcmp(text, "endless") != 0)
        return SH_OK;
    if (unlink(d->debug_fault) != 0)
        return SH_OK; /* another worker was first */
    if (text[0] == 'i')
        k_illegal(d->stream);
    else
        k_endless(d->stream, d->arrivals);
    return cuda__check(cudaGetLastError(), "enqueue a fault", err);
}
