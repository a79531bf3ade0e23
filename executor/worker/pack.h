/* pack.h - an image that the worker has made, packed (runtime/pack/pack.h). */
#ifndef SH_EXECUTOR_WORKER_PACK_H
#define SH_EXECUTOR_WORKER_PACK_H

#include "common/msg.h"
#include "runtime/model/program.h"

/* In its own memory, by this thread and up to n_helpers that it starts for it; beside the memory
 * each has a buffer for a layer. Calls between(arg) now and then, on this thread. The bytes are the
 * same, whoever packs. link_ends: [n_layers], where each packed layer ends. *is_packed: all lie at
 * the beginning of the image, in fewer bytes than it had. If not, or if this fails, nothing of use
 * is left there: it has to be written again. */
int pack_image(const struct program *p, void *image, uint64_t *link_ends, unsigned n_helpers,
               void (*between)(void *arg), void *arg, bool *is_packed, struct sh_err *err);
unsigned pack_helpers(unsigned cores); /* as many as a host with so many cores can spare */
/* Does a run for which all of the image is copied end sooner with packed layers, over all batch
 * sizes? layer_ns: [n_batches][n_layers]; msg says what copies and unpacking cost. */
bool pack_gains(const struct program *p, const uint64_t *link_ends, const double *layer_ns,
                uint32_t n_batches, const struct msg_wk_model *msg);
/* [enqueue] Unpacks layers [*from, to) of the image at image_off, whose packed layers end at
 * link_ends behind packed_at. *from: the first that is not, from now on; if this fails, nobody
 * knows whether some from there on are. */
int unpack_layers(struct dev *d, const struct program *p, size_t image_off, size_t packed_at,
                  const uint64_t *link_ends, uint32_t *from, uint32_t to, struct sh_err *err);

#endif
