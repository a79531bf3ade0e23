/* commands.h - declares every command in cmds.c. */
#ifndef SH_CLI_COMMANDS_H
#define SH_CLI_COMMANDS_H

#include "cli/cli.h"

cli_fn up_main, down_main, status_main, top_main, backup_main, restore_main, doctor_main,
    trace_main;
cli_fn whoami_main;                                                    /* admin.c */
cli_fn tenant_create, tenant_get, tenant_set, tenant_delete;           /* admin.c */
cli_fn key_create, key_get, key_delete, key_rotate;                    /* admin.c */
cli_fn quota_get, quota_set;                                           /* admin.c */
cli_fn model_create, model_get, model_delete, model_push, version_get; /* model.c */
cli_fn model_wait, model_wait_gone, slo_set, slo_get, slo_delete;      /* model.c */
cli_fn model_load, model_unload, model_pin, model_unpin, model_share;  /* load.c */
cli_fn alias_get, alias_set, alias_delete;                             /* alias.c */
cli_fn alias_promote, alias_rollback;                                  /* alias.c */
cli_fn placement_get, model_explain, profile_get, slo_report;          /* load.c */
cli_fn dataset_create, dataset_get, dataset_delete, dataset_push;      /* dataset.c */
cli_fn job_get, job_submit, job_control, job_set;                      /* job.c */
cli_fn job_losses, job_checkpoints;                                    /* job.c */
cli_fn job_wait, job_explain;                                          /* wait.c */
cli_fn job_events;                                                     /* events.c */
cli_fn job_logs;                                                       /* logs.c */
cli_fn gpu_get;                                                        /* gpu.c */
cli_fn option_get, option_set;                                         /* option.c */
cli_fn array_get, array_set, array_wait, array_control;                /* array.c */
cli_fn job_result, job_result_delete;                                  /* result.c */
cli_fn queue_get, queue_create, queue_set, queue_delete;               /* queue.c */
cli_fn simulate_main;                                                  /* simulate.c */
cli_fn usage_get, share_get, audit_get;                                /* usage.c */
cli_fn config_get, config_set, config_use, config_delete;              /* profile.c */
cli_fn infer_main;                                                     /* infer.c */

#endif
