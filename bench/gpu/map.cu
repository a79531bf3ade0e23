// map.cu - what it costs to have only a task's ranges of the arena mapped: the arena cut into
// pieces of their own handles, mapped and unmapped around each task, against one mapping for good.
//
//   nvcc -O2 -o build/map bench/gpu/map.cu -lcuda && build/map [MiB of a task, default 100]
//
// A part of one handle cannot be mapped (the offset of cuMemMap must be 0), nor a part of a mapping
// be protected (cuMemSetAccess takes whole ones): hence the pieces. Prints microseconds, the median
// of 50, for pieces of 2, 8 and 32 MiB: mapping with the right to read and write, and unmapping.
// docs/security.md says what follows from it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <vector>

static void check(CUresult e, const char *what)
{
    const char *text = "?";

    if (e == CUDA_SUCCESS)
        return;
    cuGetErrorString(e, &text);
    fprintf(stderr, "map: could not %s: %s\n", what, text);
    _Exit(1);
}

static double now_us()
{
    using namespace std::chrono;
    return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

static double median(std::vector<double> v)
{
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

static void measure(CUdevice device, size_t task, size_t piece)
{
    const size_t n = (task + piece - 1) / piece;
    std::vector<CUmemGenericAllocationHandle> handles(n);
    std::vector<double> map_us, unmap_us;
    CUmemAllocationProp prop = {};
    CUmemAccessDesc access = {};
    CUdeviceptr base;

    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = access.location.id = device;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (size_t i = 0; i < n; i++)
        check(cuMemCreate(&handles[i], piece, &prop, 0), "allocate");
    check(cuMemAddressReserve(&base, n * piece, 0, 0, 0), "reserve addresses");
    for (int round = 0; round < 50; round++) {
        double start = now_us(), mapped;

        for (size_t i = 0; i < n; i++)
            check(cuMemMap(base + i * piece, piece, 0, handles[i], 0), "map");
        check(cuMemSetAccess(base, n * piece, &access, 1), "give access");
        mapped = now_us();
        check(cuMemsetD8(base, 1, n * piece), "use it");
        check(cuCtxSynchronize(), "wait");
        map_us.push_back(mapped - start);
        start = now_us();
        check(cuMemUnmap(base, n * piece), "unmap");
        unmap_us.push_back(now_us() - start);
    }
    check(cuMemAddressFree(base, n * piece), "free addresses");
    for (size_t i = 0; i < n; i++)
        check(cuMemRelease(handles[i]), "free");
    printf("%zu pieces of %zu MiB: map %.1f us, unmap %.1f us\n", n, piece >> 20, median(map_us),
           median(unmap_us));
}

int main(int argc, char **argv)
{
    const long mib = argc > 1 ? strtol(argv[1], nullptr, 10) : 100;
    CUdevice device;
    CUcontext context;

    if (mib < 1 || mib > 65536) {
        fprintf(stderr, "map: from 1 to 65536 MiB\n");
        return 2;
    }
    check(cuInit(0), "start CUDA");
    check(cuDeviceGet(&device, 0), "find a device");
    check(cuDevicePrimaryCtxRetain(&context, device), "make a context");
    check(cuCtxSetCurrent(context), "use the context");
    for (size_t piece : {2, 8, 32})
        measure(device, (size_t)mib << 20, piece << 20);
    return 0;
}
