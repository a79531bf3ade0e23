/* json.h - reading objects from outside with jansson: every field named, typed and ranged; unknown
 * fields refused.
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
    SH_JSON_INT,  /* int64_t * (also written 2.0) */
    SH_JSON_F64,  /* double * (integers too) */
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
    double min, max; /* both 0: no limit (strings: at most 4096) */
    bool in_bytes;   /* a string's length: for one that is copied into an array */
    const char
        *word; /* SH_JSON_INT: may stand for the number, stored as SH_JSON_WORD; NULL: none */
};

#define SH_JSON_WORD INT64_MIN

/* All that is wrong in a document, for err->faults: so that a client mends it in one go. */
struct sh_faults {
    const char *below; /* JSON pointer of what is read in the document; NULL: the whole of it */
    json_t *list;      /* OWNED: [{"pointer","detail"}], at most SH_FAULTS_MAX; NULL: none */
};
#define SH_FAULTS_MAX 16
/* A failure with SH_E_INVALID about the field at this path ("spec.lr"), and a fault. */
int sh_json_fail(struct sh_err *err, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Goes on behind what is wrong, so that all of it is among the faults; fields that are right are
 * stored all the same. */
int sh_json_read(const json_t *obj, const char *what, const struct sh_json_field *f, size_t n,
                 struct sh_err *err);
/* Parses text (not NUL-terminated); refuses duplicates, depth above 64, text above max_bytes.
 * *out: OWNED, json_decref(). Fails: SH_E_INVALID with line and column, SH_E_TOOBIG. */
int sh_json_parse(const char *text, size_t len, size_t max_bytes, json_t **out, struct sh_err *err);
/* Where the object or list ends that a text begins with, by its brackets; 0: it does not. */
size_t sh_json_first(const char *text, size_t len);
/* Compact, sorted. *out: OWNED, free(). */
int sh_json_dump(const json_t *j, char **out, struct sh_err *err);
/* An integer where it is a whole number that both have. OWNED; NULL: no memory. */
json_t *sh_json_number(double v);
/* A member that is a text; "" if it is none. BORROWED. */
const char *sh_json_text(const json_t *obj, const char *name);
/* Why something was refused, {"code":"NOTFOUND","error":"..."}: the code, or `otherwise` where none
 * is named. *text: BORROWED; NULL: it does not say. */
int sh_json_refusal(const json_t *obj, int otherwise, const char **text);
/* name: for messages. The caller closes fd. */
int sh_json_load_fd(int fd, const char *name, size_t max_bytes, json_t **out, struct sh_err *err);
int sh_json_load_file(const char *path, size_t max_bytes, json_t **out, struct sh_err *err);

#endif
