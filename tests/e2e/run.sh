#!/usr/bin/env bash
# run.sh [NAME...] - the stories of this folder, several at a time, each under a time limit: all
# scripts *.sh but this one and lib.sh, all programs test_*.py. See ../run.sh.
#
# Each has a system of its own, and none says how fast a machine has to be: that another one runs
# beside it is a part of the test. Four more than there are cores, for they wait most of their time
# (700 s of work in 60 of them); E2E_AT_ONCE=1 for one after the other.
set -uo pipefail
cd "$(dirname "$0")" || exit 2

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    # The long ones first: none of them runs alone at the end.
    names=(test_console.py test_deb.py tutorials.sh
        test_prometheus.py test_executor.py test_openapi.py test_preempt_identity.py
        test_simulate_requests.py readme.sh test_scheduler.py test_simulate.py bundle.sh
        test_evaluation.py test_backup.py bench.sh test_accounting.py cli.sh test_jobs.py
        api_infer.sh test_failures.py cli_views.sh test_inputs.py)
    for file in *.sh test_*.py; do
        case " run.sh lib.sh ${names[*]} " in *" $file "*) continue ;; esac
        [ ! -e "$file" ] || names+=("$file")
    done
fi
exec ../run.sh -j "${E2E_AT_ONCE:-$(($(nproc) + 4))}" "${names[@]/#/./}"
