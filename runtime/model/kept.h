/* kept.h - the results of loading a model, in a file: its image as the device stores it, and the
 * times of its layers. The next load reads both instead of making them.
 *
 *   header         what it was made from and for (key), sizes, checksums
 *   tables         ends of layers, batch sizes, times of layers
 *   image          from a multiple of KEPT_ALIGN to the end of the file
 *
 * The caller has compiled the model already and says what the file must fit. A file that is
 * truncated, damaged, or has another key, format or shape is refused. The opener names the file
 * when it is complete. There is no fsync: the checksums reveal what a crash left half-written.
 */
#ifndef SH_RUNTIME_MODEL_KEPT_H
#define SH_RUNTIME_MODEL_KEPT_H

#include "common/err.h"
#include "common/hash.h"

#include <stddef.h>
#include <stdint.h>

#define KEPT_ALIGN 4096u

struct kept_about { /* all BORROWED */
    uint8_t key[SH_SHA256_BYTES];
    uint64_t image_bytes;
    const uint64_t *layer_ends;
    uint32_t n_layers;
    const uint32_t *batches;
    uint32_t n_batches;
    void (*between)(void *arg); /* called between two pieces of slow work; NULL: none */
    void *arg;
};

/* Blocks. fd: an empty file. layer_ns: [n_batches][n_layers]. Fails: SH_E_IO, SH_E_DISKFULL,
 * SH_E_NOMEM; the file is then useless. */
int kept_write(int fd, const struct kept_about *a, const void *image, const double *layer_ns,
               struct sh_err *err);
/* Blocks. Fills image and layer_ns, whose contents are undefined after a failure. image NULL: only
 * reads and checks it, for a caller who maps the file from kept_image_at() on. Fails: SH_E_INVALID
 * (it does not fit, or is damaged), SH_E_IO, SH_E_NOMEM. */
int kept_read(int fd, const struct kept_about *a, void *image, double *layer_ns,
              struct sh_err *err);
uint64_t kept_image_at(const struct kept_about *a);

#endif
