// mma.cuh - products of a warp on the matrix units, sums in F32.
//
// A lane is g = lane / 4 and t = lane % 4. Of a product of eight, the first operand has rows g and
// g + 8, the second column g; lane t of either has two neighbours in the direction that is summed.
// The order of a sum does not matter as long as it is the same on both sides, so for TF32 the
// hardware's positions t and t + 4 are these two.
#ifndef SH_RUNTIME_DEVICE_CUDA_MMA_CUH
#define SH_RUNTIME_DEVICE_CUDA_MMA_CUH

#include "runtime/device/cuda/device.cuh"

DEV_INLINE uint32_t to_tf32(float v)
{
    uint32_t r;

    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
    return r;
}

// d[16,8] += a[16,8] b[8,8], TF32
DEV_INLINE void mma8(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// d[16,8] += a[16,16] b[16,8]
DEV_INLINE void mma16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, f16)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEV_INLINE void mma16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bf16)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two neighbours of an operand, as a lane of a product of eight has them.
template <class T> struct two {
    uint32_t v;
};
template <> struct two<float> {
    uint32_t v[2];
};
template <class T> DEV_INLINE two<T> two_of(T a, T b)
{
    const vec<T, 2> v = {{a, b}};

    return {*reinterpret_cast<const uint32_t *>(&v)};
}
template <> DEV_INLINE two<float> two_of(float a, float b)
{
    return {{to_tf32(a), to_tf32(b)}};
}

// d[16,8] += a[16,8] b[8,8]; upper, lower: rows g and g + 8 of a
DEV_INLINE void mma_two(float (&d)[4], two<float> upper, two<float> lower, two<float> b)
{
    const uint32_t a[4] = {upper.v[0], lower.v[0], upper.v[1], lower.v[1]};

    mma8(d, a, b.v[0], b.v[1]);
}
DEV_INLINE void mma_two(float (&d)[4], two<f16> upper, two<f16> lower, two<f16> b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(upper.v), "r"(lower.v), "r"(b.v));
}
DEV_INLINE void mma_two(float (&d)[4], two<bf16> upper, two<bf16> lower, two<bf16> b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(upper.v), "r"(lower.v), "r"(b.v));
}

#endif
