/* gpu_watch.c - see gpu_watch.h. */
#include "executor/report/gpu_watch.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/thread.h"
#include "common/units.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIBRARY "libnvidia-ml.so.1"
#define PERIOD_NS SH_MS(100) /* of the energy; the rest is asked for once in SLOW of them */
#define SLOW 10
#define NO_ENERGY UINT64_MAX

/* What we use of NVML's interface, which is stable: nvml.h comes with no package of Debian. */
enum { NVML_SUCCESS = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2, NVML_TEMPERATURE_GPU = 0 };
struct nvml_use {
    unsigned gpu, memory; /* percent */
};
struct nvml_memory {
    unsigned long long total, free, used;
};
typedef void *nvml_device;

#define NVML_CALLS(X)                                                                     \
    X(init, "nvmlInit_v2", (void))                                                        \
    X(shutdown, "nvmlShutdown", (void))                                                   \
    X(by_pci, "nvmlDeviceGetHandleByPciBusId_v2", (const char *, nvml_device *))          \
    X(index, "nvmlDeviceGetIndex", (nvml_device, unsigned *))                             \
    X(uuid, "nvmlDeviceGetUUID", (nvml_device, char *, unsigned))                         \
    X(name, "nvmlDeviceGetName", (nvml_device, char *, unsigned))                         \
    X(energy, "nvmlDeviceGetTotalEnergyConsumption", (nvml_device, unsigned long long *)) \
    X(power, "nvmlDeviceGetPowerUsage", (nvml_device, unsigned *))                        \
    X(temperature, "nvmlDeviceGetTemperature", (nvml_device, int, unsigned *))            \
    X(clock, "nvmlDeviceGetClockInfo", (nvml_device, int, unsigned *))                    \
    X(use, "nvmlDeviceGetUtilizationRates", (nvml_device, struct nvml_use *))             \
    X(memory, "nvmlDeviceGetMemoryInfo", (nvml_device, struct nvml_memory *))             \
    X(replays, "nvmlDeviceGetPcieReplayCounter", (nvml_device, unsigned *))

struct gpu_watch {
    void *library;
#define X(name, symbol, args) int(*name) args;
    NVML_CALLS(X)
#undef X
    nvml_device device;
    struct {
        char index[16], uuid[96], device[24], model[96];
    } label;
    _Atomic uint64_t energy_mj;
    pthread_t thread;
    bool has_begun, has_thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool is_over; /* under the lock */
};

/* ------------------------------------------------------------------ asking */

static void show_reading(const struct gpu_watch *g, enum sh_metric m, int rc, double v)
{
    const char *const labels[] = {g->label.index, g->label.uuid, g->label.device, g->label.model};

    if (rc == NVML_SUCCESS) /* else this device does not say */
        sh_metric_set(m, labels, v);
}

static void ask_energy(struct gpu_watch *g)
{
    unsigned long long mj;

    if (g->energy(g->device, &mj) == NVML_SUCCESS)
        atomic_store(&g->energy_mj, mj);
}

static void ask_all(struct gpu_watch *g)
{
    struct nvml_memory memory = {0};
    struct nvml_use use = {0};
    unsigned v = 0;
    const uint64_t mj = atomic_load(&g->energy_mj);
    int rc = g->use(g->device, &use);

    show_reading(g, M_DCGM_FI_DEV_GPU_UTIL, rc, use.gpu);
    show_reading(g, M_DCGM_FI_DEV_MEM_COPY_UTIL, rc, use.memory);
    show_reading(g, M_DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, mj == NO_ENERGY, (double)mj);
    rc = g->power(g->device, &v);
    show_reading(g, M_DCGM_FI_DEV_POWER_USAGE, rc, v / 1e3);
    rc = g->temperature(g->device, NVML_TEMPERATURE_GPU, &v);
    show_reading(g, M_DCGM_FI_DEV_GPU_TEMP, rc, v);
    rc = g->clock(g->device, NVML_CLOCK_SM, &v);
    show_reading(g, M_DCGM_FI_DEV_SM_CLOCK, rc, v);
    rc = g->clock(g->device, NVML_CLOCK_MEM, &v);
    show_reading(g, M_DCGM_FI_DEV_MEM_CLOCK, rc, v);
    rc = g->memory(g->device, &memory);
    show_reading(g, M_DCGM_FI_DEV_FB_USED, rc, (double)(memory.used >> 20));
    show_reading(g, M_DCGM_FI_DEV_FB_FREE, rc, (double)(memory.free >> 20));
    rc = g->replays(g->device, &v);
    show_reading(g, M_DCGM_FI_DEV_PCIE_REPLAY_COUNTER, rc, v);
}

