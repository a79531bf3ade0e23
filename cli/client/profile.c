/* profile.c - `shunt config`: the sections of the config file, each a server with its key, like
 * kubectl's contexts. common/conf.c reads that file; here it is only edited, line by line, so that
 * what a person wrote there stays. Only its owner can read it, since it may hold keys.
 */
#include "cli/client/profile.h"

#include "cli/client/lists.h"
#include "cli/commands.h"
#include "cli/files/file.h"
#include "cli/local/state.h"
#include "cli/text/field.h"
#include "cli/text/find.h"
#include "common/buf.h"
#include "common/mem.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define MAX_FILE (1u << 20)
#define NAME_MAX_BYTES 64

/* ---------------------------------------------------------------- lines */

struct line {
    const char *text; /* BORROWED; without its end */
    size_t len;
    char section[NAME_MAX_BYTES]; /* that it is in, "" before the first; of "[NAME]" NAME itself */
    char name[NAME_MAX_BYTES];    /* of "name = value"; "" if it is none */
    const char *value;            /* trimmed, value_len long */
    size_t value_len;
    bool is_head;
};

static void copy_trimmed(char out[static NAME_MAX_BYTES], const char *s, size_t n)
{
    while (n > 0 && isspace((unsigned char)*s)) {
        s++;
        n--;
    }
    while (n > 0 && isspace((unsigned char)s[n - 1]))
        n--;
    snprintf(out, NAME_MAX_BYTES, "%.*s", (int)SH_MIN(n, (size_t)NAME_MAX_BYTES - 1), s);
}

/* The line at *at, which moves on. False: there is none. section goes on from line to line. */
static bool next_profile_line(const char **at, struct line *l)
{
    const char *p = *at, *eq;
    size_t n = strcspn(p, "\n"), lead = 0;

    if (!*p)
        return false;
    *at = p + n + (p[n] == '\n');
    l->text = p;
    l->len = n;
    l->name[0] = '\0';
    while (lead < n && isspace((unsigned char)p[lead]))
        lead++;
    l->is_head = p[lead] == '[' && memchr(p, ']', n);
    if (l->is_head)
        copy_trimmed(l->section, p + lead + 1,
                     (size_t)((const char *)memchr(p, ']', n) - p) - lead - 1);
    eq = memchr(p, '=', n);
    if (l->is_head || !eq || p[lead] == '#')
        return true;
    copy_trimmed(l->name, p, (size_t)(eq - p));
    l->value = eq + 1;
    l->value_len = n - (size_t)(eq + 1 - p);
    while (l->value_len > 0 && isspace((unsigned char)*l->value)) {
        l->value++;
        l->value_len--;
    }
    while (l->value_len > 0 && isspace((unsigned char)l->value[l->value_len - 1]))
        l->value_len--;
    return true;
}

struct edit {
    const char *section, *name, *value; /* name NULL: the whole section; value NULL: remove */
};

static int put_profile_value(struct sh_buf *out, const struct edit *e, bool *done,
                             struct sh_err *err)
{
    if (*done || !e->value)
        return SH_OK;
    *done = true;
    return sh_buf_printf(out, err, "%s = %s\n", e->name, e->value);
}

/* The text with one change. A section that is not there yet comes last. */
static int edit_text(const char *text, const struct edit *e, struct sh_buf *out, struct sh_err *err)
{
    struct line l = {0};
    bool done = false;
    int rc = sh_buf_puts(out, "", err);

    for (const char *at = text; !rc;) {
        bool was_mine = strcmp(l.section, e->section) == 0;
        bool more = next_profile_line(&at, &l),
             is_mine = more && strcmp(l.section, e->section) == 0;

        if (was_mine && !is_mine && e->name)
            rc = put_profile_value(out, e, &done, err);
        if (!more)
            break;
        if (is_mine && !e->name)
            continue;
        if (!rc && is_mine && !l.is_head && strcmp(l.name, e->name) == 0)
            rc = put_profile_value(out, e, &done, err);
        else if (!rc)
            rc = sh_buf_printf(out, err, "%.*s\n", (int)l.len, l.text);
    }
    if (!rc && e->name && e->value && !done)
        rc = sh_buf_printf(out, err, "%s[%s]\n", out->len ? "\n" : "", e->section);
    return rc ? rc : put_profile_value(out, e, &done, err);
}

/* ---------------------------------------------------------------- the file */

/* *text: OWNED; "" if there is no file yet. */
static int read_config(struct cli *c, char **text, struct sh_err *err)
{
    struct sh_err now = {0};
    size_t len;
    int rc;

    if (!c->config_path)
        return SH_FAIL(err, SH_E_INVALID, "there is no config file: give --config, or set HOME");
    rc = file_read(c->config_path, MAX_FILE, text, &len, &now);
    if (rc == SH_E_NOTFOUND)
        return sh_strdup("", text, err);
    return rc ? sh_err_copy(err, &now) : SH_OK;
}

