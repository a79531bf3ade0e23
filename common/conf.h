/* conf.h - options as a table, read at start; those marked LIVE may be changed later.
 *
 * One table for each program yields parsing, defaults, ranges, --help, docs/config.md and the names
 * of environment variables. Sources, each overriding the ones before: default, file (--config FILE,
 * lines `name = value`, # comments), environment (SHUNT_<NAME>, upper case, '-' to '_'), the
 * section of the file that the command line names, command line (--name=value, --name value; a bool
 * also as --name / --no-name).
 *
 * Only conf.c calls getenv() or parses options.
 */
#ifndef SH_COMMON_CONF_H
#define SH_COMMON_CONF_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum sh_conf_type { SH_CONF_INT, SH_CONF_F64, SH_CONF_BOOL, SH_CONF_STR, SH_CONF_BYTES };
enum {
    SH_CONF_SECRET = 1, /* printed as *** */
    SH_CONF_LIVE = 2,   /* may change while the program runs: read numbers with SH_CONF_NOW */
    SH_CONF_MANY = 8,   /* a string that may be given repeatedly: values joined by newlines */
    SH_CONF_THEIRS = 4, /* def, min and max are shown but not applied: somebody else does */
};
/* Reads a LIVE option, from any thread. */
#define SH_CONF_NOW(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)

struct sh_conf_opt {
    enum sh_conf_type type; /* INT, BYTES: int64_t; F64: double; BOOL: bool; STR: char * (OWNED) */
    size_t offset;
    const char *name, *def; /* def as text; NULL: not set */
    double min, max;        /* for numbers */
    unsigned flags;
    const char *help; /* including the unit */
};

#define SH_CONF_TEXT(number) SH_CONF_TEXT_(number) /* also of one that has a name */
#define SH_CONF_TEXT_(number) #number
#define SH_OPT_INT(st, field, name, def, min, max, flags, help)                          \
    {                                                                                    \
        SH_CONF_INT, offsetof(st, field), name, SH_CONF_TEXT(def), min, max, flags, help \
    }
#define SH_OPT_F64(st, field, name, def, min, max, flags, help)             \
    {                                                                       \
        SH_CONF_F64, offsetof(st, field), name, #def, min, max, flags, help \
    }
#define SH_OPT_BOOL(st, field, name, def, flags, help)                   \
    {                                                                    \
        SH_CONF_BOOL, offsetof(st, field), name, #def, 0, 1, flags, help \
    } /* def: true or false */
#define SH_OPT_STR(st, field, name, def, flags, help)                  \
    {                                                                  \
        SH_CONF_STR, offsetof(st, field), name, def, 0, 0, flags, help \
    }
/* Sizes as sh_parse_bytes() takes them. def as text: "256M". */
#define SH_OPT_BYTES(st, field, name, def, min, max, flags, help)            \
    {                                                                        \
        SH_CONF_BYTES, offsetof(st, field), name, def, min, max, flags, help \
    }

#define SH_CONF_PAIRS 3

struct sh_conf_table {
    const char *program, *purpose; /* purpose: one sentence for --help */
    const struct sh_conf_opt *opts;
    size_t n_opts, struct_bytes;
    /* Option that names a section of the file; NULL: there are no sections. Lines after "[NAME]"
     * count if that section is named, and override those before the first section; if the command
     * line names it, they override the environment too. An empty name on the command line names
     * none. */
    const char *section_opt;
    /* Pairs of options: if the first comes from a nearer source, the second is ignored. */
    const char *instead[SH_CONF_PAIRS][2];
    /* Options that another build of the program has: names with this prefix are refused with this
     * reason, wherever they are given, even in the environment. NULL: there is no such build. */
    const char *absent, *absent_why;
};

enum sh_conf_action { SH_CONF_RUN, SH_CONF_EXIT_OK }; /* EXIT_OK: --help, --version or --docs ran */

/* Zeroes and fills *conf (struct_bytes) from all sources. Positional arguments are refused unless
 * n_rest is not NULL; then *rest (BORROWED from argv, whose elements are moved) and *n_rest hold
 * what is left, in order. Our options may also follow a positional argument. An unknown option is
 * refused before the first positional argument, and left in *rest after it (a sub-command's own
 * option, to be checked there); so is --help. "--" ends our options. An empty environment variable
 * counts as not set. Prints --help to stdout. Fails: SH_E_INVALID, naming option, value, source and
 * range. */
int sh_conf_load(const struct sh_conf_table *t, void *conf, int argc, char **argv, char ***rest,
                 int *n_rest, enum sh_conf_action *action, struct sh_err *err);
/* Frees the strings inside, not conf. */
void sh_conf_free(const struct sh_conf_table *t, void *conf);
const struct sh_conf_opt *sh_conf_find(const struct sh_conf_table *t,
                                       const char *name); /* NULL: not found */
/* Parses the value of an INT or BYTES option. Fails: SH_E_INVALID, naming option and range. */
int sh_conf_read_i64(const struct sh_conf_opt *o, const char *text, int64_t *out,
                     struct sh_err *err);
void sh_conf_print_docs(const struct sh_conf_table *t, FILE *out); /* Markdown table */
const char *sh_conf_version(void); /* BORROWED, static: what --version prints */
/* A variable that is not ours (DATABASE_URL, HOME). BORROWED; NULL if unset or empty. */
const char *sh_conf_env(const char *name);
/* The same, but "" of one that is set and empty: to whom it belongs, that may be a value. */
const char *sh_conf_env_raw(const char *name);
/* Logs effective values, one line; secrets as ***. */
void sh_conf_log(const struct sh_conf_table *t, const void *conf);

#endif
