/* conf.c - options as a table: collects one text for each option from all sources, then parses it.
 *
 * The command line has the highest rank but is read first, because it names the file; its texts
 * wait in a separate list until the other sources are read.
 */
#include "common/conf.h"

#include "common/buf.h"
#include "common/io.h"
#include "common/log.h"
#include "common/mem.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef SHUNT_VERSION
#define SHUNT_VERSION "unknown"
#endif

#define MAX_FILE_BYTES (1u << 20)
#define ENV_PREFIX "SHUNT_"

enum source {
    BY_DEFAULT,
    BY_FILE,
    BY_SECTION,
    BY_ENVIRONMENT,
    BY_NAMED_SECTION, /* by the command line */
    BY_COMMAND_LINE
}; /* nearer: later */

struct text {
    const char *value; /* BORROWED from the table, the file's text, the environment or argv */
    enum source source;
    bool from_file;
    char from[96]; /* for messages */
    char *own;     /* OWNED: of SH_CONF_MANY, what value then is */
};

struct load {
    const struct sh_conf_table *t;
    struct text *texts, *argv_texts; /* OWNED, one per option */
    char *file;                      /* OWNED: contents of the file */
    const char *path;                /* of the file; NULL = none */
    const char *section;             /* BORROWED: the one that counts; NULL = none */
    bool in_section, is_other, section_seen, is_named;
    char sections[200]; /* all that the file has, for messages */
    char **rest;        /* into argv */
    int n_rest;
    bool rest_allowed, printed;
};

const char *sh_conf_version(void)
{
    return SHUNT_VERSION;
}

const char *sh_conf_env(const char *name)
{
    const char *value = sh_conf_env_raw(name);

    return value && value[0] ? value : NULL;
}

const char *sh_conf_env_raw(const char *name)
{
    return getenv(name);
}

static void env_name(const char *name, char *out, size_t size)
{
    size_t n = 0;

    for (const char *p = ENV_PREFIX; *p && n + 1 < size; p++)
        out[n++] = *p;
    for (const char *p = name; *p && n + 1 < size; p++)
        out[n++] = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    out[n] = '\0';
}

static const struct sh_conf_opt *find_option(const struct sh_conf_table *t, const char *name,
                                             size_t n)
{
    for (size_t i = 0; i < t->n_opts; i++)
        if (strlen(t->opts[i].name) == n && memcmp(t->opts[i].name, name, n) == 0)
            return &t->opts[i];
    return NULL;
}

/* name: as given, perhaps with "--" or "--no-" before it. */
static const char *why_unknown(const struct sh_conf_table *t, const char *name)
{
    name += strncmp(name, "--", 2) == 0 ? 2 : 0;
    name += strncmp(name, "no-", 3) == 0 ? 3 : 0;
    if (t->absent && strncmp(name, t->absent, strlen(t->absent)) == 0)
        return t->absent_why;
    return "--help lists all";
}

__attribute__((format(printf, 4, 5))) static void
put_source_text(struct text *x, enum source source, const char *value, const char *fmt, ...)
{
    va_list ap;

    x->value = value;
    x->source = source;
    va_start(ap, fmt);
    vsnprintf(x->from, sizeof(x->from), fmt, ap);
    va_end(ap);
}

const struct sh_conf_opt *sh_conf_find(const struct sh_conf_table *t, const char *name)
{
    return find_option(t, name, strlen(name));
}

/* ---------------------------------------------------------------- values */

static int parse_bool(const char *s, const char *what, bool *out, struct sh_err *err)
{
    static const char *const WORDS[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};

    for (size_t i = 0; i < SH_ARRAY_LEN(WORDS); i++) {
        if (strcasecmp(s, WORDS[i]) == 0) {
            *out = i % 2 == 1;
            return SH_OK;
        }
    }
    return SH_FAIL(err, SH_E_INVALID, "%s must be true or false, not \"%.40s\"", what, s);
}

static int64_t as_i64(double v)
{
    /* 2^63 is a double, INT64_MAX is not */
    return v >= 0x1p63 ? INT64_MAX : v <= -0x1p63 ? INT64_MIN : (int64_t)v;
}

