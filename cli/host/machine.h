/* machine.h - processors, memory, limits and clocks of this machine.
 *
 * Facts are read in one place and judged in another, so that tests judge machines that they do not
 * have.
 */
#ifndef SH_CLI_HOST_MACHINE_H
#define SH_CLI_HOST_MACHINE_H

#include "cli/host/checks.h"

#include <stdbool.h>
#include <stdint.h>

#define MACHINE_UNLIMITED UINT64_MAX
#define MACHINE_WORD 32

struct machine {
    unsigned cores, numa_nodes;
    uint64_t memory_bytes, available_bytes;
    uint64_t cgroup_bytes;          /* that this process's cgroups allow; MACHINE_UNLIMITED */
    uint64_t locked_bytes;          /* RLIMIT_MEMLOCK, hard; MACHINE_UNLIMITED */
    uint64_t open_files;            /* RLIMIT_NOFILE, hard */
    uint64_t shm_bytes;             /* size of /dev/shm; 0: there is none */
    bool is_root, clock_is_set;     /* set: disciplined by NTP or PTP */
    bool knows_clock;               /* false: the kernel does not say whether it is */
    char clocksource[MACHINE_WORD]; /* "tsc"; "": unknown */
    char governor[MACHINE_WORD];    /* of processor 0; "": none */
    char huge_pages[MACHINE_WORD];  /* transparent ones: "always", "madvise", "never"; "" */
};

/* root: where /proc and /sys are found, "" for this machine. What cannot be read stays unknown. */
void machine_read(const char *root, struct machine *out);
/* uses_gpu: host memory will be page-locked. */
void machine_judge(const struct machine *m, bool uses_gpu, struct checks *k);

#endif
