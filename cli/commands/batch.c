/* batch.c - the spec of a batch inference job, from options. */
#include "cli/cli.h"
#include "cli/commands/spec.h"
#include "cli/text/field.h"
#include "common/mem.h"

#include <stdlib.h>

int batch_refuse(struct cli *c, struct sh_err *err)
{
    const bool map = c->conf->map && c->conf->map[0], keep = c->conf->keep && c->conf->keep[0];

    return map || keep ? cli_usage(c, err, "--%s belongs to --kind batch-inference%s",
                                   map ? "map" : "outputs",
                                   map ? "; training takes the tensors of the inputs' names" : "")
                       : SH_OK;
}

/* Calls add() for each piece between commas. */
static int each_piece(struct cli *c, const char *list, json_t *to,
                      int (*add)(struct cli *c, char *piece, json_t *to, struct sh_err *err),
                      struct sh_err *err)
{
    char *text = NULL, *rest;
    int rc =
        to ? sh_strdup(list, &text, err) : SH_FAIL(err, SH_E_NOMEM, "could not allocate a job");

    rest = text;
    for (char *p; !rc && (p = strsep(&rest, ","));)
        rc = add(c, p, to, err);
    free(text);
    return rc;
}

static int add_input_pair(struct cli *c, char *piece, json_t *to, struct sh_err *err)
{
    char *eq = strchr(piece, '=');

    if (!eq || eq == piece || !eq[1])
        return cli_usage(c, err, "--map wants INPUT=TENSOR,..., not \"%.80s\"", piece);
    *eq = '\0';
    return json_object_set_new(to, piece, json_string(eq + 1))
               ? SH_FAIL(err, SH_E_INVALID, "--map must be UTF-8 text")
               : SH_OK;
}

static int add_output_name(struct cli *c, char *piece, json_t *to, struct sh_err *err)
{
    if (!piece[0])
        return cli_usage(c, err, "--outputs wants NAME,...");
    return json_array_append_new(to, json_string(piece))
               ? SH_FAIL(err, SH_E_INVALID, "--outputs must be UTF-8 text")
               : SH_OK;
}

int batch_fill_spec(struct cli *c, json_t *spec, struct sh_err *err)
{
    json_t *map = c->conf->map && c->conf->map[0] ? json_object() : NULL;
    json_t *keep = c->conf->keep && c->conf->keep[0] ? json_array() : NULL;
    int rc = SH_OK;

    if (map)
        rc = each_piece(c, c->conf->map, map, add_input_pair, err);
    if (!rc && keep)
        rc = each_piece(c, c->conf->keep, keep, add_output_name, err);
    if (!rc && ((map && json_object_set(spec, "inputs", map)) ||
                (keep && json_object_set(spec, "outputs", keep))))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a job");
    json_decref(map);
    json_decref(keep);
    return rc;
}
