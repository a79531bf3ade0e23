#!/usr/bin/env bash
# run.sh [NAME...] - the stories of this folder, several at a time, each under a time limit: all
# scripts *.sh but this one and lib.sh, all programs test_*.py. See ../run.sh.
#
# Each has a system of its own, and none says how fast a machine has to be: that another one runs
# beside it is a part of the test. Two more than there are cores, for they wait half of their time;
# E2E_AT_ONCE=1 for one after the other.
set -uo pipefail
cd "$(dirname "$0")" || exit 2

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    # The long ones first: none of them runs alone at the end.
    names=(test_executor.py test_scheduler.py test_preempt_identity.py test_jobs.py test_failures.py
        test_backup.py api_infer.sh test_ablations.py cli.sh cli_views.sh)
    for file in *.sh test_*.py; do
        case " run.sh lib.sh ${names[*]} " in *" $file "*) continue ;; esac
        [ ! -e "$file" ] || names+=("$file")
    done
fi
exec ../run.sh -j "${E2E_AT_ONCE:-$(($(nproc) + 2))}" "${names[@]/#/./}"
