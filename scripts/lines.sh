#!/usr/bin/env bash
# Lines of Go without tests and fakes for them, of the parts that are to become smaller on the
# service kit, beside what they had at b13a160, before the kit and before what has been added
# since.
set -euo pipefail
cd "$(dirname "$0")/.."

lines() { find "$1" -name '*.go' ! -name '*_test.go' ! -path '*/servicetest/*' -exec cat {} + | wc -l; }

total() { # NAME THEN PERCENT DIR...
  local name=$1 then=$2 percent=$3 now=0
  shift 3
  for dir; do now=$((now + $(lines "$dir"))); done
  printf '%-45s %7d %7d %5d %%   wanted: at most %d %%\n' "$name" "$then" "$now" $((now * 100 / then)) "$percent"
}

printf '%-45s %7s %7s\n' 'lines without tests' 'b13a160' now
total 'sos/plugin, handover/*, qos, controller' 24614 80 sos/plugin handover/plugin handover/registry handover/domain qos controller
total 'cli, config' 7553 85 cli config
printf '%-45s %7s %7d           wanted: at most 2500\n' 'the service kit' '' "$(lines service)"
printf '%-45s %7s %7d           wanted: at most 200\n' 'the example of a service' '' "$(lines examples/quarantine)"
