/* route.h - the calls that go up. A lower room must not know a higher one (workers know nothing of
 * models, runs or training; models nothing of runs; runs nothing of training), so these tables of
 * functions pass on what it reports and answer what it asks. */
#ifndef SH_EXECUTOR_ROUTE_H
#define SH_EXECUTOR_ROUTE_H

#include "executor/exec.h"
#include "executor/models/store.h"
#include "executor/pool/pool.h"
#include "executor/requests/data.h"
#include "executor/runs/switch.h"

struct pool_handler route_of_workers(struct exec *x);
struct store_users route_of_models(struct exec *x);
struct switch_rival route_of_runs(struct exec *x);
data_gone_fn route_api_gone; /* arg: struct exec */
data_image_fn route_image;   /* the same */

#endif
