/* gpu.h - executors and their devices. */
#ifndef SH_CLI_COMMANDS_GPU_H
#define SH_CLI_COMMANDS_GPU_H

#include "cli/cli.h"

/* Are fences of a GPU's workers missing? out: their names. */
bool gpu_lacks_fences(const json_t *gpu, char *out, size_t size);

/* Adds to each GPU of a list what a table shows, which is made of several fields: "kind", "now",
 * "used", "models_host", "parts" (of its time), "link", "held" (its fences). */
void gpu_add_columns(json_t *gpus);

#endif
