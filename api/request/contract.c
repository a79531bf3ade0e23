/* contract.c - see contract.h. */
#include "api/request/contract.h"

#include "common/job_state.h"
#include "common/mem.h"
#include "common/states.h"

#include <string.h>

#define WORD S_TEXT(.pattern = "^[!-~]{1,255}$")
#define STATES SH_JOB_STATES(SH_JOB_TEXT, "|")
#define LABEL "[A-Za-z0-9][A-Za-z0-9._/-]{0,62}=[ -+.-~-]{0,128}"

/* ---------------------------------------------------------------- answers */

enum { /* facts about a route */
       ALWAYS = 1,
       KEYED = 2,      /* it wants a key, so the database may be asked */
       NAMING = 8,     /* it names things that may not be there */
       CHANGING = 16,  /* a control-plane change */
       WITH_BODY = 32, /* of any kind */
       INFERRING = 64, /* the body is tensors */
       MATCHING = 128, /* If-Match is honoured */
       PROBING = 256,  /* asks whether something is ready */
       REFUSED = 512,  /* whatever it asks */
       STATED = 1024,  /* it depends on a state: of a job, of a name that is taken */
       SENDING = 2048, /* a file, or a part of it */
};

static unsigned facts_of(const struct api_route *r)
{
    bool keyed = r->access != ACCESS_PUBLIC, v2 = r->flags & ROUTE_V2;
    bool reads = strcmp(r->method, "GET") == 0;
    unsigned f = ALWAYS;

    if (keyed)
        f |= KEYED;
    if (strchr(r->path, '{') || route_takes_query(r, "tenant"))
        f |= NAMING;
    if (!reads && (!v2 || (r->flags & ROUTE_TENANT)))
        f |= CHANGING;
    if (r->body != BODY_NONE)
        f |= WITH_BODY;
    if (r->body == BODY_INFER)
        f |= INFERRING;
    if (r->flags & ROUTE_ETAG)
        f |= MATCHING;
    if (r->flags & ROUTE_PROBE)
        f |= PROBING;
    if (r->flags & ROUTE_OFFERED)
        f |= REFUSED;
    if (r->flags & ROUTE_STATED)
        f |= STATED;
    if (r->flags & ROUTE_FILE)
        f |= SENDING;
    return f;
}

/* clang-format off */
const struct answer API_ANSWERS[] = {
    {400, ALWAYS, "the URL, a parameter, a header or the body is malformed; `detail` says which, "
     "and what it must be", "UNSUPPORTED"},
    {401, KEYED, "the key is missing, unknown, expired or revoked", NULL},
    {403, KEYED, "the key's role does not allow this operation, the key belongs to another tenant "
     "than the one named, the tenant is suspended, or the server accepts admin keys only at "
     "another address", NULL},
    {404, NAMING | SENDING, "there is nothing of this name, or it belongs to another tenant",
     NULL},
    {409, CHANGING | STATED | INFERRING, "the current state does not allow it: the name is taken, "
     "a job uses it, it has or has not ended, the model has failed or was unloaded "
     "(`reason_code`)", NULL},
    {411, INFERRING, "the body was sent without Content-Length", "INVALID"},
    {412, MATCHING, "If-Match does not name the current version", NULL},
    {413, WITH_BODY, "the body, or a part of it, is larger than allowed", NULL},
    {414, ALWAYS, "the URL is longer than allowed", "TOOBIG"},
    {415, WITH_BODY, "Content-Type or Content-Encoding is not supported here", "UNSUPPORTED"},
    {416, SENDING, "Range is outside the file", "INVALID"},
    {422, WITH_BODY, "the request is well-formed, but asks for something that is not "
     "supported", "CONFLICT"},
    {429, KEYED, "a quota of the tenant or a limit of the key is used up", NULL},
    {500, ALWAYS, "the server failed; its log has the `request_id`", NULL},
    {501, REFUSED, "the server does not offer what the request asks for", "UNSUPPORTED"},
    {503, KEYED | PROBING | SENDING, "the server cannot serve it now (database, scheduler, memory, "
     "queue or deadline); try again after Retry-After", NULL},
    {504, KEYED, "it took too long", NULL},
    {507, CHANGING, "no space left on disk", NULL},
};
/* clang-format on */
const size_t API_N_ANSWERS = SH_ARRAY_LEN(API_ANSWERS);

bool route_fails_with(const struct api_route *r, const struct answer *a)
{
    return facts_of(r) & a->when;
}

