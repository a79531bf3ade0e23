/* system.c - see system.h. */
#include "cli/host/system.h"

#include "cli/files/file.h"
#include "cli/local/pg.h"
#include "cli/local/plan.h"
#include "cli/local/state.h"
#include "cli/text/out.h"
#include "common/clock.h"
#include "common/db.h"
#include "common/mem.h"
#include "common/spawn.h"
#include "common/units.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define N_SYNCS 9
#define SYNC_BYTES 4096
#define SLOW_SYNC_NS SH_MS(20)
#define ENOUGH_DISK ((uint64_t)10 << 30)
#define LEAST_CONNECTIONS 40
#define TESTED_SERVER 150000 /* server_version_num */

/* ---------------------------------------------------------------- programs */

static void check_programs(struct checks *k)
{
    static const char *const NAMES[] = {"shunt-api",     "shunt-scheduler", "shunt-executor",
                                        "shunt-worker",  "shunt-import",    "shunt-run",
                                        "shunt-simulate"};
    char dir[4096], path[4200], missing[256] = "";
    size_t n = 0;

    if (sh_self_dir(dir, sizeof(dir), NULL) != SH_OK)
        return;
    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, NAMES[i]);
        if (access(path, X_OK) != 0)
            n +=
                (size_t)snprintf(missing + n, sizeof(missing) - n, "%s%s", n ? ", " : "", NAMES[i]);
    }
    checks_add(k, "programs", n ? CHECK_FAIL : CHECK_OK,
               "each program looks for the others in its own folder", "%s%s",
               n ? "missing: " : "all are in ", n ? missing : dir);
}

/* ---------------------------------------------------------------- the state folder */

