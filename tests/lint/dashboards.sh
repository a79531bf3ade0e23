#!/usr/bin/env bash
# dashboards.sh - dashboards keep the rules of Grafana's linter, and alerts have their texts.
set -uo pipefail
exec "$(dirname "$0")/dashboards.py"