bool route_answers(const struct api_route *r, int status)
{
    if (status == r->status || (status == 200 && (r->status == 201 || r->status == 202)) ||
        (status == 204 && (r->flags & ROUTE_STREAM)) ||
        (status == 206 && (r->flags & ROUTE_FILE)) ||
        (status == 304 && (r->flags & (ROUTE_FILE | ROUTE_CACHED))))
        return true;
    for (size_t i = 0; i < API_N_ANSWERS; i++)
        if (API_ANSWERS[i].status == status)
            return route_fails_with(r, &API_ANSWERS[i]);
    return false;
}

bool route_takes_dry_run(const struct api_route *r)
{
    if ((r->flags & ROUTE_V2) || strcmp(r->method, "GET") == 0)
        return false;
    return r->body == BODY_JSON || r->body == BODY_NONE; /* not a file that is sent */
}

/* ---------------------------------------------------------------- parameters */

static bool takes_tenant(const struct api_route *r)
{
    return (r->flags & (ROUTE_TENANT | ROUTE_V2)) && r->access != ACCESS_PUBLIC;
}

static bool takes_page(const struct api_route *r)
{
    return r->flags & ROUTE_LIST;
}

static bool takes_range(const struct api_route *r)
{
    return r->flags & ROUTE_RANGE;
}

static bool takes_if_match(const struct api_route *r)
{
    return r->flags & ROUTE_ETAG;
}

bool route_replays(const struct api_route *r)
{
    return r->status == 201;
}

static bool sends_file(const struct api_route *r)
{
    return r->flags & ROUTE_FILE;
}

static bool has_tag(const struct api_route *r)
{
    return r->flags & (ROUTE_FILE | ROUTE_CACHED);
}

static bool is_events(const struct api_route *r)
{
    return r->query & QUERY_EVENTS;
}

static bool takes_last_event(const struct api_route *r)
{
    return (r->flags & ROUTE_STREAM) && !is_events(r);
}

static bool takes_owner(const struct api_route *r)
{
    return (r->flags & ROUTE_OWNER) && !is_events(r);
}

static bool is_usage(const struct api_route *r)
{
    return r->query & QUERY_USAGE;
}

static bool is_audit(const struct api_route *r)
{
    return r->query & QUERY_AUDIT;
}

static bool is_jobs(const struct api_route *r)
{
    return r->query & QUERY_JOBS;
}

static bool takes_job_filter(const struct api_route *r)
{
    return is_jobs(r) || is_events(r);
}

static bool takes_window(const struct api_route *r)
{
    return r->query & QUERY_WINDOW;
}

static bool takes_digest(const struct api_route *r)
{
    return r->body >= BODY_MODEL;
}

static bool takes_rest(const struct api_route *r)
{
    return r->body == BODY_MODEL || r->body == BODY_DATASET;
}

static bool takes_attempt(const struct api_route *r)
{
    return r->query & QUERY_ATTEMPT;
}

static bool takes_tensors(const struct api_route *r)
{
    return r->body == BODY_INFER;
}