static int parse_value(const struct sh_conf_opt *o, const char *s, const char *what, void *field,
                       struct sh_err *err)
{
    switch (o->type) {
    case SH_CONF_INT:
        return sh_parse_i64(s, as_i64(o->min), as_i64(o->max), what, field, err);
    case SH_CONF_F64:
        return sh_parse_f64(s, o->min, o->max, what, field, err);
    case SH_CONF_BOOL:
        return parse_bool(s, what, field, err);
    case SH_CONF_BYTES:
        return sh_parse_bytes(s, as_i64(o->min), as_i64(o->max), what, field, err);
    case SH_CONF_STR:
        return sh_strdup(s, field, err);
    }
    return SH_FAIL(err, SH_E_BUG, "%s has no type", what);
}

int sh_conf_read_i64(const struct sh_conf_opt *o, const char *text, int64_t *out,
                     struct sh_err *err)
{
    char what[96];

    snprintf(what, sizeof(what), "option \"%s\"", o->name);
    if (o->type != SH_CONF_INT && o->type != SH_CONF_BYTES)
        return SH_FAIL(err, SH_E_BUG, "%s is not a whole number", what);
    return parse_value(o, text, what, out, err);
}

static int parse_all(const struct load *l, void *conf, struct sh_err *err)
{
    for (size_t i = 0; i < l->t->n_opts; i++) {
        const struct sh_conf_opt *o = &l->t->opts[i];
        const struct text *x = &l->texts[i];
        struct sh_err mine = {0};
        char what[192];
        int rc;

        if (!x->value)
            continue;
        snprintf(what, sizeof(what), "option \"%s\" (from %s)", o->name, x->from);
        rc = parse_value(o, x->value, what, (char *)conf + o->offset, &mine);
        if (rc && (o->flags & SH_CONF_SECRET)) /* the message above quotes the value */
            return SH_FAIL(err, rc, "%s has a value that is not allowed", what);
        if (rc)
            return sh_err_copy(err, &mine);
    }
    return SH_OK;
}

/* ---------------------------------------------------------------- sources */

static int read_conf_file(struct load *l, size_t *len, struct sh_err *err)
{
    const char *slash = strrchr(l->path, '/'), *base = slash ? slash + 1 : l->path;
    int fd = open(l->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = SH_OK;
    ssize_t n;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) != 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_INVALID, "could not open the config file \"%s\"", base);
        goto out;
    }
    if (!S_ISREG(st.st_mode) || st.st_size > MAX_FILE_BYTES) {
        rc = SH_FAIL(err, SH_E_INVALID,
                     "the config file \"%s\" must be a regular file of at most %u bytes", base,
                     MAX_FILE_BYTES);
        goto out;
    }
    l->file = malloc((size_t)st.st_size + 1);
    if (!l->file) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate memory for a config file");
        goto out;
    }
    n = sh_read_all(fd, l->file, (size_t)st.st_size);
    if (n < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not read the config file \"%s\"", base);
    *len = n > 0 ? (size_t)n : 0;
    l->file[*len] = '\0';
out:
    if (fd >= 0)
        close(fd);
    return rc;
}

static char *trim_text(char *s)
{
    char *end = s + strlen(s);

    while (isspace((unsigned char)*s))
        s++;
    while (end > s && isspace((unsigned char)end[-1]))
        end--;
    *end = '\0';
    return s;
}

/* Command line, environment or the lines before the first section say which one counts. */
static void choose_section(struct load *l)
{
    const struct sh_conf_opt *o = find_option(l->t, l->t->section_opt, strlen(l->t->section_opt));
    size_t i = o ? (size_t)(o - l->t->opts) : 0;
    char name[96];

    if (!o)
        return;
    env_name(o->name, name, sizeof(name));
    l->section = l->argv_texts[i].value;
    l->is_named = l->section != NULL;
    if (!l->section)
        l->section = sh_conf_env(name);
    if (!l->section)
        l->section = l->texts[i].value;
    if (l->section && !l->section[0])
        l->section = NULL;
}

