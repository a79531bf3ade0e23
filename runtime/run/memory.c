/* memory.c - how much memory a model may still take here. */
#include "common/io.h"
#include "common/mem.h"
#include "runtime/run/run.h"

#include <stdlib.h>
#include <string.h>

/* Of a line "KEY NUMBER"; key "": the text is the number. 0: there is none. */
static uint64_t machine_number(const char *text, const char *key)
{
    const size_t n = strlen(key);
    const char *at = text;

    while (at && strncmp(at, key, n) != 0) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    return at ? strtoull(at + n, NULL, 10) : 0;
}

static uint64_t read_machine_number(const char *root, const char *path, const char *key)
{
    char text[8192];

    sh_read_text(root, path, text, sizeof(text));
    return machine_number(text, key);
}

/* In use, but for what was read of files: it is dropped where memory is wanted. */
static uint64_t used_of_container(const char *root)
{
    const uint64_t all = read_machine_number(root, "/sys/fs/cgroup/memory.current", "");
    uint64_t files;
    char text[8192];

    sh_read_text(root, "/sys/fs/cgroup/memory.stat", text, sizeof(text));
    files = machine_number(text, "inactive_file ") + machine_number(text, "active_file ");
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
