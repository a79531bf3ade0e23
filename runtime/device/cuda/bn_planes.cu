/* bn_planes.cu - batch normalisation: training with the channels first ([N, C, L] as it comes
 * without convolutions), where a block does a channel, and inference. */
#include "runtime/device/cuda/bn.cuh"

#define INFER_THREADS 256
#define INFER_BLOCKS 3

/* ------------------------------------------------------------------ training */

/* Walks over the n * len elements of channel blockIdx.x in steps of the block. */
struct walk {
    int64_t n, l, dn, dl, len, stride;
    DEV_INLINE walk(const struct k_bn &g)
        : n(threadIdx.x / g.len), l(threadIdx.x % g.len), dn(TRAIN_THREADS / g.len),
          dl(TRAIN_THREADS % g.len), len(g.len), stride(g.c * g.len)
    {
    }
    DEV_INLINE int64_t at() const
    {
        return n * stride + (int64_t)blockIdx.x * len + l;
    }
    DEV_INLINE void next()
    {
        n += dn;
        l += dl;
        if (l >= len) {
            l -= len;
            n++;
        }
    }
};

template <class T>
__global__ __launch_bounds__(TRAIN_THREADS) void planes_train(struct k_bn g,
                                                              struct k_bn_train_args a)
{
    __shared__ double smem[TRAIN_THREADS / WARP];
    __shared__ float4 numbers;
    const int ch = (int)blockIdx.x;
    const T *const x = (const T *)a.x, *const residual = (const T *)a.residual;
    const float shift = to_f(x[(int64_t)ch * g.len]);
    double s = 0, q = 0;

    for (walk w(g); w.n < g.n; w.next()) {
        const float d = to_f(x[w.at()]) - shift;

        s += d;
        q += (double)d * d;
    }
    s = block_sum<TRAIN_THREADS>(s, smem);
    q = block_sum<TRAIN_THREADS>(q, smem);
    if (threadIdx.x == 0)
        numbers = finish_stats(a, {ch, a.scale[ch], a.bias[ch], shift}, (double)(g.n * g.len),
                               make_double2(s, q), true);
    __syncthreads();
    for (walk w(g); w.n < g.n; w.next()) {
        float v[1] = {fmaf(to_f(x[w.at()]) - numbers.x, numbers.y, numbers.z)};

        if (residual)
            v[0] += to_f(residual[w.at()]);
        activate<1>(a, v);
        ((T *)a.y)[w.at()] = from_f<T>(v[0]);
    }
}

template <class T, int MASK>
DEV_INLINE float masked_one(const struct k_bn_bwd_args &a, int64_t at, float x0, float gain,
                            float bias)
{
    const float x0s[1] = {x0}, gains[1] = {gain}, biases[1] = {bias};
    struct bwd_in<T, 1> in;
    float d[1];

    in.dy.v[0] = ((const T *)a.d_y)[at];
    if (a.d_y2)
        in.dy2.v[0] = ((const T *)a.d_y2)[at];
    if (MASK == MASK_Y)
        in.y.v[0] = ((const T *)a.y)[at];
    masked<T, 1, MASK, true>(a, in, x0s, gains, biases, d);
    return d[0];
}

template <class T, int MASK>
__global__ __launch_bounds__(TRAIN_THREADS) void planes_bwd(struct k_bn g, struct k_bn_bwd_args a)
{
    __shared__ double smem[TRAIN_THREADS / WARP];
    __shared__ float4 numbers;
    const int ch = (int)blockIdx.x;
    const T *const x = (const T *)a.x;
    const float mean = a.mean[ch], gain = a.scale[ch] * a.invstd[ch];
    const float bias = MASK == MASK_AGAIN ? a.bias[ch] : 0;
    double s = 0, q = 0;

    for (walk w(g); w.n < g.n; w.next()) {
        const float x0 = to_f(x[w.at()]) - mean;
        const float d = masked_one<T, MASK>(a, w.at(), x0, gain, bias);

        s += d;
        q += (double)d * x0;
    }
    s = block_sum<TRAIN_THREADS>(s, smem);
    q = block_sum<TRAIN_THREADS>(q, smem);
    if (threadIdx.x == 0)
        numbers = finish_bwd(a, {ch, a.scale[ch], 0, 0, mean, a.invstd[ch]}, (double)(g.n * g.len),
                             make_double2(s, q), true);
    __syncthreads();
    for (walk w(g); w.n < g.n; w.next()) {
        const float x0 = to_f(x[w.at()]) - mean;
        const float d = masked_one<T, MASK>(a, w.at(), x0, gain, bias);

        ((T *)a.d_x)[w.at()] = grad_f<T>(fmaf(numbers.z, x0, fmaf(numbers.y, d, numbers.w)));
        if (a.d_residual)
            ((T *)a.d_residual)[w.at()] = grad_f<T>(d);
    }
}

