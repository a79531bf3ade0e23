/* param_kinds.c - see param_kinds.h. */
#include "runtime/model/param_kinds.h"

#include <stdlib.h>
#include <string.h>

/* The name behind the key of one line, ended there; NULL: the line has no such key. */
static char *take_name(char *line, const char *key)
{
    char *from = strstr(line, key), *end;

    from = from ? from + strlen(key) : NULL;
    end = from ? strchr(from, '\'') : NULL;
    if (!end)
        return NULL;
    *end = '\0';
    return from;
}

static int read_kind_line(struct param_kinds *k, char *line, struct sh_err *err)
{
    enum graph_said is = GRAPH_SAID_PARAM;
    char *name = take_name(line, ": PARAMETER target='");

    if (!name) {
        is = GRAPH_SAID_BUFFER;
        name = take_name(line, ": BUFFER target='");
    }
    if (!name || !name[0] || names_get(&k->names, name) != NAMES_NONE)
        return SH_OK;
    return names_put(&k->names, name, is, err);
}

int param_kinds_read(struct param_kinds *k, char *text, struct sh_err *err)
{
    char *rest = NULL;
    int rc;

    *k = (struct param_kinds){.text = text};
    rc = names_init(&k->names, err);
    for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line && rc == SH_OK;
         line = strtok_r(NULL, "\n", &rest))
        rc = read_kind_line(k, line, err);
    return rc;
}

void param_kinds_fini(struct param_kinds *k)
{
    names_fini(&k->names);
    free(k->text);
    *k = (struct param_kinds){.text = NULL};
}

bool param_kinds_known(const struct param_kinds *k)
{
    return k->names.n > 0;
}

enum graph_said param_kind(const struct param_kinds *k, const char *name)
{
    const uint32_t is = k->names.n ? names_get(&k->names, name) : NAMES_NONE;

    return is == NAMES_NONE ? GRAPH_SAID_NOTHING : (enum graph_said)is;
}
