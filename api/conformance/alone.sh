#!/usr/bin/env bash
# alone.sh PROGRAM ARGUMENT... runs a program in a network namespace that has nothing
# but its own loopback.
set -euo pipefail
rights=()
[ "$(id -u)" = 0 ] || rights=(--map-root-user)
exec unshare --net "${rights[@]}" -- bash -c 'ip link set lo up && exec "$@"' alone "$@"
