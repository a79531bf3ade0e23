/* main.c - shunt: the command line of a Shunt system. */
#include "cli/out.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_OPTS 64

struct words { /* our copy of argv: conf.c moves its elements */
    char **list, *profile;
    int n;
};

/* Short forms become long ones; "-o json" becomes "--output json". */
static int copy_words(int argc, char **argv, bool with_profile, struct words *w, struct sh_err *err)
{
    static char output[] = "--output", help[] = "--help", follow[] = "--follow", file[] = "--file";
    bool submits = argc > 1 && strcmp(argv[1], "submit") == 0;
    const char *home = sh_conf_env("HOME");
    bool has_config = sh_conf_env("SHUNT_CONFIG") != NULL;
    int rc = SH_OK;

    *w = (struct words){.list = calloc((size_t)argc + 2, sizeof(*w->list))};
    if (!w->list)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a list of arguments");
    w->list[w->n++] = argv[0];
    if (with_profile && home)
        rc = sh_asprintf(err, &w->profile, "--config=%s/.config/shunt/config", home);
    for (int i = 1; i < argc; i++)
        has_config = has_config || strncmp(argv[i], "--config", 8) == 0;
    if (w->profile && !has_config && access(strchr(w->profile, '=') + 1, R_OK) == 0)
        w->list[w->n++] = w->profile;
    for (int i = 1; i < argc; i++) {
        bool is_output = strcmp(argv[i], "-o") == 0, is_help = strcmp(argv[i], "-h") == 0;

        bool is_follow = strcmp(argv[i], "-f") == 0;

        w->list[w->n++] = is_output    ? output
                          : is_help    ? help
                          : !is_follow ? argv[i]
                          : submits    ? file
                                       : follow;
    }
    return rc;
}

static void free_words(struct words *w)
{
    free(w->list);
    free(w->profile);
}

static int load(const struct sh_conf_opt *opts, size_t n, struct words *w, struct cli *c,
                enum sh_conf_action *action, struct sh_err *err)
{
    struct sh_conf_table t = {"shunt", "Run and use a Shunt system.", opts, n,
                              sizeof(struct cli_conf)};
    char **rest = NULL;
    int n_rest = 0;
    int rc = sh_conf_load(&t, c->conf, w->n, w->list, &rest, &n_rest, action, err);

    c->args = rest;
    c->n_args = n_rest;
    return rc;
}

static size_t all_options(const struct cli_cmd *cmd, struct sh_conf_opt *out)
{
    memcpy(out, CLI_COMMON, CLI_N_COMMON * sizeof(*out));
    if (cmd && cmd->n_opts > 0)
        memcpy(out + CLI_N_COMMON, cmd->opts, cmd->n_opts * sizeof(*out));
    return CLI_N_COMMON + (cmd ? cmd->n_opts : 0);
}

static void free_conf(const struct cli_cmd *cmd, struct cli_conf *conf)
{
    struct sh_conf_opt opts[MAX_OPTS];
    size_t n = all_options(cmd, opts);
    struct sh_conf_table t = {"shunt", "", opts, n, sizeof(*conf)};

    sh_conf_free(&t, conf);
}

static int check_args(struct cli *c, int used, struct sh_err *err)
{
    int min, max;

    c->args += used;
    c->n_args -= used;
    for (int i = 0; i < c->n_args; i++)
        if (c->args[i][0] == '-' && c->args[i][1])
            return cli_usage(c, err, "there is no option \"%.60s\" here", c->args[i]);
    cli_arg_range(c->cmd, &min, &max);
    if (c->n_args < min)
        return cli_usage(c, err, "want %s", c->cmd->args);
    if (c->n_args > max)
        return cli_usage(c, err, "\"%.60s\" is too much here", c->args[max]);
    if (strcmp(c->conf->output, "json") == 0)
        c->output = OUTPUT_JSON;
    else if (strcmp(c->conf->output, "name") == 0)
        c->output = OUTPUT_NAME;
    else if (strcmp(c->conf->output, "table") != 0)
        return cli_usage(c, err, "--output is table, json or name, not \"%.40s\"", c->conf->output);
    return SH_OK;
}

