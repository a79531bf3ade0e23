/* layers.h - layers of an image, told by where each ends: u64[n], ascending. */
#ifndef SH_RUNTIME_PACK_LAYERS_H
#define SH_RUNTIME_PACK_LAYERS_H

#include <stdint.h>

/* Where the layer begins: that behind the last one, where all of them end. */
static inline uint64_t layer_begin(const uint64_t *ends, uint32_t layer)
{
    return layer ? ends[layer - 1] : 0;
}

static inline uint64_t layer_bytes(const uint64_t *ends, uint32_t layer)
{
    return ends[layer] - layer_begin(ends, layer);
}

#endif
