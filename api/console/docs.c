/* docs.c - see docs.h. */
#include "api/console/docs.h"

#include "api/api.h"
#include "api/console/console.h"
#include "api/files/files.h"
#include "api/handlers.h"
#include "common/mem.h"
#include "common/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOME "index.html"
#define TEXT "text/plain; charset=utf-8"

static const struct {
    const char *end, *type;
} TYPES[] = {
    {".html", "text/html; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".json", "application/json"},
    {".svg", "image/svg+xml"},
    {".png", "image/png"},
    {".py", TEXT}, /* pages link to a few sources */
    {".cu", TEXT},
};

/* Beside the folder of our program, where a build, and where a package or a bundle has it. */
static const char *const PLACES[] = {"../docs-site", "../share/shunt/docs-site"};

const char *docs_type(const char *name)
{
    static const char KNOWN[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const char *dot = strrchr(name, '.');

    if (!dot || name[0] == '.' || name[strspn(name, KNOWN)])
        return NULL;
    for (size_t i = 0; i < SH_ARRAY_LEN(TYPES); i++)
        if (strcmp(dot, TYPES[i].end) == 0)
            return TYPES[i].type;
    return NULL;
}

/* ------------------------------------------------------------------ the folder */

/* *fd: OWNED; -1 without a failure: there is none. */
static int open_site(const struct api_req *q, int *fd, struct sh_err *err)
{
    const char *named = q->api->conf->docs_dir;
    char dir[4096], path[sizeof(dir) + 32];
    int rc;

    *fd = -1;
    if (named && named[0]) {
        *fd = open(named, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return SH_OK;
    }
    rc = sh_self_dir(dir, sizeof(dir), err);
    for (size_t i = 0; !rc && *fd < 0 && i < SH_ARRAY_LEN(PLACES); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, PLACES[i]);
        *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    return rc;
}

bool docs_are_there(const struct api_req *q)
{
    int at = -1, home = -1;

    if (open_site(q, &at, NULL) == SH_OK && at >= 0)
        home = faccessat(at, HOME, R_OK, 0);
    if (at >= 0)
        close(at);
    return home == 0;
}

/* Into the folder of that name: *at is closed, and is the inner one or -1. */
static void enter_folder(int *at, const char *name)
{
    const int outer = *at;

    /* A name with a dot is no folder of a site, and so ".." is none. */
    *at = strchr(name, '.') ? -1
                            : openat(outer, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    close(outer);
}

/* ------------------------------------------------------------------ a page */

static int missing_page(const struct api_req *q, struct sh_err *err)
{
    const char *named = q->api->conf->docs_dir;

    if (named && named[0])
        return SH_FAIL(err, SH_E_NOTFOUND,
                       "the folder of the documentation, %s, cannot be opened: `make docs-site "
                       "BUILD=...` in Shunt's sources writes such a folder",
                       named);
    return SH_FAIL(err, SH_E_NOTFOUND,
                   "this server has no documentation: `make docs-site` in Shunt's sources builds "
                   "it (packages have it), or --docs-dir names its folder");
}

static int reply_with_page(struct api_req *q, int fd, const struct stat *st, const char *type,
                           struct sh_err *err)
{
    int rc;

    snprintf(q->reply.etag, sizeof(q->reply.etag), "\"%" PRIx64 "-%" PRIx64 "-%" PRIx64 "\"",
             (uint64_t)st->st_mtim.tv_sec, (uint64_t)st->st_mtim.tv_nsec, (uint64_t)st->st_size);
    q->reply.policy = CONSOLE_POLICY;
    rc = files_reply(q, fd, (uint64_t)st->st_size, err);
    q->reply.file.type = type;
    return rc;
}

int docs_page(struct api_req *q, struct sh_err *err)
{
    const char *name = HOME, *type = NULL;
    struct stat st;
    int at = -1, fd = -1, rc = open_site(q, &at, err);

    if (rc)
        return rc;
    if (at < 0)
        return missing_page(q, err);
    for (size_t i = 0; i < API_MAX_PARAMS && q->params[i]; i++) {
        if (i > 0 && at >= 0)
            enter_folder(&at, name);
        name = q->params[i];
    }
    type = docs_type(name);
    if (type && at >= 0)
        fd = openat(at, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (at >= 0)
        close(at);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return reply_with_page(q, fd, &st, type, err);
    if (fd >= 0)
        close(fd);
    return SH_FAIL(err, SH_E_NOTFOUND, "the documentation has no such page; it begins at /docs/");
}

int docs_home(struct api_req *q, struct sh_err *err)
{
    (void)err;
    sh_strlcpy(q->reply.location, "/docs/", sizeof(q->reply.location));
    return SH_OK;
}
