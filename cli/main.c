/* main.c - shunt: the command line of a Shunt system. */
#include "cli/client/lists.h"
#include "cli/client/rest.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/text/field.h"
#include "cli/text/find.h"
#include "common/clock.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

struct words { /* our copy of argv: conf.c moves its elements */
    char **list, *file;
    const char *config; /* the file that is, or would be, read */
    int n;
    bool help; /* was among them */
};

static int copy_words(int argc, char **argv, struct words *w, struct sh_err *err)
{
    const char *home = sh_conf_env("HOME");
    bool has_config = sh_conf_env("SHUNT_CONFIG") != NULL, is_over = false;
    bool submits = false; /* has another -f; options may stand before it */
    int rc = SH_OK;

    *w = (struct words){.list = calloc((size_t)argc + 2, sizeof(*w->list))};
    if (!w->list)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a list of arguments");
    w->list[w->n++] = argv[0];
    if (home)
        rc = sh_asprintf(err, &w->file, "--config=%s/.config/shunt/config", home);
    w->config = has_config ? sh_conf_env("SHUNT_CONFIG")
                : w->file  ? strchr(w->file, '=') + 1
                           : NULL;
    for (int i = 1; i < argc; i++) {
        bool is_next = strcmp(argv[i], "--config") == 0 && i + 1 < argc;

        submits = submits || strcmp(argv[i], "submit") == 0;
        if (is_next || strncmp(argv[i], "--config=", 9) == 0) {
            w->config = is_next ? argv[i + 1] : argv[i] + 9;
            has_config = true;
        }
    }
    if (w->file && !has_config && access(strchr(w->file, '=') + 1, R_OK) == 0)
        w->list[w->n++] = w->file;
    for (int i = 1; i < argc; i++) {
        is_over = is_over || strcmp(argv[i], "--") == 0;
        if (!is_over && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0))
            w->help = true;
        else
            w->list[w->n++] = is_over ? argv[i]
                              : submits && strcmp(argv[i], "-f") == 0
                                  ? (char *)"--file"
                                  : (char *)cli_long_form(argv[i]); /* never written to */
    }
    if (argc > 1 && strcmp(argv[1], "help") == 0) {
        w->help = true;
        for (int i = 1; i < w->n; i++)
            if (strcmp(w->list[i], "help") == 0) {
                memmove(w->list + i, w->list + i + 1, (size_t)(w->n - i) * sizeof(*w->list));
                w->n--;
                break;
            }
    }
    return rc;
}

static void free_words(struct words *w)
{
    free(w->list);
    free(w->file);
}

static int words_load(const struct sh_conf_table *t, void *conf, struct words *w, struct cli *c,
                      enum sh_conf_action *action, struct sh_err *err)
{
    char **rest = NULL;
    int n_rest = 0;
    int rc = sh_conf_load(t, conf, w->n, w->list, &rest, &n_rest, action, err);

    c->args = rest;
    c->n_args = n_rest;
    return rc;
}

static struct sh_conf_table table(const struct sh_conf_opt *opts, size_t n, size_t bytes)
{
    /* A folder that was named says where the server is; never whose key counts: a folder has an
     * admin's, and who has one of a tenant does not become an admin by naming a place. */
    return (struct sh_conf_table){
        .program = "shunt",
        .purpose = "Run and use a Shunt system.",
        .opts = opts,
        .n_opts = n,
        .struct_bytes = bytes,
        .section_opt = "profile",
        .instead = {{"key", "key-file"}, {"key-file", "key"}, {"state-dir", "server"}}};
}

static int check_output(struct cli *c, struct sh_err *err)
{
    const char *o = c->conf->output;

    c->is_wide = strcmp(o, "wide") == 0;
    c->is_yaml = strcmp(o, "yaml") == 0;
    if (c->is_yaml || strcmp(o, "json") == 0)
        c->output = OUTPUT_DATA;
    else if (strcmp(o, "name") == 0)
        c->output = OUTPUT_NAME;
    else if (!c->is_wide && strcmp(o, "table") != 0)
        return cli_usage(c, err, "--output is table, wide, json, yaml or name, not \"%.40s\"", o);
    return SH_OK;
}

