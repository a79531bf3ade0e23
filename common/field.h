/* field.h - a table of fields: what one is called, what it may be, what it is without being set.
 *
 * Whoever reads such fields, describes them as JSON Schema, takes them as options or prints their
 * help takes it from the table. A table may hold the fields of several objects: `part` says which
 * object a field is of. An object whose "name" is one of several things may have fields that only
 * some of these have: `of` says which. */
#ifndef SH_COMMON_FIELD_H
#define SH_COMMON_FIELD_H

#include "common/json.h"

#include <stddef.h>
#include <stdio.h>

struct sh_field {
    const char *name;
    enum sh_json_type type;
    double min, max;   /* of numbers, lengths of texts and lists; both 0: no limit */
    const char *value; /* where none is set: a number, true or false, a text without quotes. "null":
                        * it may be null, and is. NULL: nothing. Of a required field: a choice for
                        * who has to give one */
    const char *text;  /* for people */
    unsigned part;
    unsigned of;       /* bits: which names its object has it for; 0: all of them */
    const char *words; /* of a text: "sgd,adam"; NULL: any */
    bool required;     /* with `of`: by those names */
    bool above;        /* a number: above min, not min itself */
    bool in_bytes;     /* a text: its length is in bytes */
    size_t offset;     /* where sh_fields_take() puts it, typed as struct sh_json_field says */
};

/* A number that is a macro, as a value. */
#define SH_FIELD_VALUE(n) SH_FIELD_VALUE_(n)
#define SH_FIELD_VALUE_(n) #n

/* The fields of one part. */
struct sh_fields {
    const struct sh_field *list;
    size_t n; /* of list: of all parts */
    unsigned part;
};

/* The whole object, with values for the fields that obj does not have. *out: OWNED, json_decref().
 * Numbers alone. Fails as sh_json_read(). */
int sh_fields_read(const json_t *obj, const char *what, const struct sh_field *f, size_t n,
                   json_t **out, struct sh_err *err);
/* The values where none is set, into a struct. Objects, lists and what may be anything stay. */
void sh_fields_preset(const struct sh_fields *f, void *base);
/* Fields that obj has, into the same struct. Fails as sh_json_read(), and for a number that is not
 * above what it has to be above. Texts that are not among `words` are the caller's affair:
 * sh_field_word(). */
int sh_fields_take(const json_t *obj, const char *what, const struct sh_fields *f, void *base,
                   struct sh_err *err);
/* obj has been given a field that does not belong to its name, which is number `chosen`: a failure
 * for each. */
int sh_fields_refuse(const json_t *obj, const char *what, const struct sh_fields *f,
                     const char *name, unsigned chosen, struct sh_err *err);
/* *out: which of the words "a,b,c" it is, from 0. Fails: SH_E_INVALID about the field at `path`. */
int sh_field_word(const char *path, const char *word, const char *words, unsigned *out,
                  struct sh_err *err);
size_t sh_words_count(const char *words);
bool sh_words_have(const char *words, const char *word);
/* Number i of "a,b,c"; NULL: there are fewer. *len: its length. BORROWED. */
const char *sh_words_at(const char *words, size_t i, size_t *len);

/* JSON Schema of one field. OWNED; NULL: no memory. */
json_t *sh_field_schema(const struct sh_field *f);
/* The "properties" of their JSON Schema. OWNED; NULL: no memory. */
json_t *sh_fields_schema(const struct sh_field *f, size_t n);
/* A table in Markdown: field, value, range, text. names: what `of` counts, "sgd,adam"; NULL: there
 * are none. */
void sh_fields_print_docs(const struct sh_fields *f, const char *names, FILE *out);

#endif
