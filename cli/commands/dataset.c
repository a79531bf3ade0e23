/* dataset.c - datasets. */
#include "cli/client/lists.h"
#include "cli/client/rest.h"
#include "cli/client/upload.h"
#include "cli/commands.h"
#include "cli/data/arrays.h"
#include "cli/data/classes.h"
#include "cli/files/user_file.h"
#include "cli/text/field.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DATASETS "/api/v1/datasets"

static int dataset_path(const struct cli *c, char path[static REST_PATH_MAX], const char *below,
                        struct sh_err *err)
{
    return rest_path(path, err, "api", "v1", "datasets", c->args[0], below, NULL);
}

int dataset_create(struct cli *c, struct sh_err *err)
{
    return list_change(c,
                       &(struct change){.method = "POST",
                                        .path = DATASETS,
                                        .name = "name",
                                        .flags = REST_TENANT,
                                        .body = json_pack("{s:s}", "name", c->args[0])},
                       err, "Dataset %s is created. Next: shunt push dataset %s FILE.safetensors",
                       c->args[0], c->args[0]);
}

int dataset_get(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {
        {"NAME", "name", OUT_TEXT},          {"STATE", "state", OUT_TEXT},
        {"SAMPLES", "n_samples", OUT_TEXT},  {"BYTES", "bytes", OUT_BYTES},
        {"TENSORS", "tensors", OUT_COUNT},   {"CREATED", "created_at", OUT_TIME},
        {"DIGEST", "digest", OUT_TEXT, true}};
    static const struct list_view VIEW = {
        .path = DATASETS, .flags = REST_TENANT, LIST_COLS(COLS), .name = "name"};

    return list_get(c, &VIEW, err);
}

int dataset_delete(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    int rc = dataset_path(c, path, NULL, err);

    return rc ? rc
              : list_change(
                    c, &(struct change){.method = "DELETE", .path = path, .flags = REST_TENANT},
                    err, "Dataset %s is deleted.", c->args[0]);
}

/* ---------------------------------------------------------------- push */

static bool is_text_given(const char *text)
{
    return text && text[0];
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);

    return n >= k && strcasecmp(text + n - k, end) == 0;
}

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* "224x160", height first, or one number for both. */
static int read_picture_size(struct cli *c, const char *text, struct picture_plan *out,
                             struct sh_err *err)
{
    const char *x = strchr(text, 'x');
    char first[24];

    snprintf(first, sizeof(first), "%.*s", x ? (int)(x - text) : (int)sizeof(first) - 1, text);
    if (sh_parse_i64(first, 1, PICTURE_MAX_SIDE, "size", &out->height, NULL) ||
        sh_parse_i64(x ? x + 1 : first, 1, PICTURE_MAX_SIDE, "size", &out->width, NULL))
        return cli_usage(
            c, err, "--size wants HEIGHTxWIDTH or one number, each from 1 to %d, not \"%.40s\"",
            PICTURE_MAX_SIDE, text);
    return SH_OK;
}

static int plan_pictures(struct cli *c, struct classes_plan *p, struct sh_err *err)
{
    const struct cli_conf *o = c->conf;
    const bool last = strcmp(o->layout, "nhwc") == 0;

    *p = (struct classes_plan){
        .tensor = o->tensor,
        .labels = "label",
        .shape = {.resize = o->resize, .covers = true, .stretches = o->stretch},
        .channels = o->grey ? 1 : 3,
        .is_last = last,
        .skips = o->skip_broken};
    if (!last && strcmp(o->layout, "nchw") != 0)
        return cli_usage(c, err, "--layout is nchw or nhwc, not \"%.40s\"", o->layout);
    if (o->stretch && (!is_text_given(o->size) || o->resize))
        return cli_usage(c, err, "--stretch needs --size, and cannot be combined with --resize");
    p->shape.covers = is_text_given(o->size);
    return is_text_given(o->size) ? read_picture_size(c, o->size, &p->shape, err) : SH_OK;
}

static void say_pictures(const struct cli *c, const struct classes_told *t)
{
    if (t->n_other_size)
        out_say(c, "%zu pictures are left out, %zu of them because of another size; the first: %s",
                t->n_skipped, t->n_other_size, t->skipped);
    else if (t->n_skipped)
        out_say(c, "%zu pictures are left out because they cannot be read; the first: %s",
                t->n_skipped, t->skipped);
    if (t->n_other)
        out_say(c, "%zu entries are left out because their names are not those of pictures.",
                t->n_other);
    out_say(c, "%zu pictures of %zu classes.", t->n_samples, t->n_classes);
}

static int make_pictures(struct cli *c, struct setfile *made, struct sh_err *err)
{
    struct classes_told told;
    struct classes_plan plan;
    int rc;

    rc = plan_pictures(c, &plan, err);
    if (!rc)
        rc = classes_read(c, c->args[1], &plan, made, &told, err);
    if (!rc)
        say_pictures(c, &told);
    return rc;
}

