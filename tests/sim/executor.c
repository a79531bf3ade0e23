/* executor.c - see executor.h. */
#include "tests/sim/executor.h"

#include "common/mem.h"
#include "common/units.h"
#include "executor/files/claim.h"
#include "executor/memory/transmit.h"
#include "tests/sim/content.h"
#include "tests/sim/disk.h"
#include "tests/sim/oracles_exec.h"
#include "tests/sim/worker.h"

#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_EXECS 64
#define MEMORY_DISK "/dev/shm"
#define FOLDER "shunt-sim-XXXXXX"
#define MAX_FDS 16
#define DRAIN_NS SH_S(5)

static struct sim_exec *execs[MAX_EXECS];
static size_t n_execs;

struct sim_exec *sim_exec_of(const struct sim_proc *p)
{
    for (size_t i = 0; i < n_execs; i++)
        if (execs[i]->proc == p)
            return execs[i];
    return NULL;
}

struct exec *sim_exec_running(const struct sim_exec *e)
{
    return e->x && sim_proc_is_alive(e->proc) ? e->x : NULL;
}

static void set(char **option, const char *value)
{
    free(*option);
    if (sh_strdup(value, option, NULL))
        abort();
}

void sim_exec_packs(struct exec_conf *c)
{
    static const int64_t KEEP[] = {0, 0, 30, 88, 1000};
    static const char *const HOW[] = {"auto", "auto", "on", "off"};

    set(&c->pack_images, HOW[sim_below(SH_ARRAY_LEN(HOW))]);
    c->keep_packed_percent = KEEP[sim_below(SH_ARRAY_LEN(KEEP))];
}

void sim_exec_links(struct sim_exec *e)
{
    static const uint32_t N[] = {1, 1, 2, 4};

    e->device.n_links = N[sim_below(SH_ARRAY_LEN(N))];
    for (uint32_t k = 1; k < e->device.n_links; k++)
        e->device.link_times[k] = 0.5 + (double)sim_below(1500) / 1000;
}

static void load_options(struct sim_exec *e)
{
    static char program[] = "shunt-executor";
    char *argv[] = {program, NULL};
    enum sh_conf_action action = SH_CONF_RUN;
    struct sh_err err = {0};

    e->conf = (struct exec_conf){0};
    if (sh_conf_load(&EXEC_OPTIONS, &e->conf, 1, argv, NULL, NULL, &action, &err))
        sim_broken("world", "the options of an executor: %s", err.msg);
    set(&e->conf.name, e->name);
    set(&e->conf.scheduler, e->scheduler);
    set(&e->conf.data_addr, e->data_addr);
    set(&e->conf.state_dir, e->state_dir);
    set(&e->conf.device, e->device.is_queued ? "cuda" : "sim");
    e->conf.link_key.plaintext = true; /* the simulated net has no strangers */
    e->conf.pool_bytes = (int64_t)(e->n_blocks * DEV_BLOCK);
    e->conf.model_host_bytes = (int64_t)64 << 20; /* not what this host has */
    set(&e->conf.tables_in_place, sim_below(2) ? "on" : "off");
    e->conf.copy_links = e->device.n_links ? e->device.n_links : 1;
    e->conf.share_images = sim_below(8) > 0;
    if (e->tune)
        e->tune(e, &e->conf, &e->wishes);
}

/* What main() does behind its loop; exec_fini() would wait for copies by a loop of its own. */
static bool on_stop(void *arg)
{
    struct sim_exec *e = arg;
    struct exec *x = e->x;

    e->stopped_ns = e->stopped_ns ? e->stopped_ns : sim_now();
    if (tx_is_busy(x->tx) && sim_now() - e->stopped_ns < DRAIN_NS)
        return false;
    e->x = NULL;
    if (!tx_is_busy(x->tx))
        exec_fini(x);
    return true;
}

