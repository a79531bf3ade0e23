/* json.h - reads untrusted objects with jansson: every field has a name, type and range; unknown
 * fields are refused.
 *
 *   struct sh_json_field f[] = {
 *       {"name", SH_JSON_STR, &name, .required = true, .max = 64},
 *       {"lr", SH_JSON_F64, &lr, .min = 0, .max = 10},
 *   };
 *   rc = sh_json_read(obj, "job", f, SH_ARRAY_LEN(f), err);
 *
 * Absent optional fields leave the target untouched: set the default first. A JSON null counts as
 * absent. Messages name the path: `"optimizer.lr" must be a number from 0 to 10`.
 */
#ifndef SH_COMMON_JSON_H
#define SH_COMMON_JSON_H

#include "common/err.h"

#include <jansson.h>
#include <stdbool.h>

enum sh_json_type {
    SH_JSON_STR,  /* const char **: BORROWED from the object; min/max = length in characters */
    SH_JSON_INT,  /* int64_t * (2.0 counts too) */
    SH_JSON_F64,  /* double * (integers count too) */
    SH_JSON_BOOL, /* bool * */
    SH_JSON_OBJ,  /* json_t **: BORROWED */
    SH_JSON_ARR,  /* json_t **: BORROWED; min/max = length */
    SH_JSON_ANY,  /* json_t **: BORROWED */
};

struct sh_json_field {
    const char *name;
    enum sh_json_type type;
    void *out;
    bool required;
    double min, max; /* both 0: no limit (strings: 4096) */
    bool in_bytes;   /* length in bytes: for a string that is copied into an array */
    const char
        *word; /* SH_JSON_INT: a word in place of the number, stored as SH_JSON_WORD; NULL: none */
};

#define SH_JSON_WORD INT64_MIN
#define SH_JSON_MAX_FIELDS 64 /* of one object */

/* All faults of a document, for err->faults, so that a client can fix them in one go. */
struct sh_faults {
    const char *below; /* JSON pointer to the part being read; NULL: the whole document */
    json_t *list;      /* OWNED: [{"pointer","detail"}], at most SH_FAULTS_MAX; NULL: none */
};
#define SH_FAULTS_MAX 16
bool sh_json_is_given(const json_t *j, const char *name); /* there, and not null */
/* Records an SH_E_INVALID failure, and a fault, about the field at this path ("spec.lr"). */
int sh_json_fail(struct sh_err *err, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Continues after a fault, so that all of them are recorded; correct fields are stored anyway. */
int sh_json_read(const json_t *obj, const char *what, const struct sh_json_field *f, size_t n,
                 struct sh_err *err);
/* Parses text (not NUL-terminated); refuses duplicates, depth above 64, text above max_bytes.
 * *out: OWNED, json_decref(). Fails: SH_E_INVALID with line and column, SH_E_TOOBIG. */
int sh_json_parse(const char *text, size_t len, size_t max_bytes, json_t **out, struct sh_err *err);
/* What the database wrote, of any type. OWNED; NULL: no memory. */
json_t *sh_json_row(const char *text);
/* Length of the object or list at the start of a text, found by its brackets; 0: incomplete. */
size_t sh_json_first(const char *text, size_t len);
/* Compact, sorted. *out: OWNED, free(). */
int sh_json_dump(const json_t *j, char **out, struct sh_err *err);
/* Compact, in no order: for whoever parses it again. *out: OWNED, free(). */
int sh_json_dump_unsorted(const json_t *j, char **out, struct sh_err *err);
/* An integer if v is a whole number that both types can hold. OWNED; NULL: no memory. */
json_t *sh_json_number(double v);
/* A string member; "" if there is none. BORROWED. */
const char *sh_json_text(const json_t *obj, const char *name);
/* Reads a refusal {"code":"NOTFOUND","error":"..."}. Returns its code, or `otherwise` if it names
 * none. *text: BORROWED; NULL: none. */
int sh_json_refusal(const json_t *obj, int otherwise, const char **text);
/* name: names the file in messages. The caller closes fd. */
int sh_json_load_fd(int fd, const char *name, size_t max_bytes, json_t **out, struct sh_err *err);
int sh_json_load_file(const char *path, size_t max_bytes, json_t **out, struct sh_err *err);

#endif