static int file_section(struct load *l, char *name, const char *base, int no, struct sh_err *err)
{
    char *end = strchr(name, ']');
    size_t n = strlen(l->sections);

    if (!l->t->section_opt || !end || end == name + 1 || end[1] != '\0')
        return SH_FAIL(err, SH_E_INVALID,
                       "config file \"%s\", line %d: expected \"name = value\"%s", base, no,
                       l->t->section_opt ? " or \"[section]\"" : "");
    *end = '\0';
    name++;
    if (!l->in_section)
        choose_section(l);
    l->in_section = true;
    l->is_other = !l->section || strcmp(l->section, name) != 0;
    if (!l->is_other && l->section_seen)
        return SH_FAIL(err, SH_E_INVALID, "config file \"%s\", line %d: a second section [%.60s]",
                       base, no, name);
    l->section_seen = l->section_seen || !l->is_other;
    for (size_t i = 0; !l->is_other && i < l->t->n_opts; i++)
        l->texts[i].from_file = false; /* what stands before may be set once more */
    snprintf(l->sections + n, sizeof(l->sections) - n, "%s%s", n ? ", " : "", name);
    return SH_OK;
}

/* The section that is asked for must be there. */
static int check_section(struct load *l, struct sh_err *err)
{
    if (!l->t->section_opt)
        return SH_OK;
    if (!l->in_section)
        choose_section(l);
    if (!l->section || l->section_seen)
        return SH_OK;
    return SH_FAIL(err, SH_E_INVALID, "there is no %s \"%.60s\"; %s%s%s", l->t->section_opt,
                   l->section, l->path ? l->path : "no config file is read",
                   l->path ? " has: " : "", l->path ? l->sections[0] ? l->sections : "none" : "");
}

static int file_line(struct load *l, char *line, const char *base, int no, struct sh_err *err)
{
    char *name = trim_text(line), *eq = strchr(name, '='), *value;
    const struct sh_conf_opt *o;
    struct text *x;

    if (name[0] == '\0' || name[0] == '#')
        return SH_OK;
    if (name[0] == '[')
        return file_section(l, name, base, no, err);
    if (l->is_other)
        return SH_OK;
    if (!eq)
        return SH_FAIL(err, SH_E_INVALID, "config file \"%s\", line %d: expected \"name = value\"",
                       base, no);
    *eq = '\0';
    value = trim_text(eq + 1);
    name = trim_text(name);
    o = find_option(l->t, name, strlen(name));
    if (!o)
        return SH_FAIL(err, SH_E_INVALID,
                       "config file \"%s\", line %d: there is no option \"%.60s\"; %s", base, no,
                       name, why_unknown(l->t, name));
    x = &l->texts[o - l->t->opts];
    if (x->from_file)
        return SH_FAIL(err, SH_E_INVALID, "config file \"%s\", line %d: option \"%s\" is set twice",
                       base, no, o->name);
    x->from_file = true;
    put_source_text(x,
                    !l->in_section ? BY_FILE
                    : l->is_named  ? BY_NAMED_SECTION
                                   : BY_SECTION,
                    value, "file \"%.50s\", line %d", base, no);
    return SH_OK;
}

static int load_file(struct load *l, struct sh_err *err)
{
    const char *slash, *base;
    size_t len = 0;
    char *next;
    int rc, no = 1;

    if (!l->path)
        return check_section(l, err);
    slash = strrchr(l->path, '/');
    base = slash ? slash + 1 : l->path;
    rc = read_conf_file(l, &len, err);
    if (!rc && strlen(l->file) != len)
        rc = SH_FAIL(err, SH_E_INVALID, "the config file \"%s\" is not a text file", base);
    for (char *line = l->file; !rc && line; line = next, no++) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        rc = file_line(l, line, base, no, err);
    }
    if (!rc)
        rc = check_section(l, err);
    if (rc)
        sh_err_detail(err, "file %s", l->path);
    return rc;
}

/* What would be set there is silently left out else. */
static int check_env(const struct load *l, struct sh_err *err)
{
    char name[96];

    if (!l->t->absent)
        return SH_OK;
    env_name(l->t->absent, name, sizeof(name));
    for (char **e = environ; e && *e; e++) {
        const char *eq = strchr(*e, '=');

        if (strncmp(*e, name, strlen(name)) == 0 && eq && eq[1])
            return SH_FAIL(err, SH_E_INVALID, "environment %.*s: there is no such option; %s",
                           (int)SH_MIN(eq - *e, 60), *e, l->t->absent_why);
    }
    return SH_OK;
}