static bool rest_one_period(struct gpu_watch *g)
{
    const struct timespec until = sh_cond_deadline(PERIOD_NS);
    bool is_over;

    pthread_mutex_lock(&g->lock);
    while (!g->is_over && pthread_cond_timedwait(&g->wake, &g->lock, &until) != ETIMEDOUT)
        ;
    is_over = g->is_over;
    pthread_mutex_unlock(&g->lock);
    return !is_over;
}

static void *watch_main(void *arg)
{
    struct gpu_watch *g = arg;

    for (unsigned i = 0; i == 0 || rest_one_period(g); i++) {
        ask_energy(g);
        if (i % SLOW == 0)
            ask_all(g);
    }
    return NULL;
}

bool gpu_watch_joules(const struct gpu_watch *g, double *out)
{
    const uint64_t mj = g ? atomic_load(&g->energy_mj) : NO_ENERGY;

    *out = (double)mj / 1e3;
    return mj != NO_ENERGY;
}

/* ------------------------------------------------------------------ start and end */

static int load_nvml(struct gpu_watch *g, const char *library, struct sh_err *err)
{
    static const struct {
        const char *symbol;
        size_t at;
    } CALLS[] = {
#define X(name, symbol, args) {symbol, offsetof(struct gpu_watch, name)},
        NVML_CALLS(X)
#undef X
    };

    g->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!g->library)
        return SH_FAIL(err, SH_E_UNSUPPORTED, "there is no %s", library);
    for (size_t i = 0; i < SH_ARRAY_LEN(CALLS); i++) {
        void *call = dlsym(g->library, CALLS[i].symbol);

        if (!call)
            return SH_FAIL(err, SH_E_UNSUPPORTED, "%s has no %s", library, CALLS[i].symbol);
        memcpy((char *)g + CALLS[i].at, &call, sizeof(call));
    }
    return SH_OK;
}

static int find_gpu(struct gpu_watch *g, const char *pci, struct sh_err *err)
{
    unsigned index = 0;

    g->has_begun = g->init() == NVML_SUCCESS;
    if (!g->has_begun || g->by_pci(pci, &g->device) != NVML_SUCCESS)
        return SH_FAIL(err, SH_E_UNSUPPORTED, "NVML does not know the device %s", pci);
    if (g->index(g->device, &index) != NVML_SUCCESS ||
        g->uuid(g->device, g->label.uuid, sizeof(g->label.uuid)) != NVML_SUCCESS ||
        g->name(g->device, g->label.model, sizeof(g->label.model)) != NVML_SUCCESS)
        return SH_FAIL(err, SH_E_UNSUPPORTED, "NVML does not say what device %s is", pci);
    snprintf(g->label.index, sizeof(g->label.index), "%u", index);
    snprintf(g->label.device, sizeof(g->label.device), "nvidia%u", index);
    return SH_OK;
}

static int begin_watch(struct gpu_watch *g, struct sh_err *err)
{
    int native;

    sh_cond_init(&g->wake);
    pthread_mutex_init(&g->lock, NULL);
    native = pthread_create(&g->thread, NULL, watch_main, g);
    g->has_thread = native == 0;
    errno = native;
    return native ? SH_FAIL_ERRNO(err, SH_E_IO, "could not start a thread for NVML") : SH_OK;
}

int gpu_watch_start(const char *pci, const char *library, struct gpu_watch **out,
                    struct sh_err *err)
{
    struct gpu_watch *g = calloc(1, sizeof(*g));
    int rc;

    *out = NULL;
    if (!g)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate what watches the device");
    g->energy_mj = NO_ENERGY;
    rc = load_nvml(g, library ? library : LIBRARY, err);
    if (!rc)
        rc = find_gpu(g, pci, err);
    if (!rc)
        rc = begin_watch(g, err);
    if (rc) {
        gpu_watch_stop(g);
        return rc;
    }
    *out = g;
    return SH_OK;
}

void gpu_watch_stop(struct gpu_watch *g)
{
    if (!g)
        return;
    if (g->has_thread) {
        pthread_mutex_lock(&g->lock);
        g->is_over = true;
        pthread_cond_signal(&g->wake);
        pthread_mutex_unlock(&g->lock);
        pthread_join(g->thread, NULL);
    }
    if (g->has_begun)
        g->shutdown();
    if (g->library)
        dlclose(g->library);
    free(g);
}