static int check_args(struct cli *c, int used, struct sh_err *err)
{
    int min, max;

    for (int i = 0; i < c->n_args; i++) {
        const char *like =
            c->args[i][0] == '-' ? cli_like_option(&CLI_TABLE, c->cmd, c->args[i]) : NULL;

        if (like)
            return cli_usage(c, err, "there is no option \"%.60s\" here; did you mean --%s?",
                             c->args[i], like);
        if (c->args[i][0] == '-' && c->args[i][1])
            return cli_usage(c, err, "there is no option \"%.60s\" here", c->args[i]);
    }
    c->args += used;
    c->n_args -= used;
    cli_arg_range(c->cmd, &min, &max);
    if (c->n_args < min)
        return cli_usage(c, err, "want %s", c->cmd->args);
    if (c->n_args > max)
        return cli_usage(c, err, "\"%.60s\" is too much here", c->args[max]);
    return check_output(c, err);
}

/* The first look at the command line, knowing all options of all commands, finds the command; the
 * second takes those that it has. */
static int find_command(struct cli *c, int argc, char **argv, int *used, struct sh_err *err)
{
    enum sh_conf_action action = SH_CONF_RUN;
    struct sh_conf_opt opts[CLI_MAX_OPTS];
    struct sh_conf_table t =
        table(opts, cli_options(&CLI_TABLE, NULL, opts), sizeof(struct cli_any));
    struct cli_any any = {0};
    struct words w;
    int rc = copy_words(argc, argv, &w, err);

    if (!rc)
        rc = words_load(&t, &any, &w, c, &action, err);
    if (rc || action != SH_CONF_RUN)
        goto out;
    if (w.help && c->n_args == 0) {
        help_all();
    } else if (w.help) {
        c->cmd = cli_find(&CLI_TABLE, c->args, c->n_args, used, c->n_args > 1 ? err : NULL);
        rc = c->cmd || c->n_args == 1
                 ? help_verb(cli_real_verb(c->args[0]), c->cmd ? c->cmd->noun : NULL, err)
                 : err->rc;
        c->cmd = NULL;
    } else {
        c->cmd = cli_find(&CLI_TABLE, c->args, c->n_args, used, err);
        rc = c->cmd ? SH_OK : SH_E_INVALID;
    }
    sh_conf_free(&t, &any);
out:
    free_words(&w);
    return rc;
}

/* Again and again, until something other than a server that is away for a moment ends it. */
static int watch(struct cli *c, struct sh_err *err)
{
    int64_t seen_ns = 0;
    int rc = SH_OK;

    c->seen = json_object();
    while (!rc) {
        struct sh_err now = {0};

        rc =
            c->seen ? c->cmd->run(c, &now) : SH_FAIL(&now, SH_E_NOMEM, "could not allocate a list");
        if (!rc)
            seen_ns = sh_clock_ns();
        else if (rest_is_away(c, rc, seen_ns))
            rc = SH_OK;
        else
            sh_err_copy(err, &now);
        if (!rc && ferror(stdout))
            rc = SH_FAIL(err, SH_E_IO, "could not write");
        if (!rc)
            cli_sleep_ms(c->conf->every_ms);
    }
    return rc;
}

