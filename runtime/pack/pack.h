/* pack.h - a layer of an image in fewer bytes, without loss.
 *
 * The exponents of trained weights are few: most of a layer's lie within seven values. So a block
 * of PACK_BLOCK numbers keeps the sign and the mantissa of each as they are, and of the exponent 3
 * bits: an index into the block's table of seven, or 7, which says that the exponent itself stands
 * in the block's list of escapes. That is 14.4 bits for a number that was rounded to tf32 and lies
 * in 32, 11.4 for one in bf16, 14.4 in fp16, 27.4 in fp32. What does not get smaller stays as it
 * is, block by block, so a packed layer is never much larger than the layer.
 *
 *   layer   head | entry of each block | escapes | planes of each block, from a multiple of 128
 *   block   entry (pack_block): where its numbers go, its table, where the rest of it lies
 *
 * Every block can be unpacked without the others. A device does it with 32 threads, its lanes. Each
 * half of a block has up to 1024 numbers, 32 for each lane: of every PACK_LANES * v of them lane l
 * has the v from l * v on, where v of them are 16 bytes. Its first three words are the planes of
 * the 3 bits: number i has bit 4 * (i % 8) + i / 8 in each, so that a mask takes the same bit of
 * eight numbers that follow each other, one to every four bits. In the words behind these its signs
 * and mantissas follow each other. Word j of all lanes lies together, so that lanes read and write
 * whole lines. Escapes are in the order of half, lane, number.
 *
 * Each block has a sum over its entry and all that belongs to it; who unpacks compares.
 *
 * Pure. Bytes are little-endian.
 */
#ifndef SH_RUNTIME_PACK_PACK_H
#define SH_RUNTIME_PACK_PACK_H

#include "common/err.h"
#include "runtime/pack/pack_block.h"

#include <stddef.h>

enum pack_type { PACK_BYTES, PACK_32, PACK_F16, PACK_BF16 }; /* PACK_32: fp32 or tf32 */

struct pack_span { /* numbers of one type, from a multiple of 16 bytes */
    uint64_t off, bytes;
    enum pack_type type;
};

/* Bytes that a packed layer of `bytes` in n spans has at most. */
size_t pack_bound(uint64_t bytes, size_t n_spans);
/* The spans follow each other and make up the layer. `packed` is aligned to PACK_ALIGN and has
 * room for pack_bound() bytes; *packed_bytes is a multiple of PACK_ALIGN. Fails: SH_E_TOOBIG
 * (beyond 32 GiB), SH_E_NOMEM. */
int pack_layer(const void *layer, uint64_t bytes, const struct pack_span *spans, size_t n_spans,
               void *packed, size_t *packed_bytes, struct sh_err *err);
/* Where the packed layers begin in the range of their image if each is to be unpacked in place: no
 * layer is unpacked over itself, nor over one behind it. A multiple of PACK_ALIGN. */
uint64_t pack_shift(const uint64_t *ends, const uint64_t *packed_ends, uint32_t n_layers);
/* What a packed layer that begins within `room` bytes says of itself, if it can be true. Fails:
 * SH_E_IO. */
int pack_look(const void *packed, size_t room, struct pack_head *out, struct sh_err *err);
/* The layer again. Reads `packed_bytes`, writes `bytes`, whatever it finds. Fails: SH_E_IO:
 * something of it is not as it was written. */
int pack_unpack(const void *packed, size_t packed_bytes, void *layer, uint64_t bytes,
                struct sh_err *err);

#endif