static void exec_main(void *arg)
{
    struct sim_exec *e = arg;
    struct sh_loop *loop = NULL;
    struct exec *x = calloc(1, sizeof(*x)); /* of this process: what it leaves is lost with it */
    const struct exec_hooks *hooks = NULL;
    struct sh_err err = {0};
    int rc;

    if (!x)
        abort();
    e->x = NULL;
    rc = sh_loop_new(&loop, &err);
    if (!rc)
        rc = lab_init(&e->lab, &e->wishes, &hooks, &err);
    if (!rc)
        rc = exec_start(x, &e->conf, hooks, loop, &err);
    if (!sim_proc_is_alive(e->proc))
        return;
    if (rc) { /* as main() does: whoever watches it starts it again */
        sim_trace("%s does not start: %s", e->name, err.msg);
        exec_fini(x);
        sim_proc_kill(e->proc, 1 << 8);
        return;
    }
    e->x = x;
    sim_loop_on_stop(loop, on_stop, e);
}

void sim_exec_start(struct sim_exec *e)
{
    if (!e->proc) {
        if (n_execs == MAX_EXECS)
            sim_broken("world", "more than %d executors", MAX_EXECS);
        e->proc = sim_proc_new(e->name, e->host);
        execs[n_execs++] = e;
        sim_device_configure(e->proc, &e->device);
        load_options(e);
    }
    if (sim_proc_is_alive(e->proc))
        return;
    e->x = NULL;
    e->started_ns = sim_now();
    e->stopped_ns = 0;
    sim_proc_start(e->proc, NULL, exec_main, e);
}

static void term(void *arg)
{
    exec_stop(arg);
}

void sim_exec_term(struct sim_exec *e)
{
    if (sim_exec_running(e) && !sim_proc_is_paused(e->proc))
        sim_within(e->proc, term, e->x);
}

/* ------------------------------------------------------------------ shunt-import */

static const char *option(const char *name)
{
    const char *const *argv = sim_spawned()->argv;

    for (; argv[0] && argv[1]; argv++)
        if (strcmp(argv[0], name) == 0)
            return argv[1];
    sim_broken("import", "shunt-import was started without %s", name);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[512];
    FILE *f;

    snprintf(path, sizeof(path), "%.400s%s%.64s", folder, name[0] ? "/" : "", name);
    f = fopen(path, "we");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0)
        sim_trace("shunt-import could not write %s", path);
}

