/* cli.h - what the commands of `shunt` share: options, the table of commands, calls to the server.
 *
 * A command is a row of CLI_CMDS (cmds.c): help, documentation, completion and the checks of its
 * arguments come from there. It returns SH_OK or a failure, which main.c prints; the exit status
 * is one of enum cli_exit.
 */
#ifndef SH_CLI_CLI_H
#define SH_CLI_CLI_H

#include "common/conf.h"
#include "common/http.h"
#include "common/json.h"

#include <stdbool.h>
#include <stdint.h>

enum cli_exit { CLI_OK, CLI_REFUSED, CLI_USAGE, CLI_NOT_REACHABLE, CLI_NO_SUCH, CLI_LATE };
#define CLI_EXIT_TEXT                                                                              \
    "0 ok, 1 refused or failed, 2 usage, 3 server not reachable, 4 there is no such thing, 5 not " \
    "in time"

/* Options of all commands; each fills those of its row. Texts that are numbers are NULL if not
 * given: then the server's default counts. */
struct cli_conf {
    /* every command */
    char *server, *key, *key_file, *ca_file, *tenant, *output, *state_dir, *profile;
    bool quiet;
    /* every command that reads, or changes: CLI_GROUPS */
    bool watch, all_tenants, dry_run;
    int64_t every_ms;
    /* up, down */
    int64_t port, executors, schedulers, workers, threads, pool_bytes, wait_s, busy_poll_us;
    double copy_gb_per_s;
    char *bind, *metrics_bind, *device, *db_url, *migrations_dir, *dashboards_dir, *pg_bin,
        *log_level;
    bool foreground, purge;
    /* tenants, keys, models, targets */
    int64_t overlap_s;
    char *by, *from, *to, *class, *actor, *action, *resource, *state;
    char *role, *expires_at, *save, *visibility, *percentile, *on_miss, *latency_ms,
        *target_priority, *window;
    /* push */
    char *max_batch, *buckets, *precision, *weights, *tensor, *size, *tmp_dir, *label_column;
    bool wait, stretch, grey, skip_broken;
    /* jobs */
    char *model, *dataset, *eval_dataset, *labels, *loss, *optimizer, *spec, *job_name, *queue;
    char *lr, *momentum, *weight_decay, *beta1, *beta2, *eps, *batch, *epochs, *steps, *seed,
        *eval_every, *best, *patience, *min_delta;
    char *checkpoint_interval_ms, *token, *job_labels, *deadline, *min_runtime_ms, *init;
    char *new_priority, *kind, *keep, *map, *out, *array, *grid, *file, *max_parallel;
    int64_t priority, max_attempts, last, tail;
    bool follow, hold, no_preempt, no_publish, live, go_on, once;
    /* infer, top */
    char *inputs, *outputs, *truth, *image, *mean, *std, *layout, *sizes;
    int64_t rows, offset, repeat, random, interval_ms, resize, crop, top;
};

enum cli_output { OUTPUT_TABLE, OUTPUT_DATA, OUTPUT_NAME }; /* DATA: JSON or YAML */

struct cli {
    const struct cli_cmd *cmd;
    struct cli_conf *conf;
    char **args; /* positional, after verb and noun */
    int n_args;
    enum cli_output output;
    bool is_wide, is_yaml;
    json_t *seen;            /* OWNED; with --watch: what was printed, by name */
    struct sh_http *http;    /* OWNED; NULL until the first call */
    const char *config_path; /* BORROWED; NULL: none is known */
    int64_t timeout_ms;      /* of each call; 0: the usual */
    char *server;            /* OWNED; set with http */
    const char *key_env;     /* the variable that the key came from; NULL: from elsewhere */
    char *key_profile;       /* OWNED: the profile in use, if it came from there, and its file */
    bool own_key;            /* of the system in the state folder, whatever other key is given */
    json_t *problem;         /* OWNED: the server's last refusal, with all its members */
    enum cli_exit exit_code; /* of a failure */
};

typedef int cli_fn(struct cli *c, struct sh_err *err);

