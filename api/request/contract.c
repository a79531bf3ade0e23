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
    {400, ALWAYS, "malformed: the URL, a parameter, a header or the body; `detail` says which and "
     "what it must be", "UNSUPPORTED"},
    {401, KEYED, "no key, or one that is unknown, expired or revoked", NULL},
    {403, KEYED, "the key's role is not among those of this operation, the key belongs to another "
     "tenant than the one named, the tenant is suspended, or it is an admin key and the server "
     "takes those at another address", NULL},
    {404, NAMING, "there is none of this name, or it is another tenant's", NULL},
    {409, CHANGING | STATED | INFERRING, "it contradicts the present state: the name is taken, "
     "a job uses it, it has ended or has not, the model has failed or was unloaded "
     "(`reason_code`)", NULL},
    {411, INFERRING, "the body was sent without Content-Length", "INVALID"},
    {412, MATCHING, "If-Match names another version than the current one", NULL},
    {413, WITH_BODY, "the body, or a part of it, is larger than allowed", NULL},
    {414, ALWAYS, "the URL is longer than allowed", "TOOBIG"},
    {415, WITH_BODY, "Content-Type or Content-Encoding is none that is taken here", "UNSUPPORTED"},
    {416, SENDING, "Range is not a part of the file", "INVALID"},
    {422, WITH_BODY, "well-formed, and asks for what is not supported", "CONFLICT"},
    {429, KEYED, "a quota of the tenant or a limit of the key is used up", NULL},
    {500, ALWAYS, "a failure of the server; `request_id` finds it in the log", NULL},
    {501, REFUSED, "what it asks for is not offered", "UNSUPPORTED"},
    {503, KEYED | PROBING, "cannot be served now: database, scheduler, memory, queue or deadline; "
     "try again after Retry-After", NULL},
    {504, KEYED, "it took longer than it may", NULL},
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
     "whose things; needed with an admin key, else the key's own tenant", takes_tenant},
    {"limit", "query", S_INTS(1, SCHEMA_I64, .value = "100"),
     "at most so many; above 1000 it counts as 1000", takes_page},
    {"cursor", "query", S_TEXT(.pattern = "^[A-Za-z0-9_-]{32}$"),
     "`next_cursor` of the page before; any other text is refused", takes_page},
    {"offset", "query", S_INTS(0, SCHEMA_I64, .value = "0"),
     "leave out so many", takes_range},
    {"limit", "query", S_INTS(1, SCHEMA_I64, .value = "10000"),
     "at most so many; above 100000 it counts as 100000", takes_range},
    {"dry_run", "query", S_BOOL(.value = "false"),
     "check everything, answer 200 with what would be (204 of a DELETE), and keep "
     "nothing", route_takes_dry_run},
    {"tenant", "query", S_LOWER_NAME(),
     "whose queues; an admin key without it means the shared ones",
     takes_owner},
    {"by", "query", S_WORDS(SH_USAGE_BY(SH_USAGE_WORD, ","), .value = "\"class\""),
     "what to add up by; by minute at most 7 days, by hour 100, else 400", is_usage},
    {"from", "query", S_TIME(), "where the range begins; a day before `to` if absent", is_usage},
    {"to", "query", S_TIME(), "where it ends, not included; now if absent", is_usage},
    {"class", "query", S_WORDS(SH_USAGE_CLASSES), "this class alone", is_usage},
    {"model", "query", S_NAME(), "this model alone", is_usage},
    {"tenant", "query", S_LOWER_NAME(), "changes of this tenant's things alone", is_audit},
    {"actor", "query", WORD, "changes by the key of this id", is_audit},
    {"action", "query", WORD, "such as key.rotate, or key for all of them", is_audit},
    {"resource", "query", WORD, "such as model/digits", is_audit},
    {"from", "query", S_TIME(), "changes since then", is_audit},
    {"to", "query", S_TIME(), "changes before then", is_audit},
    {"state", "query", S_TEXT(.pattern = "^(" STATES ")(,(" STATES ")){0,31}$"),
     "one of these states: QUEUED,HELD", takes_job_filter},
    {"queue", "query", S_LOWER_NAME(), "of this queue", takes_job_filter},
    {"label", "query", S_TEXT(.pattern = "^" LABEL "(," LABEL "){0,31}$"),
     "with all of these labels: KEY=VALUE,KEY=VALUE", takes_job_filter},
    {"array", "query", S_INTS(1, SCHEMA_I64),
     "of this array", is_jobs},
    {"tenant", "query", S_LOWER_NAME(),
     "of this tenant; an admin key without it means all", is_events},
    {"from", "query", S_TIME(),
     "events since then; of a list a day before `to` if absent", is_events},
    {"to", "query", S_TIME(), "events before then; now if absent; a stream takes none", is_events},
    {"window", "query", S_WORDS(SH_SLO_WINDOWS, .value = "\"1h\""), "so long until now",
     takes_window},
    {"executor", "query", WORD, "name of the executor that has the job", takes_attempt,
     true},
    {"attempt", "query", S_INTS(0, INT32_MAX),
     "of the job, as the scheduler told it", takes_attempt, true},
    {"publish", "query", S_BOOL(.value = "false"),
     "true: the file is a trained model, and becomes a package for a new version too",
     takes_attempt},
    {"If-Match", "header", S_TEXT(.pattern = "^(\\*|\"[1-9][0-9]{0,17}\")$"),
     "the ETag that was read; without it, or with *, any version is changed", takes_if_match},
    {"Idempotency-Key", "header",
     S_TEXT(.pattern = "^(\"[ !#-~]{1,253}\"|[!#-~]{1,255})$"),
     "repeating it within a day gives the first answer again, with Idempotency-Replayed: true; 422 "
     "with another body, 409 while the first request is carried out", route_replays},
    {"Last-Event-ID", "header", S_INTS(0, SCHEMA_I64),
     "of a stream: only what came after this event; 204 if nothing will", takes_last_event},
    {"Last-Event-ID", "header", S_TEXT(.pattern = "^[0-9]{1,18}-[0-9]{1,18}$"),
     "of a stream: only what came after the event of this position", is_events},
    {"Range", "header", S_TEXT(), "bytes=from-to: this part of the file, with 206",
     sends_file},
    {"If-Range", "header", S_TEXT(), "the ETag that the part has to be of; else all of "
     "the file", sends_file},
    {"If-None-Match", "header", S_TEXT(), "304 if the ETag is one of these", has_tag},
    {"Content-Digest", "header", S_TEXT(.pattern = "^sha-256=:[A-Za-z0-9+/]{43}=:$"),
     "SHA-256 of the whole file; it is checked", takes_digest},
    {"Content-Range", "header", S_TEXT(.pattern = "^bytes [0-9]{1,18}-[0-9]{1,18}/[0-9]{1,18}$"),
     "the body is the rest of a file, behind what a broken upload left; needs "
     "Content-Digest", takes_rest},
    {"Inference-Header-Content-Length", "header", S_INTS(1, INFINITY),
     "bytes of the JSON part; binary tensors follow", takes_tensors},
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
