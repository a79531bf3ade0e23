/* help.c - help, documentation and shell completion, all printed from the table of commands. */
#include "cli/cli.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

static void usage_line(const struct cli_cmd *k, char *out, size_t size)
{
    snprintf(out, size, "%s%s%s%s%s", k->verb, k->noun ? " " : "", k->noun ? k->noun : "",
             k->args[0] ? " " : "", k->args);
}

void help_all(void)
{
    char line[96];
    int wide = 0;

    for (size_t i = 0; i < CLI_N_CMDS; i++) {
        usage_line(&CLI_CMDS[i], line, sizeof(line));
        wide = SH_MAX(wide, (int)strlen(line));
    }
    printf("shunt - run and use a Shunt system: tenants share GPUs for inference and training\n\n"
           "usage: shunt COMMAND [arguments] [options]\n\n");
    for (size_t i = 0; i < CLI_N_CMDS; i++) {
        if (i > 0 && strcmp(CLI_CMDS[i].verb, CLI_CMDS[i - 1].verb) != 0 &&
            (CLI_CMDS[i].noun || CLI_CMDS[i - 1].noun))
            putchar('\n');
        usage_line(&CLI_CMDS[i], line, sizeof(line));
        printf("  %-*s  %s\n", wide, line, CLI_CMDS[i].help);
    }
    printf("\nOptions of every command:\n");
    for (size_t i = 0; i < CLI_N_COMMON; i++)
        printf("  --%-12s  %s\n", CLI_COMMON[i].name, CLI_COMMON[i].help);
    printf("  --config        file with lines \"name = value\"; without it ~/.config/shunt/config\n"
           "\nEach option can also come from the environment: SHUNT_SERVER, SHUNT_KEY, "
           "SHUNT_TENANT ...\nMore: shunt COMMAND --help, shunt --docs (Markdown), "
           "shunt --completion bash|zsh, shunt --version.\n"
           "Exit status: 0 ok, 1 refused, 2 usage, 3 server not reachable.\n");
}

static void default_text(const struct sh_conf_opt *o, char *out, size_t size)
{
    sh_strlcpy(out, "", size);
    if (o->def && o->def[0] && o->type != SH_CONF_BOOL)
        snprintf(out, size, " (default %s)", o->def);
}

static void print_options(const struct sh_conf_opt *o, size_t n)
{
    char def[64];

    for (size_t i = 0; i < n; i++) {
        default_text(&o[i], def, sizeof(def));
        printf("  --%-24s  %s%s\n", o[i].name, o[i].help, def);
    }
}

void help_verb(const char *verb, const char *noun)
{
    char line[96];

    for (size_t i = 0; i < CLI_N_CMDS; i++) {
        const struct cli_cmd *k = &CLI_CMDS[i];

        if (strcmp(k->verb, verb) != 0 || (noun && k->noun && strcmp(k->noun, noun) != 0))
            continue;
        usage_line(k, line, sizeof(line));
        printf("shunt %s [options]\n  %s\n", line, k->help);
        print_options(k->opts, k->n_opts);
        putchar('\n');
    }
    printf("Options of every command:\n");
    print_options(CLI_COMMON, CLI_N_COMMON);
}

static void docs_options(const struct sh_conf_opt *o, size_t n)
{
    char def[64];

    printf("| option | meaning |\n| --- | --- |\n");
    for (size_t i = 0; i < n; i++) {
        default_text(&o[i], def, sizeof(def));
        printf("| `--%s` | %s%s |\n", o[i].name, o[i].help, def);
    }
}

