/* admin.c - tenants, keys, quotas. */
#include "cli/client/lists.h"
#include "cli/client/rest.h"
#include "cli/commands.h"
#include "cli/files/file.h"
#include "cli/local/state.h"
#include "cli/text/field.h"
#include "common/io.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QUOTA_TRIES 5

/* ---------------------------------------------------------------- tenants */

int tenant_create(struct cli *c, struct sh_err *err)
{
    return list_change(c,
                       &(struct change){.method = "POST",
                                        .path = "/api/v1/tenants",
                                        .name = "name",
                                        .body = json_pack("{s:s}", "name", c->args[0])},
                       err, "Tenant %s is created. Next: shunt create key NAME --tenant %s",
                       c->args[0], c->args[0]);
}

int tenant_get(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {{"NAME", "name", OUT_TEXT},
                                          {"STATE", "state", OUT_TEXT},
                                          {"AGE", "created_at", OUT_AGE},
                                          {"CREATED", "created_at", OUT_TIME, true}};
    static const struct list_view VIEW = {
        .path = "/api/v1/tenants", LIST_COLS(COLS), .name = "name"};

    return list_get(c, &VIEW, err);
}

static int tenant_path(const struct cli *c, char path[static REST_PATH_MAX], struct sh_err *err)
{
    return rest_path(path, err, "api", "v1", "tenants", c->args[0], NULL);
}

int tenant_set(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    int rc = tenant_path(c, path, err);

    if (!rc && (!c->conf->state || !c->conf->state[0]))
        rc = cli_usage(c, err, "say --state SUSPENDED or --state ACTIVE");
    return rc ? rc
              : list_change(c,
                            &(struct change){.method = "PATCH",
                                             .path = path,
                                             .name = "name",
                                             .body = json_pack("{s:s}", "state", c->conf->state)},
                            err, NULL);
}

int tenant_delete(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    int rc = tenant_path(c, path, err);

    return rc ? rc
              : list_change(c, &(struct change){.method = "DELETE", .path = path}, err,
                            "Tenant %s is deleted, its keys are revoked.", c->args[0]);
}

/* ---------------------------------------------------------------- keys */

static int keys_path(struct cli *c, char path[static REST_PATH_MAX], const char *id,
                     struct sh_err *err)
{
    const char *tenant;
    int rc = rest_tenant(c, "key", &tenant, err);

    return rc ? rc : rest_path(path, err, "api", "v1", "tenants", tenant, "keys", id, NULL);
}

/* The file of --save. It is opened before there is a secret: one that could not be kept is lost. */
struct secret {
    char
        *path; /* OWNED: what is written; beside the file if that holds an old secret of this key */
    int fd;
};

/* id: of the key that gets another secret; NULL: of a new one. */
static bool holds_key(const char *path, const char *id)
{
    char *text = NULL, start[64];
    size_t len;
    bool yes = false;

    if (id && file_read(path, 512, &text, &len, NULL) == SH_OK) {
        snprintf(start, sizeof(start), "shunt_%.40s_", id);
        yes = strncmp(text, start, strlen(start)) == 0;
    }
    free(text);
    return yes;
}

static int open_secret(const char *file, const char *id, struct secret *s, struct sh_err *err)
{
    bool again = holds_key(file, id);
    int rc = again ? sh_asprintf(err, &s->path, "%s.%d.tmp", file, (int)getpid())
                   : sh_strdup(file, &s->path, err);

    if (rc)
        return rc;
    s->fd = open(s->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (s->fd >= 0)
        return SH_OK;
    rc = errno == EEXIST
             ? SH_FAIL(
                   err, SH_E_CONFLICT,
                   "\"%s\" exists already: name another file with --save, or remove that one first",
                   s->path)
             : SH_FAIL_ERRNO(err, SH_E_IO, "could not make the file \"%s\" of --save: %m", s->path);
    free(s->path); /* it is not ours to remove */
    s->path = NULL;
    return rc;
}

static int write_secret(const struct cli *c, struct secret *s, const json_t *j, struct sh_err *err)
{
    const char *id = sh_json_text(j, "id"), *tenant = sh_json_text(j, "tenant");
    char text[512];
    int n = snprintf(text, sizeof(text), "%s\n", sh_json_text(j, "key"));

    if (!sh_write_all(s->fd, text, (size_t)n) || rename(s->path, c->conf->save) != 0)
        return SH_FAIL_ERRNO(err, SH_E_IO,
                             "key %s of %s has a new secret, which could not be written to \"%s\" "
                             "and is lost: %m. For another one: shunt rotate key %s --tenant %s; "
                             "without the key: shunt delete key %s --tenant %s",
                             id, tenant, c->conf->save, id, tenant, id, tenant);
    free(s->path);
    s->path = NULL;
    return SH_OK;
}

/* A file without a secret goes. */
static void close_secret(struct secret *s)
{
    if (s->fd >= 0)
        close(s->fd);
    if (s->path)
        unlink(s->path);
    free(s->path);
}

/* Prints a secret that the server shows this once, or says where it is. */
static void show_key(const struct cli *c, const json_t *j, bool save)
{
    if (c->output == OUTPUT_DATA)
        out_data(c, j);
    else if (list_said_dry_run(c))
        return;
    else if (!save && (c->output == OUTPUT_NAME || c->conf->quiet))
        puts(sh_json_text(j, "key"));
    else if (save)
        out_say(c, "Key %s (%s of %s) is in %s.", sh_json_text(j, "id"), sh_json_text(j, "role"),
                sh_json_text(j, "tenant"), c->conf->save);
    else
        printf("%s\nThe key is shown only now. Use it with --key, --key-file or SHUNT_KEY.\n",
               sh_json_text(j, "key"));
}

/* id: as holds_key() has it. TAKES body. */
static int post_key(struct cli *c, const char *path, const char *id, json_t *body,
                    struct sh_err *err)
{
    bool save = c->conf->save && c->conf->save[0] && !c->conf->dry_run;
    struct secret s = {.fd = -1};
    json_t *j = NULL;
    int rc = save ? open_secret(c->conf->save, id, &s, err) : SH_OK;

    if (!rc)
        rc = rest_call(c, "POST", path, body, 0, &j, err);
    if (!rc && save)
        rc = write_secret(c, &s, j, err);
    if (!rc)
        show_key(c, j, save);
    close_secret(&s);
    json_decref(body);
    json_decref(j);
    return rc;
}

int key_create(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    int rc = keys_path(c, path, NULL, err);

    return rc ? rc
              : post_key(c, path, NULL,
                         json_pack("{s:s, s:s, s:s*}", "name", c->args[0], "role", c->conf->role,
                                   "expires_at", c->conf->expires_at),
                         err);
}

int key_rotate(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX], full[REST_PATH_MAX + 8];
    int rc = keys_path(c, path, c->args[0], err);

    if (rc)
        return rc;
    snprintf(full, sizeof(full), "%s/rotate", path);
    return post_key(c, full, c->args[0],
                    json_pack("{s:I}", "overlap_s", (json_int_t)c->conf->overlap_s), err);
}

