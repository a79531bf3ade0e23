/* help.c - help, documentation and shell completion, all printed from the table of commands. */
#include "cli/help.h"

#include "cli/text/field.h"
#include "cli/text/find.h"
#include "cli/text/out.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

static void usage_line(const struct cli_cmd *k, char *out, size_t size)
{
    snprintf(out, size, "%s%s%s%s%s", k->verb, k->noun ? " " : "", k->noun ? k->noun : "",
             k->args[0] ? " " : "", k->args);
}

/* Calls one() for each command, those of one title together, a title first. */
static void by_title(void (*head)(const char *title), void (*one)(const struct cli_cmd *k))
{
    const char *title = NULL;

    for (size_t v = 0; v <= CLI_TABLE.n_verbs; v++) {
        const struct cli_verb *verb = v < CLI_TABLE.n_verbs ? &CLI_TABLE.verbs[v] : &CLI_OTHER_VERB;
        bool is_new = !title || strcmp(title, verb->title) != 0;

        for (size_t i = 0; i < CLI_TABLE.n_cmds; i++) {
            if (cli_verb(&CLI_TABLE, CLI_TABLE.cmds[i].verb) != verb)
                continue;
            if (is_new)
                head(verb->title);
            is_new = false;
            title = verb->title;
            one(&CLI_TABLE.cmds[i]);
        }
    }
}

static void print_title(const char *title)
{
    printf("\n%s:\n", title);
}

static void print_command(const struct cli_cmd *k)
{
    char line[96];

    usage_line(k, line, sizeof(line));
    printf("  %-36s  %s\n", line, k->help);
}

static void print_names(const struct sh_conf_opt *o, size_t n)
{
    for (size_t i = 0; i < n; i++)
        printf("  --%-12s  %s\n", o[i].name, o[i].help);
}

void help_all(void)
{
    printf("shunt - run and use a Shunt system: tenants share GPUs for inference and training\n\n"
           "usage: shunt COMMAND [arguments] [options]\n\n"
           "First steps:\n"
           "  shunt up                                               a system on this machine\n"
           "  shunt create tenant T                                  who owns models and jobs\n"
           "  shunt create key K --tenant T --role tenant-admin --save t.key\n"
           "  export SHUNT_KEY_FILE=t.key                            from here on as that tenant\n"
           "  shunt push model M FILE.onnx --wait                    serve a model\n"
           "  shunt infer M --random 1                               ask it\n"
           "  shunt push dataset D FILE.safetensors                  train one:\n"
           "  shunt submit --model M --dataset D --labels NAME --epochs 3\n"
           "  shunt get jobs --live      shunt get jobs --watch      shunt explain JOB\n");
    by_title(print_title, print_command);
    printf("\nlist, ls, show and describe mean get; rm means delete; nouns may be singular or "
           "plural.\n");
    printf("\nOptions of every command:\n");
    print_names(CLI_TABLE.common, CLI_TABLE.n_common);
    printf("  --config        file with lines \"name = value\" and sections \"[profile]\"; without "
           "it\n"
           "                  ~/.config/shunt/config\n");
    printf("\nOptions of get:\n");
    print_names(cli_verb(&CLI_TABLE, "get")->opts, cli_verb(&CLI_TABLE, "get")->n_opts);
    printf("\nOptions of commands that change something:\n");
    print_names(cli_verb(&CLI_TABLE, "set")->opts, cli_verb(&CLI_TABLE, "set")->n_opts);
    printf("\nEach option can also come from the environment: SHUNT_SERVER, SHUNT_KEY, "
           "SHUNT_TENANT ...\nThe command line wins, then --profile, the environment, the profile "
           "in use; docs/cli.md\nhas it all. More: shunt COMMAND --help, shunt --docs (Markdown), "
           "shunt --version.\n"
           "Completion: source <(shunt --completion bash), or zsh.\n"
           "Exit status: " CLI_EXIT_TEXT ".\n");
}

static void print_number(double v, bool is_bytes, char *out, size_t size)
{
    char text[SH_NUMBER_TEXT];

    if (is_bytes && v >= 1024)
        out_bytes(v, out, size);
    else
        sh_strlcpy(out, sh_number_text(v, text), size);
}

