/* json.c - jansson with limits, and objects read by a table. */
#include "common/json.h"

#include "common/buf.h"
#include "common/io.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_DEPTH 64
#define MAX_STRING 4096
#define EXACT 9007199254740992.0 /* 2^53: below it a double holds every integer */
#define PATH_BYTES 160

/* "what.name", or "name" where there is no what. */
static void join_path(const char *what, const char *name, char out[static PATH_BYTES])
{
    snprintf(out, PATH_BYTES, "%s%s%s", what ? what : "", what && what[0] ? "." : "", name);
}

static bool has_upper(const struct sh_json_field *f)
{
    return f->max > 0 || f->min < 0 || f->max < 0;
}

/* What the field must be, for a message: "a number from 0 to 10". */
static void describe_field(const struct sh_json_field *f, char out[static 96])
{
    static const char *const NOUN[] = {
        [SH_JSON_STR] = "a string",  [SH_JSON_INT] = "a whole number",
        [SH_JSON_F64] = "a number",  [SH_JSON_BOOL] = "true or false",
        [SH_JSON_OBJ] = "an object", [SH_JSON_ARR] = "an array",
        [SH_JSON_ANY] = "a value",
    };
    double max = f->type == SH_JSON_STR && f->max <= 0 ? MAX_STRING : f->max;
    int n = snprintf(out, 96, "%s", NOUN[f->type]);
    char *rest = out + n, a[SH_NUMBER_TEXT], b[SH_NUMBER_TEXT];
    size_t room = 96 - (size_t)n;

    if (f->type == SH_JSON_STR)
        snprintf(rest, room, " of %.0f to %.0f %s", f->min, max,
                 f->in_bytes ? "bytes" : "characters");
    else if (f->type == SH_JSON_ARR && has_upper(f))
        snprintf(rest, room, " of %.0f to %.0f elements", f->min, max);
    else if (f->type == SH_JSON_ARR && f->min > 0)
        snprintf(rest, room, " of at least %.0f elements", f->min);
    else if ((f->type == SH_JSON_INT || f->type == SH_JSON_F64) && has_upper(f))
        snprintf(rest, room, " from %s to %s", sh_number_text(f->min, a), sh_number_text(max, b));
    else if ((f->type == SH_JSON_INT || f->type == SH_JSON_F64) && f->min > 0)
        snprintf(rest, room, " of at least %s", sh_number_text(f->min, a));
    if (f->word) {
        size_t len = strlen(out);

        snprintf(out + len, 96 - len, ", or \"%s\"", f->word);
    }
}

static bool in_range(const struct sh_json_field *f, double v)
{
    if (f->min == 0 && f->max == 0)
        return true;
    return v >= f->min && (!has_upper(f) || v <= f->max);
}

/* In characters, as JSON Schema counts. */
static double length_of(const struct sh_json_field *f, const json_t *v)
{
    return (double)(f->in_bytes ? json_string_length(v) : sh_utf8_count(json_string_value(v)));
}

/* 2.0 is a whole number too. */
static bool whole_number(const json_t *v, int64_t *out)
{
    double real = json_real_value(v);

    *out = json_is_integer(v) ? json_integer_value(v) : 0;
    if (!json_is_real(v) || fabs(real) > EXACT || real != trunc(real))
        return json_is_integer(v);
    *out = (int64_t)real;
    return true;
}

/* Stores the value; false if it is not what the field must be. */
static bool store_field(const struct sh_json_field *f, json_t *v)
{
    struct sh_json_field len = *f;
    int64_t n;

    switch (f->type) {
    case SH_JSON_STR:
        len.max = f->max > 0 ? f->max : MAX_STRING;
        if (!json_is_string(v) || !in_range(&len, length_of(f, v)))
            return false;
        *(const char **)f->out = json_string_value(v);
        return true;
    case SH_JSON_INT:
        if (f->word && json_is_string(v) && strcmp(json_string_value(v), f->word) == 0) {
            *(int64_t *)f->out = SH_JSON_WORD;
            return true;
        }
        if (!whole_number(v, &n) || !in_range(f, (double)n))
            return false;
        *(int64_t *)f->out = n;
        return true;
    case SH_JSON_F64:
        if (!json_is_number(v) || !in_range(f, json_number_value(v)))
            return false;
        *(double *)f->out = json_number_value(v);
        return true;
    case SH_JSON_BOOL:
        if (!json_is_boolean(v))
            return false;
        *(bool *)f->out = json_is_true(v);
        return true;
    case SH_JSON_OBJ:
        if (!json_is_object(v))
            return false;
        *(json_t **)f->out = v;
        return true;
    case SH_JSON_ARR:
        if (!json_is_array(v) || !in_range(f, (double)json_array_size(v)))
            return false;
        *(json_t **)f->out = v;
        return true;
    case SH_JSON_ANY:
        *(json_t **)f->out = v;
        return true;
    }
    return false;
}

