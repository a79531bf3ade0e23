#!/usr/bin/env bash
# api_infer.sh - api_infer.py with a PostgreSQL of its own.
set -euo pipefail
cd "$(dirname "$0")"
exec ../pg.sh run python3 ./api_infer.py