/* The first look at the command line finds only the command; the second knows its options. */
static int find_command(struct cli *c, int argc, char **argv, int *used, struct sh_err *err)
{
    enum sh_conf_action action = SH_CONF_RUN;
    struct words w;
    int rc = copy_words(argc, argv, false, &w, err);

    if (!rc)
        rc = load(CLI_COMMON, CLI_N_COMMON, &w, c, &action, err);
    if (!rc && action == SH_CONF_RUN) {
        bool help = false;

        for (int i = 0; i < c->n_args; i++)
            help = help || strcmp(c->args[i], "--help") == 0;
        c->cmd = cli_find(c->args, c->n_args, used, help ? NULL : err);
        if (help && c->n_args > 0)
            help_verb(c->args[0], c->cmd ? c->cmd->noun : NULL);
        if (help)
            c->cmd = NULL;
        rc = help || c->cmd ? SH_OK : SH_E_INVALID;
    }
    free_conf(NULL, c->conf);
    free_words(&w);
    return rc;
}

static int run(struct cli *c, int argc, char **argv, struct sh_err *err)
{
    enum sh_conf_action action = SH_CONF_RUN;
    struct sh_conf_opt opts[MAX_OPTS];
    struct words w = {0};
    int used = 0, rc;

    c->exit_code = CLI_USAGE;
    rc = find_command(c, argc, argv, &used, err);
    if (rc || !c->cmd)
        return rc;
    rc = copy_words(argc, argv, true, &w, err);
    if (!rc)
        rc = load(opts, all_options(c->cmd, opts), &w, c, &action, err);
    if (!rc)
        rc = check_args(c, used, err);
    if (!rc) {
        c->exit_code = CLI_REFUSED;
        rc = c->cmd->run(c, err);
    }
    free_conf(c->cmd, c->conf);
    free_words(&w);
    return rc;
}

/* What the server lists, one a line: such as the nodes of a model that it cannot run. */
static void print_nodes(const json_t *problem)
{
    const json_t *nodes = json_object_get(problem, "nodes");
    json_t *node;
    size_t i;

    json_array_foreach((json_t *)nodes, i, node)
    {
        char op[128], name[256], reason[256];

        out_text(node, "op", OUT_TEXT, op, sizeof(op));
        out_text(node, "node", OUT_TEXT, name, sizeof(name));
        out_text(node, "reason", OUT_TEXT, reason, sizeof(reason));
        fprintf(stderr, "  %-20s  %s: %s\n", op, name, reason);
    }
}

static void print_failure(const struct cli *c, const struct sh_err *err)
{
    fprintf(stderr, "shunt: %s\n", err->msg);
    print_nodes(c->problem);
    if (err->rc == SH_E_UNAUTHENTICATED)
        fprintf(stderr, "Give a key with --key, --key-file or SHUNT_KEY, or run this where "
                        "`shunt up` was run (--state-dir).\n");
    else if (c->exit_code == CLI_NOT_REACHABLE)
        fprintf(stderr, "Is it running? `shunt status` tells; `shunt up` starts one here; "
                        "--server names another.\n");
    else if (strstr(err->msg, "?tenant="))
        fprintf(stderr, "With this command: --tenant NAME, or the key of that tenant.\n");
}

int main(int argc, char **argv)
{
    struct cli_conf conf = {0};
    struct cli c = {.conf = &conf};
    struct sh_err err = {0};
    const char *first = argc > 1 ? argv[1] : "--help";
    int rc = SH_OK;

    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0 ||
        (strcmp(first, "help") == 0 && argc == 2)) {
        help_all();
    } else if (strcmp(first, "--docs") == 0) {
        help_docs();
    } else if (strcmp(first, "--completion") == 0) {
        c.exit_code = CLI_USAGE;
        rc = help_completion(argc > 2 ? argv[2] : NULL, &err);
    } else {
        rc = run(&c, argc, argv, &err);
    }
    if (rc)
        print_failure(&c, &err);
    http_free(c.http);
    json_decref(c.problem);
    free(c.server);
    if (fflush(stdout) != 0 && !rc)
        c.exit_code = CLI_REFUSED, rc = SH_E_IO;
    return rc ? (int)c.exit_code : CLI_OK;
}