/* " (default 32; 1 to 65536)", as far as there are any. */
static void limits_text(const struct sh_conf_opt *o, char *out, size_t size)
{
    bool has_range = o->min != o->max && o->type != SH_CONF_BOOL;
    bool is_bytes = o->type == SH_CONF_BYTES || cli_is_bytes(o->name);
    bool has_def = o->def && o->def[0] && o->type != SH_CONF_BOOL;
    char min[32], max[32], range[80] = "";

    print_number(o->min, is_bytes, min, sizeof(min));
    print_number(o->max, is_bytes, max, sizeof(max));
    if (has_range)
        snprintf(range, sizeof(range), "%s to %s", min, max);
    sh_strlcpy(out, "", size);
    if (has_range || has_def)
        snprintf(out, size, " (%s%s%s%s)", has_def ? "default " : "", has_def ? o->def : "",
                 has_def && has_range ? "; " : "", range);
}

static void print_rows(const struct sh_conf_opt *o, size_t n, const char *dashes)
{
    char limits[128];

    for (size_t i = 0; i < n; i++) {
        limits_text(&o[i], limits, sizeof(limits));
        printf("  %s%-24s  %s%s\n", dashes, o[i].name, o[i].help, limits);
    }
}

static void print_options(const struct sh_conf_opt *o, size_t n)
{
    print_rows(o, n, "--");
}

int help_verb(const char *verb, const char *noun, struct sh_err *err)
{
    const struct cli_cmd *first = NULL;
    char line[96];
    char *words[] = {(char *)verb};
    int used;

    for (size_t i = 0; i < CLI_TABLE.n_cmds; i++) {
        const struct cli_cmd *k = &CLI_TABLE.cmds[i];

        if (strcmp(k->verb, verb) != 0 || (noun && k->noun && strcmp(k->noun, noun) != 0))
            continue;
        first = k;
        usage_line(k, line, sizeof(line));
        printf("shunt %s [options]\n  %s\n", line, k->help);
        print_options(k->opts, k->n_opts);
        print_rows(k->fields, k->n_fields, "");
        putchar('\n');
    }
    if (!first) {
        cli_find(&CLI_TABLE, words, 1, &used, err);
        return SH_E_INVALID;
    }
    if (cli_verb(&CLI_TABLE, verb)->n_opts > 0) {
        printf("Other options of shunt %s:\n", verb);
        print_options(cli_verb(&CLI_TABLE, verb)->opts, cli_verb(&CLI_TABLE, verb)->n_opts);
        putchar('\n');
    }
    printf("Options of every command:\n");
    print_options(CLI_TABLE.common, CLI_TABLE.n_common);
    return SH_OK;
}

static void docs_rows(const char *what, const struct sh_conf_opt *o, size_t n, const char *dashes)
{
    char limits[128];

    printf("| %s | meaning |\n| --- | --- |\n", what);
    for (size_t i = 0; i < n; i++) {
        limits_text(&o[i], limits, sizeof(limits));
        printf("| `%s%s` | %s%s |\n", dashes, o[i].name, o[i].help, limits);
    }
}

static void docs_options(const struct sh_conf_opt *o, size_t n)
{
    docs_rows("option", o, n, "--");
}

static void docs_title(const char *title)
{
    printf("\n### %s\n\n| command | does |\n| --- | --- |\n", title);
}

static void docs_command(const struct cli_cmd *k)
{
    char line[96];

    usage_line(k, line, sizeof(line));
    printf("| `shunt %s` | %s |\n", line, k->help);
}

static bool is_first_with(size_t verb)
{
    for (size_t i = 0; i < verb; i++)
        if (CLI_TABLE.verbs[i].opts == CLI_TABLE.verbs[verb].opts)
            return false;
    return true;
}

/* The options that this verb shares with others. */
static void docs_verbs(size_t first)
{
    printf("\n### Of ");
    for (size_t i = first; i < CLI_TABLE.n_verbs; i++)
        if (CLI_TABLE.verbs[i].opts == CLI_TABLE.verbs[first].opts)
            printf("%s`%s`", i > first ? ", " : "", CLI_TABLE.verbs[i].verb);
    printf("\n\n");
    docs_options(CLI_TABLE.verbs[first].opts, CLI_TABLE.verbs[first].n_opts);
}

