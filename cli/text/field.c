/* field.c - see field.h. */
#include "cli/text/field.h"

#include "common/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

bool cli_is_bytes(const char *name)
{
    size_t n = strlen(name);

    return n >= 5 && strcmp(name + n - 5, "bytes") == 0 && (n == 5 || strchr("_-", name[n - 6]));
}

int cli_value(struct cli *c, const char *name, const char *text, json_t **out, struct sh_err *err)
{
    struct sh_err why = {0};
    int64_t bytes;

    *out = json_loads(text, JSON_DECODE_ANY, NULL);
    if (json_is_number(*out) || json_is_null(*out))
        return SH_OK;
    json_decref(*out);
    *out = NULL;
    if (!cli_is_bytes(name))
        return SH_OK;
    if (sh_parse_bytes(text, 0, INT64_MAX, name, &bytes, &why))
        return cli_usage(c, err, "%s", why.msg);
    *out = json_integer(bytes);
    return *out ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a number");
}

int cli_set_number(struct cli *c, json_t *obj, const char *name, const char *text, bool is_int,
                   struct sh_err *err)
{
    char option[64];
    int64_t whole = 0;
    double v = 0;

    if (!text || !text[0])
        return SH_OK;
    sh_strlcpy(option, name, sizeof(option));
    for (char *p = option; *p; p++)
        *p = *p == '_' ? '-' : *p;
    if (is_int ? sh_parse_i64(text, INT64_MIN, INT64_MAX, "", &whole, NULL)
               : sh_parse_f64(text, -1e300, 1e300, "", &v, NULL))
        return cli_usage(c, err, "--%s wants a %snumber, not \"%.40s\"", option,
                         is_int ? "whole " : "", text);
    if (json_object_set_new(obj, name, is_int ? json_integer(whole) : json_real(v)))
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a request");
    return SH_OK;
}
