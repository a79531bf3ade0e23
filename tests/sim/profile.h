/* profile.h - times and sizes of a device and of models on it, from a file (profiles/).
 *
 * One simulated byte stands for SIM_SCALE bytes of the file, as a block of the simulation does
 * (blocks.h), and takes as long to copy as all of them.
 *
 *   device NAME BYTES
 *   link TO_GB_S FROM_GB_S LATENCY_US
 *   memory GB_S                            copies within the device
 *   model NAME COMPILE_MS PROFILE_MS       what follows is of it
 *   io INPUT_BYTES OUTPUT_BYTES            of a sample
 *   layers COUNT BYTES NS                  so many, one behind the other; ns at batch 1
 *   batch SIZE WORKSPACE_BYTES FACTOR      ascending; layers take so many times as long
 *   train STATE_BYTES WORKSPACE_BYTES COMPILE_MS
 *   operations COUNT NS                    of a step, before its update
 *   updates COUNT NS                       of its update
 */
#ifndef SH_TESTS_SIM_PROFILE_H
#define SH_TESTS_SIM_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_SCALE UINT64_C(2048) /* 2 MiB over a block of 1 KiB */
#define SIM_MAX_LAYERS 64u
#define SIM_MAX_SIZES 8u
#define SIM_MAX_OPS 48u
#define SIM_MAX_MODELS 16u

struct sim_size {
    uint32_t batch;
    uint64_t ws_bytes;
    double times;
};

struct sim_model { /* bytes are simulated ones, multiples of 8 */
    char name[32];
    int64_t compile_ns, profile_ns; /* of one batch size */
    uint64_t in_bytes, out_bytes;   /* of a sample */
    uint32_t n_layers;
    uint64_t layer_ends[SIM_MAX_LAYERS]; /* of the image */
    int64_t layer_ns[SIM_MAX_LAYERS];
    uint32_t n_sizes;
    struct sim_size sizes[SIM_MAX_SIZES];
    /* n_ops = 0: it cannot be trained */
    uint64_t state_bytes, train_ws_bytes;
    int64_t train_compile_ns;
    uint32_t n_ops, update; /* operations of a step; the first of its update */
    int64_t op_ns[SIM_MAX_OPS];
};

struct sim_profile {
    char device[48];
    uint64_t device_bytes; /* real ones */
    double to_ns_per_byte, from_ns_per_byte, memory_ns_per_byte;
    int64_t latency_ns;
    uint32_t n_models;
    struct sim_model models[SIM_MAX_MODELS];
};

/* Never freed. A file that cannot be read ends the process with a message. */
const struct sim_profile *sim_profile_read(const char *path);
const struct sim_model *sim_profile_model(const struct sim_profile *p, const char *name); /* NULL */

#endif