static void load_env(struct load *l)
{
    for (size_t i = 0; i < l->t->n_opts; i++) {
        const char *value;
        char name[96];

        env_name(l->t->opts[i].name, name, sizeof(name));
        value = getenv(name);
        /* Compose files pass what is not set as empty. */
        if (value && value[0] && l->texts[i].source < BY_ENVIRONMENT)
            put_source_text(&l->texts[i], BY_ENVIRONMENT, value, "environment %s", name);
    }
}

/* ---------------------------------------------------------------- printing */

static const char *option_type_name(enum sh_conf_type t)
{
    static const char *const NAME[] = {
        [SH_CONF_INT] = "int",  [SH_CONF_F64] = "number",  [SH_CONF_BOOL] = "bool",
        [SH_CONF_STR] = "text", [SH_CONF_BYTES] = "bytes",
    };

    return NAME[t];
}

static bool has_option_range(const struct sh_conf_opt *o)
{
    return o->type == SH_CONF_INT || o->type == SH_CONF_F64 || o->type == SH_CONF_BYTES;
}

static const char *shown_default(const struct sh_conf_opt *o)
{
    return !o->def || !o->def[0] ? "none" : o->flags & SH_CONF_SECRET ? "***" : o->def;
}

static void option_range_text(const struct sh_conf_opt *o, char *out, size_t size)
{
    char a[SH_NUMBER_TEXT], b[SH_NUMBER_TEXT];

    if (has_option_range(o))
        snprintf(out, size, "%s to %s", sh_number_text(o->min, a), sh_number_text(o->max, b));
    else
        sh_strlcpy(out, "", size);
}

static void print_help(const struct sh_conf_table *t, bool rest_allowed)
{
    char range[64], env[96];

    printf("%s - %s\n\nusage: %s [options]%s\n\n", t->program, t->purpose, t->program,
           rest_allowed ? " [arguments]" : "");
    for (size_t i = 0; i < t->n_opts; i++) {
        const struct sh_conf_opt *o = &t->opts[i];

        option_range_text(o, range, sizeof(range));
        env_name(o->name, env, sizeof(env));
        if (o->type == SH_CONF_BOOL)
            printf("  --%s, --no-%s\n", o->name, o->name);
        else
            printf("  --%s=%s\n", o->name, option_type_name(o->type));
        printf("        %s\n        default %s%s%s; environment %s\n", o->help, shown_default(o),
               range[0] ? "; " : "", range, env);
    }
    printf("  --config=FILE\n        read options from FILE, lines \"name = value\"; "
           "environment " ENV_PREFIX "CONFIG\n"
           "  --help, --version, --docs\n        print this, the version, the options as Markdown\n"
           "\nOrder: default, file, environment, command line; the last one wins.\n");
}

void sh_conf_print_docs(const struct sh_conf_table *t, FILE *out)
{
    char range[64], env[96];

    fprintf(out, "## %s\n\n%s\n\n", t->program, t->purpose);
    fprintf(out, "| option | environment | type | default | range | meaning |\n"
                 "| --- | --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < t->n_opts; i++) {
        const struct sh_conf_opt *o = &t->opts[i];

        option_range_text(o, range, sizeof(range));
        env_name(o->name, env, sizeof(env));
        fprintf(out, "| `--%s` | `%s` | %s | %s | %s | %s%s |\n", o->name, env,
                option_type_name(o->type), shown_default(o), range, o->help,
                o->flags & SH_CONF_LIVE ? " (live)" : "");
    }
    fprintf(out, "\n");
}

/* ---------------------------------------------------------------- command line, loading */

static int no_value(const char *name, size_t n, struct sh_err *err)
{
    return SH_FAIL(err, SH_E_INVALID, "option \"--%.*s\" needs a value: --%.*s=VALUE",
                   (int)SH_MIN(n, (size_t)60), name, (int)SH_MIN(n, (size_t)60), name);
}

/* Behind those that were given before. */
static int put_more(struct text *x, const char *value, struct sh_err *err)
{
    char *all = NULL;
    int rc = sh_asprintf(err, &all, "%s%s%s", x->own ? x->own : "", x->own ? "\n" : "", value);

    if (rc)
        return rc;
    free(x->own);
    x->own = all;
    put_source_text(x, BY_COMMAND_LINE, all, "command line");
    return SH_OK;
}

