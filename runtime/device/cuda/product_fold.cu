// product_fold.cu - operands of products of 8-bit integers in the form that tiles take: rows
// widened, and pictures of few channels folded.
#include "runtime/device/cuda/kernels_quant.h"
#include "runtime/device/cuda/nest.cuh"

#define THREADS 256

// dst [rows][padded] = src [rows][c], zeros behind.
static __global__ void __launch_bounds__(THREADS)
    pad_kernel(const uint8_t *src, int64_t n, int c, fast_div by, int padded, uint8_t *dst)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
        const int64_t row = n < INT32_MAX ? (int64_t)quotient((uint32_t)i, by) : i / padded;
        const int at = (int)(i - row * padded);

        dst[i] = at < c ? src[row * c + at] : 0;
    }
}

extern "C" void k_product_pad(cudaStream_t s, const void *src, int64_t rows, int c, void *dst,
                              int padded)
{
    const int64_t n = rows * padded, blocks = cdiv64(n, THREADS);

    pad_kernel<<<(unsigned)(blocks < 65536 ? blocks : 65536), THREADS, 0, s>>>(
        (const uint8_t *)src, n, c, fast_div_of((uint32_t)padded), padded, (uint8_t *)dst);
}

// dst [n][h / 2][w / 2][16]: two by two pixels of C channels each; `zero` beyond the last.
template <int C>
static __global__ void __launch_bounds__(THREADS)
    fold_kernel(const uint8_t *src, uint32_t n, int h, int w, fast_div by_h, fast_div by_w,
                uint32_t zero, uint4 *dst)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x, row = quotient(i, by_w);
    const uint32_t image = quotient(row, by_h);
    const int v = (int)(i - row * by_w.d) * 2, u = (int)(row - image * by_h.d) * 2;
    uint32_t word[4];

    if (i >= n)
        return;
    src += ((int64_t)image * h * w + (int64_t)u * w + v) * C;
#pragma unroll
    for (int p = 0; p < 4; p++) {
        const bool inside = u + p / 2 < h && v + p % 2 < w;

        word[p] = 0;
#pragma unroll
        for (int k = 0; k < C; k++)
            word[p] |= (inside ? src[((int64_t)(p / 2) * w + p % 2) * C + k] : zero) << 8 * k;
    }
    dst[i] = make_uint4(word[0], word[1], word[2], word[3]);
}

// The same for weights [m][r][s][c], whose taps begin `shift` before the first pixel of a pair.
static __global__ void __launch_bounds__(THREADS)
    fold_weights_kernel(const int8_t *src, int m, int r, int s, int c, int2 shift, int2 taps,
                        int8_t *dst)
{
    const int i = blockIdx.x * THREADS + threadIdx.x, at = i % 16, tap = i / 16;
    const int b = tap % taps.y * 2 + (at >> 2 & 1) - shift.y;
    const int a = tap / taps.y % taps.x * 2 + (at >> 3) - shift.x, k = at & 3;

    if (i >= m * taps.x * taps.y * 16)
        return;
    dst[i] = a >= 0 && a < r && b >= 0 && b < s && k < c
                 ? src[((tap / taps.y / taps.x * r + a) * s + b) * c + k]
                 : 0;
}

extern "C" bool k_product_fold(const struct k_conv *v, struct k_conv *out)
{
    struct k_conv f = *v;

    if (v->groups != 1 || v->c > 4 || v->stride[0] != 2 || v->stride[1] != 2 ||
        v->dilation[0] != 1 || v->dilation[1] != 1)
        return false;
    for (int i = 0; i < 2; i++) {
        f.stride[i] = 1;
        f.pad[i] = (v->pad[i] + 1) / 2;
    }
    f.h = (v->h + 1) / 2;
    f.w = (v->w + 1) / 2;
    f.r = (v->r + v->pad[0] % 2 + 1) / 2;
    f.s = (v->s + v->pad[1] % 2 + 1) / 2;
    f.c = 16;
    *out = f;
    return true;
}

extern "C" void k_product_fold_x(cudaStream_t s, const struct k_conv *v, const void *x, int zero,
                                 void *dst)
{
    const int64_t fh = (v->h + 1) / 2, fw = (v->w + 1) / 2, n = v->n * fh * fw;

    (v->c == 1   ? fold_kernel<1>
     : v->c == 2 ? fold_kernel<2>
     : v->c == 3 ? fold_kernel<3>
                 : fold_kernel<4>)<<<(unsigned)cdiv64(n, THREADS), THREADS, 0, s>>>(
        (const uint8_t *)x, (uint32_t)n, (int)v->h, (int)v->w, fast_div_of((uint32_t)fh),
        fast_div_of((uint32_t)fw), (uint32_t)(uint8_t)zero, (uint4 *)dst);
}

extern "C" void k_product_fold_w(cudaStream_t s, const struct k_conv *v, const void *w, void *dst)
{
    struct k_conv f;

    if (!k_product_fold(v, &f))
        return;
    fold_weights_kernel<<<(unsigned)cdiv64(v->m * f.r * f.s * 16, THREADS), THREADS, 0, s>>>(
        (const int8_t *)w, (int)v->m, (int)v->r, (int)v->s, (int)v->c,
        make_int2((int)(v->pad[0] % 2), (int)(v->pad[1] % 2)), make_int2((int)f.r, (int)f.s),
        (int8_t *)dst);
}

extern "C" int k_product_width(int c)
{
    return c <= 4 ? 4 : c <= 8 ? 8 : (c + 15) / 16 * 16;
}
