/* augment.h - the random draws of augmentation, the same on every device (op_elem.h). */
#ifndef SH_RUNTIME_DEVICE_AUGMENT_H
#define SH_RUNTIME_DEVICE_AUGMENT_H

#include "runtime/device/op_elem.h"
#include "runtime/device/philox.h"

#include <stdbool.h>

struct dev_moved {
    /* y[i][j] = x[i + down][j' + right], j' counts from the other end if mirrored */
    int64_t down, right;
    bool mirrored;
};

/* A number below n from a random word, uniform to within n / 2^32. */
DEV_PHILOX_FN int64_t dev_below(uint32_t word, int64_t n)
{
    return (int64_t)(((uint64_t)word * (uint64_t)n) >> 32);
}

DEV_PHILOX_FN struct dev_moved dev_jitter_of(const struct dev_jitter *j, int64_t sample,
                                             int64_t step)
{
    const uint32_t counter[4] = {(uint32_t)sample, 0x6a697474u, (uint32_t)step,
                                 (uint32_t)((uint64_t)step >> 32)};
    struct dev_moved m;
    uint32_t w[4];

    dev_philox(j->seed, counter, w);
    m.down = dev_below(w[0], 2 * j->pad + 1) - j->pad;
    m.right = dev_below(w[1], 2 * j->pad + 1) - j->pad;
    m.mirrored = (double)w[2] < (double)j->flip * 4294967296.0;
    return m;
}

/* What the model sees in place of element i; *label: what it should predict. */
DEV_PHILOX_FN int64_t dev_token_of(const struct dev_tokens *k, int64_t id, int64_t i, int64_t step,
                                   int64_t *label)
{
    const uint32_t counter[4] = {(uint32_t)i, 0x746f6b65u ^ (uint32_t)((uint64_t)i >> 32),
                                 (uint32_t)step, (uint32_t)((uint64_t)step >> 32)};
    uint32_t w[4];

    *label = k->ignore;
    for (uint32_t n = 0; n < k->n_keep; n++)
        if (k->keep[n] == id)
            return id;
    dev_philox(k->seed, counter, w);
    if (!((double)w[0] < (double)k->share * 4294967296.0))
        return id;
    *label = id;
    if (w[1] < 3435973837u) /* 0.8 */
        return k->mask;
    return w[1] < 3865470566u ? dev_below(w[2], k->size) : id; /* 0.9 */
}

#endif
