/* terms.c - a refusal in the words of the command line: "spec.optimizer.lr" is --lr here.
 *
 * The server names fields of JSON and of a URL. The refused field stands at the start of its
 * sentence, or is a path into a job's body; other quoted words are values, and stay.
 */
#include "cli/client/terms.h"

#include "cli/client/train_flags.h"
#include "cli/text/find.h"
#include "common/buf.h"
#include "common/mem.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define FIELD_CHARS "abcdefghijklmnopqrstuvwxyz0123456789_.-"
#define TERM_MAX 64
#define MAX_TEXT 65536
#define BY_URL "?tenant=NAME"

static bool is_option(const struct cli *c, const char *name)
{
    struct sh_conf_opt opts[CLI_MAX_OPTS];
    size_t n = cli_options(c->table, c->cmd, opts);

    for (size_t i = 0; i < n; i++)
        if (strcmp(opts[i].name, name) == 0)
            return true;
    return false;
}

/* Is it one of the words for what has no dashes, such as NAME? */
static bool is_cli_argument(const struct cli *c, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = c->cmd->args; (p = strstr(p, word)); p += n)
        if ((p == c->cmd->args || !isalpha((unsigned char)p[-1])) && !isalpha((unsigned char)p[n]))
            return true;
    return false;
}

static bool find_term(const struct cli *c, const char *name, char out[static TERM_MAX])
{
    /* What options call otherwise. */
    static const struct {
        const char *field, *option;
    } OTHER[] = {{"client-token", "token"}, {"inputs", "map"}};
    char word[TERM_MAX];

    sh_strlcpy(word, name, sizeof(word));
    for (char *p = word; *p; p++)
        *p = *p == '_' ? '-' : *p;
    for (size_t i = 0; i < SH_ARRAY_LEN(OTHER) && !is_option(c, word); i++)
        if (strcmp(OTHER[i].field, word) == 0)
            sh_strlcpy(word, OTHER[i].option, sizeof(word));
    if (is_option(c, word)) {
        snprintf(out, TERM_MAX, "--%.60s", word);
        return true;
    }
    for (char *p = word; *p; p++)
        *p = (char)toupper((unsigned char)*p);
    sh_strlcpy(out, word, TERM_MAX);
    return is_cli_argument(c, word);
}

/* Do options fill members of an object of that name? Else a member that is called as an option is
 * another thing: "spec.schedule.name" is not the job's --name. */
static bool has_options(const char *object)
{
    return strcmp(object, "job") == 0 || train_object_has_flags(object);
}

/* The word for the field at a path. An optimizer's name is given as the optimizer. */
static bool term_of(const struct cli *c, const char *path, size_t n, char out[static TERM_MAX])
{
    char text[TERM_MAX], *last, *above;
    const char *option;

    if (n >= sizeof(text))
        return false;
    memcpy(text, path, n);
    text[n] = '\0';
    last = strrchr(text, '.');
    if (!last)
        return find_term(c, text, out);
    *last = '\0';
    above = strrchr(text, '.');
    above = above ? above + 1 : text;
    if (strcmp(last + 1, "name") == 0 && find_term(c, above, out))
        return true;
    option = train_flag(above, last + 1);
    return has_options(above) && find_term(c, option ? option : last + 1, out);
}

int terms_put(const struct cli *c, const char *text, char **out, struct sh_err *err)
{
    struct sh_buf b;
    int rc = SH_OK;

    *out = NULL;
    sh_buf_init(&b, MAX_TEXT);
    for (const char *p = text; !rc && *p;) {
        size_t n = *p == '"' ? strspn(p + 1, FIELD_CHARS) : 0;
        bool is_deep = n && (strncmp(p + 1, "spec.", 5) == 0 || strncmp(p + 1, "job.", 4) == 0);
        char term[TERM_MAX];

        if (n && p[n + 1] == '"' && (p == text || is_deep) && term_of(c, p + 1, n, term)) {
            rc = sh_buf_puts(&b, term, err);
            p += n + 2;
        } else if (strncmp(p, BY_URL, sizeof(BY_URL) - 1) == 0) {
            rc = sh_buf_puts(&b, "--tenant NAME", err);
            p += sizeof(BY_URL) - 1;
        } else {
            rc = sh_buf_append(&b, p++, 1, err);
        }
    }
    if (!rc)
        *out = sh_buf_take(&b);
    sh_buf_fini(&b);
    return rc;
}

static void put_member(const struct cli *c, json_t *obj, const char *name)
{
    const char *text = sh_json_text(obj, name);
    char *better = NULL;

    if (text[0] && terms_put(c, text, &better, NULL) == SH_OK)
        json_object_set_new(obj, name, json_string(better));
    free(better);
}

void terms_translate(const struct cli *c, json_t *problem)
{
    const struct cli_conf *o = c->conf;
    json_t *e;
    size_t i;

    /* A file has fields, and whoever wrote it knows them. */
    if (!c->cmd || (o->spec && o->spec[0]) || (o->file && o->file[0]))
        return;
    put_member(c, problem, "detail");
    put_member(c, problem, "error");
    json_array_foreach(json_object_get(problem, "errors"), i, e)
    {
        put_member(c, e, "detail");
    }
}
