/* order.h - the order of samples in one epoch: a function of (seed, epoch) and the dataset alone,
 * so that the step number is the cursor of a training run.
 *
 * A dataset that may not fit into memory is not mixed as a whole, which would read it from all over
 * the disk: it is cut into runs of samples that lie side by side, the runs are put into an order
 * drawn for the epoch, and then the samples of some runs at a time, a window, are mixed. So a disk
 * reads long stretches, one window ahead of the steps, and each window is mixed in memory.
 */
#ifndef SH_RUNTIME_MODEL_ORDER_H
#define SH_RUNTIME_MODEL_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No option of a host: the same job has the same order on each. */
#define ORDER_WHOLE_BYTES (INT64_C(4) << 30)  /* a dataset up to this is one window */
#define ORDER_WINDOW_BYTES (INT64_C(1) << 30) /* of a larger one */
#define ORDER_RUNS 64                         /* of a window */

struct order {
    uint64_t seed;
    bool shuffle;
    int64_t n;           /* samples */
    int64_t window, run; /* samples of each; window = run = n: mixed as a whole */
};

/* window: samples; 0: by the bytes of the dataset, of which a sample has so many. */
struct order order_of(uint64_t seed, bool shuffle, int64_t window, int64_t n, size_t sample_bytes);
int64_t order_n_runs(const struct order *o);
/* runs[order_n_runs()]: which stretch of the file comes when. Run r begins at sample r * o->run. */
void order_draw_runs(const struct order *o, int64_t epoch, uint32_t *runs);
/* out[o->n]: the samples. runs: as drawn. Without shuffle 0, 1, 2, ... */
void order_draw(const struct order *o, int64_t epoch, const uint32_t *runs, uint32_t *out);

#endif
