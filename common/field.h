/* field.h - a table of fields: their names, what they may be, and their defaults.
 *
 * The table serves everyone who reads such fields, describes them as JSON Schema, offers them as
 * options or prints their help. It may hold the fields of several objects: `part` names the object.
 * If an object's "name" chooses one of several kinds, a field may belong to some of them only: `of`
 * says which. */
#ifndef SH_COMMON_FIELD_H
#define SH_COMMON_FIELD_H

#include "common/json.h"

#include <stddef.h>
#include <stdio.h>

struct sh_field {
    const char *name;
    enum sh_json_type type;
    double min, max;   /* of numbers, and lengths of strings and lists; both 0: no limit */
    const char *value; /* the default: a number, true or false, a string without quotes. "null": the
                        * field may be null, and is by default. NULL: none. For a required field: a
                        * suggestion for whoever has to give one */
    const char *text;  /* for people */
    unsigned part;
    unsigned of;       /* bits: the names (kinds) of the object that have it; 0: all */
    const char *words; /* of a string: "sgd,adam"; NULL: any */
    bool required;     /* with `of`: for those names */
    bool above;        /* a number: must exceed min */
    bool in_bytes;     /* a string: its length counts bytes */
    size_t offset;     /* where sh_fields_take() puts it; type as in struct sh_json_field */
};

/* A macro's number as a value. */
#define SH_FIELD_VALUE(n) SH_FIELD_VALUE_(n)
#define SH_FIELD_VALUE_(n) #n

/* The fields of one part. */
struct sh_fields {
    const struct sh_field *list;
    size_t n; /* length of list, all parts together */
    unsigned part;
};

/* Reads the whole object, with defaults for the fields that obj lacks. Numbers only. *out: OWNED,
 * json_decref(). Fails as sh_json_read(). */
int sh_fields_read(const json_t *obj, const char *what, const struct sh_field *f, size_t n,
                   json_t **out, struct sh_err *err);
/* Writes the defaults into a struct. Leaves objects, lists and ANY fields alone. */
void sh_fields_preset(const struct sh_fields *f, void *base);
/* Reads the fields that obj has into the same struct. Fails as sh_json_read(), and for a number
 * that has to exceed its minimum and does not. Does not check `words`: see sh_field_word(). */
int sh_fields_take(const json_t *obj, const char *what, const struct sh_fields *f, void *base,
                   struct sh_err *err);
/* obj has fields that do not belong to its name, which is number `chosen`: records a failure for
 * each. */
int sh_fields_refuse(const json_t *obj, const char *what, const struct sh_fields *f,
                     const char *name, unsigned chosen, struct sh_err *err);
/* *out: the index of `word` in "a,b,c". Fails: SH_E_INVALID about the field at `path`. */
int sh_field_word(const char *path, const char *word, const char *words, unsigned *out,
                  struct sh_err *err);
size_t sh_words_count(const char *words);
bool sh_words_have(const char *words, const char *word);
/* Word i of "a,b,c"; NULL: there are fewer. *len: its length. BORROWED. */
const char *sh_words_at(const char *words, size_t i, size_t *len);

/* JSON Schema of one field. OWNED; NULL: no memory. */
json_t *sh_field_schema(const struct sh_field *f);
/* Prints a Markdown table: field, default, range, text. names: the names that `of` counts,
 * "sgd,adam"; NULL: none. */
void sh_fields_print_docs(const struct sh_fields *f, const char *names, FILE *out);

#endif
