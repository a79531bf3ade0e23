#!/usr/bin/env bash
# alerts.sh - each alert fires by its cause, and clears without it (Prometheus' rule unit tests).
set -uo pipefail
exec "$(dirname "$0")/alerts.py"
