/* machine.c - see machine.h. */
#include "cli/host/machine.h"

#include "cli/text/out.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/spawn.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#define MAX_TEXT 16384
#define MAX_NODES 1024
#define SIZE_TEXT 32
#define ENOUGH_FILES 16384             /* as the units of deploy/systemd ask for */
#define ENOUGH_SHM ((uint64_t)1 << 30) /* what containers get by default is 64 MiB */
#define ENOUGH_LOCKED ((uint64_t)1 << 30)
#define ENOUGH_MEMORY ((uint64_t)2 << 30)

/* ---------------------------------------------------------------- reading */

/* "MemTotal:  131072 kB" -> bytes; 0: not there. */
static uint64_t memory_line(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    uint64_t kib = 0;

    return at && sscanf(at + strlen(name), ": %" SCNu64, &kib) == 1 ? kib << 10 : 0;
}

static uint64_t hard_limit(int which)
{
    struct rlimit l;

    if (getrlimit((__rlimit_resource_t)which, &l) != 0 || l.rlim_max == RLIM_INFINITY)
        return MACHINE_UNLIMITED;
    return l.rlim_max;
}

/* The least of what this process's cgroup and those above it allow (version 2). */
static uint64_t cgroup_limit(const char *root)
{
    char own[2048], path[4096], text[64];
    uint64_t least = MACHINE_UNLIMITED, n;
    char *dir, *slash;

    sh_read_text(root, "/proc/self/cgroup", own, sizeof(own));
    dir = strstr(own, "0::");
    if (!dir)
        return least;
    dir += 3;
    dir[strcspn(dir, "\n")] = '\0';
    for (;;) {
        snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", dir);
        sh_read_text(root, path, text, sizeof(text));
        if (sscanf(text, "%" SCNu64, &n) == 1)
            least = SH_MIN(least, n);
        slash = strrchr(dir, '/');
        if (!slash)
            return least;
        *slash = '\0';
    }
}

/* "always [madvise] never" -> "madvise" */
static void chosen_word(const char *text, char *out, size_t size)
{
    const char *at = strchr(text, '[');
    size_t n = at ? strcspn(at + 1, "]") : 0;

    out[0] = '\0';
    if (n > 0 && n < size) {
        memcpy(out, at + 1, n);
        out[n] = '\0';
    }
}

static unsigned count_nodes(const char *root)
{
    char path[4096];
    unsigned n = 0;

    for (unsigned i = 0; i < MAX_NODES; i++) {
        snprintf(path, sizeof(path), "%s/sys/devices/system/node/node%u", root, i);
        n += access(path, F_OK) == 0;
    }
    return n;
}

static void read_clock(struct machine *m)
{
    struct timex t = {0};
    int state = adjtimex(&t);

    m->knows_clock = state >= 0;
    m->clock_is_set = state >= 0 && state != TIME_ERROR && !(t.status & STA_UNSYNC);
}

