/* inputs.c - see inputs.h. */
#include "cli/data/inputs.h"

#include "cli/files/user_file.h"
#include "common/mem.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const json_t *wanted_of(const json_t *wanted, const char *name, size_t len)
{
    const json_t *w;
    size_t i;

    json_array_foreach((json_t *)wanted, i, w)
    {
        const char *n = sh_json_text(w, "name");

        if (strlen(n) == len && memcmp(n, name, len) == 0)
            return w;
    }
    return NULL;
}

static bool has_input(const struct tensors *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->list[i].name, name) == 0)
            return true;
    return false;
}

static int add_numpy(const char *path, const json_t *w, struct tensors *out, struct sh_err *err)
{
    struct tensor x;
    int rc = npy_read(path, &x, err);

    return rc ? rc : tensors_add(out, w, &x, err);
}

/* NAME=FILE */
static int add_named_input(char *pair, const json_t *wanted, struct tensors *out,
                           struct sh_err *err)
{
    char *eq = strchr(pair, '=');
    const json_t *w = eq ? wanted_of(wanted, pair, (size_t)(eq - pair)) : NULL;

    if (!eq)
        return SH_FAIL(err, SH_E_INVALID, "--inputs wants FILE or NAME=FILE,..., not \"%.100s\"",
                       pair);
    if (!w)
        return SH_FAIL(err, SH_E_INVALID, "the model has no input \"%.*s\"",
                       (int)SH_MIN(eq - pair, (ptrdiff_t)100), pair);
    if (has_input(out, sh_json_text(w, "name")))
        return SH_FAIL(err, SH_E_INVALID, "--inputs names \"%.100s\" twice",
                       sh_json_text(w, "name"));
    return add_numpy(eq + 1, w, out, err);
}

static int from_pairs(const char *files, const json_t *wanted, struct tensors *out,
                      struct sh_err *err)
{
    char *text = NULL, *rest;
    const json_t *w;
    size_t i;
    int rc = sh_strdup(files, &text, err);

    rest = text;
    for (char *p; !rc && (p = strsep(&rest, ","));)
        rc = add_named_input(p, wanted, out, err);
    json_array_foreach((json_t *)wanted, i, w)
    {
        if (!rc && !has_input(out, sh_json_text(w, "name")))
            rc = SH_FAIL(err, SH_E_INVALID,
                         "--inputs has no file for \"%.100s\", an input of the model",
                         sh_json_text(w, "name"));
    }
    free(text);
    return rc;
}

static int from_numpy(const char *path, const json_t *wanted, struct tensors *out,
                      struct sh_err *err)
{
    if (json_array_size(wanted) != 1)
        return SH_FAIL(err, SH_E_INVALID,
                       "the model has %zu inputs, and \"%s\" is one array: give --inputs "
                       "NAME=FILE,NAME=FILE, or a safetensors file with all of them",
                       json_array_size(wanted), path);
    return add_numpy(path, json_array_get(wanted, 0), out, err);
}

int inputs_from_files(const char *files, const json_t *wanted, struct tensors *out,
                      struct sh_err *err)
{
    enum sh_file_kind kind = SH_FILE_OTHER;
    char hint[128];
    int rc;

    *out = (struct tensors){0};
    image_hint(wanted, hint, sizeof(hint));
    if (strchr(files, '=') && access(files, F_OK) != 0)
        rc = from_pairs(files, wanted, out, err);
    else if ((rc = user_file_kind(files, &kind, err)))
        return rc;
    else if (kind == SH_FILE_NUMPY)
        rc = from_numpy(files, wanted, out, err);
    else if (kind == SH_FILE_TEXT)
        rc = values_read(files, wanted, out, err);
    else if (kind == SH_FILE_JPEG || kind == SH_FILE_PNG)
        rc = SH_FAIL(
            err, SH_E_INVALID,
            "\"%s\" is %s: give it as --image, with what the model wants done to it, such as %s",
            files, sh_file_kind_text(kind), hint);
    else if (kind == SH_FILE_ZIP)
        rc = SH_FAIL(err, SH_E_INVALID,
                     "\"%s\" is a zip file, such as .npz: save each array with numpy.save and give "
                     "--inputs NAME=FILE,NAME=FILE",
                     files);
    else if (kind != SH_FILE_SAFETENSORS && kind != SH_FILE_OTHER)
        rc = SH_FAIL(err, SH_E_INVALID,
                     "\"%s\" is %s; --inputs takes safetensors, .npy of NumPy and JSON", files,
                     sh_file_kind_text(kind));
    else
        rc = tensors_from_file(files, wanted, out, err);
    if (rc)
        tensors_fini(out);
    return rc;
}