void bn_planes(cudaStream_t s, const struct k_bn *g, const struct k_bn_train_args *a)
{
    DISPATCH_FLOAT(g->type, T, planes_train<T><<<(unsigned)g->c, TRAIN_THREADS, 0, s>>>(*g, *a));
}

void bn_planes_bwd(cudaStream_t s, const struct k_bn *g, const struct k_bn_bwd_args *a)
{
    DISPATCH_FLOAT(g->type, T, WITH_MASK(a, M, {
                       planes_bwd<T, M><<<(unsigned)g->c, TRAIN_THREADS, 0, s>>>(*g, *a);
                   }));
}

/* ------------------------------------------------------------------ inference */

template <class T, int V>
__global__ __launch_bounds__(INFER_THREADS, INFER_BLOCKS) void bn_infer(struct cols g,
                                                                        struct k_bn_infer_args a)
{
    struct lane l = lane_of<V, INFER_THREADS>(g, false);
    const struct act_of act = {a.act, a.p0, a.p1};
    float mean[V], gain[V], shift[V];

    if (l.n == 0)
        return;
#pragma unroll
    for (int i = 0; i < V; i++) {
        mean[i] = a.mean[l.ch + i];
        gain[i] = a.scale[l.ch + i] / sqrtf(a.var[l.ch + i] + a.eps);
        shift[i] = a.bias[l.ch + i];
    }
#pragma unroll 2
    for (; l.n > 0; l.n--, l.at += l.step) {
        float v[V];

        load_f<V>((const T *)a.x + l.at, v);
#pragma unroll
        for (int i = 0; i < V; i++)
            v[i] = fmaf(v[i] - mean[i], gain[i], shift[i]);
        apply_act<V>(act, v);
        store_f<V>((T *)a.y + l.at, v);
    }
}

template <class T>
__global__ __launch_bounds__(INFER_THREADS) void bn_infer_planes(struct k_bn g,
                                                                 struct k_bn_infer_args a)
{
    const struct act_of act = {a.act, a.p0, a.p1};
    const int64_t total = g.n * g.c * g.len, step = (int64_t)gridDim.x * INFER_THREADS;

    for (int64_t i = (int64_t)blockIdx.x * INFER_THREADS + threadIdx.x; i < total; i += step) {
        const int64_t ch = i / g.len % g.c;
        const float gain = a.scale[ch] / sqrtf(a.var[ch] + a.eps);
        float v[1] = {fmaf(to_f(((const T *)a.x)[i]) - a.mean[ch], gain, a.bias[ch])};

        apply_act<1>(act, v);
        ((T *)a.y)[i] = from_f<T>(v[0]);
    }
}

void k_bn_infer(cudaStream_t s, const struct k_bn *g, const struct k_bn_infer_args *a)
{
    const struct cols e = cols_of(g, vector_of(g), INFER_THREADS, INFER_BLOCKS);
    const int64_t total = g->n * g->c * g->len, blocks = cdiv64(total, INFER_THREADS);

    if (g->is_last) {
        DISPATCH_FLOAT(g->type, T, WITH_VECTOR(g, T, V, {
                           bn_infer<T, V><<<dim3(e.gx, e.gy), INFER_THREADS, 0, s>>>(e, *a);
                       }));
        return;
    }
    DISPATCH_FLOAT(g->type, T,
                   bn_infer_planes<T>
                   <<<(unsigned)(blocks < 65536 ? blocks : 65536), INFER_THREADS, 0, s>>>(*g, *a));
}