void machine_read(const char *root, struct machine *out)
{
    char text[MAX_TEXT];
    struct statvfs v;

    *out = (struct machine){.cores = sh_cores(),
                            .numa_nodes = count_nodes(root),
                            .cgroup_bytes = cgroup_limit(root),
                            .locked_bytes = hard_limit(RLIMIT_MEMLOCK),
                            .open_files = hard_limit(RLIMIT_NOFILE),
                            .is_root = geteuid() == 0};
    sh_read_text(root, "/proc/meminfo", text, sizeof(text));
    out->memory_bytes = memory_line(text, "MemTotal");
    out->available_bytes = memory_line(text, "MemAvailable");
    if (statvfs("/dev/shm", &v) == 0)
        out->shm_bytes = (uint64_t)v.f_frsize * v.f_blocks;
    read_clock(out);
    sh_read_text(root, "/sys/devices/system/clocksource/clocksource0/current_clocksource",
                 out->clocksource, sizeof(out->clocksource));
    sh_read_text(root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", out->governor,
                 sizeof(out->governor));
    sh_read_text(root, "/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof(text));
    chosen_word(text, out->huge_pages, sizeof(out->huge_pages));
}

/* ---------------------------------------------------------------- judging */

static const char *size_text(uint64_t bytes, char text[static SIZE_TEXT])
{
    if (bytes == MACHINE_UNLIMITED)
        return "unlimited";
    out_bytes((double)bytes, text, SIZE_TEXT);
    return text;
}

static void judge_processors(const struct machine *m, struct checks *k)
{
    const bool is_slow = strcmp(m->governor, "powersave") == 0;

    checks_add(k, "processors", m->cores < 2 ? CHECK_WARN : CHECK_OK,
               "daemons and workers share one core: switches will wait for each other",
               "%u cores for this process, %u NUMA node%s", m->cores, SH_MAX(m->numa_nodes, 1u),
               m->numa_nodes > 1 ? "s" : "");
    if (m->governor[0])
        checks_add(k, "frequency", is_slow ? CHECK_NOTE : CHECK_OK,
                   "cores that slow down answer later: set the governor to performance "
                   "(cpupower frequency-set -g performance), or compare latencies first",
                   "governor %s", m->governor);
}

static void judge_memory(const struct machine *m, struct checks *k)
{
    const uint64_t usable = SH_MIN(m->memory_bytes, m->cgroup_bytes);
    char all[SIZE_TEXT], free_now[SIZE_TEXT], allowed[SIZE_TEXT];

    checks_add(
        k, "memory", usable < ENOUGH_MEMORY ? CHECK_WARN : CHECK_OK,
        "models, checkpoints and the pool of the cpu device live in host memory: allow 2 GiB "
        "and the size of the models at least",
        "%s, %s available%s%s", size_text(m->memory_bytes, all),
        size_text(m->available_bytes, free_now),
        m->cgroup_bytes < m->memory_bytes ? "; cgroups allow " : "",
        m->cgroup_bytes < m->memory_bytes ? size_text(m->cgroup_bytes, allowed) : "");
    if (m->huge_pages[0])
        checks_add(k, "huge pages", strcmp(m->huge_pages, "never") == 0 ? CHECK_NOTE : CHECK_OK,
                   "the cpu device asks for huge pages for its pool: echo madvise > "
                   "/sys/kernel/mm/transparent_hugepage/enabled",
                   "transparent: %s", m->huge_pages);
}

static void judge_limits(const struct machine *m, bool uses_gpu, struct checks *k)
{
    char text[SIZE_TEXT];
    const bool is_low = m->locked_bytes < ENOUGH_LOCKED && !m->is_root && uses_gpu;

    checks_add(k, "page-locking", is_low ? CHECK_WARN : CHECK_OK,
               "images and checkpoints are page-locked for copies: ulimit -l unlimited, "
               "LimitMEMLOCK=infinity in a unit, or --ulimit memlock=-1 for a container",
               "limit %s%s", size_text(m->locked_bytes, text),
               m->is_root ? ", and root may raise it" : "");
    checks_add(k, "open files", m->open_files < ENOUGH_FILES ? CHECK_WARN : CHECK_OK,
               "each connection, dataset and worker takes some: ulimit -Hn 16384, or "
               "LimitNOFILE=16384 in a unit",
               "limit %" PRIu64, m->open_files);
    if (!m->shm_bytes)
        checks_add(k, "shared memory", CHECK_NOTE,
                   "only clients that pass tensors in shared memory need it",
                   "/dev/shm is not there");
    else
        checks_add(
            k, "shared memory", m->shm_bytes < ENOUGH_SHM ? CHECK_NOTE : CHECK_OK,
            "clients that pass tensors in shared memory need room there: --shm-size=1g for a "
            "container",
            "/dev/shm has %s", size_text(m->shm_bytes, text));
}

static void judge_clocks(const struct machine *m, struct checks *k)
{
    const char *s = m->clocksource;
    const bool is_slow = strcmp(s, "hpet") == 0 || strcmp(s, "acpi_pm") == 0 ||
                         strcmp(s, "jiffies") == 0 || strcmp(s, "refined-jiffies") == 0;

    checks_add(k, "time",
               !m->knows_clock   ? CHECK_NOTE
               : m->clock_is_set ? CHECK_OK
                                 : CHECK_WARN,
               m->knows_clock
                   ? "times in logs, usage and expiring keys are wrong by as much as the "
                     "clock: run chrony or systemd-timesyncd"
                   : "make sure that chrony or systemd-timesyncd runs on the host",
               "%s",
               !m->knows_clock   ? "the kernel does not say whether the clock is synchronised"
               : m->clock_is_set ? "the clock is synchronised"
                                 : "the clock is not synchronised");
    if (s[0])
        checks_add(k, "clock source", is_slow ? CHECK_WARN : CHECK_OK,
                   "reading it takes a microsecond and more, many times in a switch: boot with a "
                   "kernel and firmware that offer tsc",
                   "%s", s);
}

void machine_judge(const struct machine *m, bool uses_gpu, struct checks *k)
{
    judge_processors(m, k);
    judge_memory(m, k);
    judge_limits(m, uses_gpu, k);
    judge_clocks(m, k);
}