static int append_escaped(struct sh_buf *b, const char *s, bool dots_divide)
{
    int rc = SH_OK;

    for (; !rc && *s; s++) {
        const char one[2] = {*s, '\0'};

        rc = sh_buf_puts(b,
                         *s == '~'                  ? "~0"
                         : *s == '/'                ? "~1"
                         : *s == '.' && dots_divide ? "/"
                                                    : one,
                         NULL);
    }
    return rc;
}

/* RFC 6901 of the field `name` (NULL: none) of what is at the path `what`, in which dots divide.
 * OWNED; NULL without memory. */
static json_t *pointer_to(const char *below, const char *what, const char *name)
{
    struct sh_buf b;
    json_t *j = NULL;
    int rc;

    sh_buf_init(&b, 1u << 20);
    rc = sh_buf_puts(&b, below ? below : "", NULL);
    if (!rc && what && what[0])
        rc = sh_buf_puts(&b, "/", NULL);
    if (!rc && what)
        rc = append_escaped(&b, what, true);
    if (!rc && name)
        rc = sh_buf_puts(&b, "/", NULL);
    if (!rc && name)
        rc = append_escaped(&b, name, false);
    if (!rc)
        j = json_string(b.data);
    sh_buf_fini(&b);
    return j;
}

static int fail_at(struct sh_err *err, const char *what, const char *name, const char *text)
{
    struct sh_err clean = {0}; /* makes UTF-8 of what a stranger sent */
    struct sh_faults *f = err ? err->faults : NULL;

    SH_FAIL(&clean, SH_E_INVALID, "%s", text);
    if (f && !f->list)
        f->list = json_array();
    if (f && json_array_size(f->list) < SH_FAULTS_MAX)
        json_array_append_new(f->list,
                              json_pack("{s:o*, s:s}", "pointer", pointer_to(f->below, what, name),
                                        "detail", clean.msg));
    return SH_FAIL(err, SH_E_INVALID, "%s", clean.msg);
}

bool sh_json_is_given(const json_t *j, const char *name)
{
    const json_t *v = json_object_get(j, name);

    return v && !json_is_null(v);
}

int sh_json_fail(struct sh_err *err, const char *path, const char *fmt, ...)
{
    char text[sizeof(err->msg)];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return fail_at(err, path, NULL, text);
}

/* "a, b, c", as many as there is room for. */
static void names_of_fields(const struct sh_json_field *f, size_t n, char out[static 256])
{
    size_t used = 0;

    sh_strlcpy(out, n ? "" : "none", 256);
    for (size_t i = 0; i < n && used < 256; i++)
        used += (size_t)snprintf(out + used, 256 - used, "%s%s", i ? ", " : "", f[i].name);
}

static int fail_unknown(const char *what, const char *key, const struct sh_json_field *f, size_t n,
                        struct sh_err *err)
{
    char known[256], path[PATH_BYTES], text[sizeof(err->msg)];

    names_of_fields(f, n, known);
    join_path(what, key, path);
    snprintf(text, sizeof(text), "\"%s\" is not a known field; known here: %s", path, known);
    return fail_at(err, what, key, text);
}

/* given[i]: BORROWED, what obj has for f[i], if it is not null. Looking each member up among the
 * fields takes less than the other way round: most fields are absent from most objects. */
