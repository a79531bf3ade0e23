/* blocks.h - small blocks of device memory, for all of the simulation (the compiler includes it
 * first): what fills a GPU then fits into the caches of the host that simulates it, and every byte
 * of it is really there and is looked at. */
#ifndef SH_TESTS_SIM_BLOCKS_H
#define SH_TESTS_SIM_BLOCKS_H

#include "runtime/device/dev.h"
#include "runtime/model/kept.h"
#include "runtime/pack/pack_block.h"

#undef DEV_BLOCK
#define DEV_BLOCK ((size_t)1 << 10)
#undef KEPT_PIECE /* so that images are read in pieces here, too */
#define KEPT_PIECE ((size_t)2 << 10)
#undef PACK_ALIGN /* of packed layers, which are as small as all else */
#define PACK_ALIGN 8u
#undef DEV_TABLES_ALIGN /* its workers read files, and map none */
#define DEV_TABLES_ALIGN 8u
#define SHARE_CHUNK ((size_t)4 << 10) /* pages are no smaller here */
#define DEV_LOCK_PIECE ((size_t)8 << 10)

#endif