struct cli_cmd {
    const char *verb, *noun; /* noun NULL: the verb alone */
    const char *args;        /* "NAME [FILE]": how many there may be is read from this */
    const char *help;
    cli_fn *run;
    const struct sh_conf_opt *opts;
    size_t n_opts;
    const struct sh_conf_opt *fields; /* of FIELD=VALUE, for the help; NULL: none */
    size_t n_fields;
};

extern const struct cli_cmd CLI_CMDS[];
extern const size_t CLI_N_CMDS;
extern const struct sh_conf_opt CLI_COMMON[]; /* options of every command */
extern const size_t CLI_N_COMMON;

/* What all commands of a verb share; those of one title stand together in the help. */
struct cli_verb {
    const char *verb, *title;
    const struct sh_conf_opt *opts;
    size_t n_opts;
};

extern const struct cli_verb CLI_VERBS[];
extern const size_t CLI_N_VERBS;
extern const struct cli_verb CLI_OTHER_VERB; /* of one that has no row */

#define CLI_MAX_OPTS 192
#define CLI_STATE_DIR ".shunt" /* where no folder is named */

/* find.c */

/* The row for the words of a command line. *used: how many words name it. NULL with a failure that
 * says what there is. */
const struct cli_cmd *cli_find(char **words, int n_words, int *used, struct sh_err *err);
const char *cli_long_form(const char *word);       /* "-o" is "--output" */
const char *cli_real_verb(const char *verb);       /* "list" is get */
const struct cli_verb *cli_verb(const char *verb); /* never NULL */
/* Its options: common ones, those of its verb, its own. cmd NULL: those of every command, each name
 * once, as texts and flags at offsets of a struct cli_any. Returns how many. */
struct cli_any {
    char *text[CLI_MAX_OPTS];
    bool flag[CLI_MAX_OPTS];
};
size_t cli_options(const struct cli_cmd *cmd, struct sh_conf_opt out[static CLI_MAX_OPTS]);
/* Of the options of cmd the one that is most like a mistyped one; NULL if none is. BORROWED. */
const char *cli_like_option(const struct cli_cmd *cmd, const char *word);
void cli_arg_range(const struct cli_cmd *cmd, int *min, int *max);

/* help.c */
void help_all(void);
/* Of one verb, or of one of its commands (noun not NULL). Fails if there is none. */
int help_verb(const char *verb, const char *noun, struct sh_err *err);
void help_docs(void); /* docs/cli.md */
int help_completion(const char *shell, struct sh_err *err);

/* profile.c: those of the config file, without their keys. OWNED; NULL if it cannot be read. */
json_t *config_profiles(struct cli *c);
/* Whether that profile has this value. */
bool config_has(struct cli *c, const char *profile, const char *name, const char *value);

/* complete.c: candidates for the last of the words, and of the words those with options that say
 * where the server is (out: room for n; returns how many). */
void complete_words(struct cli *c, int n, char **words);
int complete_options(int n, char **words, char **out);