static int find_given(const json_t *obj, const char *what, const struct sh_json_field *f, size_t n,
                      json_t **given, struct sh_err *err)
{
    const char *key;
    json_t *value;
    int rc = SH_OK;

    /* jansson's iteration takes a non-const object and does not change it */
    json_object_foreach((json_t *)obj, key, value)
    {
        size_t i = 0;

        while (i < n && strcmp(f[i].name, key) != 0)
            i++;
        if (i == n)
            rc = fail_unknown(what, key, f, n, err);
        else if (!json_is_null(value))
            given[i] = value;
    }
    return rc;
}

static int fail_field(const char *what, const struct sh_json_field *f, bool is_given,
                      struct sh_err *err)
{
    char path[PATH_BYTES], must[96], text[sizeof(err->msg)];

    join_path(what, f->name, path);
    describe_field(f, must);
    snprintf(text, sizeof(text), is_given ? "\"%s\" must be %s" : "\"%s\" is missing: %s", path,
             must);
    return fail_at(err, what, f->name, text);
}

/* Who reads the object next, SQL too, shall find an integer where there was 2.0. */
static int as_integer(const json_t *obj, const char *name, double value, struct sh_err *err)
{
    return json_object_set_new((json_t *)obj, name, json_integer((json_int_t)value))
               ? SH_FAIL(err, SH_E_NOMEM, "could not allocate a number")
               : SH_OK;
}

int sh_json_read(const json_t *obj, const char *what, const struct sh_json_field *f, size_t n,
                 struct sh_err *err)
{
    json_t *given[SH_JSON_MAX_FIELDS] = {NULL};
    int rc;

    if (!json_is_object(obj))
        return SH_FAIL(err, SH_E_INVALID, "\"%s\" must be an object",
                       what && what[0] ? what : "the document");
    if (n > SH_JSON_MAX_FIELDS)
        return SH_FAIL(err, SH_E_BUG, "%zu fields are more than %d", n, SH_JSON_MAX_FIELDS);
    rc = find_given(obj, what, f, n, given, err);
    for (size_t i = 0; i < n; i++) {
        json_t *v = given[i];

        if (!v && !f[i].required)
            continue;
        if (!v || !store_field(&f[i], v))
            rc = fail_field(what, &f[i], v, err);
        else if (f[i].type == SH_JSON_INT && json_is_real(v) &&
                 as_integer(obj, f[i].name, json_real_value(v), err))
            return SH_E_NOMEM;
    }
    return rc;
}

/* jansson's own limit (2048 levels) is a compile-time constant; ours is checked before parsing.
 * Only as far as the first value goes: what follows is not parsed. Returns its end; 0: none. */
static size_t first_end(const char *text, size_t len, bool *too_deep_out)
{
    int depth = 0;
    bool in_string = false;

    *too_deep_out = false;
    for (size_t i = 0; i < len && !*too_deep_out; i++) {
        char c = text[i];

        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '{' || c == '['))
            *too_deep_out = ++depth > MAX_DEPTH;
        else if (!in_string && (c == '}' || c == ']') && --depth <= 0)
            return i + 1;
    }
    return 0;
}

size_t sh_json_first(const char *text, size_t len)
{
    bool too_deep;

    return first_end(text, len, &too_deep);
}

/* What is whole and no more than an integer holds exactly is an integer again. v: TAKES. */
static json_t *whole_again(json_t *v)
{
    const double x = json_real_value(v);
    const char *key;
    json_t *each, *made;
    void *next;
    size_t i;

    if (json_is_real(v) && x == floor(x) && fabs(x) <= 0x1p53) {
        made = json_integer((json_int_t)x);
        json_decref(v);
        return made;
    }
    json_array_foreach(v, i, each)
    {
        if (json_array_set_new(v, i, whole_again(json_incref(each))))
            goto failed;
    }
    json_object_foreach_safe(v, next, key, each)
    {
        if (json_object_set_new(v, key, whole_again(json_incref(each))))
            goto failed;
    }
    return v;
failed:
    json_decref(v);
    return NULL;
}

/* PostgreSQL writes 1e30 as a whole number of 31 digits, more than an integer holds. */
static json_t *load_text(const char *text, size_t len, size_t flags, json_error_t *e)
{
    json_t *j = json_loadb(text, len, flags, e);

    if (j || json_error_code(e) != json_error_numeric_overflow)
        return j;
    j = json_loadb(text, len, flags | JSON_DECODE_INT_AS_REAL, e);
    return j ? whole_again(j) : NULL;
}

