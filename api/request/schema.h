/* schema.h - JSON Schema as tables in C. Pure.
 *
 *     static const struct schema QUEUE = S_OBJECT(MEMBERS({"name", S_LOWER_NAME()},
 *                                                         {"jobs", S_INT(.null = true)}));
 *
 * The macros S_...() are initialisers; the arguments after the required ones are further members of
 * struct schema. */
#ifndef SH_API_REQUEST_SCHEMA_H
#define SH_API_REQUEST_SCHEMA_H

#include "common/field.h"

#include <math.h>

enum { /* sets of types */
       SCHEMA_STRING = 1,
       SCHEMA_INTEGER = 2,
       SCHEMA_NUMBER = 4,
       SCHEMA_BOOLEAN = 8,
       SCHEMA_OBJECT = 16,
       SCHEMA_ARRAY = 32
};

struct schema {
    unsigned type;    /* a set of types; 0: any */
    const char *text; /* for people */
    double min, max;  /* of a number, a length or a count; both 0: no limit */
    bool above;       /* a number: must exceed min */
    bool by_length;   /* several types including text: min and max limit its length */
    bool null;        /* or null */
    bool rare;        /* a member that may be absent, where all others are present */
    bool stays;       /* in a body: null does not mean absent */
    /* for a text; words: "a,b"; only: the one allowed value */
    const char *pattern, *format, *words, *only;
    const char *value;          /* JSON: the default */
    const char *ref;            /* use the schema with this name instead */
    const struct schema *items; /* elements of an array */
    bool unique;                /* they must be unique */

    /* an object */
    const struct sh_fields *fields;         /* its members, from a table */
    const struct schema_member *members;    /* further members, or more about the same: merged; ends
    with
                                          * a NULL name */
    const char *needs;                      /* required members, "a,b"; NULL: all */
    bool is_body;                           /* a body that we read: no other members allowed */
    const struct schema *values;            /* schema of members not named here */
    const char *names;                      /* pattern of their names */
    double max_name;                        /* length of their names; 0: no limit */
    const char *one_of, *any_of, *not_both; /* "a,b": constraints on which members are present */

    const struct schema *choices; /* one of these; the last has is_end */
    bool is_end;
    const char *by_name;    /* one of several objects, by "name", "a,b": each has the members of
    `fields`
                          * that belong to its name (struct sh_field: of) */
    json_t *(*build)(void); /* builds it instead; OWNED; NULL: no memory */
};

struct schema_member {
    const char *name;
    struct schema schema;
};

#define SCHEMA_I64 0x1p63 /* as max: INT64_MAX */

#define S_TYPES(types, ...)        \
    {                              \
        .type = types, __VA_ARGS__ \
    }
#define S_ANY()   \
    {             \
        .type = 0 \
    }
#define S_TEXT(...)                        \
    {                                      \
        .type = SCHEMA_STRING, __VA_ARGS__ \
    }
#define S_STR(min_, max_, ...)                                       \
    {                                                                \
        .type = SCHEMA_STRING, .min = min_, .max = max_, __VA_ARGS__ \
    }
#define S_TIME(...)                                               \
    {                                                             \
        .type = SCHEMA_STRING, .format = "date-time", __VA_ARGS__ \
    }
#define S_INT(...)                          \
    {                                       \
        .type = SCHEMA_INTEGER, __VA_ARGS__ \
    }
#define S_NUM(...)                         \
    {                                      \
        .type = SCHEMA_NUMBER, __VA_ARGS__ \
    }
#define S_BOOL(...)                         \
    {                                       \
        .type = SCHEMA_BOOLEAN, __VA_ARGS__ \
    }
#define S_INTS(min_, max_, ...)                                       \
    {                                                                 \
        .type = SCHEMA_INTEGER, .min = min_, .max = max_, __VA_ARGS__ \
    }
#define S_NUMS(min_, max_, ...)                                      \
    {                                                                \
        .type = SCHEMA_NUMBER, .min = min_, .max = max_, __VA_ARGS__ \
    }
#define S_WORDS(words_, ...)         \
    {                                \
        .words = words_, __VA_ARGS__ \
    }
#define S_REF(name_) \
    {                \
        .ref = name_ \
    }
#define S_LIST(item, ...)                                                      \
    {                                                                          \
        .type = SCHEMA_ARRAY, .items = &(const struct schema)item, __VA_ARGS__ \
    }
#define MEMBERS(...)               \
    (const struct schema_member[]) \
    {                              \
        __VA_ARGS__,               \
        {                          \
            NULL                   \
        }                          \
    }
#define S_OBJECT(members_, ...)                                 \
    {                                                           \
        .type = SCHEMA_OBJECT, .members = members_, __VA_ARGS__ \
    }
#define S_BODY(needs_, members_, ...)                                                             \
    {                                                                                             \
        .type = SCHEMA_OBJECT, .is_body = true, .needs = needs_, .members = members_, __VA_ARGS__ \
    }
#define S_MAP(value_, ...)                                                                      \
    {                                                                                           \
        .type = SCHEMA_OBJECT, .needs = "", .values = &(const struct schema)value_, __VA_ARGS__ \
    }
#define S_CHOICES(...)                 \
    .choices = (const struct schema[]) \
    {                                  \
        __VA_ARGS__,                   \
        {                              \
            .is_end = true             \
        }                              \
    }
#define S_NAME(...)                                                                         \
    {                                                                                       \
        .type = SCHEMA_STRING, .pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$", __VA_ARGS__ \
    }
#define S_LOWER_NAME(...)                                                          \
    {                                                                              \
        .type = SCHEMA_STRING, .pattern = "^[a-z0-9][a-z0-9-]{0,62}$", __VA_ARGS__ \
    }

/* A JSON text, verbatim. */
#define S_JSON(...) #__VA_ARGS__

/* OWNED, json_decref(); NULL: no memory, or a value that is not JSON. */
json_t *schema_build(const struct schema *s);

#endif