/* clang-format off */
const struct option API_OPTIONS[] = {
    {"tenant", "query", S_LOWER_NAME(),
     "tenant to act for; needed with an admin key, otherwise the key's own", takes_tenant},
    {"limit", "query", S_INTS(1, SCHEMA_I64, .value = "100"),
     "most items to return; more than 1000 counts as 1000", takes_page},
    {"cursor", "query", S_TEXT(.pattern = "^[A-Za-z0-9_-]{32}$"),
     "`next_cursor` of the previous page; any other text is refused", takes_page},
    {"offset", "query", S_INTS(0, SCHEMA_I64, .value = "0"),
     "items to skip", takes_range},
    {"limit", "query", S_INTS(1, SCHEMA_I64, .value = "10000"),
     "most items to return; more than 100000 counts as 100000", takes_range},
    {"dry_run", "query", S_BOOL(.value = "false"),
     "check everything, store nothing, and answer 200 with the result it would have (204 for a "
     "DELETE)", route_takes_dry_run},
    {"tenant", "query", S_LOWER_NAME(),
     "tenant that owns the queues; without it, an admin key means the shared queues",
     takes_owner},
    {"by", "query", S_WORDS(SH_USAGE_BY(SH_USAGE_WORD, ","), .value = "\"class\""),
     "unit of the sums; a range may have 7 days by minute, 100 by hour, otherwise 400", is_usage},
    {"from", "query", S_TIME(), "start of the range; default: a day before `to`", is_usage},
    {"to", "query", S_TIME(), "end of the range, not included; default: now", is_usage},
    {"class", "query", S_WORDS(SH_USAGE_CLASSES), "only this class", is_usage},
    {"model", "query", S_NAME(), "only this model", is_usage},
    {"tenant", "query", S_LOWER_NAME(), "only changes of this tenant's resources", is_audit},
    {"actor", "query", WORD, "only changes made with the key of this id", is_audit},
    {"action", "query", WORD, "an action such as key.rotate, or key for all "
     "actions on keys", is_audit},
    {"resource", "query", WORD, "a resource such as model/digits", is_audit},
    {"from", "query", S_TIME(), "only changes from then on", is_audit},
    {"to", "query", S_TIME(), "only changes before then", is_audit},
    {"state", "query", S_TEXT(.pattern = "^(" STATES ")(,(" STATES ")){0,31}$"),
     "only jobs in one of these states, such as QUEUED,HELD", takes_job_filter},
    {"queue", "query", S_LOWER_NAME(), "only jobs of this queue", takes_job_filter},
    {"label", "query", S_TEXT(.pattern = "^" LABEL "(," LABEL "){0,31}$"),
     "only jobs with all of these labels: KEY=VALUE,KEY=VALUE", takes_job_filter},
    {"array", "query", S_INTS(1, SCHEMA_I64),
     "only jobs of this array", is_jobs},
    {"tenant", "query", S_LOWER_NAME(),
     "only events of this tenant; without it, an admin key means all tenants", is_events},
    {"from", "query", S_TIME(),
     "only events from then on; default for lists: a day before `to`", is_events},
    {"to", "query", S_TIME(), "only events before then; default: now; not for streams", is_events},
    {"window", "query", S_WORDS(SH_SLO_WINDOWS, .value = "\"1h\""), "length of the time until now "
     "that counts",
     takes_window},
    {"executor", "query", WORD, "name of the executor that has the job", takes_attempt,
     true},
    {"attempt", "query", S_INTS(0, INT32_MAX),
     "attempt of the job, as the scheduler gave it", takes_attempt, true},
    {"publish", "query", S_BOOL(.value = "false"),
     "true: the file is a trained model and also becomes the package of a new version",
     takes_attempt},
    {"If-Match", "header", S_TEXT(.pattern = "^(\\*|\"[1-9][0-9]{0,17}\")$"),
     "the ETag of the version to change; without it, or with *, any version "
     "is changed", takes_if_match},
    {"Idempotency-Key", "header",
     S_TEXT(.pattern = "^(\"[ !#-~]{1,253}\"|[!#-~]{1,255})$"),
     "a repeated key gives the first answer again for a day, with Idempotency-Replayed: true; with "
     "another body it gives 422, while the first request is carried out 409", route_replays},
    {"Last-Event-ID", "header", S_INTS(0, SCHEMA_I64),
     "for streams: only events after this one; 204 if there will be none", takes_last_event},
    {"Last-Event-ID", "header", S_TEXT(.pattern = "^[0-9]{1,18}-[0-9]{1,18}$"),
     "for streams: only events after the one at this position", is_events},
    {"Range", "header", S_TEXT(), "bytes=FROM-TO: sends only this part of the file, with 206",
     sends_file},
    {"If-Range", "header", S_TEXT(), "sends the part only if the file has this ETag, otherwise the "
     "whole file", sends_file},
    {"If-None-Match", "header", S_TEXT(), "304 if the ETag is one of these", has_tag},
    {"Content-Digest", "header", S_TEXT(.pattern = "^sha-256=:[A-Za-z0-9+/]{43}=:$"),
     "SHA-256 of the whole file; it is checked", takes_digest},
    {"Content-Range", "header", S_TEXT(.pattern = "^bytes [0-9]{1,18}-[0-9]{1,18}/[0-9]{1,18}$"),
     "the body is the rest of a file whose upload broke off; needs Content-Digest", takes_rest},
    {"Inference-Header-Content-Length", "header", S_INTS(1, INFINITY),
     "bytes of the JSON part; binary tensors follow", takes_tensors},
    {"Shunt-Session", "header", S_TEXT(.pattern = "^[ -~]{1,255}$"), "of an alias with several "
     "versions: requests with the same value get the same one", takes_tensors},
};
/* clang-format on */
const size_t API_N_OPTIONS = SH_ARRAY_LEN(API_OPTIONS);

bool route_takes_query(const struct api_route *r, const char *name)
{
    for (size_t i = 0; i < API_N_OPTIONS; i++)
        if (strcmp(API_OPTIONS[i].in, "query") == 0 && strcmp(API_OPTIONS[i].name, name) == 0 &&
            API_OPTIONS[i].taken_by(r))
            return true;
    return false;
}
