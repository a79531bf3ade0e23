/* kept.h - what loading a model has made, in a file: its image as the device stores it, and how
 * long its layers take. Whoever loads it again reads both instead of making them.
 *
 *   header         what it was made of and for (key), sizes, check sums
 *   tables         ends of layers, batch sizes, times of layers
 *   image          from a multiple of KEPT_ALIGN on, to the end of the file
 *
 * The caller has compiled the model already and says what the file has to fit: a file that is cut
 * off, damaged, of another key, format or shape is refused. Who opened the files gives them their
 * names when they are whole; there is no fsync: what a crash leaves half written, the sums tell.
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
    void (*between)(void *arg); /* NULL, or called between two pieces of what takes long */
    void *arg;
};

/* Blocking. fd: an empty file. layer_ns: [n_batches][n_layers].
 * Fails: SH_E_IO, SH_E_DISKFULL, SH_E_NOMEM; the file is of no use then. */
int kept_write(int fd, const struct kept_about *a, const void *image, const double *layer_ns,
               struct sh_err *err);
/* Blocking. Fills image and layer_ns, whose contents are of no use when it fails. image NULL: it
 * is read and summed, for somebody who maps the file from kept_image_at() on.
 * Fails: SH_E_INVALID (it does not fit, or is damaged), SH_E_IO, SH_E_NOMEM. */
int kept_read(int fd, const struct kept_about *a, void *image, double *layer_ns,
              struct sh_err *err);
uint64_t kept_image_at(const struct kept_about *a);

#endif
