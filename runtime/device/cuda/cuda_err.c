/* cuda_err.c - what the libraries say, as our errors. */
#include "runtime/device/cuda/cuda.h"

#include <stdio.h>

/* The runtime and the driver number their errors alike. */
static int class_of(int code)
{
    switch (code) {
    case cudaErrorMemoryAllocation:
        return SH_E_DEVMEM;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
        return SH_E_NOTFOUND;
    case cudaErrorDevicesUnavailable:
        return SH_E_UNAVAILABLE;
    case cudaErrorOperatingSystem:
        return SH_E_IO;
    case cudaErrorNotSupported:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
        return SH_E_UNSUPPORTED;
    case cudaErrorCudartUnloading:
    case cudaErrorDeviceUninitialized:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown:
        return SH_E_DEVLOST;
    default:
        return SH_E_BUG;
    }
}

/* `why` may reach a tenant; `name` is for the log. */
static int fail_library(struct sh_err *err, int rc, int native, const char *what, const char *why,
                        const char *name)
{
    bool is_first = err && err->rc == SH_OK;

    SH_FAIL(err, rc, "could not %s: %s%s", what, why ? why : "unknown error",
            rc == SH_E_DEVLOST ? "; the device context is lost" : "");
    if (is_first) {
        err->native = native;
        sh_err_detail(err, "%s (%d)", name ? name : "?", native);
    }
    return rc;
}

int cuda__check(cudaError_t e, const char *what, struct sh_err *err)
{
    if (e == cudaSuccess)
        return SH_OK;
    cudaGetLastError(); /* or the next launch would be blamed for it */
    return fail_library(err, class_of((int)e), (int)e, what, cudaGetErrorString(e),
                        cudaGetErrorName(e));
}

int cuda__no_memory(size_t bytes, struct sh_err *err)
{
    size_t free_bytes = 0, total = 0;

    cuMemGetInfo(&free_bytes, &total); /* zeros say that it is not known */
    return SH_FAIL(err, SH_E_DEVMEM,
                   "could not get %zu MiB of device memory: %zu of %zu MiB are free; lower "
                   "pool-bytes, or end what else uses the device",
                   bytes >> 20, free_bytes >> 20, total >> 20);
}

int cuda__check_drv(CUresult e, const char *what, struct sh_err *err)
{
    const char *why = NULL, *name = NULL;

    if (e == CUDA_SUCCESS)
        return SH_OK;
    cuGetErrorString(e, &why);
    cuGetErrorName(e, &name);
    return fail_library(err, class_of((int)e), (int)e, what, why, name);
}

/* A library hides what became of the context behind a code of its own. */
static bool context_lost(const char *what, int *rc, struct sh_err *err)
{
    cudaError_t e = cudaGetLastError();

    if (class_of((int)e) != SH_E_DEVLOST)
        return false;
    *rc = cuda__check(e, what, err);
    return true;
}

int cuda__check_dnn(cudnnStatus_t e, const char *what, struct sh_err *err)
{
    char detail[256] = "";
    int rc = SH_E_BUG;

    if (e == CUDNN_STATUS_SUCCESS || context_lost(what, &rc, err))
        return e == CUDNN_STATUS_SUCCESS ? SH_OK : rc;
    if (e == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        rc = SH_E_DEVMEM;
    else if (e == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
        rc = SH_E_NOMEM;
    else if (CUDNN_STATUS_CATEGORY(e) == CUDNN_STATUS_NOT_SUPPORTED)
        rc = SH_E_UNSUPPORTED;
    cudnnGetLastErrorString(detail, sizeof(detail));
    return fail_library(err, rc, (int)e, what, cudnnGetErrorString(e), detail);
}

int cuda__check_blas(cublasStatus_t e, const char *what, struct sh_err *err)
{
    int rc = SH_E_BUG;

    if (e == CUBLAS_STATUS_SUCCESS || context_lost(what, &rc, err))
        return e == CUBLAS_STATUS_SUCCESS ? SH_OK : rc;
    if (e == CUBLAS_STATUS_ALLOC_FAILED)
        rc = SH_E_DEVMEM;
    else if (e == CUBLAS_STATUS_NOT_SUPPORTED || e == CUBLAS_STATUS_ARCH_MISMATCH)
        rc = SH_E_UNSUPPORTED;
    return fail_library(err, rc, (int)e, what, cublasLtGetStatusString(e),
                        cublasLtGetStatusName(e));
}

static void describe_call(const struct cuda_call *c, char *out, size_t size)
{
    snprintf(out, size, "run %s (node \"%.100s\")", dev_op_name(c->op->kind),
             c->op->name ? c->op->name : "");
}

int cuda__launch_failed(const struct cuda_call *c, CUresult e, struct sh_err *err)
{
    char what[160];

    describe_call(c, what, sizeof(what));
    return cuda__check_drv(e, what, err);
}

int cuda__launched(const struct cuda_call *c, struct sh_err *err)
{
    cudaError_t e = cudaGetLastError();
    char what[160];

    if (e == cudaSuccess)
        return SH_OK;
    describe_call(c, what, sizeof(what));
    return fail_library(err, class_of((int)e), (int)e, what, cudaGetErrorString(e),
                        cudaGetErrorName(e));
}