static struct sim_package read_package(const char *path)
{
    struct sim_package p = {.tenant = 0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    SIM_CHECK("import", fd >= 0 && sim_package_read(fd, &p), "%s is no simulated model", path);
    close(fd);
    return p;
}

static void reply(const char *text)
{
    const int fd = sim_spawned()->stdout_fd;

    if (fd >= 0 && pwrite(fd, text, strlen(text), 0) < 0)
        sim_trace("shunt-import could not answer");
}

/* A new model of the same kind: what was trained. */
static void export_model(void)
{
    struct sim_package p = read_package(option("--onnx"));
    char text[96];

    oracle_state_file(option("--state"), true);
    p.id += SIM_SIBLING;
    sim_package_text(&p, text);
    write_file(option("--out"), "", text);
    reply("{\"ok\":true}");
}

static void package_model(void)
{
    const struct sim_exec *e = sim_exec_of(sim_spawned()->parent);
    struct sim_package p = read_package(option("--onnx"));
    const struct sim_model *m = sim_profile_model(e->device.profile, p.model);
    char text[96], answer[256];

    sim_package_text(&p, text);
    write_file(option("--dir"), "graph.json", text);
    write_file(option("--dir"), "weights.safetensors", text);
    snprintf(answer, sizeof(answer),
             "{\"ok\":true,"
             "\"inputs\":[{\"name\":\"input\",\"datatype\":\"FP32\",\"shape\":[-1,%zu]}],"
             "\"outputs\":[{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[-1,%zu]}]}",
             (size_t)m->in_bytes / sizeof(float), (size_t)m->out_bytes / sizeof(float));
    reply(answer);
}

/* The job was started elsewhere since, and that start has removed what its own has staged. */
static bool has_lost_state(void)
{
    const char *path = option("--state"), *name = strrchr(path, '/');
    char dir[512];
    int64_t number;

    if (access(path, F_OK) == 0 || !name || sscanf(name, "/staged-%" SCNd64, &number) != 1)
        return false;
    snprintf(dir, sizeof(dir), "%.*s", (int)(name - path), path);
    return claim_check(dir, number, NULL) == SH_E_CONFLICT;
}

/* Its executor removes the folder when it kills it, and it may live on for a moment. */
static bool has_folder(bool is_export)
{
    char folder[512];
    char *end;

    snprintf(folder, sizeof(folder), "%s", option(is_export ? "--out" : "--dir"));
    end = is_export ? strrchr(folder, '/') : NULL;
    if (end)
        *end = '\0';
    return access(folder, F_OK) == 0;
}

static void on_import(void *arg, uint64_t n)
{
    const bool is_export = strcmp(sim_spawned()->argv[1], "export") == 0;
    static const char *const BAD[] = {"", "{",
                                      "{\"ok\":false,\"msg\":\"no\",\"code\":\"INVALID\"}"};

    (void)arg, (void)n;
    if (sim_worker_faults.refuse > 0 && sim_chance(sim_worker_faults.refuse)) {
        reply(BAD[sim_below(SH_ARRAY_LEN(BAD))]);
        if (sim_below(4) == 0 && ftruncate(sim_spawned()->stdout_fd, 2 << 20) < 0)
            abort();
        sim_proc_kill(sim_self(), sim_below(2) ? 1 << 8 : 0);
        return;
    }
    if (!has_folder(is_export) || (is_export && has_lost_state())) {
        sim_proc_kill(sim_self(), 1 << 8);
        return;
    }
    if (is_export)
        export_model();
    else
        package_model();
    sim_proc_kill(sim_self(), 0);
}

static void import_main(void *arg)
{
    (void)arg;
    sim_after(sim_self(), sim_between(SH_MS(5), SH_MS(800)), on_import, NULL, 0);
}

const struct sim_program SIM_EXEC_PROGRAMS[] = {{"shunt-worker", sim_worker_main},
                                                {"shunt-import", import_main}};

/* ------------------------------------------------------------------ the disk in memory */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)st, (void)type, (void)f;
    return remove(path);
}

/* Whoever is behind the pipe has ended, in whatever way. */
__attribute__((noreturn)) static void clean_up_behind(int pipe_in, const char *dir)
{
    char c;

    for (int fd = 0; fd < MAX_FDS; fd++)
        if (fd != pipe_in)
            close(fd);
    while (read(pipe_in, &c, 1) > 0)
        ;
    nftw(dir, remove_one, MAX_FDS, FTW_DEPTH | FTW_PHYS);
    _exit(0);
}

static void make_disk(void)
{
    static char dir[] = MEMORY_DISK "/" FOLDER;
    int fds[2];
    pid_t pid;

    if (!mkdtemp(dir) || chdir(dir) < 0 || pipe(fds) < 0 || (pid = fork()) < 0) {
        perror("sim: a folder in " MEMORY_DISK);
        exit(2);
    }
    if (pid == 0) {
        close(fds[1]);
        clean_up_behind(fds[0], dir);
    }
    close(fds[0]);
}

/* Of the same size and time in each run: the name of what is kept of a model depends on them. */
static void make_programs(void)
{
    static const char *const FILES[] = {SIM_PROGRAMS "/shunt-worker", "lib/shunt-dev-sim.so",
                                        "lib/shunt-dev-cuda.so"};
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};

    if (mkdir(SIM_PROGRAMS, 0750) < 0 || mkdir("lib", 0750) < 0)
        abort();
    for (size_t i = 0; i < SH_ARRAY_LEN(FILES); i++) {
        int fd = open(FILES[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

        if (fd < 0 || futimens(fd, times) < 0)
            abort();
        close(fd);
    }
}

const char *sim_state_dir(const char *name)
{
    static bool is_there;

    if (!is_there)
        make_disk();
    if (!is_there)
        make_programs();
    is_there = true;
    nftw(name, remove_one, MAX_FDS, FTW_DEPTH | FTW_PHYS);
    if (mkdir(name, 0750) < 0) {
        perror("sim: a state folder");
        exit(2);
    }
    return name;
}
