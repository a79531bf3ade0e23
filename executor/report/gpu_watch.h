/* gpu_watch.h - what NVIDIA's library for management (NVML) says of the device, under the names
 * that DCGM's exporter gives it (DCGM_FI_*), so that dashboards which people have go on.
 *
 * A thread of its own asks, since some answers take milliseconds. The library is loaded when it is
 * there; without it, or without a GPU, there are no such series.
 */
#ifndef SH_EXECUTOR_REPORT_GPU_WATCH_H
#define SH_EXECUTOR_REPORT_GPU_WATCH_H

#include "common/err.h"

#include <stdbool.h>

struct gpu_watch;

/* pci: PCI bus id of the device ("0000:41:00.0"). library: its file; NULL: the driver's. *out:
 * OWNED, gpu_watch_stop(). Fails: SH_E_UNSUPPORTED: there is no such library or device; SH_E_NOMEM,
 * SH_E_IO. */
int gpu_watch_start(const char *pci, const char *library, struct gpu_watch **out,
                    struct sh_err *err);
void gpu_watch_stop(struct gpu_watch *g); /* NULL is allowed */
/* All energy that the device has used since its driver was loaded; false: unknown. Any thread. */
bool gpu_watch_joules(const struct gpu_watch *g, double *out);

#endif
