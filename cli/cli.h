/* cli.h - shared by the commands of `shunt`: options, and the table of commands.
 *
 * A command is a row of the table in cmds.c; help, documentation, completion and the checks of its
 * arguments come from there. It returns SH_OK or a failure, which main.c prints; the exit status is
 * one of enum cli_exit.
 */
#ifndef SH_CLI_CLI_H
#define SH_CLI_CLI_H

#include "cli/train_conf.h"
#include "common/conf.h"
#include "common/http.h"
#include "common/json.h"

#include <stdbool.h>
#include <stdint.h>

enum cli_exit { CLI_OK, CLI_REFUSED, CLI_USAGE, CLI_NOT_REACHABLE, CLI_NO_SUCH, CLI_LATE };
#define CLI_EXIT_TEXT                                                                              \
    "0 ok, 1 refused or failed, 2 usage, 3 server not reachable, 4 there is no such thing, 5 not " \
    "in time"

/* The options of all commands; each command fills those of its row. A number kept as a string is
 * NULL if not given: the server's default then applies. */
struct cli_conf {
    /* every command */
    char *server, *key, *key_file, *ca_file, *tenant, *output, *state_dir, *profile;
    bool quiet;
    /* commands that read, or that change something (struct cli_verb) */
    bool watch, all_tenants, dry_run;
    int64_t every_ms;
    /* up, down */
    int64_t port, executors, schedulers, workers, threads, pool_bytes, wait_s, busy_poll_us;
    double copy_gb_per_s;
    char *bind, *metrics_bind, *device, *db_url, *migrations_dir, *dashboards_dir, *pg_bin,
        *log_level;
    bool foreground, purge, strict; /* strict: doctor */
    /* tenants, keys, models, targets */
    int64_t overlap_s;
    char *by, *from, *to, *class, *actor, *action, *resource, *state;
    char *role, *expires_at, *save, *visibility, *percentile, *on_miss, *latency_ms,
        *target_priority, *window;
    char *window_s, *min_requests, *error_percent, *burn_rate; /* aliases */
    bool sticky, auto_rollback;
    /* push */
    char *max_batch, *buffers, *parameters, *preprocess, *buckets, *precision, *weights, *tensor,
        *size, *tmp_dir, *label_column;
    bool wait, stretch, grey, skip_broken;
    /* jobs */
    char *model, *dataset, *eval_dataset, *spec, *job_name, *queue;
    char *token, *job_labels, *deadline, *min_runtime_ms, *n_gpus;
    char *new_priority, *kind, *keep, *map, *out, *array, *grid, *file, *max_parallel;
    int64_t priority, max_attempts, last, tail;
    bool follow, hold, no_preempt, live, go_on, once;
    struct cli_train train;
    /* simulate */
    char *gpus, *snapshot, *trace;
    double hours;
    /* trace */
    char *metrics;
    double seconds, next_s;
    /* infer, top */
    char *inputs, *outputs, *truth, *image, *mean, *std, *layout, *sizes;
    int64_t rows, offset, repeat, random, interval_ms, resize, crop, top;
};

enum cli_output { OUTPUT_TABLE, OUTPUT_DATA, OUTPUT_NAME }; /* DATA: JSON or YAML */

struct cli {
    const struct cli_table *table;
    const struct cli_cmd *cmd;
    struct cli_conf *conf;
    char **args; /* positional, after verb and noun */
    int n_args;
    enum cli_output output;
    bool is_wide, is_yaml;
    json_t *seen;            /* OWNED; with --watch: what was printed, by name */
    struct sh_http *http;    /* OWNED; NULL until the first call */
    const char *config_path; /* BORROWED; NULL: none is known */
    int64_t timeout_ms;      /* of each call; 0: the default */
    char *server;            /* OWNED; set with http */
    const char *key_env;     /* the variable with the key; NULL: the key came from elsewhere */
    /* OWNED: the profile with the key, and its file; NULL: the key came from elsewhere */
    char *key_profile;
    bool own_key;            /* use the state folder's own key, whatever other key is given */
    json_t *problem;         /* OWNED: the server's last refusal, with all its members */
    enum cli_exit exit_code; /* for a failure */
};

typedef int cli_fn(struct cli *c, struct sh_err *err);

struct cli_cmd {
    const char *verb, *noun; /* noun NULL: the verb only */
    const char *args;        /* "NAME [FILE]": also tells how many there may be */
    const char *help;
    cli_fn *run;
    const struct sh_conf_opt *opts;
    size_t n_opts;
    const struct sh_conf_opt *fields; /* the fields of FIELD=VALUE, for the help; NULL: none */
    size_t n_fields;
};

/* Shared by all commands of a verb; the help groups verbs by title. */
struct cli_verb {
    const char *verb, *title;
    const struct sh_conf_opt *opts;
    size_t n_opts;
};

struct cli_table {
    const struct cli_cmd *cmds;
    size_t n_cmds;
    const struct cli_verb *verbs;
    size_t n_verbs;
    const struct sh_conf_opt *common; /* options of every command */
    size_t n_common;
};

extern const struct cli_table CLI_TABLE; /* cmds.c; others use the pointer in struct cli */

#define CLI_MAX_OPTS 192
#define CLI_STATE_DIR ".shunt" /* the default state folder */

#endif