static int make_table_set(struct cli *c, struct setfile *made, struct sh_err *err)
{
    const struct table_plan plan = {.tensor = c->conf->tensor, .column = c->conf->label_column};

    if (!is_text_given(plan.column))
        return cli_usage(c, err, "--label is needed: the column of \"%.200s\" with the labels",
                         c->args[1]);
    return table_read(c, c->args[1], &plan, made, err);
}

enum made_of { PICTURES, TABLE, ARRAYS };

/* An option of another kind of files would be without effect. */
static int refuse_others(struct cli *c, enum made_of is, struct sh_err *err)
{
    const struct cli_conf *o = c->conf;
    const struct {
        const char *name;
        bool is_given, fits;
    } OPTIONS[] = {{"tensor", strcmp(o->tensor, "input") != 0, is != ARRAYS},
                   {"label", is_text_given(o->label_column), is == TABLE},
                   {"resize", o->resize != 0, is == PICTURES},
                   {"size", is_text_given(o->size), is == PICTURES},
                   {"stretch", o->stretch, is == PICTURES},
                   {"grey", o->grey, is == PICTURES},
                   {"layout", strcmp(o->layout, "nchw") != 0, is == PICTURES},
                   {"skip-broken", o->skip_broken, is == PICTURES}};
    static const char *const ARE[] = {
        [PICTURES] = "a folder of pictures",
        [TABLE] = "a table",
        [ARRAYS] = "safetensors or NumPy; TENSOR=FILE names the array of a .npy file"};

    for (size_t i = 0; i < SH_ARRAY_LEN(OPTIONS); i++)
        if (OPTIONS[i].is_given && !OPTIONS[i].fits)
            return cli_usage(c, err, "--%s does not belong to what \"%.200s\" is: %s",
                             OPTIONS[i].name, c->args[1], ARE[is]);
    if (!is_text_given(o->tensor))
        return cli_usage(c, err, "--tensor is empty: it is the name of the model's input");
    return SH_OK;
}

/* *file: what is pushed, BORROWED from the arguments or from made. */
static int make_dataset_file(struct cli *c, struct setfile *made, const char **file,
                             struct sh_err *err)
{
    const size_t n = (size_t)c->n_args - 1;
    enum sh_file_kind kind = SH_FILE_OTHER;
    enum made_of is = ARRAYS;
    struct sh_err why = {0};
    int rc;

    *file = c->args[1];
    if (!is_folder(*file))
        user_file_kind(*file, &kind, &why); /* if it fails, who reads the file says why */
    if (n == 1 && is_folder(*file))
        is = PICTURES;
    else if (n == 1 && (ends_with(*file, ".csv") ||
                        (kind == SH_FILE_TEXT && is_text_given(c->conf->label_column))))
        is = TABLE;
    rc = refuse_others(c, is, err);
    if (rc)
        return rc;
    if (is == PICTURES)
        rc = make_pictures(c, made, err);
    else if (is == TABLE)
        rc = make_table_set(c, made, err);
    else if (n > 1 && kind == SH_FILE_SAFETENSORS)
        rc = shards_read(c, c->args + 1, n, made, err);
    else if (n > 1 || (strchr(*file, '=') && access(*file, F_OK) != 0) || kind == SH_FILE_NUMPY ||
             kind == SH_FILE_ZIP)
        rc = arrays_read(c, c->args + 1, n, made, err);
    else
        return upload_check(*file, SH_FILE_SAFETENSORS, err);
    *file = made->path;
    return rc;
}

int dataset_push(struct cli *c, struct sh_err *err)
{
    struct setfile set = {.fd = -1};
    json_t *j = NULL;
    struct upload *u = NULL;
    bool made = false;
    const char *file;
    char path[REST_PATH_MAX], bytes[32];
    int rc = dataset_path(c, path, NULL, err);

    if (!rc)
        rc = make_dataset_file(c, &set, &file, err);
    if (!rc)
        rc = upload_open(c, file, NULL, &u, err);
    if (!rc)
        rc = rest_ensure(c, path, DATASETS, c->args[0], &made, err);
    if (!rc)
        rc = dataset_path(c, path, "artifact", err);
    if (!rc)
        rc = upload_send(u, path, &j, err);
    if (rc && made)
        upload_undo(u, path);
    upload_close(u);
    setfile_fini(&set);
    out_bytes(json_number_value(json_object_get(j, "bytes")), bytes, sizeof(bytes));
    if (!rc && c->output != OUTPUT_TABLE)
        rc = out_object(c, j, "name", err);
    else if (!rc)
        out_say(c, "Dataset %s is READY: %" JSON_INTEGER_FORMAT " samples, %s.", c->args[0],
                json_integer_value(json_object_get(j, "n_samples")), bytes);
    json_decref(j);
    return rc;
}
