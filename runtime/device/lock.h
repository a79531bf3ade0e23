/* lock.h - the pieces in which host memory is page-locked (dev_mem_host_lock_next).
 *
 * Pieces end at multiples of DEV_LOCK_PIECE of the address, so that a back end knows their borders
 * without a list: CUDA refuses a copy over the border of two. A piece of 32 MiB holds up the loop
 * for 1.5 ms on an H200, and a border costs a copy 3 us of the 600 that its piece takes. */
#ifndef SH_RUNTIME_DEVICE_LOCK_H
#define SH_RUNTIME_DEVICE_LOCK_H

#include "common/mem.h"

#include <stdint.h>

#ifndef DEV_LOCK_PIECE /* the simulation has small ones: tests/sim/blocks.h */
#define DEV_LOCK_PIECE ((size_t)32 << 20)
#endif

/* Of these bytes, those of the piece in which the first one lies. */
static inline size_t dev_lock_piece(const void *from, size_t bytes)
{
    return SH_MIN(DEV_LOCK_PIECE - (uintptr_t)from % DEV_LOCK_PIECE, bytes);
}

/* Of these bytes, those of the piece in which the last one lies. */
static inline size_t dev_lock_last_piece(const void *base, size_t bytes)
{
    const size_t over = ((uintptr_t)base + bytes) % DEV_LOCK_PIECE;

    return SH_MIN(over ? over : DEV_LOCK_PIECE, bytes);
}

#endif
