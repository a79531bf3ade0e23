/* complete.c - what may stand at the cursor: `shunt --complete WORD...`, whose last word is being
 * typed. It prints one candidate a line; the shells' functions (help_completion) only pass them on.
 * All rules are here, taken from the table of commands: verbs, nouns, options, values of options,
 * names of things on the server, and ":file" where a file is wanted.
 *
 * bash passes "--output=json" as three words, zsh as one. A server that is down or refuses yields
 * no candidates, quickly and silently.
 */
#include "cli/client/lists.h"
#include "cli/client/profile.h"
#include "cli/client/rest.h"
#include "cli/client/train_flags.h"
#include "cli/help.h"
#include "cli/text/find.h"
#include "common/job_state.h"
#include "common/mem.h"
#include "common/states.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_NAMES 1000
#define LOOK_MS 10000 /* a busy server takes some; ^C ends it before */

struct typed {
    struct cli *c;
    const char *word, *prefix; /* being typed; what stands before each candidate: "--output=" */
    const char *verb, *noun;
    const struct cli_cmd *cmd; /* NULL: not known yet */
    int n_args;                /* positional ones before the cursor, after verb and noun */
};

static bool begins_so(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

static void offer_word(const struct typed *t, const char *word)
{
    if (begins_so(word, t->word))
        printf("%s%s\n", t->prefix, word);
}

/* Words of a text such as "fp32, tf32, fp16 or bf16": each that is one of the values. */
static void offer_words(const struct typed *t, const char *list)
{
    char word[64];

    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");

        snprintf(word, sizeof(word), "%.*s", (int)SH_MIN(n, sizeof(word) - 1), p);
        offer_word(t, word);
        p += n + (p[n] == ',');
    }
}

/* ---------------------------------------------------------------- names on the server */

static void offer_list(const struct typed *t, const char *path, const char *name)
{
    char id[256], url[REST_PATH_MAX + 32], *full = NULL;
    json_t *j = NULL, *item;
    size_t i;

    if (!t->c->conf->state_dir) /* the options do not say where the server is */
        return;
    snprintf(url, sizeof(url), "%s?limit=%d", path, MAX_NAMES);
    if (rest_with_tenant(t->c, url, &full, NULL) == SH_OK &&
        rest_get(t->c, strstr(path, "/tenants") ? url : full, REST_QUIET, &j, NULL) == SH_OK)
        json_array_foreach(json_object_get(j, "items"), i, item)
        {
            out_text(item, name, OUT_TEXT, id, sizeof(id));
            offer_word(t, id);
        }
    json_decref(j);
    free(full);
}

static void offer_profiles(const struct typed *t)
{
    json_t *all = config_profiles(t->c), *p;
    size_t i;

    json_array_foreach(all, i, p)
    {
        offer_word(t, sh_json_text(p, "name"));
    }
    json_decref(all);
}

