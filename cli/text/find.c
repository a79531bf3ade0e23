/* find.c - see find.h. */
#include "cli/text/find.h"

#include "common/mem.h"

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

const char *cli_long_form(const char *word)
{
    static const struct {
        const char *is, *means;
    } SHORT[] = {{"-o", "--output"}, {"-f", "--follow"},      {"-w", "--watch"},
                 {"-n", "--tenant"}, {"-A", "--all-tenants"}, {"-q", "--quiet"}};

    for (size_t i = 0; i < SH_ARRAY_LEN(SHORT); i++)
        if (strcmp(SHORT[i].is, word) == 0)
            return SHORT[i].means;
    return word;
}

/* What others call it. */
const char *cli_real_verb(const char *verb)
{
    static const struct {
        const char *other, *ours;
    } SAME[] = {{"list", "get"},  {"ls", "get"},       {"show", "get"},
                {"rm", "delete"}, {"describe", "get"}, {"update", "set"}};

    for (size_t i = 0; i < SH_ARRAY_LEN(SAME); i++)
        if (strcmp(SAME[i].other, verb) == 0)
            return SAME[i].ours;
    return verb;
}

/* Known from elsewhere, and here by another name. */
static const char *advice(const char *word)
{
    static const struct {
        const char *word, *ours;
    } KNOWN[] = {{"apply", "shunt create, shunt set or shunt push"},
                 {"edit", "shunt set"},
                 {"patch", "shunt set"},
                 {"squeue", "shunt get jobs --live"},
                 {"ps", "shunt get jobs --live, or shunt status"},
                 {"sbatch", "shunt submit"},
                 {"run", "shunt submit, or shunt infer"},
                 {"scancel", "shunt cancel JOB"},
                 {"kill", "shunt cancel JOB"},
                 {"sinfo", "shunt get executors"},
                 {"nodes", "shunt get executors"},
                 {"sacct", "shunt get usage TENANT"},
                 {"start", "shunt up, or shunt release JOB"},
                 {"stop", "shunt down, or shunt cancel JOB"},
                 {"watch", "shunt get ... --watch, or shunt top"},
                 {"upload", "shunt push"}};

    for (size_t i = 0; i < SH_ARRAY_LEN(KNOWN); i++)
        if (strcmp(KNOWN[i].word, word) == 0)
            return KNOWN[i].ours;
    return NULL;
}

#define MAX_WORD 24

/* Insertions, deletions, changes, and two letters swapped, from a to b; MAX_WORD if too long. */
static size_t distance(const char *a, const char *b)
{
    size_t d[MAX_WORD + 1][MAX_WORD + 1], n = strlen(a), m = strlen(b);

    if (n > MAX_WORD || m > MAX_WORD)
        return MAX_WORD;
    for (size_t i = 0; i <= n; i++) {
        for (size_t k = 0; k <= m; k++) {
            if (i == 0 || k == 0) {
                d[i][k] = i + k;
                continue;
            }
            d[i][k] = SH_MIN(d[i - 1][k], d[i][k - 1]) + 1;
            d[i][k] = SH_MIN(d[i][k], d[i - 1][k - 1] + (a[i - 1] != b[k - 1]));
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                d[i][k] = SH_MIN(d[i][k], d[i - 2][k - 2] + 1);
        }
    }
    return d[n][m];
}

/* A slip in a short word is one letter, or any word were like any other. */
static bool is_near_word(const char *ours, const char *word)
{
    return distance(ours, word) <= (strlen(word) > 4 ? 2 : 1);
}

/* Appends a word to a list, once. */
static void add_word(char *list, size_t size, const char *word)
{
    size_t n = strlen(list), len = strlen(word);

    for (const char *p = list; (p = strstr(p, word)); p += len)
        if ((p == list || p[-1] == ' ') && (p[len] == ',' || p[len] == '\0'))
            return;
    if (n < size)
        snprintf(list + n, size - n, "%s%s", n ? ", " : "", word);
}

/* The likely meanings of a word that is no verb. */
static int no_verb(const struct cli_table *t, const char *word, struct sh_err *err)
{
    const char *ours = advice(word);
    char verbs[200] = "", like[200] = "";

    for (size_t i = 0; i < t->n_cmds; i++) {
        if (t->cmds[i].noun && same_noun(t->cmds[i].noun, word))
            add_word(verbs, sizeof(verbs), t->cmds[i].verb);
        if (is_near_word(t->cmds[i].verb, word))
            add_word(like, sizeof(like), t->cmds[i].verb);
    }
    if (verbs[0])
        return SH_FAIL(err, SH_E_INVALID,
                       "say what to do with \"%.40s\": %s; as in shunt %.*s %.40s", word, verbs,
                       (int)strcspn(verbs, ","), verbs, word);
    if (ours)
        return SH_FAIL(err, SH_E_INVALID, "there is no command \"%.40s\"; here it is %s", word,
                       ours);
    if (like[0])
        return SH_FAIL(err, SH_E_INVALID, "there is no command \"%.40s\"; did you mean %s?", word,
                       like);
    return SH_FAIL(err, SH_E_INVALID, "there is no command \"%.40s\"; shunt --help lists them",
                   word);
}