int key_get(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {{"ID", "id", OUT_TEXT},
                                          {"NAME", "name", OUT_TEXT},
                                          {"ROLE", "role", OUT_TEXT},
                                          {"CREATED", "created_at", OUT_TIME, .spare = 3},
                                          {"EXPIRES", "expires_at", OUT_TIME},
                                          {"USED", "last_used_at", OUT_TIME, .spare = 1},
                                          {"REVOKED", "revoked_at", OUT_TIME, .spare = 2},
                                          {"ROTATED", "rotated_at", OUT_TIME, true},
                                          {"OLD SECRET UNTIL", "old_secret_until", OUT_TIME, true},
                                          {"TENANT", "tenant", OUT_TEXT, true}};
    char path[REST_PATH_MAX];
    struct list_view v = {.path = path, LIST_COLS(COLS), .name = "id"};
    int rc = keys_path(c, path, NULL, err);

    return rc ? rc : list_get(c, &v, err);
}

int key_delete(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    int rc = keys_path(c, path, c->args[0], err);

    return rc ? rc
              : list_change(c, &(struct change){.method = "DELETE", .path = path}, err,
                            "Key %s is revoked.", c->args[0]);
}

/* ---------------------------------------------------------------- quotas */

static int quota_path(struct cli *c, char path[static REST_PATH_MAX], struct sh_err *err)
{
    const char *tenant = c->n_args ? c->args[0] : NULL;
    int rc = tenant ? SH_OK : rest_tenant(c, "quota", &tenant, err);

    return rc ? rc : rest_path(path, err, "api", "v1", "tenants", tenant, "quota", NULL);
}

int quota_get(struct cli *c, struct sh_err *err)
{
    static const struct list_view VIEW = {.name = "max_running_jobs"};
    char path[REST_PATH_MAX];
    int rc = quota_path(c, path, err);

    return rc ? rc : list_show_one(c, path, &VIEW, err);
}

/* Changes one field of the object that the server gave us. */
static int change_field(struct cli *c, json_t *quota, char *word, struct sh_err *err)
{
    char *eq = strchr(word, '='), all[600] = "";
    const char *key;
    json_t *value = NULL;
    size_t n = 0;
    int rc;

    if (!eq || eq == word)
        return cli_usage(c, err, "\"%.60s\" is not FIELD=VALUE", word);
    *eq = '\0';
    if (!json_object_get(quota, word)) {
        json_object_foreach(quota, key, value) n +=
            (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", n ? ", " : "", key);
        return cli_usage(c, err, "a quota has no field \"%.60s\"; it has: %s", word, all);
    }
    rc = cli_value(c, word, eq + 1, &value, err);
    if (!rc && !value)
        rc = cli_usage(c, err, "%.60s must be a number or null", word);
    if (!rc && json_object_set(quota, word, value))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a quota");
    json_decref(value);
    *eq = '='; /* it may have to be read once more */
    return rc;
}

/* The server replaces all fields: those not named here keep the values that were read. */
static int set_fields(struct cli *c, const char *path, struct sh_err *err)
{
    struct change ch = {.method = "PUT", .path = path, .name = "max_running_jobs"};
    int rc = rest_get(c, path, 0, &ch.body, err);

    ch.row_version = json_integer_value(json_object_get(ch.body, "row_version"));
    json_object_del(ch.body, "row_version");
    for (int i = 1; !rc && i < c->n_args; i++)
        rc = change_field(c, ch.body, c->args[i], err);
    if (!rc)
        return list_change(c, &ch, err, NULL);
    json_decref(ch.body);
    return rc;
}

int quota_set(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    int rc = quota_path(c, path, err);

    for (int tries = 1; !rc; tries++) {
        struct sh_err now = {0};

        rc = set_fields(c, path, &now);
        if (rc != SH_E_PRECONDITION || tries == QUOTA_TRIES)
            return rc ? sh_err_copy(err, &now) : SH_OK;
        if (!c->conf->quiet)
            fprintf(stderr, "Somebody else has changed this quota: reading it again.\n");
        rc = SH_OK;
    }
    return rc;
}

int whoami_main(struct cli *c, struct sh_err *err)
{
    static const struct list_view VIEW = {.name = "key"};

    return list_show_one(c, "/api/v1/whoami", &VIEW, err);
}
