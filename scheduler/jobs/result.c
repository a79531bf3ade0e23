/* result.c - see result.h. */
#include "scheduler/jobs/result.h"

#include "common/hash.h"
#include "common/json.h"
#include "common/mem.h"

#include <string.h>

#define MAX_RESULT_BYTES (1u << 20)

int result_check(const char *text, bool is_version, struct sh_err *err)
{
    const char *key = is_version ? "package_digest" : "digest";
    json_t *all = NULL;
    int rc = sh_json_parse(text, strlen(text), MAX_RESULT_BYTES, &all, err);

    if (!rc && (!sh_sha256_is_name(json_string_value(json_object_get(all, key)), "") ||
                (is_version && !json_is_object(json_object_get(all, "meta")))))
        rc = SH_FAIL(err, SH_E_BUG, "the executor's result names no %s",
                     is_version ? "trained model" : "file");
    json_decref(all);
    return rc;
}

static int dump_member(const json_t *o, const char *name, const char *def, char **out,
                       struct sh_err *err)
{
    const json_t *v = json_object_get(o, name);

    return v ? sh_json_dump(v, out, err) : sh_strdup(def, out, err);
}

/* The package (package_digest, package, onnx_bytes), and what shunt-import said about it (meta). */
static int take_version(struct store_version *v, json_t *all, const char *digest,
                        struct sh_err *err)
{
    static const char *const OURS[] = {"package_digest", "package", "onnx_bytes", "meta"};
    static const char *const NOT_META[] = {"ok", "inputs", "outputs"};
    json_t *meta = json_object_get(all, "meta");
    int rc = sh_asprintf(err, &v->package, "packages/%s", digest);

    v->bytes = json_integer_value(json_object_get(all, "onnx_bytes"));
    if (!rc)
        rc = dump_member(meta, "inputs", "[]", &v->inputs, err);
    if (!rc)
        rc = dump_member(meta, "outputs", "[]", &v->outputs, err);
    for (size_t i = 0; i < SH_ARRAY_LEN(NOT_META); i++)
        json_object_del(meta, NOT_META[i]);
    if (!rc)
        rc = dump_member(all, "meta", "{}", &v->meta, err);
    if (!rc)
        rc = sh_strdup(digest, &v->digest, err);
    for (size_t i = 0; i < SH_ARRAY_LEN(OURS); i++)
        json_object_del(all, OURS[i]);
    return rc;
}

int result_split(struct store_write *w, const char *text, struct sh_err *err)
{
    json_t *all = NULL;
    const char *digest;
    int rc = sh_json_parse(text, strlen(text), MAX_RESULT_BYTES, &all, err);

    digest = rc ? NULL : json_string_value(json_object_get(all, "package_digest"));
    if (digest)
        rc = take_version(&w->version, all, digest, err);
    if (!rc)
        rc = sh_json_dump(all, &w->result, err);
    json_decref(all);
    return rc;
}