/* One argument that begins with "--". *used: how many elements of argv it took; 0 = not ours. */
static int argv_option(struct load *l, char **argv, int left, int *used, struct sh_err *err)
{
    const char *name = argv[0] + 2, *eq = strchr(name, '='), *value = eq ? eq + 1 : NULL;
    size_t n = eq ? (size_t)(eq - name) : strlen(name);
    const struct sh_conf_opt *o = find_option(l->t, name, n);
    bool is_config = n == 6 && memcmp(name, "config", 6) == 0;

    *used = 1;
    if (!o && n > 3 && !eq && memcmp(name, "no-", 3) == 0) {
        o = find_option(l->t, name + 3, n - 3);
        if (o && o->type == SH_CONF_BOOL)
            value = "false";
        else
            o = NULL;
    }
    if (!o && !is_config) {
        *used = 0;
        return SH_OK;
    }
    if (o && o->type == SH_CONF_BOOL && !value)
        value = "true";
    if (!value && (left < 2 || strncmp(argv[1], "--", 2) == 0))
        return no_value(name, n, err);
    if (!value) {
        value = argv[1];
        *used = 2;
    }
    if (o && (o->flags & SH_CONF_MANY))
        return put_more(&l->argv_texts[o - l->t->opts], value, err);
    if (o)
        put_source_text(&l->argv_texts[o - l->t->opts], BY_COMMAND_LINE, value, "command line");
    else
        l->path = value;
    return SH_OK;
}

static bool print_if_asked(const struct load *l, const char *arg)
{
    if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)
        print_help(l->t, l->rest_allowed);
    else if (strcmp(arg, "--version") == 0)
        printf("%s %s\n", l->t->program, SHUNT_VERSION);
    else if (strcmp(arg, "--docs") == 0)
        sh_conf_print_docs(l->t, stdout);
    else
        return false;
    fflush(stdout);
    return true;
}

/* An argument that is no option of ours: may it be kept for the caller? */
static int check_kept(struct load *l, const char *arg, int n_kept, struct sh_err *err)
{
    if (n_kept == 0 && print_if_asked(l, arg)) {
        l->printed = true;
        return SH_OK;
    }
    if (n_kept == 0 && arg[0] == '-' && arg[1] != '\0')
        return SH_FAIL(err, SH_E_INVALID, "there is no option \"%.60s\"; %s", arg,
                       why_unknown(l->t, arg));
    if (!l->rest_allowed)
        return SH_FAIL(err, SH_E_INVALID,
                       "\"%.60s\" is not an option; --help lists what is allowed", arg);
    return SH_OK;
}

/* Reads options; moves what is left to the end of argv, in its order. */
static int load_argv(struct load *l, int argc, char **argv, struct sh_err *err)
{
    bool only_rest = false;
    int n_kept = 0, rc = SH_OK;
    char **kept = NULL;

    kept = calloc((size_t)argc + 1, sizeof(*kept));
    if (!kept)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a list of arguments");
    for (int i = 1, used; i < argc && !rc && !l->printed; i += used) {
        used = 1;
        if (only_rest) {
            kept[n_kept++] = argv[i];
        } else if (strcmp(argv[i], "--") == 0 && l->rest_allowed) {
            only_rest = true;
        } else {
            used = 0;
            if (strncmp(argv[i], "--", 2) == 0)
                rc = argv_option(l, argv + i, argc - i, &used, err);
            if (rc || used > 0)
                continue;
            rc = check_kept(l, argv[i], n_kept, err);
            kept[n_kept++] = argv[i];
            used = 1;
        }
    }
    l->rest = argv + (argc - n_kept);
    l->n_rest = n_kept;
    if (!rc && n_kept > 0)
        memcpy(l->rest, kept, (size_t)n_kept * sizeof(*kept));
    free(kept);
    return rc;
}

