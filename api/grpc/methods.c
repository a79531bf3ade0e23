/* methods.c - see methods.h. */
#include "api/grpc/methods.h"

#include "api/grpc/message.h"
#include "common/mem.h"
#include "inference.pb-c.h"

#include <string.h>

#define SERVICE "/inference.GRPCInferenceService/"
#define MODEL "/v2/models/{name}[/versions/{version}]"
#define SYSTEM "/v2/systemsharedmemory"
#define CUDA "/v2/cudasharedmemory"
#define PAIR(in_, out_) \
    .in = &inference__##in_##__descriptor, .out = &inference__##out_##__descriptor
#define BOTH(name_) PAIR(name_##_request, name_##_response)

const struct grpc_method GRPC_METHODS[] = {
    {.name = "ModelInfer",
     .kind = CALL_INFER,
     .verb = "POST",
     .path = "/v2/models/{model_name}[/versions/{model_version}]/infer",
     BOTH(model_infer)},
    {.name = "ModelStreamInfer",
     .kind = CALL_STREAM,
     .verb = "POST",
     .path = "/v2/models/{model_name}[/versions/{model_version}]/infer",
     PAIR(model_infer_request, model_stream_infer_response)},
    {.name = "ServerLive", .verb = "GET", .path = "/v2/health/live", BOTH(server_live)},
    {.name = "ServerReady", .verb = "GET", .path = "/v2/health/ready", BOTH(server_ready)},
    {.name = "ModelReady",
     .verb = "GET",
     .path = MODEL "/ready",
     BOTH(model_ready),
     .no_is_answer = true},
    {.name = "ServerMetadata", .verb = "GET", .path = "/v2", BOTH(server_metadata)},
    {.name = "ModelMetadata", .verb = "GET", .path = MODEL, BOTH(model_metadata)},
    {.name = "ModelConfig",
     .verb = "GET",
     .path = MODEL "/config",
     BOTH(model_config),
     .member = "config"},
    {.name = "ModelStatistics",
     .verb = "GET",
     .path = "/v2/models[/{name}][/versions/{version}]/stats",
     BOTH(model_statistics)},
    {.name = "RepositoryIndex",
     .verb = "POST",
     .path = "/v2/repository/index",
     BOTH(repository_index),
     .member = "models"},
    {.name = "RepositoryModelLoad",
     .verb = "POST",
     .path = "/v2/repository/models/{model_name}/load",
     BOTH(repository_model_load)},
    {.name = "RepositoryModelUnload",
     .verb = "POST",
     .path = "/v2/repository/models/{model_name}/unload",
     BOTH(repository_model_unload)},
    {.name = "SystemSharedMemoryStatus",
     .verb = "GET",
     .path = SYSTEM "[/region/{name}]/status",
     BOTH(system_shared_memory_status),
     .member = "regions"},
    {.name = "SystemSharedMemoryRegister",
     .verb = "POST",
     .path = SYSTEM "/region/{name}/register",
     BOTH(system_shared_memory_register)},
    {.name = "SystemSharedMemoryUnregister",
     .verb = "POST",
     .path = SYSTEM "[/region/{name}]/unregister",
     BOTH(system_shared_memory_unregister)},
    {.name = "CudaSharedMemoryStatus",
     .verb = "GET",
     .path = CUDA "[/region/{name}]/status",
     BOTH(cuda_shared_memory_status),
     .member = "regions"},
    {.name = "CudaSharedMemoryRegister",
     .verb = "POST",
     .path = CUDA "/region/{name}/register",
     BOTH(cuda_shared_memory_register)},
    {.name = "CudaSharedMemoryUnregister",
     .verb = "POST",
     .path = CUDA "[/region/{name}]/unregister",
     BOTH(cuda_shared_memory_unregister)},
};
const size_t GRPC_N_METHODS = SH_ARRAY_LEN(GRPC_METHODS);

const struct grpc_method *method_find(const char *path)
{
    if (strncmp(path, SERVICE, sizeof(SERVICE) - 1) != 0)
        return NULL;
    for (size_t i = 0; i < GRPC_N_METHODS; i++)
        if (strcmp(path + sizeof(SERVICE) - 1, GRPC_METHODS[i].name) == 0)
            return &GRPC_METHODS[i];
    return NULL;
}

/* The field that p's {field} names; "": empty. */
static const char *uri_field(const char *p, const json_t *j, char name[static 32])
{
    size_t n = strcspn(p, "}");

    memcpy(name, p, n);
    name[n] = '\0';
    return j ? sh_json_text(j, name) : "-";
}

int method_uri(const struct grpc_method *m, json_t *j, struct sh_buf *out, struct sh_err *err)
{
    char name[32];
    int rc = SH_OK;

    for (const char *p = m->path; !rc && *p; p++) {
        const char *open = *p == '[' ? strchr(p, '{') : NULL;

        if (open && !uri_field(open + 1, j, name)[0]) {
            p = strchr(p, ']');
        } else if (*p == '{') {
            const char *value = uri_field(p + 1, j, name);

            if (!value[0])
                return SH_FAIL(err, SH_E_INVALID, "field \"%s\" of the message is empty", name);
            rc = sh_buf_escape(out, value, "-._~", err);
            p = strchr(p, '}');
        } else if (*p != '[' && *p != ']') {
            rc = sh_buf_append(out, p, 1, err);
        }
    }
    for (const char *p = strchr(m->path, '{'); j && p; p = strchr(p + 1, '{')) {
        uri_field(p + 1, j, name);
        json_object_del(j, name);
    }
    return rc;
}

int method_read(const struct grpc_method *m, const void *data, size_t n, json_t **out,
                struct sh_err *err)
{
    ProtobufCMessage *msg = NULL;
    int rc = message_unpack(m->in, data, n, &msg, err);

    *out = NULL;
    if (!rc)
        rc = message_to_json(msg, out, err);
    message_free(msg);
    return rc;
}

int method_write(const struct grpc_method *m, const json_t *j, struct sh_buf *out,
                 struct sh_err *err)
{
    json_t *whole;
    int rc;

    if (!j)
        return SH_OK;
    if (!m->member)
        return message_from_json(m->out, j, out, err);
    whole = json_pack("{s:O}", m->member, j);
    rc = whole ? message_from_json(m->out, whole, out, err)
               : SH_FAIL(err, SH_E_NOMEM, "could not allocate a message");
    json_decref(whole);
    return rc;
}