/* A failure of usage: exit status 2. */
int cli_usage(struct cli *c, struct sh_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* terms.c: what the server calls a field is called here as the command has it. */
void terms_translate(const struct cli *c, json_t *problem); /* what it refused */
int terms_put(const struct cli_cmd *cmd, const char *text, char **out,
              struct sh_err *err); /* *out: OWNED, free() */

/* rest.c */
enum {
    REST_TENANT = 1, /* add ?tenant= if --tenant is given */
    REST_QUIET = 2,  /* do not keep a refusal's document or set the exit status */
};
int rest_open(struct cli *c, struct sh_err *err); /* http and server */
/* The failure of a state folder without a system. */
#define CLI_NO_SYSTEM "no system runs here"
int rest_no_system(struct cli *c, struct sh_err *err);
/* One JSON call. body may be NULL; *out (OWNED, json_decref) may be NULL. A refusal becomes a
 * failure with the server's code and sentence. */
int rest_call(struct cli *c, const char *method, const char *path, const json_t *body,
              unsigned flags, json_t **out, struct sh_err *err);
struct rest_req {
    const char *method, *path;
    const json_t *body;
    unsigned flags;
    int64_t row_version; /* If-Match: SH_E_PRECONDITION if the thing has another one; 0: any */
};
int rest_send(struct cli *c, const struct rest_req *req, json_t **out, struct sh_err *err);
int rest_get(struct cli *c, const char *path, unsigned flags, json_t **out, struct sh_err *err);
/* Whether a failure may be over in a moment: the server was there at seen_ns, and is away since, or
 * asks to try again. Then the exit status is as if it were there. */
bool rest_is_away(struct cli *c, int rc, int64_t seen_ns);
/* One that is not there is made, as name in the collection; *made tells. */
int rest_ensure(struct cli *c, const char *path, const char *collection, const char *name,
                bool *made, struct sh_err *err);
#define REST_MOST ((size_t)10000)
/* All items of a list, page by page, at most REST_MOST. *out: OWNED array. */
int rest_list(struct cli *c, const char *path, unsigned flags, json_t **out, struct sh_err *err);
/* The same of its first items: `most`, or somewhat more if that is beyond a page. */
int rest_first(struct cli *c, const char *path, size_t most, unsigned flags, json_t **out,
               struct sh_err *err);
/* job.c: "/api/v1/jobs/ID[/below]"; usage if the id is not a number. */
#define REST_PATH_MAX 1024
int job_path(struct cli *c, char path[static REST_PATH_MAX], const char *id, const char *below,
             struct sh_err *err);
bool job_is_final(const char *state);
bool job_waits(const json_t *job); /* no executor has it */
/* As squeue shows them: what runs, by priority, what waits, then what has ended, the last first. */
void job_sort(json_t *jobs);

/* obj.name = the number in the text of an option of that name; nothing if it was not given. Fails
 * as usage if the text is none. */
int cli_set_number(struct cli *c, json_t *obj, const char *name, const char *text, bool is_int,
                   struct sh_err *err);

/* Is it the name of a field or option in bytes? */
bool cli_is_bytes(const char *name);
/* The value of NAME=VALUE: null, a number, or of a field in bytes a size such as 1.5Gi. *out:
 * OWNED; NULL if it is none of these, and SH_OK. Fails as usage for what is no size. */
int cli_value(struct cli *c, const char *name, const char *text, json_t **out, struct sh_err *err);

/* Turns an answer into a failure (status >= 400) or SH_OK; keeps the document. */
int rest_check(struct cli *c, const struct sh_http_reply *r, unsigned flags, struct sh_err *err);
/* Adds ?tenant= to a path. */
int rest_with_tenant(const struct cli *c, const char *path, char **out, struct sh_err *err);

/* Joins segments to "/a/b/c", each escaped; the list ends with NULL. */
int rest_path(char out[static REST_PATH_MAX], struct sh_err *err, const char *first, ...)
    __attribute__((sentinel));

/* Whose things are meant: --tenant, else the tenant of the key, which then is as if given. Usage if
 * neither says. what: "key". *out: BORROWED. */
int rest_tenant(struct cli *c, const char *what, const char **out, struct sh_err *err);
/* "path/NAME", escaped. *out: OWNED, free(). */
int rest_below(const char *path, const char *name, char **out, struct sh_err *err);

/* Adds query parameters: pairs of name and value, ended by a NULL name; those without a value are
 * left out. *out: OWNED, free(). */
int rest_query(const char *path, char **out, struct sh_err *err, ...) __attribute__((sentinel));

/* "NAME" or "NAME:VERSION". *version is 0 without one. name: room for 129 bytes. */
int rest_model_ref(struct cli *c, const char *ref, char name[static 129], int64_t *version,
                   struct sh_err *err);

/* model.c: paths of the API, below may be NULL; and the newest version of a model. */
int model_path(char path[static REST_PATH_MAX], const char *model, const char *below,
               struct sh_err *err);
int version_path(char path[static REST_PATH_MAX], const char *model, int64_t version,
                 const char *below, struct sh_err *err);
/* Of "NAME" or "NAME:VERSION". */
int model_ref_path(struct cli *c, char path[static REST_PATH_MAX], const char *ref,
                   const char *below, struct sh_err *err);
int model_newest(struct cli *c, const char *model, int64_t *version, struct sh_err *err);

/* "1 READY, 2 LOADING" as "summary" of each model of a list; of many versions the newest. */
void model_add_summary(json_t *models);

/* The commands. */
cli_fn up_main, down_main, status_main, top_main, backup_main, restore_main;
cli_fn whoami_main;                                                    /* admin.c */
cli_fn tenant_create, tenant_get, tenant_set, tenant_delete;           /* admin.c */
cli_fn key_create, key_get, key_delete, key_rotate;                    /* admin.c */
cli_fn quota_get, quota_set;                                           /* admin.c */
cli_fn model_create, model_get, model_delete, model_push, version_get; /* model.c */
cli_fn model_wait, model_wait_gone, slo_set, slo_get, slo_delete;      /* model.c */
cli_fn model_load, model_unload, model_pin, model_unpin, model_share;  /* load.c */
cli_fn placement_get, model_explain, profile_get, slo_report;          /* load.c */
cli_fn dataset_create, dataset_get, dataset_delete, dataset_push;      /* dataset.c */
cli_fn job_get, job_submit, job_control, job_set;                      /* job.c */
cli_fn job_losses, job_checkpoints;                                    /* job.c */
cli_fn job_wait, job_explain;                                          /* wait.c */
cli_fn job_events;                                                     /* events.c */
cli_fn job_logs;                                                       /* logs.c */
cli_fn gpu_get;                                                        /* gpu.c */
cli_fn option_get, option_set;                                         /* option.c */
int batch_fill_spec(struct cli *c, json_t *spec, struct sh_err *err);  /* batch.c */
int batch_refuse(struct cli *c, struct sh_err *err); /* its options, of another kind */
/* job.c: a submission, once more if the server goes away meanwhile: the body has a token. */
int job_send(struct cli *c, const char *path, const json_t *body, json_t **out, struct sh_err *err);
int job_draw_token(json_t *job, struct sh_err *err); /* as its client_token */
/* "It trains digits from version 1." of a job, "They train ..." of an array; "" of batch inference.
 * It says so where --model names no version. */
void job_base_text(const struct cli *c, const json_t *j, const char *it, char *out, size_t size);
/* What the server answered to a submission. noun: "job" or "array"; text: a sentence for people. */
void job_say_made(struct cli *c, const json_t *j, const char *noun, const char *id,
                  const char *text);
struct progress;
struct job_end { /* what is waited for */
    const char *path, *what, *id;
    bool (*has_ended)(const json_t *j);
    void (*show)(struct progress *bar, const json_t *j);
    /* Of what was seen the job whose wait is the reason, every look_ms. OWNED, may be NULL. */
    json_t *(*waiting)(struct cli *c, const json_t *j);
    int64_t look_ms;
};
/* Looks at the path until what is there has ended, at most --wait-s; meanwhile show() draws, and
 * stderr says why a job waits. *out: OWNED. Fails: SH_E_TIMEOUT, which names what and id. */
int job_wait_end(struct cli *c, const struct job_end *e, json_t **out, struct sh_err *err);
/* Until no executor has the job, or any of the array, at this path. */
int job_wait_off(struct cli *c, const char *path, const char *what, const char *id,
                 struct sh_err *err);
int job_wait_and_report(struct cli *c, const char *id, struct sh_err *err);       /* of one job */
int jobs_submit_file(struct cli *c, struct sh_err *err);                          /* many.c */
int array_submit(struct cli *c, json_t *job, bool *is_array, struct sh_err *err); /* array.c */
cli_fn array_get, array_set, array_wait, array_control;                           /* array.c */
cli_fn job_result, job_result_delete;                                             /* result.c */
cli_fn queue_get, queue_create, queue_set, queue_delete;                          /* queue.c */
cli_fn usage_get, share_get, audit_get;                                           /* usage.c */
cli_fn config_get, config_set, config_use, config_delete;                         /* profile.c */
cli_fn infer_main;                                                                /* infer.c */

#endif
