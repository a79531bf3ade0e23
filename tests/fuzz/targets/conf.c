/* conf.c - configuration: the input is a file, and each line of it is an option of a command line
 * too. An option that was taken is within its range. */
#include "common/conf.h"

#include "common/mem.h"
#include "tests/fuzz/targets/fuzz.h"

#include <math.h>
#include <stdbool.h>

struct conf {
    int64_t port, bytes;
    double rate;
    bool fast;
    char *name, *listen, *profile;
};

static const struct sh_conf_opt OPTS[] = {
    SH_OPT_INT(struct conf, port, "port", 80, 1, 65535, SH_CONF_LIVE, "a port"),
    SH_OPT_BYTES(struct conf, bytes, "pool-bytes", "1M", 4096, 1e12, 0, "bytes"),
    SH_OPT_F64(struct conf, rate, "rate", 0.5, 0, 1, 0, "a part"),
    SH_OPT_BOOL(struct conf, fast, "fast", false, 0, "whether"),
    SH_OPT_STR(struct conf, name, "name", "x", SH_CONF_SECRET, "a name"),
    SH_OPT_STR(struct conf, listen, "listen", NULL, SH_CONF_MANY, "addresses"),
    SH_OPT_STR(struct conf, profile, "profile", NULL, 0, "a section"),
};
static const struct sh_conf_table TABLE = {.program = "shunt-fuzz",
                                           .purpose = "Is configured.",
                                           .opts = OPTS,
                                           .n_opts = SH_ARRAY_LEN(OPTS),
                                           .struct_bytes = sizeof(struct conf),
                                           .section_opt = "profile"};

static char program[] = "shunt-fuzz", config[] = "--config", section[] = "--profile=prod";

static void load(int argc, char **argv)
{
    enum sh_conf_action action;
    struct sh_err err = {0};
    struct conf c;
    int rc = sh_conf_load(&TABLE, &c, argc, argv, NULL, NULL, &action, &err);

    must_say_why(rc, &err);
    if (!rc && action == SH_CONF_RUN) {
        must(c.port >= 1 && c.port <= 65535 && c.bytes >= 4096);
        must(isfinite(c.rate) && c.rate >= 0 && c.rate <= 1);
    }
    if (!rc)
        sh_conf_free(&TABLE, &c);
}

static void as_file(const uint8_t *data, size_t n)
{
    char path[FUZZ_PATH], *argv[] = {program, config, path, section, NULL};
    int fd = file_of(data, n, path);

    load(SH_ARRAY_LEN(argv) - 1, argv);
    close(fd);
}

/* Not those that print, nor a file that the input names. */
static bool may_be_option(const char *s)
{
    return !strstr(s, "help") && !strstr(s, "docs") && !strstr(s, "version") &&
           !strstr(s, "config");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *own = copy_of(data, n, 1), *argv[18] = {program}, *at = own;
    int argc = 1;

    as_file(data, n);
    for (char *word; argc < 17 && (word = strsep(&at, "\n"));)
        if (may_be_option(word))
            argv[argc++] = word;
    load(argc, argv);
    free(own);
    return 0;
}
