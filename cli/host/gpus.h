/* gpus.h - NVIDIA GPUs of this machine: the driver, the bus, and whether our back end can use them.
 *
 * What the kernel and nvidia-smi say is read here; what needs CUDA is asked of `shunt-run device`,
 * one process for each device. Facts are read in one place and judged in another (machine.h).
 */
#ifndef SH_CLI_HOST_GPUS_H
#define SH_CLI_HOST_GPUS_H

#include "cli/host/checks.h"

#include <stdbool.h>
#include <stdint.h>

#define GPUS_MAX 16
#define GPUS_TEXT 64

struct gpu_link { /* of the bus; 0: unknown */
    double gt_per_s, max_gt_per_s;
    unsigned width, max_width;
};
struct gpu {
    char pci[GPUS_TEXT];  /* "0000:3b:00.0" */
    char name[GPUS_TEXT]; /* "": nvidia-smi did not say */
    bool is_used;         /* our back end has opened it */
    char compute_mode[GPUS_TEXT], mig[GPUS_TEXT], persistence[GPUS_TEXT];
    uint64_t held_back; /* bits: why its clocks are lower than they could be (NVML's numbers) */
    int numa_node;      /* -1: unknown, or there is only one */
    struct gpu_link link;
};
struct gpus {
    unsigned driver; /* major version of the kernel's driver; 0: none is loaded */
    char driver_text[GPUS_TEXT];
    bool has_smi;
    size_t n;
    struct gpu gpu[GPUS_MAX]; /* in the order of the bus, which is nvidia-smi's and ours */
};

/* root: where /proc and /sys are found, "" for this machine. smi: the program to ask. */
void gpus_read(const char *root, const char *smi, struct gpus *out);
void gpus_judge(const struct gpus *g, struct checks *k);
/* Asks `shunt-run device`, the program `run`, about the cpu device, or about each device that CUDA
 * shows: the others are hidden by `visible`, the value of CUDA_VISIBLE_DEVICES (NULL: not set).
 * Takes up to a minute for each. */
void gpus_try_cpu(const char *run, struct checks *k);
void gpus_try_cuda(struct gpus *g, const char *run, const char *visible, struct checks *k);
/* The judgement of what it said, for tests. */
void gpus_judge_device(const char *name, const json_t *said, const struct gpu *g, struct checks *k);

#endif
