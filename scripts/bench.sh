#!/usr/bin/env bash
# Runs every benchmark of the tree and writes a dated table with the machine and
# the command that made it. As root it also runs the two experiments that stand
# for whole parts: packet-in (controller) and agent-relay (agent).
set -euo pipefail

benchtime=${1:-1s}
out=out/bench-$(date -u +%Y-%m-%d).txt
mkdir -p out
packages=$(git ls-files -co --exclude-standard '*_test.go' | xargs grep -lE '^func Benchmark' | xargs -n 1 dirname | sort -u | sed 's|^|./|')
command="go test -run ^\$ -bench . -benchmem -benchtime $benchtime $(echo $packages)"
{
  echo "# $(date -u +%Y-%m-%dT%H:%MZ), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
  echo "# $(uname -srm), $(nproc) cores, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(go version)"
  echo "# $command"
  $command
} | tee "$out"
status=0
if [ "$(id -u)" -eq 0 ]; then
  make --no-print-directory build
  bin/sluice-lab experiment run packet-in agent-relay | tee -a "$out" || status=$?
else
  echo 'not root: packet-in and agent-relay, which need network namespaces, were left out' | tee -a "$out"
fi
echo "written: $out"
exit $status # 1 if a claim was missed
