/* memory.c - how much memory a model may still take here. */
#include "common/mem.h"
#include "runtime/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a line "KEY NUMBER" of a file; key "": the file is the number. 0: there is none. */
static uint64_t read_machine_number(const char *root, const char *path, const char *key)
{
    char text[256];
    uint64_t n = 0;
    FILE *f;

    snprintf(text, sizeof(text), "%s%s", root, path);
    f = fopen(text, "re");
    while (f && n == 0 && fgets(text, sizeof(text), f))
        if (strncmp(text, key, strlen(key)) == 0)
            n = strtoull(text + strlen(key), NULL, 10);
    if (f)
        fclose(f);
    return n;
}

/* In use, but for what was read of files: it is dropped where memory is wanted. */
static uint64_t used_of_container(const char *root)
{
    const uint64_t all = read_machine_number(root, "/sys/fs/cgroup/memory.current", ""),
                   files =
                       read_machine_number(root, "/sys/fs/cgroup/memory.stat", "inactive_file ") +
                       read_machine_number(root, "/sys/fs/cgroup/memory.stat", "active_file ");

    return all > files ? all - files : 0;
}

uint64_t run_free_memory(const char *root)
{
    const uint64_t machine = read_machine_number(root, "/proc/meminfo", "MemAvailable:") << 10,
                   most = read_machine_number(root, "/sys/fs/cgroup/memory.max", ""),
                   used = used_of_container(root), left = most > used ? most - used : 0;

    if (most == 0)
        return machine ? machine : UINT64_MAX;
    return machine ? SH_MIN(machine, left) : left;
}