static int no_noun(const struct cli_table *t, const char *verb, const char *given,
                   struct sh_err *err)
{
    char list[300] = "", like[100] = "";

    for (size_t i = 0; i < t->n_cmds; i++) {
        if (strcmp(t->cmds[i].verb, verb) != 0)
            continue;
        add_word(list, sizeof(list), t->cmds[i].noun);
        if (given && is_near_word(t->cmds[i].noun, given))
            add_word(like, sizeof(like), t->cmds[i].noun);
    }
    if (!given)
        return SH_FAIL(err, SH_E_INVALID, "say what to %s: %s", verb, list);
    if (like[0])
        return SH_FAIL(err, SH_E_INVALID,
                       "there is no \"%s %.40s\"; did you mean %s? There are: %s", verb, given,
                       like, list);
    return SH_FAIL(err, SH_E_INVALID, "there is no \"%s %.40s\"; there are: %s", verb, given, list);
}

const struct cli_cmd *cli_find(const struct cli_table *t, char **words, int n_words, int *used,
                               struct sh_err *err)
{
    const char *verb = n_words > 0 ? cli_real_verb(words[0]) : NULL;
    bool verb_known = false;

    *used = 0;
    if (!verb) {
        SH_FAIL(err, SH_E_INVALID, "no command is given; shunt --help lists them");
        return NULL;
    }
    for (size_t i = 0; i < t->n_cmds; i++) {
        const struct cli_cmd *k = &t->cmds[i];

        if (strcmp(k->verb, verb) != 0)
            continue;
        verb_known = true;
        *used = k->noun ? 2 : 1;
        if (!k->noun || (n_words > 1 && same_noun(k->noun, words[1])))
            return k;
    }
    if (verb_known)
        no_noun(t, verb, n_words > 1 ? words[1] : NULL, err);
    else
        no_verb(t, verb, err);
    return NULL;
}

const struct cli_verb CLI_OTHER_VERB = {"", "More", NULL, 0};

const struct cli_verb *cli_verb(const struct cli_table *t, const char *verb)
{
    for (size_t i = 0; i < t->n_verbs; i++)
        if (strcmp(t->verbs[i].verb, verb) == 0)
            return &t->verbs[i];
    return &CLI_OTHER_VERB;
}

/* ---------------------------------------------------------------- options */

static bool begins_dashed(const char *word)
{
    return word[0] == '-' && word[1] == '-';
}

static size_t append_options(const struct sh_conf_opt *from, size_t n_from, struct sh_conf_opt *out,
                             size_t n)
{
    for (size_t i = 0; i < n_from; i++) {
        bool have = false;

        for (size_t k = 0; k < n; k++)
            have = have || strcmp(out[k].name, from[i].name) == 0;
        if (!have && n < CLI_MAX_OPTS)
            out[n++] = from[i];
    }
    return n;
}

size_t cli_options(const struct cli_table *t, const struct cli_cmd *cmd,
                   struct sh_conf_opt out[static CLI_MAX_OPTS])
{
    size_t n = append_options(t->common, t->n_common, out, 0);

    for (size_t i = 0; i < t->n_verbs; i++)
        if (!cmd || strcmp(t->verbs[i].verb, cmd->verb) == 0)
            n = append_options(t->verbs[i].opts, t->verbs[i].n_opts, out, n);
    for (size_t i = 0; !cmd && i < t->n_cmds; i++)
        n = append_options(t->cmds[i].opts, t->cmds[i].n_opts, out, n);
    if (cmd)
        return append_options(cmd->opts, cmd->n_opts, out, n);
    for (size_t i = 0; i < n; i++) {
        bool flag = out[i].type == SH_CONF_BOOL;

        out[i].type = flag ? SH_CONF_BOOL : SH_CONF_STR;
        out[i].offset = flag ? offsetof(struct cli_any, flag) + i * sizeof(bool)
                             : offsetof(struct cli_any, text) + i * sizeof(char *);
        out[i].def = NULL;
    }
    return n;
}

/* "latency" of "latency-ms": whole words, without the rest. */
static bool is_start(const char *ours, const char *word)
{
    size_t n = strlen(word);

    return n > 0 && strncmp(ours, word, n) == 0 && ours[n] == '-';
}

const char *cli_like_option(const struct cli_table *t, const struct cli_cmd *cmd, const char *word)
{
    struct sh_conf_opt opts[CLI_MAX_OPTS];
    size_t n = cli_options(t, cmd, opts), len = strcspn(word, "=");
    char name[64];

    snprintf(name, sizeof(name), "%.*s", (int)SH_MIN(len, sizeof(name) - 1), word);
    if (!begins_dashed(name))
        return NULL;
    for (size_t i = 0; i < n; i++)
        if (is_near_word(opts[i].name, name + 2) || is_start(opts[i].name, name + 2))
            return opts[i].name; /* of the table, which outlives us */
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
