/* field.h - a table of fields: what one is called, what it may be, what it is without being set.
 *
 * Whoever reads such fields, describes them, or prints their help takes it from the table. Numbers
 * alone, so far. */
#ifndef SH_COMMON_FIELD_H
#define SH_COMMON_FIELD_H

#include "common/json.h"

struct sh_field {
    const char *name;
    enum sh_json_type type; /* SH_JSON_INT or SH_JSON_F64 */
    double min, max;
    const char *value; /* JSON: where none is set. "null": it may be null, and is */
    const char *text;  /* for people */
};

/* The whole object, with values for the fields that obj does not have. *out: OWNED, json_decref().
 * Fails as sh_json_read(). */
int sh_fields_read(const json_t *obj, const char *what, const struct sh_field *f, size_t n,
                   json_t **out, struct sh_err *err);
/* The "properties" of their JSON Schema. OWNED; NULL: no memory. */
json_t *sh_fields_schema(const struct sh_field *f, size_t n);

#endif
