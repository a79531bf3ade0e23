/* transfer.c - executor/files/transfer.h without threads and HTTP: an API on another host, whose
 * files lie in a folder of the simulation's disk. Takes its time, and fails while the executor's
 * disk does. */
#include "executor/files/transfer.h"

#include "common/importer.h"
#include "common/units.h"
#include "tests/sim/disk.h"
#include "tests/sim/transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIN_NS SH_MS(1)
#define MAX_NS SH_MS(400)

struct transfers {
    struct sim_proc *proc;
    struct transfer_task *first;
    bool ends;
};

struct transfer_line {
    struct transfers *h;
};

int transfers_new(const struct transfer_conf *c, struct sh_loop *loop, struct transfers **out,
                  struct sh_err *err)
{
    (void)c, (void)loop;
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the transfers");
    (*out)->proc = sim_self();
    return SH_OK;
}

static void finish(struct transfers *h, struct transfer_task *t)
{
    struct transfer_task **at = &h->first;

    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    t->done(t);
}

void transfers_free(struct transfers *h)
{
    if (!h)
        return;
    h->ends = true;
    while (h->first) {
        SH_FAIL(&h->first->err, SH_E_CANCELLED, "the executor ends");
        finish(h, h->first);
    }
}

bool transfers_end(const struct transfers *h)
{
    return h->ends;
}

static void on_work(void *arg, uint64_t at)
{
    struct transfer_task *t = (struct transfer_task *)(uintptr_t)at;
    struct transfers *h = arg;
    struct transfer_line line = {h};

    if (atomic_load(&t->stop))
        SH_FAIL(&t->err, SH_E_CANCELLED, "it is not wanted any more");
    else
        t->work(t, &line, &t->err);
    if (sim_proc_is_alive(h->proc))
        finish(h, t);
}

void transfer_submit(struct transfers *h, enum transfer_way way, struct transfer_task *t)
{
    (void)way;
    t->next = h->first;
    h->first = t;
    if (h->ends) {
        SH_FAIL(&t->err, SH_E_CANCELLED, "the executor ends");
        finish(h, t);
        return;
    }
    sim_after(h->proc, sim_between(MIN_NS, MAX_NS), on_work, h, (uint64_t)(uintptr_t)t);
}

const atomic_bool *transfer_ends(const struct transfer_line *l)
{
    static const atomic_bool no;

    (void)l;
    return &no;
}

/* Packages of the simulation are all of this release (content.h). */
int64_t __wrap_sh_importer_of(const char *package)
{
    (void)package;
    return SH_IMPORTER;
}

/* ------------------------------------------------------------------ the API's files */

void sim_transfer_path(const char *url, char path[static SIM_TRANSFER_PATH])
{
    int n = snprintf(path, SIM_TRANSFER_PATH, "api/%.*s", (int)strcspn(url, "?"), url);

    for (int i = 4; i < n && i < (int)SIM_TRANSFER_PATH; i++)
        if (path[i] == '/')
            path[i] = '_';
}

/* Of one disk to another. */
static int copy(const char *from, const char *to, struct sh_err *err)
{
    int in = open(from, O_RDONLY | O_CLOEXEC), out = -1;
    static char text[1 << 16];
    ssize_t n = -1;
    int rc = SH_OK;

    if (in < 0)
        return SH_FAIL(err, SH_E_NOTFOUND, "the API has no such file");
    out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    while (out >= 0 && (n = read(in, text, sizeof(text))) > 0)
        if (write(out, text, (size_t)n) != n)
            break;
    if (n != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not copy a file from or to the API");
    close(in);
    if (out >= 0)
        close(out);
    return rc;
}

static int trouble(const struct transfer_line *l, struct sh_err *err)
{
    const struct sim_disk *d = sim_disk(sim_proc_host(l->h->proc));

    return d->fail > 0 && sim_chance(d->fail)
               ? SH_FAIL(err, SH_E_UNAVAILABLE, "the API did not answer in time")
               : SH_OK;
}

int transfer_size(struct transfer_line *l, const char *path, uint64_t *bytes, struct sh_err *err)
{
    char at[SIM_TRANSFER_PATH];
    struct stat st;
    int rc = trouble(l, err);

    sim_transfer_path(path, at);
    if (rc)
        return rc;
    if (stat(at, &st) < 0)
        return SH_FAIL(err, SH_E_NOTFOUND, "the API has no such file");
    *bytes = (uint64_t)st.st_size;
    return SH_OK;
}

int transfer_get(struct transfer_line *l, const char *path, const char *digest, const char *part,
                 const char *to, struct sh_err *err)
{
    char at[SIM_TRANSFER_PATH];
    int rc = trouble(l, err);

    (void)digest;
    sim_transfer_path(path, at);
    if (!rc)
        rc = copy(at, part, err);
    if (!rc && rename(part, to) < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not put a file in its place");
    return rc;
}

int transfer_put(struct transfer_line *l, const char *path, const char *from, struct sh_err *err)
{
    char at[SIM_TRANSFER_PATH];
    int rc = trouble(l, err);

    sim_transfer_path(path, at);
    if (rc)
        return rc;
    sim_disk_spare(true);
    if (mkdir("api", 0750) < 0 && errno != EEXIST)
        sim_broken("world", "the folder of an API: %m");
    rc = copy(from, at, err);
    sim_disk_spare(false);
    return rc;
}