void help_docs(void)
{
    char line[96];

    printf("# The command `shunt`\n\n"
           "Printed by `shunt --docs`. It speaks only REST; `shunt up` and `shunt down` start and "
           "stop a system on this machine.\n\n"
           "Exit status: 0 ok, 1 refused, 2 usage, 3 server not reachable.\n\n"
           "## Options of every command\n\n"
           "Order: default, file (`--config FILE`, else `~/.config/shunt/config`; lines "
           "`name = value`), environment (`SHUNT_SERVER`, `SHUNT_KEY` ...), command line.\n\n");
    docs_options(CLI_COMMON, CLI_N_COMMON);
    printf("\n## Commands\n\n| command | does |\n| --- | --- |\n");
    for (size_t i = 0; i < CLI_N_CMDS; i++) {
        usage_line(&CLI_CMDS[i], line, sizeof(line));
        printf("| `shunt %s` | %s |\n", line, CLI_CMDS[i].help);
    }
    for (size_t i = 0; i < CLI_N_CMDS; i++) {
        const struct cli_cmd *k = &CLI_CMDS[i];

        if (k->n_opts == 0)
            continue;
        printf("\n### shunt %s%s%s\n\n", k->verb, k->noun ? " " : "", k->noun ? k->noun : "");
        docs_options(k->opts, k->n_opts);
    }
}

/* ---------------------------------------------------------------- completion */

static void verbs(const char *format)
{
    for (size_t i = 0; i < CLI_N_CMDS; i++)
        if (i == 0 || strcmp(CLI_CMDS[i].verb, CLI_CMDS[i - 1].verb) != 0)
            printf(format, CLI_CMDS[i].verb);
}

static void nouns(const char *verb)
{
    for (size_t i = 0; i < CLI_N_CMDS; i++)
        if (CLI_CMDS[i].noun && strcmp(CLI_CMDS[i].verb, verb) == 0)
            printf(" %s", CLI_CMDS[i].noun);
}

static void option_words(const struct sh_conf_opt *o, size_t n)
{
    for (size_t i = 0; i < n; i++)
        printf(" --%s", o[i].name);
}

static void complete_bash(void)
{
    printf("_shunt() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} verb='' noun='' w words=''\n"
           "    for w in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
           "        case $w in -*) continue ;; esac\n"
           "        if [ -z \"$verb\" ]; then verb=$w; elif [ -z \"$noun\" ]; then noun=$w; fi\n"
           "    done\n"
           "    case \"$verb\" in\n    '') words='");
    verbs("%s ");
    printf("--help --version' ;;\n");
    for (size_t i = 0; i < CLI_N_CMDS; i++) {
        const struct cli_cmd *k = &CLI_CMDS[i];

        if (!k->noun || (i > 0 && strcmp(k->verb, CLI_CMDS[i - 1].verb) == 0))
            continue;
        printf("    %s) [ -n \"$noun\" ] || words='", k->verb);
        nouns(k->verb);
        printf("' ;;\n");
    }
    printf("    esac\n    case \"$verb $noun\" in\n");
    for (size_t i = 0; i < CLI_N_CMDS; i++) {
        const struct cli_cmd *k = &CLI_CMDS[i];

        if (k->n_opts == 0)
            continue;
        printf("    \"%s %s\"*) words+='", k->verb, k->noun ? k->noun : "");
        option_words(k->opts, k->n_opts);
        printf("' ;;\n");
    }
    printf("    esac\n    case $cur in -*) words+='");
    option_words(CLI_COMMON, CLI_N_COMMON);
    printf(" --help' ;; esac\n"
           "    if [ -n \"$noun\" ] && [[ $cur != -* ]]; then\n"
           "        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
           "    else\n"
           "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
           "    fi\n}\ncomplete -o filenames -F _shunt shunt\n");
}

int help_completion(const char *shell, struct sh_err *err)
{
    bool is_zsh = shell && strcmp(shell, "zsh") == 0;

    if (!is_zsh && (!shell || strcmp(shell, "bash") != 0))
        return SH_FAIL(err, SH_E_INVALID, "--completion wants bash or zsh");
    /* zsh runs bash's functions when asked to. */
    if (is_zsh)
        printf("#compdef shunt\nautoload -U +X bashcompinit && bashcompinit\n");
    complete_bash();
    return SH_OK;
}
