/* claim.c - see claim.h. */
#include "cli/local/claim.h"

#include "cli/files/file.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_NAME "made-for"

static uint64_t inode_of(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

int claim_read(const char *pg_dir, struct claim *out, struct sh_err *err)
{
    char *path = NULL, *text = NULL, *line;
    size_t len = 0;
    int rc = sh_asprintf(err, &path, "%s/" FILE_NAME, pg_dir);

    *out = (struct claim){.inode = 0};
    if (!rc)
        rc = file_read(path, sizeof(out->path) + 100, &text, &len, err);
    if (!rc && (sscanf(text, "%32[0-9a-f] %" SCNu64, out->id, &out->inode) != 2 ||
                !(line = strchr(text, '\n')) || !line[1] ||
                !sh_strlcpy(out->path, line + 1, sizeof(out->path))))
        rc = SH_FAIL(err, SH_E_CONFLICT, "\"%s\" does not say whose database this is", path);
    out->path[strcspn(out->path, "\n")] = '\0';
    free(path);
    free(text);
    return rc;
}

int claim_write(const struct state *s, const char *pg_dir, struct sh_err *err)
{
    char *path = NULL, *text = NULL;
    int rc = SH_OK;

    if (!s->id[0]) /* a system of an earlier release that has not been started since */
        return SH_OK;
    rc = sh_asprintf(err, &path, "%s/" FILE_NAME, pg_dir);
    if (!rc)
        rc = sh_asprintf(err, &text, "%s %" PRIu64 "\n%s\n", s->id, inode_of(s->dir), s->dir);
    if (!rc)
        rc = file_write(path, text, strlen(text), 0600, err);
    free(path);
    free(text);
    return rc;
}

bool claim_is_same_folder(const struct state *s, const struct claim *c)
{
    return c->inode == inode_of(s->dir);
}

bool claim_is_ours(const struct state *s, const struct claim *c)
{
    struct state other;
    bool is_there;

    if (!s->id[0] || strcmp(s->id, c->id) != 0)
        return false;
    if (claim_is_same_folder(s, c))
        return true;
    if (state_open(c->path, false, &other, NULL) != SH_OK)
        return true; /* nobody is left there: moved to another disk, say */
    is_there = strcmp(other.id, c->id) == 0;
    state_close(&other);
    return !is_there;
}