static int write_config(struct cli *c, const char *text, struct sh_err *err)
{
    char *dir = NULL, *slash;
    int rc = sh_strdup(c->config_path, &dir, err);

    slash = rc ? NULL : strrchr(dir, '/');
    if (slash && slash > dir) {
        *slash = '\0';
        rc = file_make_dir(dir, 0700, err);
    }
    if (!rc)
        rc = file_write(c->config_path, text, strlen(text), 0600, err);
    free(dir);
    return rc;
}

static int edit_apply(char **text, const struct edit *e, struct sh_err *err)
{
    struct sh_buf b;
    int rc;

    sh_buf_init(&b, MAX_FILE);
    rc = edit_text(*text, e, &b, err);
    if (!rc) {
        free(*text);
        *text = sh_buf_take(&b);
    }
    sh_buf_fini(&b);
    return rc;
}

static bool is_secret(const struct cli_table *t, const char *name)
{
    struct sh_conf_opt opts[CLI_MAX_OPTS];
    size_t n = cli_options(t, NULL, opts);

    for (size_t i = 0; i < n; i++)
        if (strcmp(opts[i].name, name) == 0)
            return opts[i].flags & SH_CONF_SECRET;
    return false;
}

static void add_field(const struct cli_table *t, json_t *profile, const struct line *l)
{
    if (l->name[0] && profile)
        json_object_set_new(profile, l->name,
                            is_secret(t, l->name) ? json_string("***")
                                                  : json_stringn(l->value, l->value_len));
}

/* Profiles with their fields; the one of the lines before is "current". OWNED. */
static json_t *profiles_of(const struct cli_table *t, const char *text)
{
    json_t *all = json_array(), *last = NULL;
    char current[NAME_MAX_BYTES] = "";
    struct line l = {0};

    while (next_profile_line(&text, &l)) {
        if (l.is_head) {
            last = json_pack("{s:s, s:b}", "name", l.section, "current",
                             strcmp(l.section, current) == 0);
            json_array_append_new(all, last);
        } else if (l.section[0]) {
            add_field(t, last, &l);
        } else if (strcmp(l.name, "profile") == 0) {
            copy_trimmed(current, l.value, l.value_len);
        }
    }
    return all;
}

static json_t *find_profile(json_t *all, const char *name)
{
    json_t *p;
    size_t i;

    json_array_foreach(all, i, p) if (strcmp(sh_json_text(p, "name"), name) == 0) return p;
    return NULL;
}

json_t *config_profiles(struct cli *c)
{
    char *text = NULL;
    json_t *all = read_config(c, &text, NULL) ? NULL : profiles_of(c->table, text);

    free(text);
    return all;
}

bool config_has(struct cli *c, const char *profile, const char *name, const char *value)
{
    char *text = NULL;
    const char *at;
    struct line l = {0};
    bool has = false;

    if (read_config(c, &text, NULL) == SH_OK)
        for (at = text; !has && next_profile_line(&at, &l);)
            has = strcmp(l.section, profile) == 0 && strcmp(l.name, name) == 0 &&
                  l.value_len == strlen(value) && memcmp(l.value, value, l.value_len) == 0;
    free(text);
    return has;
}

/* Reads the file and finds the profile that the first argument names. Both OWNED. */
static int open_profile(struct cli *c, char **text, json_t **all, struct sh_err *err)
{
    int rc = read_config(c, text, err);

    *all = rc ? NULL : profiles_of(c->table, *text);
    if (!rc && !find_profile(*all, c->args[0]))
        rc = SH_FAIL(err, SH_E_NOTFOUND,
                     "there is no profile \"%.60s\" in %s; shunt config profiles lists those there "
                     "are, shunt config set makes one",
                     c->args[0], c->config_path);
    return rc;
}

/* ---------------------------------------------------------------- the commands */

int config_get(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {
        {"PROFILE", "name", OUT_TEXT},       {"CURRENT", "current", OUT_TEXT},
        {"SERVER", "server", OUT_TEXT},      {"TENANT", "tenant", OUT_TEXT},
        {"KEY FILE", "key-file", OUT_TEXT},  {"CA FILE", "ca-file", OUT_TEXT, true},
        {"KEY", "key", OUT_TEXT, true},      {"STATE DIR", "state-dir", OUT_TEXT, true},
        {"OUTPUT", "output", OUT_TEXT, true}};
    char *text = NULL;
    json_t *all = NULL;
    int rc;

    if (c->n_args > 0) {
        rc = open_profile(c, &text, &all, err);
        if (!rc)
            rc = out_object(c, find_profile(all, c->args[0]), "name", err);
    } else {
        rc = read_config(c, &text, err);
        all = rc ? NULL : profiles_of(c->table, text);
        if (!rc)
            rc = out_list(c, all, COLS, SH_ARRAY_LEN(COLS), "name", err);
    }
    json_decref(all);
    free(text);
    return rc;
}

