/* otlp_json.c - see otlp_json.h. */
#include "common/otlp_json.h"

#include "common/conf.h"
#include "common/hash.h"
#include "common/json.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ANSWER ((size_t)64 << 10)
#define STATUS_ERROR 2

/* A text that is no UTF-8 (a name that was cut) is left out. */
static void add_text_attribute(json_t *list, const char *key, const char *value)
{
    json_t *text = value[0] ? json_string(value) : NULL;

    if (text)
        json_array_append_new(
            list, json_pack("{s:s, s:{s:o}}", "key", key, "value", "stringValue", text));
}

static void add_number_attribute(json_t *list, const char *key, uint64_t value)
{
    char text[24];

    if (!value)
        return;
    snprintf(text, sizeof(text), "%" PRIu64, value);
    json_array_append_new(list, json_pack("{s:s, s:{s:s}}", "key", key, "value", "intValue", text));
}

static json_t *make_attributes(const struct otlp_span *s)
{
    json_t *list = json_array();
    char run[24];

    snprintf(run, sizeof(run), "%" PRIu64, s->run); /* beyond what a signed number holds */
    add_text_attribute(list, "shunt.request_id", s->request);
    add_text_attribute(list, strcmp(s->name, "refused") == 0 ? "shunt.rule" : "shunt.model",
                       s->what);
    add_text_attribute(list, "shunt.run", s->run ? run : "");
    add_number_attribute(list, "shunt.bytes", s->bytes);
    if (s->rc)
        add_text_attribute(list, "error.type", sh_rc_name(s->rc));
    return list;
}

static void add_span_id(json_t *j, const char *name, uint64_t id)
{
    char hex[17];

    snprintf(hex, sizeof(hex), "%016" PRIx64, id);
    json_object_set_new(j, name, json_string(hex));
}

static void add_time(json_t *j, const char *name, int64_t ns)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, ns);
    json_object_set_new(j, name, json_string(text));
}

/* A server's span is no error of its own if its client's was the mistake. */
static bool is_failure(const struct otlp_span *s)
{
    return s->rc && !(s->kind == OTLP_SERVER && sh_rc_http(s->rc) < 500);
}

static json_t *make_span(const struct otlp_span *s)
{
    json_t *j = json_object();
    char trace[2 * SH_TRACE_ID_BYTES + 1];

    sh_hex(s->trace, SH_TRACE_ID_BYTES, trace);
    json_object_set_new(j, "traceId", json_string(trace));
    add_span_id(j, "spanId", s->id);
    if (s->parent)
        add_span_id(j, "parentSpanId", s->parent);
    json_object_set_new(j, "name", json_string(s->name));
    json_object_set_new(j, "kind", json_integer(s->kind));
    add_time(j, "startTimeUnixNano", s->begin_ns);
    add_time(j, "endTimeUnixNano", s->end_ns);
    json_object_set_new(j, "attributes", make_attributes(s));
    if (is_failure(s))
        json_object_set_new(
            j, "status",
            json_pack("{s:i, s:s}", "code", STATUS_ERROR, "message", sh_rc_text(s->rc)));
    return j;
}

static json_t *make_resource(const struct otlp_resource *r)
{
    json_t *list = json_array();

    add_text_attribute(list, "service.name", r->service);
    add_text_attribute(list, "service.instance.id", r->instance);
    add_text_attribute(list, "service.version", sh_conf_version());
    return json_pack("{s:o}", "attributes", list);
}

int otlp_print(const struct otlp_resource *r, const struct otlp_span *ring, size_t size,
               size_t first, size_t n, struct sh_buf *out, struct sh_err *err)
{
    json_t *spans = json_array(), *j;
    char *text = NULL;
    int rc;

    for (size_t i = 0; i < n; i++)
        json_array_append_new(spans, make_span(&ring[(first + i) % size]));
    j = json_pack("{s:[{s:o, s:[{s:{s:s, s:s}, s:o}]}]}", "resourceSpans", "resource",
                  make_resource(r), "scopeSpans", "scope", "name", "shunt", "version",
                  sh_conf_version(), "spans", spans);
    if (!j || json_array_size(spans) != n)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not describe spans");
    else
        rc = sh_json_dump_unsorted(j, &text, err);
    if (!rc)
        rc = sh_buf_puts(out, text, err);
    free(text);
    json_decref(j);
    return rc;
}

uint64_t otlp_rejected(const char *body, size_t len, char *why, size_t size)
{
    const json_t *part, *n;
    const char *text;
    int64_t rejected = 0;
    json_t *j = NULL;

    why[0] = '\0';
    if (sh_json_parse(body, len, MAX_ANSWER, &j, NULL))
        return 0;
    part = json_object_get(j, "partialSuccess");
    n = json_object_get(part, "rejectedSpans"); /* of 64 bits: text, or what fits a number */
    if (json_is_string(n))
        sh_parse_i64(json_string_value(n), 0, INT64_MAX, "rejectedSpans", &rejected, NULL);
    else if (json_is_integer(n))
        rejected = json_integer_value(n);
    text = json_string_value(json_object_get(part, "errorMessage"));
    if (text)
        sh_strlcpy(why, text, size);
    json_decref(j);
    return rejected > 0 ? (uint64_t)rejected : 0;
}