/* A key file named on the command line is meant, whatever key the environment has. */
static void keep_nearer(struct load *l)
{
    for (size_t i = 0; i < SH_CONF_PAIRS && l->t->instead[i][0]; i++) {
        const struct text *a = &l->texts[sh_conf_find(l->t, l->t->instead[i][0]) - l->t->opts];
        struct text *b = &l->texts[sh_conf_find(l->t, l->t->instead[i][1]) - l->t->opts];

        if (a->source > b->source && a->value && a->value[0])
            b->value = NULL;
    }
}

static int load_all(struct load *l, void *conf, int argc, char **argv, struct sh_err *err)
{
    size_t n = l->t->n_opts;
    int rc;

    l->texts = calloc(n + 1, sizeof(*l->texts));
    l->argv_texts = calloc(n + 1, sizeof(*l->argv_texts));
    if (!l->texts || !l->argv_texts)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a list of options");
    l->path = getenv(ENV_PREFIX "CONFIG");
    if (l->path && !l->path[0])
        l->path = NULL;
    rc = load_argv(l, argc, argv, err);
    if (rc || l->printed)
        return rc;
    for (size_t i = 0; i < n; i++)
        put_source_text(&l->texts[i], BY_DEFAULT,
                        l->t->opts[i].flags & SH_CONF_THEIRS ? NULL : l->t->opts[i].def, "default");
    rc = load_file(l, err);
    if (rc)
        return rc;
    rc = check_env(l, err);
    if (rc)
        return rc;
    load_env(l);
    for (size_t i = 0; i < n; i++)
        if (l->argv_texts[i].value)
            l->texts[i] = l->argv_texts[i];
    keep_nearer(l);
    return parse_all(l, conf, err);
}

int sh_conf_load(const struct sh_conf_table *t, void *conf, int argc, char **argv, char ***rest,
                 int *n_rest, enum sh_conf_action *action, struct sh_err *err)
{
    struct load l = {.t = t, .rest_allowed = n_rest != NULL};
    int rc;

    memset(conf, 0, t->struct_bytes);
    rc = load_all(&l, conf, argc, argv, err);
    *action = l.printed ? SH_CONF_EXIT_OK : SH_CONF_RUN;
    if (rc)
        sh_conf_free(t, conf);
    if (!rc && rest)
        *rest = l.rest;
    if (!rc && n_rest)
        *n_rest = l.n_rest;
    for (size_t i = 0; l.argv_texts && i < t->n_opts; i++)
        free(l.argv_texts[i].own);
    free(l.argv_texts);
    free(l.texts);
    free(l.file);
    return rc;
}

void sh_conf_free(const struct sh_conf_table *t, void *conf)
{
    for (size_t i = 0; i < t->n_opts; i++) {
        if (t->opts[i].type == SH_CONF_STR) {
            char **s = (char **)((char *)conf + t->opts[i].offset);

            free(*s);
            *s = NULL;
        }
    }
}

static int print_value(const struct sh_conf_opt *o, const void *conf, struct sh_buf *b)
{
    const void *field = (const char *)conf + o->offset;
    const char *s = "";
    char quoted[256];

    switch (o->type) {
    case SH_CONF_INT:
    case SH_CONF_BYTES:
        return sh_buf_printf(b, NULL, "%lld", (long long)*(const int64_t *)field);
    case SH_CONF_F64:
        return sh_buf_printf(b, NULL, "%.15g", *(const double *)field);
    case SH_CONF_BOOL:
        return sh_buf_puts(b, *(const bool *)field ? "true" : "false", NULL);
    case SH_CONF_STR:
        s = *(char *const *)field;
        if (s && (o->flags & SH_CONF_SECRET))
            return sh_buf_puts(b, "***", NULL);
        return sh_buf_printf(b, NULL, "\"%s\"", sh_log_quote(s, quoted, sizeof(quoted)));
    }
    return SH_OK;
}

void sh_conf_log(const struct sh_conf_table *t, const void *conf)
{
    struct sh_buf b;
    int rc = SH_OK;

    sh_buf_init(&b, 64 * 1024);
    for (size_t i = 0; !rc && i < t->n_opts; i++) {
        rc = sh_buf_printf(&b, NULL, "%s%s=", i ? " " : "", t->opts[i].name);
        if (!rc)
            rc = print_value(&t->opts[i], conf, &b);
    }
    sh_log(SH_LOG_INFO, "conf.effective", "%s", b.data ? b.data : "");
    sh_buf_fini(&b);
}
