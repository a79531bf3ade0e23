/* pack.c - packed layers of an image: whatever comes, nothing beyond the layer is written, and what
 * is packed comes out again. The first bytes say how long the layer is, and whether the head gets
 * the sum that it should have: then what the entries of blocks say is looked at. */
/* uses: runtime/pack/pack.o */
#include "runtime/pack/pack.h"

#include "common/mem.h"
#include "tests/fuzz/targets/fuzz.h"

#include <stdbool.h>

#define MOST 16384u

static void there_and_back(const unsigned char *layer, size_t n, enum pack_type type)
{
    const struct pack_span span = {.bytes = n, .type = type};
    unsigned char *packed = malloc(pack_bound(n, 1)), *back = malloc(n + 1);
    struct sh_err err = {0};
    size_t bytes = 0;
    int rc;

    must(packed && back);
    rc = pack_layer(layer, n, &span, 1, packed, &bytes, &err);
    must(!rc && bytes <= pack_bound(n, 1));
    rc = pack_unpack(packed, bytes, back, n, &err);
    must(!rc && (n == 0 || memcmp(back, layer, n) == 0));
    free(packed);
    free(back);
}

static void seal_head(unsigned char *packed, size_t n, uint32_t bytes)
{
    uint32_t words[sizeof(struct pack_head) / sizeof(uint32_t)], sum = 0;
    struct pack_head h;

    memcpy(&h, packed, sizeof(h));
    h.magic = PACK_MAGIC;
    h.n_blocks %= 1 + (uint32_t)((n - sizeof(h)) / sizeof(struct pack_block));
    h.bytes = bytes;
    h.packed_bytes = n;
    memcpy(words, &h, sizeof(h));
    for (size_t i = 0; i + 1 < SH_ARRAY_LEN(words); i++)
        sum = pack_mix(sum, words[i]);
    h.sum = sum;
    memcpy(packed, &h, sizeof(h));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct sh_err err = {0};
    uint32_t bytes = 0;
    unsigned char *own, *layer;
    bool is_sealed;
    int rc;

    if (n < sizeof(bytes))
        return 0;
    memcpy(&bytes, data, sizeof(bytes));
    is_sealed = bytes >> 31;
    bytes %= MOST;
    data += sizeof(bytes);
    n -= sizeof(bytes);
    n -= is_sealed ? n % PACK_ALIGN : 0;
    own = (unsigned char *)copy_of(data, n, 0);
    if (is_sealed && n >= sizeof(struct pack_head))
        seal_head(own, n, bytes);
    layer = malloc(bytes + 1);
    must(layer != NULL);
    rc = pack_unpack(own, n, layer, bytes, &err);
    must_say_why(rc, &err);
    for (int type = PACK_BYTES; type <= PACK_BF16; type++)
        there_and_back(own, SH_MIN(n, (size_t)MOST), (enum pack_type)type);
    free(layer);
    free(own);
    return 0;
}