void help_docs(void)
{
    printf("# The command `shunt`\n\n"
           "Printed by `shunt --docs`. It speaks only REST; `shunt up` and `shunt down` start and "
           "stop a system on this machine.\n\n"
           "Exit status: " CLI_EXIT_TEXT ".\n\n"
           "## Options of every command\n\n");
    docs_options(CLI_TABLE.common, CLI_TABLE.n_common);
    printf("\n"
           "### Where a value comes from\n\n"
           "The value of an option comes from the first of these places that has one:\n\n"
           "1. the command line\n"
           "2. the section of the config file that `--profile` of the command line names "
           "(`--profile=` names none)\n"
           "3. the environment: `SHUNT_` and the name, as `SHUNT_KEY_FILE`; an empty variable "
           "counts as not set\n"
           "4. the section of the profile in use: named by `SHUNT_PROFILE`, else by `shunt config "
           "use`\n"
           "5. the lines of the config file before its first section\n"
           "6. the default\n\n"
           "The config file has lines `name = value`; it is that of `--config`, else of "
           "`SHUNT_CONFIG`, else `~/.config/shunt/config`.\n\n"
           "The server: `--server` or `--state-dir`, whichever comes from the earlier place in "
           "this list; `--server` if both come from the same place; without either, the system in "
           "`.shunt`, else `http://127.0.0.1:8000`. A folder that is named means its own system: "
           "if none runs there, the command ends with exit status 3 and uses no other system. "
           "`shunt up`, `down` and `status` use only the system in `--state-dir`.\n\n"
           "The key: `--key` or `--key-file`, whichever comes from the earlier place; `--key` if "
           "both come from the same place. The admin key of a state folder is used only if neither "
           "is given anywhere, so naming a folder does not turn a tenant's key into an admin's.\n");
    printf("\n## Commands\n");
    by_title(docs_title, docs_command);
    for (size_t i = 0; i < CLI_TABLE.n_verbs; i++)
        if (CLI_TABLE.verbs[i].n_opts > 0 && is_first_with(i))
            docs_verbs(i);
    for (size_t i = 0; i < CLI_TABLE.n_cmds; i++) {
        const struct cli_cmd *k = &CLI_TABLE.cmds[i];

        if (k->n_opts == 0 && k->n_fields == 0)
            continue;
        printf("\n### shunt %s%s%s\n\n", k->verb, k->noun ? " " : "", k->noun ? k->noun : "");
        if (k->n_opts > 0)
            docs_options(k->opts, k->n_opts);
        if (k->n_fields > 0)
            docs_rows("field", k->fields, k->n_fields, "");
    }
}

/* ---------------------------------------------------------------- completion */

static const char BASH[] =
    "_shunt() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} w\n"
    "    COMPREPLY=()\n"
    "    while IFS= read -r w; do\n"
    "        if [ \"$w\" = :file ]; then\n"
    "            compopt -o filenames 2>/dev/null\n"
    "            while IFS= read -r w; do COMPREPLY+=(\"$w\"); done < <(compgen -f -- \"$cur\")\n"
    "        else\n"
    "            COMPREPLY+=(\"$w\")\n"
    "        fi\n"
    "    done < <(\"$1\" --complete \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null)\n"
    "}\n"
    "complete -F _shunt shunt\n";

static const char ZSH[] =
    "#compdef shunt\n"
    "_shunt() {\n"
    "    local -a found\n"
    "    found=(\"${(@f)$(\"$words[1]\" --complete \"${(@)words[2,CURRENT]}\" 2>/dev/null)}\")\n"
    "    (( ${found[(Ie):file]} )) && { found=(${found:#:file}); _files }\n"
    "    compadd -- ${found:#}\n"
    "}\n"
    "if [ \"$funcstack[1]\" = _shunt ]; then _shunt \"$@\"; else compdef _shunt shunt; fi\n";

int help_completion(const char *shell, struct sh_err *err)
{
    if (shell && strcmp(shell, "bash") == 0)
        fputs(BASH, stdout);
    else if (shell && strcmp(shell, "zsh") == 0)
        fputs(ZSH, stdout);
    else
        return SH_FAIL(err, SH_E_INVALID, "--completion wants bash or zsh");
    return SH_OK;
}