static int command_run(struct cli *c, int argc, char **argv, struct sh_err *err)
{
    enum sh_conf_action action = SH_CONF_RUN;
    struct sh_conf_opt opts[CLI_MAX_OPTS];
    struct sh_conf_table t;
    struct words w = {0};
    int used = 0, rc;

    c->exit_code = CLI_USAGE;
    rc = find_command(c, argc, argv, &used, err);
    if (rc || !c->cmd)
        return rc;
    t = table(opts, cli_options(&CLI_TABLE, c->cmd, opts), sizeof(struct cli_conf));
    rc = copy_words(argc, argv, &w, err);
    if (!rc)
        rc = words_load(&t, c->conf, &w, c, &action, err);
    if (!rc)
        rc = check_args(c, used, err);
    c->config_path = w.config;
    if (!rc) {
        c->exit_code = CLI_REFUSED;
        rc = c->conf->watch ? watch(c, err) : c->cmd->run(c, err);
    }
    if (rc == SH_E_NOTFOUND && c->exit_code == CLI_REFUSED)
        c->exit_code = CLI_NO_SUCH;
    else if (rc == SH_E_TIMEOUT && c->exit_code == CLI_REFUSED)
        c->exit_code = CLI_LATE;
    sh_conf_free(&t, c->conf);
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

/* "there is no model ..." -> the noun whose list tells what there is; NULL if none does. */
static const char *missing_noun(const char *msg)
{
    static const char TEXT[] = "there is no ";
    const char *word = strstr(msg, TEXT);
    size_t n;

    if (!word)
        return NULL;
    word += sizeof(TEXT) - 1;
    n = strcspn(word, " ");
    for (size_t i = 0; i < CLI_TABLE.n_cmds; i++) {
        const struct cli_cmd *k = &CLI_TABLE.cmds[i];

        if (strcmp(k->verb, "get") == 0 && strlen(k->noun) == n + 1 &&
            strncasecmp(k->noun, word, n) == 0 && k->noun[n] == 's')
            return k->noun;
    }
    return NULL;
}

/* The advice for a sentence of the server's. */
static void print_known(const char *msg)
{
    static const struct {
        const char *says, *advice;
    } KNOWN[] = {
        {"must name the tenant",
         "Or use a key of that tenant; `shunt get` also takes --all-tenants."},
        {"\"spec.",
         "Here: the option of that name, --set, or the file of --spec; `shunt submit --help` "
         "lists them."},
        {"jobs that have not ended use",
         "`shunt get jobs --live -o wide` lists them with what they use."},
        {"this needs a key of role",
         "`shunt whoami` tells whose key is used; --key-file names another."},
        {"this needs an admin key",
         "An admin key is in the file admin.key of the folder of `shunt up`: --key-file names it."},
        {"load it to use it again", "`shunt load MODEL --wait` does."},
        {"a pointer of Git LFS", "Then push that."},
        {"is not valid ONNX",
         "It is damaged, or something else than an ONNX file; torch.onnx.export "
         "of PyTorch makes one."},
        {"is no ONNX file", "torch.onnx.export of PyTorch makes one of a model, weights and all."},
        {"is no safetensors file",
         "safetensors.numpy.save_file of Python makes one of arrays by name."},
        {"there is no latency target", "`shunt set slo MODEL --latency-ms MS` sets one."},
    };

    for (size_t i = 0; i < SH_ARRAY_LEN(KNOWN); i++)
        if (strstr(msg, KNOWN[i].says)) {
            fprintf(stderr, "%s\n", KNOWN[i].advice);
            return;
        }
}

/* What to do next, where the server could not know the words of this program. */
static void print_advice(const struct cli *c, const struct sh_err *err)
{
    const char *noun = err->rc == SH_E_NOTFOUND ? missing_noun(err->msg) : NULL;

    if (c->key_profile && (err->rc == SH_E_UNAUTHENTICATED || err->rc == SH_E_FORBIDDEN))
        fprintf(stderr, "The key came from profile %s.\n", c->key_profile);
    if (c->key_env && (err->rc == SH_E_UNAUTHENTICATED || err->rc == SH_E_FORBIDDEN))
        fprintf(stderr,
                "The key came from %s of the environment, which wins over that of a profile in use "
                "and of a state folder; --profile, --key-file and --key win over it.\n",
                c->key_env);
    if (err->rc == SH_E_UNAUTHENTICATED)
        fprintf(stderr, "Give a key with --key, --key-file or SHUNT_KEY, or run this where "
                        "`shunt up` was run (--state-dir).\n");
    else if (strstr(err->msg, "certificate"))
        fprintf(stderr,
                "A private authority's certificate: --ca-file FILE, SHUNT_CA_FILE, or `shunt "
                "config set PROFILE ca-file=FILE`. The host in --server must be one that the "
                "server's certificate names.\n");
    else if (c->exit_code == CLI_NOT_REACHABLE &&
             ((c->cmd && c->cmd->run == status_main) || strstr(err->msg, CLI_NO_SYSTEM)))
        fprintf(stderr, "`shunt up` starts a system here; --state-dir FOLDER names the folder of "
                        "another `shunt up`, --server URL or --profile NAME a system elsewhere.\n");
    else if (c->exit_code == CLI_NOT_REACHABLE)
        fprintf(stderr, "Is it running? `shunt status` tells; `shunt up` starts one here; "
                        "--server names another.\n");
    else if (noun && strcmp(noun, "versions") == 0)
        fprintf(stderr, "`shunt get versions MODEL` lists those there are.\n");
    else if (noun && strcmp(noun, "keys") == 0)
        fprintf(stderr, "`shunt get keys --tenant NAME` lists those there are, by id.\n");
    else if (noun)
        fprintf(stderr, "`shunt get %s` lists those there are.\n", noun);
    else
        print_known(err->msg);
}

static void print_failure(const struct cli *c, const struct sh_err *err)
{
    fprintf(stderr, "shunt: %s\n", err->msg);
    /* Of what failed here, in a part that other programs have too: which file, and why. */
    if (err->detail[0] && !strstr(err->msg, err->detail))
        fprintf(stderr, "  %s\n", err->detail);
    out_errors(c->problem, err->msg);
    print_nodes(c->problem);
    if (c->conf->dry_run && c->problem)
        fprintf(stderr, "The server would refuse it; this was a dry run.\n");
    print_advice(c, err);
}

/* What may stand at the cursor. Options that cannot be read leave only what the table tells. */
static int complete_line(struct cli *c, int n, char **words, struct sh_err *err)
{
    struct sh_conf_table t = table(CLI_TABLE.common, CLI_TABLE.n_common, sizeof(struct cli_conf));
    char **options = calloc((size_t)n + 2, sizeof(*options));
    enum sh_conf_action action;
    struct words w = {0};
    int rc = options ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a list");

    if (!rc) {
        options[0] = (char *)"shunt"; /* never written to */
        rc = copy_words(complete_options(n, words, options + 1) + 1, options, &w, err);
    }
    if (!rc && words_load(&t, c->conf, &w, c, &action, NULL))
        memset(c->conf, 0, sizeof(*c->conf));
    c->config_path = w.config;
    if (!rc)
        complete_words(c, n, words);
    sh_conf_free(&t, c->conf);
    free_words(&w);
    free(options);
    return rc;
}

int main(int argc, char **argv)
{
    struct cli_conf conf = {0};
    struct cli c = {.table = &CLI_TABLE, .conf = &conf};
    struct sh_err err = {0};
    const char *first = argc > 1 ? argv[1] : "";
    int rc = SH_OK;

    if (argc < 2) {
        help_all();
    } else if (strcmp(first, "--docs") == 0) {
        help_docs();
    } else if (strcmp(first, "--completion") == 0) {
        c.exit_code = CLI_USAGE;
        rc = help_completion(argc > 2 ? argv[2] : NULL, &err);
    } else if (strcmp(first, "--complete") == 0) {
        rc = complete_line(&c, argc - 2, argv + 2, &err);
    } else {
        rc = command_run(&c, argc, argv, &err);
    }
    if (rc)
        print_failure(&c, &err);
    sh_http_free(c.http);
    json_decref(c.problem);
    json_decref(c.seen);
    free(c.key_profile);
    free(c.server);
    if (fflush(stdout) != 0 && !rc)
        c.exit_code = CLI_REFUSED, rc = SH_E_IO;
    return rc ? (int)c.exit_code : CLI_OK;
}
