/* folder.c - see folder.h. */
#include "executor/files/folder.h"

#include "common/io.h"
#include "common/json.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERDICT_MAX ((size_t)16 << 20)

void folder_remove(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;

    if (!d)
        return;
    while ((e = readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(dir);
}

uint64_t folder_bytes(const char *path)
{
    DIR *d = opendir(path);
    uint64_t n = 0;
    struct dirent *e;
    struct stat st;

    if (!d)
        return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
    while ((e = readdir(d)))
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            n += (uint64_t)st.st_size;
    closedir(d);
    return n;
}

int folder_open_package(const char *package, int fds[static 2], struct sh_err *err)
{
    int rc = sh_open_in(package, "graph.json", &fds[0], err);

    fds[1] = -1;
    if (!rc)
        rc = sh_open_in(package, "weights.safetensors", &fds[1], err);
    if (rc && fds[0] >= 0) {
        close(fds[0]);
        fds[0] = -1;
    }
    return rc;
}

int import_verdict(const char *text, size_t len, int status, json_t **out, struct sh_err *err)
{
    const char *why;
    json_t *j = NULL;
    int rc = SH_OK;

    *out = NULL;
    if (status != 0 || !text || sh_json_parse(text, len, VERDICT_MAX, &j, NULL))
        rc = SH_FAIL(err, SH_E_BUG, "the model could not be converted");
    else if (!json_is_true(json_object_get(j, "ok"))) {
        rc = sh_json_refusal(j, SH_E_BUG, &why);
        SH_FAIL(err, rc, "the model could not be converted: %s", why ? why : "no reason given");
    }
    if (rc) {
        sh_err_detail(err, "wait status 0x%x, reply %.200s", (unsigned)status, text ? text : "");
        json_decref(j);
        return rc;
    }
    *out = j;
    return SH_OK;
}
