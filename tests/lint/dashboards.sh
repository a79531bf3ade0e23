#!/usr/bin/env bash
# dashboards.sh - a panel or an alert may only name a metric that common/metrics.def defines.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

known=$(sed -nE 's/^SH_METRIC\([A-Z]+, *([a-z0-9_]+),.*/\1/p' common/metrics.def)
histograms=$(sed -nE 's/^SH_METRIC\(HISTOGRAM, *([a-z0-9_]+),.*/\1/p' common/metrics.def)
[ -n "$known" ] || { echo "common/metrics.def defines nothing: was its form changed?"; exit 1; }

rc=0
while IFS= read -r name; do
    grep -qx -- "$name" <<<"$known" && ! grep -qx -- "$name" <<<"$histograms" && continue
    base=$(sed -E 's/_(bucket|sum|count)$//' <<<"$name")
    [ "$base" != "$name" ] && grep -qx -- "$base" <<<"$histograms" && continue
    if grep -qx -- "$name" <<<"$histograms"; then
        echo "dashboards name $name, a histogram: it needs _bucket, _sum or _count"
    else
        echo "dashboards name $name, common/metrics.def does not"
    fi
    rc=1
done < <(grep -rohE '\bshunt_[a-z0-9_]+' dashboards 2>/dev/null | sort -u)
exit $rc
