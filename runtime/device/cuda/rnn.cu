/* rnn.cu - one step of an LSTM's cell and its gradient: a thread for each element of the state. */
#include "runtime/device/cuda/act.cuh"
#include "runtime/device/cuda/nest.cuh"

#define THREADS 128 /* states are small: more blocks, more processors */

struct gates {
    float i, o, f, g, next; /* next: the cell's new state */
};

/* e: of the state; at: of the first gate in the sums. */
static DEV_INLINE gates gates_of(const k_lstm &k, int64_t e, int64_t at)
{
    gates a = {act_sigmoid(load1(k.sums, at)), act_sigmoid(load1(k.sums, at + k.width)),
               act_sigmoid(load1(k.sums, at + 2 * k.width)), tanhf(load1(k.sums, at + 3 * k.width)),
               0};

    a.next = a.f * load1(k.cell, e) + a.i * a.g;
    return a;
}

static __global__ void __launch_bounds__(THREADS) forward(k_lstm k)
{
    const int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (e >= k.n)
        return;
    const gates a = gates_of(k, e, e / k.width * 4 * k.width + e % k.width);

    store1(k.out[0], e, a.o * tanhf(a.next));
    store1(k.out[1], e, a.next);
}

static __global__ void __launch_bounds__(THREADS) backward(k_lstm k)
{
    const int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x, w = k.width;

    if (e >= k.n)
        return;
    const int64_t at = e / w * 4 * w + e % w;
    const gates a = gates_of(k, e, at);
    const float t = tanhf(a.next), dh = load1(k.d_hidden, e);
    const float d = dh * a.o * (1 - t * t) + (k.d_cell.p ? load1(k.d_cell, e) : 0.0f);

    store1(k.out[0], at, d * a.g * a.i * (1 - a.i));
    store1(k.out[0], at + w, dh * t * a.o * (1 - a.o));
    store1(k.out[0], at + 2 * w, d * load1(k.cell, e) * a.f * (1 - a.f));
    store1(k.out[0], at + 3 * w, d * a.i * (1 - a.g * a.g));
    store1(k.out[1], e, d * a.f);
}

void k_lstm_cell(cudaStream_t s, const struct k_lstm *k)
{
    const unsigned blocks = (unsigned)cdiv64(k->n, THREADS);

    if (k->d_hidden.p)
        backward<<<blocks, THREADS, 0, s>>>(*k);
    else
        forward<<<blocks, THREADS, 0, s>>>(*k);
}
