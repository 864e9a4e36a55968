#!/usr/bin/env bash
# Runs every fuzz target of the tree for the given time each (default 10s).
# New targets are found by themselves.
set -euo pipefail

time=${1:-10s}
found=0
while IFS=: read -r file target; do
  found=$((found + 1))
  echo "fuzz $(dirname "$file") $target"
  go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 100x "./$(dirname "$file")"
done < <(git ls-files -co --exclude-standard '*_test.go' | sort |
  xargs grep -oE '^func Fuzz[A-Za-z0-9_]*' | sed 's/func //')
[ "$found" -gt 0 ] || { echo 'no fuzz target found' >&2; exit 1; }
echo "$found fuzz targets, $time each"
