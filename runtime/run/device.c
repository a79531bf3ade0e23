/* device.c - shunt-run device: can a device be used here, and how fast does it copy? Prints JSON.
 *
 * The CUDA back end and its libraries are loaded by this process alone, so that whoever asks
 * (`shunt doctor`) needs none of them. A device that cannot be used is a failure with the reason;
 * what may be missing beside it is a field.
 */
#include "common/json.h"
#include "common/mem.h"
#include "runtime/model/sandbox.h"
#include "runtime/run/run.h"

#include <stdio.h>
#include <stdlib.h>

#define COPIED ((size_t)64 << 20) /* the largest copy that is measured */
#define LOCKED ((size_t)256 << 20)

/* Page-locks as much as a model may have; "": it can. */
static void try_lock(struct dev_mem *m, char *why, size_t size)
{
    struct sh_err err = {0};
    void *host = aligned_alloc(DEV_BLOCK, LOCKED);

    why[0] = '\0';
    if (!host)
        sh_strlcpy(why, "could not allocate host memory to page-lock", size);
    else if (dev_mem_host_lock(m, host, LOCKED, &err) != SH_OK)
        sh_strlcpy(why, err.msg, size);
    else
        dev_mem_host_unlock(m, host);
    free(host);
}

static json_t *describe_memory(struct dev_mem *m, double alpha_ns, double beta_ns, const char *why)
{
    return json_pack("{s:s, s:s, s:I, s:f, s:f, s:b, s:s}", "name", dev_mem_device_name(m),
                     "pci_bus_id", dev_mem_pci_bus_id(m), "memory_bytes",
                     (json_int_t)dev_mem_device_bytes(m), "link_gb_per_s", 1 / beta_ns,
                     "link_latency_us", alpha_ns / 1e3, "page_locks", !why[0], "page_lock_error",
                     why);
}

static int ask_memory(const struct dev_lib *lib, const struct run_conf *c, json_t **out,
                      struct sh_err *err)
{
    struct dev_mem_conf conf = {
        .ordinal = (uint32_t)c->ordinal, .pool_bytes = COPIED, .n_lanes = 2};
    struct dev_mem *m = NULL;
    double alpha_ns = 0, beta_ns = 0;
    char why[sizeof(err->msg)];
    int rc = dev_mem_open(lib, &conf, &m, err);

    if (!rc)
        rc = dev_mem_measure(m, 0, &alpha_ns, &beta_ns, err);
    if (!rc) {
        try_lock(m, why, sizeof(why));
        *out = describe_memory(m, alpha_ns, SH_MAX(beta_ns, 1e-6), why);
        if (!*out)
            rc = SH_FAIL(err, SH_E_NOMEM, "could not describe the device");
    }
    dev_mem_close(m);
    return rc;
}

/* Its compute face opens with the libraries that models need. */
static int ask_compute(const struct dev_lib *lib, const struct run_conf *c, json_t *into,
                       struct sh_err *err)
{
    struct dev_conf conf = {.ordinal = (uint32_t)c->ordinal,
                            .threads = (uint32_t)c->threads,
                            .arena_bytes = DEV_BLOCK,
                            .deterministic = c->deterministic};
    struct dev *d = NULL;
    char identity[256];
    int rc = dev_open(lib, &conf, &d, err);

    if (rc)
        return rc;
    dev_identity(d, identity, sizeof(identity));
    json_object_set_new(into, "identity", json_string(identity));
    json_object_set_new(into, "fences_files", json_boolean(sandbox_hides_files()));
    json_object_set_new(into, "fences_calls", json_boolean(sandbox_lists_calls()));
    dev_close(d);
    return SH_OK;
}

int device_run(const struct run_conf *c, struct sh_err *err)
{
    struct dev_lib *lib = NULL;
    json_t *j = NULL;
    char *text = NULL;
    int rc = dev_lib_open(c->device, &lib, err);

    if (!rc)
        rc = ask_memory(lib, c, &j, err);
    if (!rc)
        rc = ask_compute(lib, c, j, err);
    if (!rc)
        rc = sh_json_dump(j, &text, err);
    if (!rc)
        puts(text);
    free(text);
    json_decref(j);
    dev_lib_close(lib);
    return rc;
}