/* kind: a word of a command's arguments, "MODEL[:VERSION]", or a noun. */
static void offer_names(const struct typed *t, const char *kind)
{
    static const struct {
        const char *kind, *path, *name;
    } LISTS[] = {
        {"TENANT", "/api/v1/tenants", "name"},   {"tenant", "/api/v1/tenants", "name"},
        {"MODEL", "/api/v1/models", "name"},     {"model", "/api/v1/models", "name"},
        {"dataset", "/api/v1/datasets", "name"}, {"queue", "/api/v1/queues", "name"},
        {"JOB", "/api/v1/jobs", "id"},           {"job", "/api/v1/jobs", "id"},
        {"ARRAY", "/api/v1/job-arrays", "id"},   {"array", "/api/v1/job-arrays", "id"},
        {"gpu", "/api/v1/gpus", "name"},         {"executor", "/api/v1/executors", "name"}};
    const char *tenant = t->c->conf->tenant;
    char path[REST_PATH_MAX];
    size_t n = strspn(kind, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");

    n -= n > 1 && kind[n - 1] == 's';
    for (size_t i = 0; i < SH_ARRAY_LEN(LISTS); i++)
        if (strlen(LISTS[i].kind) == n && memcmp(LISTS[i].kind, kind, n) == 0)
            offer_list(t, LISTS[i].path, LISTS[i].name);
    if (n == 7 && memcmp(kind, "profile", 7) == 0)
        offer_profiles(t);
    if (n == 3 && memcmp(kind, "key", 3) == 0 && tenant && tenant[0] &&
        rest_path(path, NULL, "api", "v1", "tenants", tenant, "keys", NULL) == SH_OK)
        offer_list(t, path, "id");
}

/* ---------------------------------------------------------------- the word at hand */

static void offer_verbs(const struct typed *t)
{
    for (size_t i = 0; i < CLI_TABLE.n_cmds; i++) {
        bool is_new = true;

        for (size_t k = 0; k < i; k++)
            is_new = is_new && strcmp(CLI_TABLE.cmds[k].verb, CLI_TABLE.cmds[i].verb) != 0;
        if (is_new)
            offer_word(t, CLI_TABLE.cmds[i].verb);
    }
    offer_word(t, "help");
}

static void offer_nouns(const struct typed *t)
{
    for (size_t i = 0; i < CLI_TABLE.n_cmds; i++)
        if (CLI_TABLE.cmds[i].noun && strcmp(CLI_TABLE.cmds[i].verb, t->verb) == 0)
            offer_word(t, CLI_TABLE.cmds[i].noun);
}

static void offer_options(const struct typed *t)
{
    struct sh_conf_opt opts[CLI_MAX_OPTS];
    size_t n = cli_options(&CLI_TABLE, t->cmd, opts);
    char word[80];

    if (!t->cmd)
        n = CLI_TABLE.n_common; /* they are the first */
    for (size_t i = 0; i < n; i++) {
        snprintf(word, sizeof(word), "--%s", opts[i].name);
        offer_word(t, word);
    }
    offer_word(t, "--config");
    offer_word(t, "--help");
}

/* The value of an option. */
static void offer_value(const struct typed *t, const char *option)
{
    static const struct {
        const char *option, *values;
    } WORDS[] = {{"output", "table,wide,json,yaml,name"},
                 {"role", SH_KEY_ROLES},
                 {"precision", SH_PRECISIONS},
                 {"on-miss", SH_ON_MISS},
                 {"visibility", SH_VISIBILITIES},
                 {"kind", "training,batch-inference"},
                 {"device", "cpu,cuda"},
                 {"window", SH_SLO_WINDOWS},
                 {"by", SH_USAGE_BY(SH_USAGE_WORD, ",")},
                 {"class", SH_USAGE_CLASSES},
                 {"log-level", "error,warn,info,debug"}};
    static const char *const FILES[] = {
        "config", "key-file", "ca-file",   "save",   "inputs",         "outputs",
        "out",    "spec",     "state-dir", "pg-bin", "migrations-dir", "dashboards-dir"};
    bool is_jobs = t->cmd && t->cmd->noun && strcmp(t->cmd->noun, "jobs") == 0;
    bool is_tenant = t->cmd && t->cmd->noun && strcmp(t->cmd->noun, "tenant") == 0;

    for (size_t i = 0; i < SH_ARRAY_LEN(WORDS); i++)
        if (strcmp(WORDS[i].option, option) == 0)
            offer_words(t, WORDS[i].values);
    if (train_flag_words(option))
        offer_words(t, train_flag_words(option));
    for (size_t i = 0; i < SH_ARRAY_LEN(FILES); i++)
        if (strcmp(FILES[i], option) == 0)
            puts(":file");
    if (strcmp(option, "state") == 0)
        offer_words(t, is_jobs ? SH_JOB_LIVE(SH_JOB_TEXT, ",") "," SH_JOB_ENDED(SH_JOB_TEXT, ",")
                       : is_tenant ? SH_TENANT_SET(SH_STATE_TEXT, ",")
                                   : SH_QUEUE_STATES(SH_STATE_TEXT, ","));
    else if (strcmp(option, "eval-dataset") == 0)
        offer_names(t, "dataset");
    else
        offer_names(t, option);
}

/* The n-th word of a command's arguments; the last one if it may be repeated. */
static void arg_kind(const struct cli_cmd *cmd, int n, char *out, size_t size)
{
    const char *p = cmd->args, *word = "";
    size_t len = 0;

    for (int i = 0; *p && i <= n; i++) {
        word = p;
        len = strcspn(p, " ");
        p += len;
        p += strspn(p, " ");
        if (i < n && !*p && !(len > 3 && memcmp(word + len - 3, "...", 3) == 0))
            len = 0; /* it takes no more */
    }
    while (len > 0 && *word == '[') {
        word++;
        len--;
    }
    snprintf(out, size, "%.*s", (int)SH_MIN(len, size - 1), word);
}

/* kinds: "on|off", words to type, or "JOB|MODEL[:VERSION]", names of either. */
static void offer_one_of(const struct typed *t, char *kinds)
{
    char *rest = NULL;

    for (char *kind = strtok_r(kinds, "|", &rest); kind; kind = strtok_r(NULL, "|", &rest)) {
        if (isupper((unsigned char)*kind))
            offer_names(t, kind);
        else
            offer_words(t, kind);
    }
}

static void offer_argument(const struct typed *t)
{
    char kind[64];

    arg_kind(t->cmd, t->n_args, kind, sizeof(kind));
    if (begins_so(kind, "FILE")) {
        puts(":file");
    } else if (strchr(kind, '|')) {
        offer_one_of(t, kind);
    } else if ((begins_so(kind, "NAME") || begins_so(kind, "ID")) && t->cmd->noun) {
        if (strcmp(t->cmd->verb, "config") == 0)
            offer_profiles(t);
        else if (strcmp(t->cmd->verb, "create") != 0)
            offer_names(t, t->cmd->noun);
    } else if (kind[0]) {
        offer_names(t, kind);
    }
}

/* ---------------------------------------------------------------- the line */

/* Whether a word before the cursor is an option that takes the next word as its value. *name: which
 * option; NULL if the word is none. */
static bool wants_value(const char *typed, char name[static 64])
{
    struct sh_conf_opt opts[CLI_MAX_OPTS];
    size_t n = cli_options(&CLI_TABLE, NULL, opts), len;
    const char *word = cli_long_form(typed);

    name[0] = '\0';
    if (!begins_so(word, "--"))
        return false;
    len = strcspn(word + 2, "=");
    snprintf(name, 64, "%.*s", (int)SH_MIN(len, (size_t)63), word + 2);
    if (word[2 + len] == '=')
        return false;
    for (size_t i = 0; i < n; i++)
        if (strcmp(opts[i].name, name) == 0)
            return opts[i].type != SH_CONF_BOOL;
    return strcmp(name, "config") == 0;
}

static bool has_nouns(const char *verb)
{
    for (size_t i = 0; i < CLI_TABLE.n_cmds; i++)
        if (CLI_TABLE.cmds[i].noun && strcmp(CLI_TABLE.cmds[i].verb, verb) == 0)
            return true;
    return false;
}

static void take_positional(struct typed *t, char *word)
{
    char *both[] = {(char *)t->verb, word};
    int used;

    if (!t->verb && strcmp(word, "help") == 0)
        return;
    if (!t->verb) {
        t->verb = cli_real_verb(word);
        both[0] = (char *)t->verb;
        if (!has_nouns(t->verb))
            t->cmd = cli_find(&CLI_TABLE, both, 1, &used, NULL);
    } else if (!t->cmd) {
        t->cmd = cli_find(&CLI_TABLE, both, 2, &used, NULL);
        t->noun = word;
    } else {
        t->n_args++;
    }
}

static void offer_positional(const struct typed *t)
{
    if (!t->verb)
        offer_verbs(t);
    else if (!t->cmd && !t->noun)
        offer_nouns(t);
    else if (t->cmd)
        offer_argument(t);
}

void complete_words(struct cli *c, int n, char **words)
{
    struct typed t = {.c = c, .word = n > 0 ? words[n - 1] : "", .prefix = ""};
    char name[64], prefix[80];
    bool is_value = false;

    c->timeout_ms = LOOK_MS;
    for (int i = 0; i + 1 < n; i++) {
        if (is_value && strcmp(words[i], "=") == 0)
            continue; /* bash makes a word of it */
        if (is_value)
            is_value = false;
        else if (words[i][0] == '-')
            is_value = wants_value(words[i], name);
        else
            take_positional(&t, words[i]);
    }
    if (is_value && strcmp(t.word, "=") == 0)
        t.word = "";
    if (is_value) {
        offer_value(&t, name);
    } else if (begins_so(t.word, "--") && strchr(t.word, '=')) {
        wants_value(t.word, name);
        snprintf(prefix, sizeof(prefix), "--%s=", name);
        t.prefix = prefix;
        t.word = strchr(t.word, '=') + 1;
        offer_value(&t, name);
    } else if (t.word[0] == '-') {
        offer_options(&t);
    } else {
        offer_positional(&t);
    }
}

int complete_options(int n, char **words, char **out)
{
    char name[64];
    int kept = 0;

    for (int i = 0; i + 1 < n; i++) {
        bool wants = wants_value(words[i], name), is_common = strcmp(name, "config") == 0;

        for (size_t k = 0; k < CLI_TABLE.n_common; k++)
            is_common = is_common || strcmp(CLI_TABLE.common[k].name, name) == 0;
        if (is_common)
            out[kept++] = words[i];
        if (wants && i + 2 < n && strcmp(words[i + 1], "=") == 0)
            i++;
        if (wants && i + 2 < n) {
            i++;
            if (is_common)
                out[kept++] = words[i];
        } else if (wants && is_common) {
            kept--; /* its value is being typed */
        }
    }
    return kept;
}
