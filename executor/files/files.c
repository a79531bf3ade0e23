/* files.c - see files.h. */
#include "executor/files/files.h"

#include "common/mem.h"

int files_path(const struct files *f, const char *root, const char *path, char **out,
               struct sh_err *err)
{
    *out = NULL;
    if (!path[0])
        return SH_FAIL(err, SH_E_INVALID, "a path is empty");
    if (path[0] == '/')
        return sh_strdup(path, out, err);
    return sh_asprintf(err, out, "%s/%s/%s", f->state_dir, root, path);
}
