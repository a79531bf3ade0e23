// resample.cu - sums of a few elements along one axis or two, by tables (Resize, and its gradient).
//
// A thread makes up to 4 neighbouring elements of the result: along the axes behind those of the
// tables, which are the channels of an image stored channels last. What it reads is read by its
// neighbours too and stays in the cache. No atomics: a gradient is a sum of the same form.
#include "runtime/device/cuda/device.cuh"

#define THREADS 256

// I: of the count of vectors. x [outer][n0][n1][inner], y [outer][m0][m1][inner], V at a time.
template <class S, class D, int V, class I>
__global__ __launch_bounds__(THREADS) void resample_kernel(struct k_resample r, const S *x, D *y,
                                                           I per_row, I total)
{
    const I step = (I)gridDim.x * THREADS;
    const int taps1 = r.taps[1] ? r.taps[1] : 1;

    for (I k = (I)blockIdx.x * THREADS + threadIdx.x; k < total; k += step) {
        const I column = k % per_row, pixel = k / per_row;
        const int64_t q = (int64_t)(pixel % (I)r.m[1]), line = (int64_t)(pixel / (I)r.m[1]);
        const int64_t p = line % r.m[0], o = line / r.m[0];
        float sum[V] = {0};

        for (int s = 0; s < r.taps[0]; s++) {
            const int64_t row = o * r.n[0] + r.from[0][p * r.taps[0] + s];
            const float w0 = r.weight[0][p * r.taps[0] + s];

            for (int t = 0; t < taps1; t++) {
                const int64_t at = r.taps[1] ? r.from[1][q * taps1 + t] : 0;
                const float w = r.taps[1] ? w0 * r.weight[1][q * taps1 + t] : w0;
                float v[V];

                load_f<V>(x + ((row * r.n[1] + at) * (int64_t)per_row + (int64_t)column) * V, v);
#pragma unroll
                for (int e = 0; e < V; e++)
                    sum[e] = fmaf(w, v[e], sum[e]);
            }
        }
        store_f<V>(y + (int64_t)k * V, sum);
    }
}

template <class S, class D, int V>
static void launch_resample(cudaStream_t s, const struct k_resample *r, const void *x, void *y)
{
    const int64_t per_row = r->inner / V, total = r->outer * r->m[0] * r->m[1] * per_row;
    const int64_t blocks = cdiv64(total, THREADS);
    const unsigned grid = (unsigned)(blocks < 1 << 20 ? blocks : 1 << 20);

    if (total < (int64_t)1 << 30)
        resample_kernel<S, D, V, uint32_t>
            <<<grid, THREADS, 0, s>>>(*r, (const S *)x, (D *)y, (uint32_t)per_row, (uint32_t)total);
    else
        resample_kernel<S, D, V, int64_t>
            <<<grid, THREADS, 0, s>>>(*r, (const S *)x, (D *)y, per_row, total);
}

void k_resample(cudaStream_t s, const struct k_resample *r, struct k_operand x, struct k_operand y)
{
    DISPATCH_FLOAT(x.type, S, DISPATCH_FLOAT(y.type, D, {
                       if (r->inner % 4 == 0)
                           y.overflows ? launch_resample<S, grad<D>, 4>(s, r, x.p, y.p)
                                       : launch_resample<S, D, 4>(s, r, x.p, y.p);
                       else
                           y.overflows ? launch_resample<S, grad<D>, 1>(s, r, x.p, y.p)
                                       : launch_resample<S, D, 1>(s, r, x.p, y.p);
                   }));
}