static int by_time(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* The median time to write a block and have it on disk; < 0: cannot write there. */
static int64_t measure_sync(const char *dir)
{
    static const char BLOCK[SYNC_BYTES];
    char path[4200];
    int64_t ns[N_SYNCS];
    int fd;

    snprintf(path, sizeof(path), "%s/doctor-XXXXXX", dir);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return -1;
    unlink(path);
    for (size_t i = 0; i < N_SYNCS; i++) {
        const int64_t begin = sh_clock_ns();

        if (pwrite(fd, BLOCK, sizeof(BLOCK), (off_t)(i * sizeof(BLOCK))) != SYNC_BYTES ||
            fdatasync(fd) != 0) {
            close(fd);
            return -1;
        }
        ns[i] = sh_clock_ns() - begin;
    }
    close(fd);
    qsort(ns, N_SYNCS, sizeof(ns[0]), by_time);
    return ns[N_SYNCS / 2];
}

/* What is known to forget, or to lock badly; NULL: no objection. */
static const char *bad_kind(const char *dir)
{
    enum { TMPFS = 0x01021994, RAMFS = (int)0x858458f6, NFS = 0x6969 };
    struct statfs f;

    if (statfs(dir, &f) != 0)
        return NULL;
    switch ((unsigned)f.f_type) {
    case (unsigned)TMPFS:
    case (unsigned)RAMFS:
        return "in memory: everything is lost when the machine stops";
    case (unsigned)NFS:
        return "on NFS: PostgreSQL's files and locks want a local disk";
    default:
        return NULL;
    }
}

/* The folder itself, or the nearest above it that is there. */
static void nearest_folder(char *path)
{
    char *slash;

    while (access(path, F_OK) != 0 && (slash = strrchr(path, '/')) != NULL)
        slash[slash == path ? 1 : 0] = '\0';
}

static void check_folder(const struct cli_conf *o, struct checks *k)
{
    char *dir = NULL, room[32];
    struct statvfs v = {0};
    const char *objection;
    int64_t sync_ns;
    uint64_t bytes;

    if (file_absolute(o->state_dir, &dir, NULL) != SH_OK) {
        k->rc = SH_E_NOMEM;
        return;
    }
    nearest_folder(dir);
    sync_ns = measure_sync(dir);
    if (sync_ns < 0) {
        checks_add(k, "state folder", CHECK_FAIL,
                   "choose another one with --state-dir, or give this user write access",
                   "cannot write in %s", dir);
        free(dir);
        return;
    }
    statvfs(dir, &v);
    bytes = (uint64_t)v.f_frsize * v.f_bavail;
    out_bytes((double)bytes, room, sizeof(room));
    checks_add(k, "state folder", bytes < ENOUGH_DISK ? CHECK_WARN : CHECK_OK,
               "models, datasets, checkpoints and the database grow there: make room, or choose "
               "another disk with --state-dir",
               "%s free in %s", room, dir);
    objection = bad_kind(dir);
    if (objection)
        checks_add(k, "state folder", CHECK_WARN, "choose a local disk with --state-dir", "%s",
                   objection);
    checks_add(k, "disk", sync_ns > SLOW_SYNC_NS ? CHECK_WARN : CHECK_OK,
               "each job that is accepted waits for it: use a disk with a write cache that "
               "survives a loss of power",
               "a synchronous write takes %.2f ms", (double)sync_ns / 1e6);
    free(dir);
}

/* ---------------------------------------------------------------- ports, database */

static bool runs_here(const struct cli_conf *o)
{
    struct state s;
    bool yes = false;

    if (state_open(o->state_dir, false, &s, NULL) == SH_OK) {
        yes = state_pid(&s, STATE_SUPERVISOR) > 0;
        state_close(&s);
    }
    return yes;
}

static void check_ports(const struct cli_conf *o, struct checks *k)
{
    struct sh_err err = {0};
    int port;

    if (runs_here(o))
        checks_add(k, "ports", CHECK_NOTE, "shunt status shows it",
                   "a system of this state folder runs: its ports are not checked");
    else if (plan_port(o, &port, &err) == SH_OK)
        checks_add(k, "ports", CHECK_OK, NULL, "%d and those for metrics are free", port);
    else
        checks_add(k, "ports", CHECK_FAIL, "or stop what uses it", "%s", err.msg);
}

static void judge_server(const struct db_res *r, struct checks *k)
{
    const int64_t version = db_i64(r, 0, 0, 0), most = db_i64(r, 0, 2, 0);
    const char *fsync = db_text(r, 0, 3);

    checks_add(k, "database", version < TESTED_SERVER ? CHECK_WARN : CHECK_OK,
               "older ones than 15 are not tested", "PostgreSQL %s answers", db_text(r, 0, 1));
    if (most < LEAST_CONNECTIONS)
        checks_add(k, "database", CHECK_WARN,
                   "each API and scheduler keeps several open: raise max_connections",
                   "only %lld connections are allowed", (long long)most);
    if (!fsync || strcmp(fsync, "on") != 0)
        checks_add(k, "database", CHECK_WARN,
                   "what was acknowledged can be lost with the machine: turn fsync on",
                   "fsync is off");
    if (db_bool(r, 0, 4))
        checks_add(k, "database", CHECK_FAIL, "name the primary in the URL",
                   "the server is a standby that takes no writes");
}

static void check_database(const struct cli_conf *o, struct checks *k)
{
    static const struct db_stmt ASK = {
        "doctor",
        "SELECT current_setting('server_version_num')::bigint, current_setting('server_version'), "
        "current_setting('max_connections')::bigint, current_setting('fsync'), "
        "pg_is_in_recovery()",
        0};
    const char *url = plan_db_url(o);
    struct sh_err err = {0};
    struct db *db = NULL;
    struct db_res *r = NULL;
    char bin[512];
    int rc;

    if (!url) {
        rc = pg_find_server(o->pg_bin, bin, sizeof(bin), &err);
        checks_add(k, "database", rc ? CHECK_FAIL : CHECK_OK, NULL, "%s%s",
                   rc ? "" : "a private PostgreSQL, by the programs in ", rc ? err.msg : bin);
        return;
    }
    rc = db_new(url, "shunt-doctor", &db, &err);
    if (!rc)
        rc = db_ready(db, 0, &err);
    if (!rc)
        rc = db_exec(db, &ASK, NULL, &r, &err);
    if (!rc)
        judge_server(r, k);
    else
        checks_add(k, "database", CHECK_FAIL, "look at host, port, user, password and pg_hba.conf",
                   "%s", err.msg);
    db_res_free(r);
    db_free(db);
}

void system_check(const struct cli_conf *o, struct checks *k)
{
    check_programs(k);
    check_folder(o, k);
    check_ports(o, k);
    check_database(o, k);
}
