/* kept.h - the results of loading a model, in a file: its image as the device stores it, perhaps
 * packed, and the times of its layers. The next load reads both instead of making them.
 *
 *   header         what it was made from and for (key), sizes, checksums
 *   tables         ends of layers, ends of packed layers, batch sizes, times of layers, a checksum
 *                  of each piece
 *   image          from a multiple of KEPT_ALIGN to the end of the file, in pieces of KEPT_PIECE
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
#define KEPT_PIECE ((size_t)4 << 20) /* the last one may be shorter */

struct kept_about { /* all BORROWED */
    uint8_t key[SH_SHA256_BYTES];
    uint64_t image_bytes;
    const uint64_t *layer_ends;
    const uint64_t *link_ends; /* of each layer as it is packed, in the file; NULL: it is not */
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
/* Blocks. Writes a whole file that another process has made. Fails: SH_E_IO, SH_E_DISKFULL. */
int kept_put(int fd, const void *file, size_t bytes, struct sh_err *err);
/* Blocks. Fills image and layer_ns, whose contents are undefined after a failure. image NULL: only
 * reads and checks it, for a caller who maps the file from kept_image_at() on. Fails: SH_E_INVALID
 * (it does not fit, or is damaged), SH_E_IO, SH_E_NOMEM. */
int kept_read(int fd, const struct kept_about *a, void *image, double *layer_ns,
              struct sh_err *err);
uint64_t kept_image_at(const struct kept_about *a);
uint64_t kept_stored_bytes(const struct kept_about *a); /* of the image in the file */
/* Before the others, for who does not know whether the image is packed: is what it says of that
 * possible? link_ends: [n_layers], filled in if it is. Sets a->link_ends to that, or NULL. Fails as
 * kept_read(), which checks it. */
int kept_look(int fd, struct kept_about *a, uint64_t *link_ends, struct sh_err *err);

/* Piece by piece, for a caller who cannot wait for the last one. */
struct kept_pieces {
    int fd;             /* BORROWED */
    uint64_t at, bytes; /* of the image in the file */
    uint32_t n;
    uint32_t *crc; /* OWNED, free(): [n] */
};
/* Does the file hold what fits? Reads header and tables only. *out: undefined after a failure.
 * Fails as kept_read(). */
int kept_open_pieces(int fd, const struct kept_about *a, struct kept_pieces *out,
                     struct sh_err *err);
/* Blocks. Reads a piece into its place in the image; NULL: only checks it. Any thread. Fails:
 * SH_E_INVALID (it is damaged), SH_E_IO, SH_E_NOMEM. */
int kept_read_piece(const struct kept_pieces *p, uint32_t piece, void *image, struct sh_err *err);

#endif
