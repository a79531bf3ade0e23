/* order.h - the order of samples in an epoch: a function of only (seed, epoch) and the dataset, so
 * that the step number is the cursor of a training run.
 *
 * A dataset that may not fit into memory is not shuffled as a whole, since that would read from all
 * over the disk. It is cut into runs of adjacent samples; the runs are put into an order drawn for
 * the epoch; then the samples of several runs at a time, a window, are shuffled. So a disk reads
 * long stretches, one window ahead of the steps, and each window is shuffled in memory.
 */
#ifndef SH_RUNTIME_MODEL_ORDER_H
#define SH_RUNTIME_MODEL_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Not options of a host: a job has the same order on every host. */
#define ORDER_WHOLE_BYTES (INT64_C(4) << 30)  /* a dataset up to this is one window */
#define ORDER_WINDOW_BYTES (INT64_C(1) << 30) /* window of a larger dataset */
#define ORDER_RUNS 64                         /* runs in a window */

struct order {
    uint64_t seed;
    bool shuffle;
    int64_t n;           /* samples */
    int64_t window, run; /* in samples; window = run = n: shuffled as a whole */
};

/* window: in samples; 0: by the bytes of the dataset. sample_bytes: of one sample. */
struct order order_of(uint64_t seed, bool shuffle, int64_t window, int64_t n, size_t sample_bytes);
int64_t order_n_runs(const struct order *o);
/* runs[order_n_runs()]: the order of the runs. Run r begins at sample r * o->run. */
void order_draw_runs(const struct order *o, int64_t epoch, uint32_t *runs);
/* out[o->n]: the samples. runs: as drawn. Without shuffle 0, 1, 2, ... */
void order_draw(const struct order *o, int64_t epoch, const uint32_t *runs, uint32_t *out);

#endif
