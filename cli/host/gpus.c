/* gpus.c - see gpus.h. */
#include "cli/host/gpus.h"

#include "cli/text/out.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/spawn.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#define DRIVER_OF_CUDA 580u /* the first that runs programs of CUDA 13 */
#define SMI_MS 20000
#define TRY_MS 60000
#define MAX_SAID ((size_t)16 << 10)
#define GOOD_LINK 0.7                     /* of what the bus can carry */
#define LANE_CODING (128.0 / 130.0 / 8.0) /* GB/s of a lane at 1 GT/s, PCIe 3 and later */

/* ---------------------------------------------------------------- reading */

static bool is_gpu(const char *dir)
{
    char vendor[GPUS_TEXT], class[GPUS_TEXT];

    sh_read_text(dir, "/vendor", vendor, sizeof(vendor));
    sh_read_text(dir, "/class", class, sizeof(class));
    return strcmp(vendor, "0x10de") == 0 && strncmp(class, "0x03", 4) == 0;
}

static void read_bus(const char *dir, struct gpu *g)
{
    char text[GPUS_TEXT];

    g->numa_node = -1;
    sh_read_text(dir, "/numa_node", text, sizeof(text));
    if (text[0])
        g->numa_node = (int)strtol(text, NULL, 10);
    sh_read_text(dir, "/current_link_speed", text, sizeof(text));
    g->link.gt_per_s = strtod(text, NULL);
    sh_read_text(dir, "/max_link_speed", text, sizeof(text));
    g->link.max_gt_per_s = strtod(text, NULL);
    sh_read_text(dir, "/current_link_width", text, sizeof(text));
    g->link.width = (unsigned)strtoul(text, NULL, 10);
    sh_read_text(dir, "/max_link_width", text, sizeof(text));
    g->link.max_width = (unsigned)strtoul(text, NULL, 10);
}

static int by_pci(const void *a, const void *b)
{
    return strcmp(((const struct gpu *)a)->pci, ((const struct gpu *)b)->pci);
}

static void read_sysfs(const char *root, struct gpus *g)
{
    char dir[3072], one[4096];
    struct dirent *e;
    DIR *d;

    snprintf(dir, sizeof(dir), "%s/sys/bus/pci/devices", root);
    d = opendir(dir);
    while (d && g->n < GPUS_MAX && (e = readdir(d)) != NULL) {
        snprintf(one, sizeof(one), "%s/%s", dir, e->d_name);
        if (e->d_name[0] == '.' || !is_gpu(one))
            continue;
        sh_strlcpy(g->gpu[g->n].pci, e->d_name, GPUS_TEXT);
        read_bus(one, &g->gpu[g->n++]);
    }
    if (d)
        closedir(d);
    qsort(g->gpu, g->n, sizeof(g->gpu[0]), by_pci);
}

/* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build ..." */
static void read_driver(const char *root, struct gpus *g)
{
    char dir[3072], line[256], *save = NULL;

    snprintf(dir, sizeof(dir), "%s/proc/driver/nvidia", root);
    sh_read_text(dir, "/version", line, sizeof(line));
    for (char *w = strtok_r(line, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        unsigned major, minor;

        if (sscanf(w, "%u.%u", &major, &minor) == 2) {
            g->driver = major;
            sh_strlcpy(g->driver_text, w, sizeof(g->driver_text));
            return;
        }
    }
}

/* By nvidia-smi's "00000000:3B:00.0", CUDA's "0000:3B:00.0" or the kernel's "0000:3b:00.0". */
static struct gpu *gpu_of_bus(struct gpus *g, const char *pci)
{
    const char *tail = strchr(pci, ':');

    for (size_t i = 0; tail && i < g->n; i++) {
        const char *own = strchr(g->gpu[i].pci, ':');

        if (own && strcasecmp(own, tail) == 0)
            return &g->gpu[i];
    }
    return NULL;
}

/* One that sysfs hides (in a container) is added. NULL: no room. */
static struct gpu *gpu_at(struct gpus *g, const char *pci)
{
    struct gpu *known = gpu_of_bus(g, pci);

    if (known || g->n >= GPUS_MAX)
        return known;
    g->gpu[g->n] = (struct gpu){.numa_node = -1};
    sh_strlcpy(g->gpu[g->n].pci, pci, GPUS_TEXT);
    return &g->gpu[g->n++];
}

static char *run_smi(const char *smi, const char *fields)
{
    char query[256];
    const char *argv[] = {smi, query, "--format=csv,noheader,nounits", NULL};
    struct sh_spawn s = {.path = smi, .argv = argv, .stdout_fd = -1, .stderr_fd = -1};
    char *text = NULL;
    size_t len;
    int status = 0;

    snprintf(query, sizeof(query), "--query-gpu=%s", fields);
    if (sh_spawn_run(&s, SMI_MS, MAX_SAID, &text, &len, &status, NULL) != SH_OK || status != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* Fields of a line, "a, b, c", without the blanks around them. */
static size_t split_line(char *line, char **out, size_t max)
{
    size_t n = 0;

    for (char *p = line; p && n < max; n++) {
        char *end = strchr(p, ',');

        while (*p == ' ')
            p++;
        out[n] = p;
        if (end)
            *end++ = '\0';
        p = end;
    }
    return n;
}

/* The clocks' reasons have a name of their own in newer drivers, and are asked for alone. */
static void read_smi(const char *smi, struct gpus *g)
{
    char *text = run_smi(smi, "pci.bus_id,name,compute_mode,mig.mode.current,persistence_mode");
    char *f[5], *save = NULL;
    struct gpu *gpu;

    g->has_smi = text != NULL;
    for (char *l = text ? strtok_r(text, "\n", &save) : NULL; l; l = strtok_r(NULL, "\n", &save)) {
        if (split_line(l, f, SH_ARRAY_LEN(f)) != SH_ARRAY_LEN(f) || !(gpu = gpu_at(g, f[0])))
            continue;
        sh_strlcpy(gpu->name, f[1], GPUS_TEXT);
        sh_strlcpy(gpu->compute_mode, f[2], GPUS_TEXT);
        sh_strlcpy(gpu->mig, f[3], GPUS_TEXT);
        sh_strlcpy(gpu->persistence, f[4], GPUS_TEXT);
    }
    free(text);
    text = g->has_smi ? run_smi(smi, "pci.bus_id,clocks_event_reasons.active") : NULL;
    save = NULL;
    for (char *l = text ? strtok_r(text, "\n", &save) : NULL; l; l = strtok_r(NULL, "\n", &save))
        if (split_line(l, f, 2) == 2 && (gpu = gpu_at(g, f[0])) != NULL)
            gpu->held_back = strtoull(f[1], NULL, 0);
    free(text);
}

void gpus_read(const char *root, const char *smi, struct gpus *out)
{
    *out = (struct gpus){0};
    read_driver(root, out);
    read_sysfs(root, out);
    if (out->driver || out->n)
        read_smi(smi, out);
}

/* ---------------------------------------------------------------- judging */

static void judge_driver(const struct gpus *g, struct checks *k)
{
    if (!g->driver && !g->n)
        checks_add(k, "driver", CHECK_FAIL,
                   "--device cpu needs none; in a container, give it the devices (--gpus all)",
                   "no NVIDIA GPU and no driver");
    else if (!g->driver && !g->has_smi)
        checks_add(k, "driver", CHECK_FAIL,
                   "install NVIDIA's driver, 580 or newer, and load it (modprobe nvidia)",
                   "%zu NVIDIA GPU%s, but no driver is loaded", g->n, g->n > 1 ? "s" : "");
    else if (g->driver && g->driver < DRIVER_OF_CUDA)
        checks_add(k, "driver", CHECK_FAIL, "CUDA 13 needs driver 580 or newer", "NVIDIA driver %s",
                   g->driver_text);
    else if (!g->n)
        checks_add(k, "driver", CHECK_FAIL,
                   "see dmesg; in a container, give it the devices (--gpus all)",
                   "NVIDIA driver %s, but no GPU", g->driver_text);
    else
        checks_add(k, "driver", g->has_smi ? CHECK_OK : CHECK_NOTE,
                   "nvidia-smi is not found or does not answer: what it would say is not checked",
                   "NVIDIA driver %s, %zu GPU%s", g->driver ? g->driver_text : "(version unknown)",
                   g->n, g->n > 1 ? "s" : "");
}

static void judge_modes(const struct gpu *g, const char *name, struct checks *k)
{
    const bool is_alone = g->compute_mode[0] && strcmp(g->compute_mode, "Default") != 0;
    const bool is_split = strcmp(g->mig, "Enabled") == 0;
    const bool is_dropped = strcmp(g->persistence, "Disabled") == 0;

    if (is_alone)
        checks_add(k, name, CHECK_FAIL,
                   "an executor and its workers use a device together: nvidia-smi -c DEFAULT",
                   "compute mode %s", g->compute_mode);
    if (is_split)
        checks_add(k, name, CHECK_WARN,
                   "Shunt shares a whole GPU; an executor sees one instance: nvidia-smi -mig 0",
                   "MIG is on");
    if (is_dropped)
        checks_add(k, name, CHECK_NOTE,
                   "the driver starts anew when the last process ends: run nvidia-persistenced",
                   "persistence mode is off");
}

static void judge_clocks(const struct gpu *g, const char *name, struct checks *k)
{
    static const struct {
        uint64_t bit;
        const char *why;
    } REASONS[] = {{0x8, "hardware slowdown"},
                   {0x20, "temperature"},
                   {0x40, "temperature, by hardware"},
                   {0x80, "power brake"}};
    char text[128] = "";
    size_t n = 0;

    for (size_t i = 0; i < SH_ARRAY_LEN(REASONS); i++)
        if (g->held_back & REASONS[i].bit && n < sizeof(text))
            n +=
                (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", n ? ", " : "", REASONS[i].why);
    if (n)
        checks_add(k, name, CHECK_WARN, "look at cooling and power supply",
                   "clocks are held back: %s", text);
}

static void judge_bus(const struct gpu *g, const char *name, struct checks *k)
{
    const struct gpu_link *l = &g->link;

    if (!l->width || !l->max_width)
        return;
    /* At rest a GPU lowers its speed, never its width. */
    checks_add(k, name, l->width < l->max_width ? CHECK_WARN : CHECK_OK,
               "cold switches take as long as the copy: look at the slot, the riser and its cable",
               "PCIe x%u of x%u, %g of %g GT/s now", l->width, l->max_width, l->gt_per_s,
               l->max_gt_per_s);
}

void gpus_judge(const struct gpus *g, struct checks *k)
{
    judge_driver(g, k);
    for (size_t i = 0; i < g->n; i++) {
        char name[GPUS_TEXT];

        snprintf(name, sizeof(name), "GPU %zu", i);
        if (g->has_smi && !g->gpu[i].name[0]) {
            checks_add(k, name, CHECK_NOTE, "a container has those that --gpus names",
                       "the driver does not show it here, but it is on the bus at %s",
                       g->gpu[i].pci);
            continue;
        }
        if (g->gpu[i].name[0])
            checks_add(k, name, CHECK_OK, NULL, "%s at %s", g->gpu[i].name, g->gpu[i].pci);
        judge_bus(&g->gpu[i], name, k);
        judge_modes(&g->gpu[i], name, k);
        judge_clocks(&g->gpu[i], name, k);
    }
}

/* ---------------------------------------------------------------- by our own back end */

static void judge_rate(const char *name, double rate, double latency_us, const struct gpu *g,
                       struct checks *k)
{
    const double most = g ? g->link.max_gt_per_s * g->link.max_width * LANE_CODING : 0;
    char of[64] = "";

    if (most > 0)
        snprintf(of, sizeof(of), ", %.0f %% of what PCIe carries", 100 * rate / most);
    checks_add(k, name, most > 0 && rate < GOOD_LINK * most ? CHECK_WARN : CHECK_OK,
               "cold switches take as long as the copy: run the executor on the cores of the GPU's "
               "NUMA node, and look at IOMMU and power settings of the host",
               "copies to the device: %.1f GB/s%s, %.1f us each", rate, of, latency_us);
}

void gpus_judge_device(const char *name, const json_t *said, const struct gpu *g, struct checks *k)
{
    const bool files = json_is_true(json_object_get(said, "fences_files"));
    const bool calls = json_is_true(json_object_get(said, "fences_calls"));
    const double bytes = json_number_value(json_object_get(said, "memory_bytes"));
    char size[32] = "";

    if (bytes > 0)
        out_bytes(bytes, size, sizeof(size));
    checks_add(k, name, CHECK_OK, NULL, "usable%s%s; %s", size[0] ? ", " : "", size,
               sh_json_text(said, "identity"));
    judge_rate(name, json_number_value(json_object_get(said, "link_gb_per_s")),
               json_number_value(json_object_get(said, "link_latency_us")), g, k);
    if (!json_is_true(json_object_get(said, "page_locks")))
        checks_add(k, name, CHECK_WARN, "raise the limit of locked memory: ulimit -l unlimited",
                   "host memory cannot be page-locked: %s", sh_json_text(said, "page_lock_error"));
    if (g && g->numa_node >= 0)
        checks_add(k, name, CHECK_OK, NULL, "on NUMA node %d", g->numa_node);
    checks_add(k, "fences", files && calls ? CHECK_OK : CHECK_WARN,
               "a worker that is taken over could read more than its own: use a kernel with "
               "Landlock (5.13, CONFIG_SECURITY_LANDLOCK); see docs/security.md",
               "files: %s; system calls: %s", files ? "hidden by Landlock" : "not hidden",
               calls ? "listed by seccomp" : "not limited");
}

/* What the program said on its standard error, without its own name and the line's end. */
static void read_complaint(int fd, struct sh_err *err)
{
    static const char NAME[] = "shunt-run: ";
    char text[sizeof(err->msg)];
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
    const char *from = text;

    if (n <= 0) {
        SH_FAIL(err, SH_E_UNAVAILABLE, "the program that tries it ended without a word");
        return;
    }
    text[n] = '\0';
    if (strncmp(text, NAME, sizeof(NAME) - 1) == 0)
        from += sizeof(NAME) - 1;
    text[(size_t)(from - text) + strcspn(from, "\n")] = '\0';
    SH_FAIL(err, SH_E_UNAVAILABLE, "%s", from);
}

static int run_device(const char *run, const char *kind, const char *ordinal, json_t **out,
                      struct sh_err *err)
{
    const char *argv[] = {"shunt-run", "device", "--device", kind, "--ordinal", ordinal, NULL};
    const int complaint = memfd_create("complaint", MFD_CLOEXEC);
    struct sh_spawn s = {.path = run, .argv = argv, .stdout_fd = -1, .stderr_fd = complaint};
    char *text = NULL;
    size_t len = 0;
    int status = 0;
    int rc = sh_spawn_run(&s, TRY_MS, MAX_SAID, &text, &len, &status, err);

    if (!rc && status != 0) {
        read_complaint(complaint, err);
        rc = SH_E_UNAVAILABLE;
    }
    if (!rc)
        rc = sh_json_parse(text, len, MAX_SAID, out, err);
    free(text);
    if (complaint >= 0)
        close(complaint);
    return rc;
}

/* NULL: it cannot be used, which is noted. Else what it said of itself: OWNED. */
static json_t *try_device(const char *run, const char *kind, size_t ordinal, const char *advice,
                          struct checks *k)
{
    char number[24], name[GPUS_TEXT];
    struct sh_err err = {0};
    json_t *said = NULL;

    snprintf(number, sizeof(number), "%zu", ordinal);
    snprintf(name, sizeof(name), "%s:%zu", kind, ordinal);
    if (run_device(run, kind, number, &said, &err) == SH_OK)
        return said;
    checks_add(k, name, CHECK_FAIL, advice, "cannot be used: %s", err.msg);
    json_decref(said);
    return NULL;
}

void gpus_try_cpu(const char *run, struct checks *k)
{
    json_t *said = try_device(run, "cpu", 0, NULL, k);

    if (said)
        gpus_judge_device("cpu:0", said, NULL, k);
    json_decref(said);
}

static size_t count_shown(const struct gpus *g)
{
    size_t n = 0;

    for (size_t i = 0; i < g->n; i++)
        n += !g->has_smi || g->gpu[i].name[0];
    return n;
}

/* How many of n devices CUDA shows: it reads the list up to the first entry that names none of
 * them. A UUID is believed. */
static size_t count_visible(const char *list, size_t n)
{
    size_t count = 0;

    if (!list)
        return n;
    for (;; list++) {
        char *end;
        unsigned long number;

        list += strspn(list, " ");
        number = strtoul(list, &end, 10);
        if (strncmp(list, "GPU-", 4) != 0 && strncmp(list, "MIG-", 4) != 0 &&
            (*list < '0' || *list > '9' || number >= n))
            return count;
        count++;
        list += strcspn(list, ",");
        if (!*list)
            return count;
    }
}

void gpus_try_cuda(struct gpus *g, const char *run, const char *visible, struct checks *k)
{
    const size_t n = count_visible(visible, count_shown(g));
    size_t n_used = 0;

    for (size_t i = 0; i < n; i++) {
        char name[GPUS_TEXT];
        json_t *said = try_device(run, "cuda", i,
                                  "if a library is missing: deploy/cuda-libs.sh (of a bundle: "
                                  "bin/shunt-cuda-libs) looks for CUDA and cuDNN",
                                  k);
        struct gpu *gpu = said ? gpu_of_bus(g, sh_json_text(said, "pci_bus_id")) : NULL;

        snprintf(name, sizeof(name), "cuda:%zu", i);
        if (said)
            gpus_judge_device(name, said, gpu, k);
        if (gpu && !gpu->is_used) {
            gpu->is_used = true;
            n_used++;
        }
        json_decref(said);
    }
    if (n == 0 && g->n && visible)
        checks_add(k, "cuda", CHECK_FAIL, "unset it, or name GPUs by their numbers or UUIDs",
                   "CUDA_VISIBLE_DEVICES=\"%s\" hides every GPU from CUDA", visible);
    for (size_t i = 0; visible && n && n_used == n && i < g->n; i++) {
        char name[GPUS_TEXT];

        snprintf(name, sizeof(name), "GPU %zu", i);
        if (!g->gpu[i].is_used && (!g->has_smi || g->gpu[i].name[0]))
            checks_add(k, name, CHECK_NOTE, "no executor can use it with this variable",
                       "hidden from CUDA by CUDA_VISIBLE_DEVICES=%s", visible);
    }
}
