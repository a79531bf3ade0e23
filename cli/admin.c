/* admin.c - tenants, keys, quotas. */
#include "cli/lists.h"
#include "cli/state.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>

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

static int save_key(const struct cli *c, const char *key, struct sh_err *err)
{
    char text[512];
    int n = snprintf(text, sizeof(text), "%s\n", key);

    return file_write(c->conf->save, text, (size_t)n, 0600, err);
}

/* Prints or saves a secret that the server shows this once. */
static int show_key(const struct cli *c, const json_t *j, struct sh_err *err)
{
    bool save = c->conf->save && c->conf->save[0] && !c->conf->dry_run;
    int rc = save ? save_key(c, sh_json_text(j, "key"), err) : SH_OK;

    if (rc)
        return rc;
    if (c->output == OUTPUT_DATA)
        out_data(c, j);
    else if (list_said_dry_run(c))
        return SH_OK;
    else if (!save && (c->output == OUTPUT_NAME || c->conf->quiet))
        puts(sh_json_text(j, "key"));
    else if (save)
        out_say(c, "Key %s (%s of %s) is in %s.", sh_json_text(j, "id"), sh_json_text(j, "role"),
                sh_json_text(j, "tenant"), c->conf->save);
    else
        printf("%s\nThe key is shown only now. Use it with --key, --key-file or SHUNT_KEY.\n",
               sh_json_text(j, "key"));
    return SH_OK;
}

/* TAKES body. */
static int post_key(struct cli *c, const char *path, json_t *body, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = rest_call(c, "POST", path, body, 0, &j, err);

    if (!rc)
        rc = show_key(c, j, err);
    json_decref(body);
    json_decref(j);
    return rc;
}

int key_create(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    int rc = keys_path(c, path, NULL, err);

    return rc ? rc
              : post_key(c, path,
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
    return post_key(c, full, json_pack("{s:I}", "overlap_s", (json_int_t)c->conf->overlap_s), err);
}

int key_get(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {{"ID", "id", OUT_TEXT},
                                          {"NAME", "name", OUT_TEXT},
                                          {"ROLE", "role", OUT_TEXT},
                                          {"CREATED", "created_at", OUT_TIME},
                                          {"EXPIRES", "expires_at", OUT_TIME},
                                          {"USED", "last_used_at", OUT_TIME},
                                          {"REVOKED", "revoked_at", OUT_TIME},
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

    if (!eq || eq == word)
        return cli_usage(c, err, "\"%.60s\" is not FIELD=VALUE", word);
    *eq = '\0';
    if (!json_object_get(quota, word)) {
        json_object_foreach(quota, key, value) n +=
            (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", n ? ", " : "", key);
        return cli_usage(c, err, "a quota has no field \"%.60s\"; it has: %s", word, all);
    }
    value = json_loads(eq + 1, JSON_DECODE_ANY, NULL);
    if (!json_is_number(value) && !json_is_null(value)) {
        json_decref(value);
        return cli_usage(c, err, "%.60s must be a number or null", word);
    }
    if (json_object_set_new(quota, word, value))
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a quota");
    return SH_OK;
}

int quota_set(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    json_t *quota = NULL;
    int rc = quota_path(c, path, err);

    /* The server replaces all fields: those not named here keep their values. */
    if (!rc)
        rc = rest_get(c, path, 0, &quota, err);
    json_object_del(quota, "row_version");
    for (int i = 1; !rc && i < c->n_args; i++)
        rc = change_field(c, quota, c->args[i], err);
    if (!rc)
        return list_change(
            c,
            &(struct change){
                .method = "PUT", .path = path, .name = "max_running_jobs", .body = quota},
            err, NULL);
    json_decref(quota);
    return rc;
}

int whoami_main(struct cli *c, struct sh_err *err)
{
    static const struct list_view VIEW = {.name = "key"};

    return list_show_one(c, "/api/v1/whoami", &VIEW, err);
}