json_t *sh_json_row(const char *text)
{
    json_error_t e;

    return load_text(text, strlen(text), JSON_DECODE_ANY, &e);
}

int sh_json_parse(const char *text, size_t len, size_t max_bytes, json_t **out, struct sh_err *err)
{
    json_error_t e;
    bool too_deep;

    *out = NULL;
    if (len > max_bytes)
        return SH_FAIL(err, SH_E_TOOBIG, "the JSON text has %zu bytes, at most %zu are allowed",
                       len, max_bytes);
    first_end(text, len, &too_deep);
    if (too_deep)
        return SH_FAIL(err, SH_E_INVALID, "the JSON text is nested deeper than %d levels",
                       MAX_DEPTH);
    *out = load_text(len ? text : "", len, JSON_REJECT_DUPLICATES, &e);
    if (*out)
        return SH_OK;
    /* When an allocation fails jansson mostly records nothing at all (line -1, no text); inside of
     * a string or a key it takes the failure for a wrong token: that cannot be told apart here. */
    if (json_error_code(&e) == json_error_out_of_memory || e.line < 0)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate memory for a JSON text");
    return SH_FAIL(err, SH_E_INVALID, "the JSON text is wrong at line %d, column %d: %s", e.line,
                   e.column, e.text);
}

static int dump_json(const json_t *j, size_t flags, char **out, struct sh_err *err)
{
    *out = json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY | flags);
    if (!*out)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate memory for a JSON text");
    return SH_OK;
}

int sh_json_dump(const json_t *j, char **out, struct sh_err *err)
{
    return dump_json(j, JSON_SORT_KEYS, out, err);
}

int sh_json_dump_unsorted(const json_t *j, char **out, struct sh_err *err)
{
    return dump_json(j, 0, out, err);
}

json_t *sh_json_number(double v)
{
    if (v == 0x1p63) /* what is written for INT64_MAX */
        return json_integer(INT64_MAX);
    return v >= -0x1p53 && v <= 0x1p53 && v == (double)(int64_t)v ? json_integer((int64_t)v)
                                                                  : json_real(v);
}

const char *sh_json_text(const json_t *obj, const char *name)
{
    const char *s = json_string_value(json_object_get(obj, name));

    return s ? s : "";
}

int sh_json_refusal(const json_t *obj, int otherwise, const char **text)
{
    const char *code = json_string_value(json_object_get(obj, "code"));

    *text = json_string_value(json_object_get(obj, "error"));
    return code ? sh_rc_parse(code) : otherwise;
}

int sh_json_load_fd(int fd, const char *name, size_t max_bytes, json_t **out, struct sh_err *err)
{
    char *text = NULL;
    ssize_t got;
    struct stat st;
    int rc;

    *out = NULL;
    if (fstat(fd, &st) != 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not look at the file \"%s\"", name);
    if (!S_ISREG(st.st_mode))
        return SH_FAIL(err, SH_E_INVALID, "\"%s\" is not a regular file", name);
    if ((uint64_t)st.st_size > max_bytes)
        return SH_FAIL(err, SH_E_TOOBIG, "the file \"%s\" has %lld bytes, at most %zu are allowed",
                       name, (long long)st.st_size, max_bytes);
    text = malloc((size_t)st.st_size + 1);
    if (!text)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate memory for the file \"%s\"", name);
    got = sh_read_all(fd, text, (size_t)st.st_size);
    rc = got < 0 ? SH_FAIL_ERRNO(err, SH_E_IO, "could not read a JSON file")
                 : sh_json_parse(text, (size_t)got, max_bytes, out, err);
    free(text);
    return rc;
}

int sh_json_load_file(const char *path, size_t max_bytes, json_t **out, struct sh_err *err)
{
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;

    *out = NULL;
    rc = fd < 0 ? SH_FAIL_ERRNO(err, errno == ENOENT ? SH_E_NOTFOUND : SH_E_IO,
                                "could not open the file \"%s\"", base)
                : sh_json_load_fd(fd, base, max_bytes, out, err);
    if (rc)
        sh_err_detail(err, "file %s", path);
    if (fd >= 0)
        close(fd);
    return rc;
}
