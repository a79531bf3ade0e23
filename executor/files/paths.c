/* paths.c - what every room of an executor uses: folders, and the names of ways to stop. */
#include "common/mem.h"
#include "executor/exec.h"

int exec_path(const struct exec *x, const char *root, const char *path, char **out,
              struct sh_err *err)
{
    *out = NULL;
    if (!path[0])
        return SH_FAIL(err, SH_E_INVALID, "a path is empty");
    if (path[0] == '/')
        return sh_strdup(path, out, err);
    return sh_asprintf(err, out, "%s/%s/%s", x->conf->state_dir, root, path);
}

const char *stop_way_name(enum stop_way w)
{
    static const char *const NAME[STOP_N_WAYS] = {
        [STOP_PAUSE] = "pause", [STOP_DROP] = "drop", [STOP_SWAP] = "swap"};

    return NAME[w];
}
