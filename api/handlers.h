/* handlers.h - every handler that routes.c names. One file per noun. All are api_fn (req.h). */
#ifndef SH_API_HANDLERS_H
#define SH_API_HANDLERS_H

#include "api/request/req.h"

api_fn openapi_get;                                                              /* openapi.c */
api_fn tenants_list, tenants_create, tenants_get, tenants_patch, tenants_delete; /* tenants.c */
api_fn quota_get, quota_put;                                                     /* tenants.c */
api_fn keys_list, keys_create, keys_get, keys_rotate, keys_delete, keys_whoami;  /* keys.c */
api_fn models_list, models_create, models_get, models_patch, models_delete;      /* models.c */
api_fn versions_list, versions_create, versions_get, versions_delete, versions_upload;
api_fn loads_load, loads_unload, loads_pin, loads_unpin; /* loads.c */
api_fn loads_placements, loads_profile;                  /* loads.c */
api_fn slo_get, slo_put, slo_delete, slo_attainment;     /* slo.c */
api_fn uploads_part;                                     /* upload.c */
api_fn datasets_list, datasets_create, datasets_get, datasets_delete, datasets_upload;
api_fn queues_list, queues_get, queues_create, queues_patch, queues_delete; /* queues.c */
api_fn usage_get, shares_get, shares_list;                                  /* usage.c */
api_fn audit_list;                                                          /* audit.c */
api_fn jobs_list, jobs_create, jobs_get, jobs_patch, jobs_control;          /* jobs.c */
api_fn jobs_events, jobs_checkpoints;                                       /* jobs.c */
api_fn job_batches_create;                                                  /* job_batches.c */
api_fn job_arrays_list, job_arrays_create, job_arrays_get, job_arrays_patch;
api_fn job_arrays_control;                               /* job_arrays.c */
api_fn events_list;                                      /* events.c */
api_fn jobs_explain;                                     /* explain.c */
api_fn jobs_losses;                                      /* losses.c */
api_fn jobs_log;                                         /* joblog.c */
api_fn jobs_result, jobs_artifact, jobs_artifact_delete; /* result.c */
api_fn blobs_get, files_get, files_put;                  /* files.c */
api_fn config_get, config_patch;                         /* config.c */
api_fn gpus_list, gpus_get;                              /* gpus.c */
api_fn v2_server, v2_live, v2_ready, v2_index, v2_stats_all, v2_model, v2_model_ready; /* v2.c */
api_fn v2_load, v2_unload; /* v2_repo.c */
api_fn v2_region_list, v2_region_status, v2_region_register,
    v2_region_unregister;                                              /* v2_regions.c */
api_fn v2_shm_list, v2_shm_status, v2_shm_register, v2_shm_unregister; /* v2_regions.c */
api_fn v2_config, v2_stats;                                            /* v2.c */
api_fn infer_main;                                                     /* infer.c */

#endif
