/* find.c - from the words of a command line to a row of the table of commands. */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* "jobs" and "job" name the same thing. */
static bool same_noun(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);

    n -= n > 1 && a[n - 1] == 's';
    m -= m > 1 && b[m - 1] == 's';
    return n == m && memcmp(a, b, n) == 0;
}

static int no_noun(const char *verb, const char *given, struct sh_err *err)
{
    char list[256] = "";
    size_t n = 0;

    for (size_t i = 0; i < CLI_N_CMDS && n < sizeof(list); i++)
        if (strcmp(CLI_CMDS[i].verb, verb) == 0)
            n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s", n ? ", " : "",
                                  CLI_CMDS[i].noun);
    if (!given)
        return SH_FAIL(err, SH_E_INVALID, "say what to %s: %s", verb, list);
    return SH_FAIL(err, SH_E_INVALID, "there is no \"%s %.40s\"; there are: %s", verb, given, list);
}

const struct cli_cmd *cli_find(char **words, int n_words, int *used, struct sh_err *err)
{
    bool verb_known = false;

    *used = 0;
    if (n_words < 1) {
        SH_FAIL(err, SH_E_INVALID, "no command is given; shunt --help lists them");
        return NULL;
    }
    for (size_t i = 0; i < CLI_N_CMDS; i++) {
        const struct cli_cmd *k = &CLI_CMDS[i];

        if (strcmp(k->verb, words[0]) != 0)
            continue;
        verb_known = true;
        *used = k->noun ? 2 : 1;
        if (!k->noun || (n_words > 1 && same_noun(k->noun, words[1])))
            return k;
    }
    if (verb_known)
        no_noun(words[0], n_words > 1 ? words[1] : NULL, err);
    else
        SH_FAIL(err, SH_E_INVALID, "there is no command \"%.40s\"; shunt --help lists them",
                words[0]);
    return NULL;
}

/* Words in brackets are optional ones when they stand alone: "MODEL[:VERSION]" is one that must be
 * there, "[NAME]" is not. */
void cli_arg_range(const struct cli_cmd *cmd, int *min, int *max)
{
    *min = *max = 0;
    for (const char *p = cmd->args; *p;) {
        size_t n = strcspn(p, " ");

        *min += *p != '[';
        *max += n > 3 && memcmp(p + n - 3, "...", 3) == 0 ? 1000 : 1;
        p += n;
        p += strspn(p, " ");
    }
}

int cli_usage(struct cli *c, struct sh_err *err, const char *fmt, ...)
{
    char text[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    c->exit_code = CLI_USAGE;
    return SH_FAIL(err, SH_E_INVALID, "%s; see shunt %s%s%s --help", text, c->cmd->verb,
                   c->cmd->noun ? " " : "", c->cmd->noun ? c->cmd->noun : "");
}
