/* nvml.c - an NVML with one device that does not exist: it draws 300 W, and is as hot as the file
 * `heat` beside the library says. For tests, in place of the driver's library
 * (executor/report/gpu_watch.h). */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CALL __attribute__((visibility("default")))
#define WATTS 300.0
#define PCI "0000:41:00.0"

struct memory {
    unsigned long long total, free, used;
};
struct use {
    unsigned gpu, memory;
};

static int device;
static struct timespec since;

static int text(char *out, unsigned size, const char *s)
{
    if (strlen(s) >= size)
        return 7; /* too small */
    memcpy(out, s, strlen(s) + 1);
    return 0;
}

static int number(unsigned *out, unsigned v)
{
    *out = v;
    return 0;
}

CALL int nvmlInit_v2(void);
CALL int nvmlShutdown(void);
CALL int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **out);
CALL int nvmlDeviceGetIndex(void *d, unsigned *out);
CALL int nvmlDeviceGetUUID(void *d, char *out, unsigned size);
CALL int nvmlDeviceGetName(void *d, char *out, unsigned size);
CALL int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *out);
CALL int nvmlDeviceGetPowerUsage(void *d, unsigned *out);
CALL int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *out);
CALL int nvmlDeviceGetClockInfo(void *d, int clock, unsigned *out);
CALL int nvmlDeviceGetUtilizationRates(void *d, struct use *out);
CALL int nvmlDeviceGetMemoryInfo(void *d, struct memory *out);
CALL int nvmlDeviceGetPcieReplayCounter(void *d, unsigned *out);

int nvmlInit_v2(void)
{
    clock_gettime(CLOCK_MONOTONIC, &since);
    return 0;
}
int nvmlShutdown(void)
{
    return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **out)
{
    *out = &device;
    return strcmp(pci, PCI) == 0 ? 0 : 6; /* not found */
}
int nvmlDeviceGetIndex(void *d, unsigned *out)
{
    (void)d;
    return number(out, 3);
}
int nvmlDeviceGetUUID(void *d, char *out, unsigned size)
{
    (void)d;
    return text(out, size, "GPU-fake");
}
int nvmlDeviceGetName(void *d, char *out, unsigned size)
{
    (void)d;
    return text(out, size, "Fake GPU");
}

int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *out)
{
    struct timespec now;
    double s;

    (void)d;
    clock_gettime(CLOCK_MONOTONIC, &now);
    s = (double)(now.tv_sec - since.tv_sec) + (double)(now.tv_nsec - since.tv_nsec) / 1e9;
    *out = 5000000 + (unsigned long long)(s * WATTS * 1e3);
    return 0;
}

int nvmlDeviceGetPowerUsage(void *d, unsigned *out)
{
    (void)d;
    return number(out, (unsigned)(WATTS * 1e3));
}
int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *out)
{
    char path[PATH_MAX];
    Dl_info here = {.dli_fname = ""};
    const char *slash;
    FILE *f;

    (void)d, (void)sensor;
    dladdr(&device, &here);
    slash = strrchr(here.dli_fname, '/');
    snprintf(path, sizeof(path), "%.*s/heat", (int)(slash ? slash - here.dli_fname : 0),
             here.dli_fname);
    f = fopen(path, "re");
    if (!f || fscanf(f, "%u", out) != 1)
        *out = 55;
    if (f)
        fclose(f);
    return 0;
}
int nvmlDeviceGetClockInfo(void *d, int clock, unsigned *out)
{
    (void)d;
    return number(out, clock == 1 ? 1980 : 3201);
}
int nvmlDeviceGetUtilizationRates(void *d, struct use *out)
{
    (void)d;
    *out = (struct use){87, 31};
    return 0;
}
int nvmlDeviceGetPcieReplayCounter(void *d, unsigned *out)
{
    (void)d;
    return number(out, 0);
}

int nvmlDeviceGetMemoryInfo(void *d, struct memory *out)
{
    (void)d;
    *out = (struct memory){.total = 141ull << 30, .free = 100ull << 30, .used = 41ull << 30};
    return 0;
}