static bool is_profile_name(const char *s)
{
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("._-", s[i]))
            return false;
    return n > 0 && n < NAME_MAX_BYTES;
}

/* A path counts from wherever a command is run: it is kept as a whole one. *out: OWNED. */
static int field_value(const char *name, const char *value, char **out, struct sh_err *err)
{
    static const char *const PATHS[] = {"key-file", "ca-file", "state-dir"};
    const char *home = sh_conf_env("HOME");

    for (size_t i = 0; value[0] && i < SH_ARRAY_LEN(PATHS); i++) {
        if (strcmp(name, PATHS[i]) != 0)
            continue;
        if (home && strncmp(value, "~/", 2) == 0) /* the shell expands none behind a '=' */
            return sh_asprintf(err, out, "%s%s", home, value + 1);
        return file_absolute(value, out, err);
    }
    return sh_strdup(value, out, err);
}

/* FIELD=VALUE; an empty value removes the field. */
static int set_field(struct cli *c, char *word, char **text, struct sh_err *err)
{
    char *eq = strchr(word, '='), *value = NULL;
    struct edit e = {.section = c->args[0], .name = word};
    bool known = false;
    int rc;

    if (!eq || eq == word)
        return cli_usage(c, err, "\"%.60s\" is not FIELD=VALUE", word);
    *eq = '\0';
    for (size_t i = 0; i < c->table->n_common; i++)
        known =
            known || (strcmp(c->table->common[i].name, word) == 0 && strcmp(word, "profile") != 0);
    if (!known)
        return cli_usage(c, err,
                         "a profile has no field \"%.60s\"; it has the options of every command: "
                         "server, key, key-file, ca-file, tenant, output, state-dir, quiet",
                         word);
    if (strpbrk(eq + 1, "\n\r"))
        return cli_usage(c, err, "%s must be one line", word);
    rc = field_value(word, eq + 1, &value, err);
    e.value = eq[1] ? value : NULL;
    if (!rc)
        rc = edit_apply(text, &e, err);
    free(value);
    return rc;
}

int config_set(struct cli *c, struct sh_err *err)
{
    char *text = NULL;
    int rc = is_profile_name(c->args[0])
                 ? read_config(c, &text, err)
                 : cli_usage(c, err, "a profile's name is letters, digits, '.', '_' and '-'");

    for (int i = 1; !rc && i < c->n_args; i++)
        rc = set_field(c, c->args[i], &text, err);
    if (!rc)
        rc = write_config(c, text, err);
    if (!rc)
        out_say(c, "Profile %s is in %s. Next: shunt --profile %s COMMAND, or shunt config use %s",
                c->args[0], c->config_path, c->args[0], c->args[0]);
    free(text);
    return rc;
}

/* The line "profile = NAME" before all sections; name NULL: without it. */
static int set_current(char **text, const char *name, struct sh_err *err)
{
    const struct edit none = {.section = "", .name = "profile"};
    char *all;
    int rc = edit_apply(text, &none, err);

    if (rc || !name)
        return rc;
    rc = sh_asprintf(err, &all, "profile = %s\n%s", name, *text);
    if (!rc) {
        free(*text);
        *text = all;
    }
    return rc;
}

/* What goes before the profile that the file has in use. */
static void say_nearer(const struct cli *c)
{
    static const char *const VARS[] = {"SHUNT_PROFILE", "SHUNT_SERVER", "SHUNT_KEY",
                                       "SHUNT_KEY_FILE", "SHUNT_TENANT"};

    for (size_t i = 0; i < SH_ARRAY_LEN(VARS); i++)
        if (sh_conf_env(VARS[i]))
            out_say(c,
                    "But %s is set in this environment and goes before it: unset %s, or say "
                    "--profile %s.",
                    VARS[i], VARS[i], c->args[0]);
}

int config_use(struct cli *c, struct sh_err *err)
{
    char *text = NULL;
    json_t *all = NULL;
    int rc = open_profile(c, &text, &all, err);

    if (!rc)
        rc = set_current(&text, c->args[0], err);
    if (!rc)
        rc = write_config(c, text, err);
    if (!rc) {
        out_say(c, "Commands without --profile use %s from now on.", c->args[0]);
        say_nearer(c);
    }
    json_decref(all);
    free(text);
    return rc;
}

int config_delete(struct cli *c, struct sh_err *err)
{
    const struct edit gone = {.section = c->args[0]};
    char *text = NULL;
    json_t *all = NULL;
    int rc = open_profile(c, &text, &all, err);

    if (!rc && json_is_true(json_object_get(find_profile(all, c->args[0]), "current")))
        rc = set_current(&text, NULL, err);
    if (!rc)
        rc = edit_apply(&text, &gone, err);
    if (!rc)
        rc = write_config(c, text, err);
    if (!rc)
        out_say(c, "Profile %s is deleted.", c->args[0]);
    json_decref(all);
    free(text);
    return rc;
}
