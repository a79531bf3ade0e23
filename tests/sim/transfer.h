/* transfer.h - where the files of an API on another host lie (transfer.c). */
#ifndef SH_TESTS_SIM_TRANSFER_H
#define SH_TESTS_SIM_TRANSFER_H

#include <stdint.h>

#define SIM_TRANSFER_PATH 256u

/* url: /api/v1/jobs/5/files/losses.json, and more behind a question mark. */
void sim_transfer_path(const char *url, char path[static SIM_TRANSFER_PATH]);

int64_t __wrap_sh_importer_of(const char *package);

#endif
