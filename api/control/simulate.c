/* simulate.c - what-if questions: a snapshot of what decisions rest on, and what would
 * become of it. The answer is computed by shunt-simulate, a process of its own. One snapshot at a
 * time is in memory, for a question or for a client: it may have 120,000 jobs. */
#include "api/api.h"
#include "api/handlers.h"
#include "api/request/noun.h"
#include "api/store/store.h"
#include "common/mem.h"
#include "common/whatif.h"

#define LIMIT_MS 60000
#define AGAIN_MS 2000

static int begin_simulation(struct api_req *q, struct sh_err *err)
{
    if (!atomic_exchange(&q->api->simulating, true))
        return SH_OK;
    q->reply.retry_after_ms = AGAIN_MS;
    return SH_FAIL(err, SH_E_UNAVAILABLE,
                   "another snapshot is being taken, or a question about one answered; one at a "
                   "time is");
}

static void end_simulation(struct api_req *q)
{
    atomic_store(&q->api->simulating, false);
}

int snapshot_get(struct api_req *q, struct sh_err *err)
{
    json_t *snapshot = NULL;
    int rc = begin_simulation(q, err);

    if (rc)
        return rc;
    rc = store_snapshot(q->db, SH_WHATIF_MAX_HOURS, &snapshot, err);
    if (!rc)
        rc = req_reply(q, snapshot, NULL, err);
    end_simulation(q);
    return rc;
}

static int ask_simulator(struct api_req *q, const json_t *changes, double hours, const char *trace,
                         json_t **out, struct sh_err *err)
{
    json_t *snapshot = NULL, *question = NULL;
    int rc = store_snapshot(q->db, trace ? 0 : hours, &snapshot, err);

    if (!rc) {
        question = json_pack("{s:O, s:O*, s:f, s:s*}", "snapshot", snapshot, "changes", changes,
                             "hours", hours, "trace", trace);
        rc = question ? sh_whatif_ask(question, LIMIT_MS, &q->api->stopping, out, err)
                      : SH_FAIL(err, SH_E_NOMEM, "could not allocate the question");
    }
    json_decref(snapshot);
    json_decref(question);
    return rc;
}

int simulate_post(struct api_req *q, struct sh_err *err)
{
    json_t *changes = NULL, *answer = NULL;
    const char *trace = NULL;
    double hours = 0;
    const struct sh_json_field f[] = {
        {"changes", SH_JSON_ARR, &changes, .max = 64},
        {"hours", SH_JSON_F64, &hours, .max = SH_WHATIF_MAX_HOURS},
        {"trace", SH_JSON_STR, &trace, .min = 1, .max = SH_WHATIF_MAX_TRACE},
    };
    int rc = noun_read(q, "", f, SH_ARRAY_LEN(f), err);

    if (!rc)
        rc = begin_simulation(q, err);
    if (rc)
        return rc;
    rc = ask_simulator(q, changes, hours, trace, &answer, err);
    end_simulation(q);
    return rc ? rc : req_reply(q, answer, NULL, err);
}
