#!/usr/bin/env bash
# Makes a Debian 12 in a folder of its own, with make, git and curl and without Go, and
# runs the README's demo in it, on the commit that is checked out. Debian comes from the
# mirror that this machine's apt uses; GO_DL, GOPROXY, proxies and authorities are this
# machine's, too.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { echo "$(date -u +%H:%M:%S) $*"; }
die() { echo "$*" >&2; exit 1; }

demo=$(grep -m 1 -x 'sudo make demo' README.md) || die 'README.md no longer says: sudo make demo'
demo=${demo#sudo }
mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' | awk '$2 == "bookworm" && $3 == "main" { print $1; exit }')
root=$(mktemp -d --suffix .sluice-bare)
chmod 0755 "$root"
trap 'rm -rf --one-file-system "$root"' EXIT

step 'a Debian with make, git and curl'
debootstrap --variant=minbase --include=make,git,curl,ca-certificates bookworm "$root" "${mirror:-http://deb.debian.org/debian}" >"$root.log" 2>&1 ||
  { tail -n 20 "$root.log"; rm -f "$root.log"; exit 1; }
rm -f "$root.log"
cp /etc/resolv.conf /etc/hosts "$root/etc/"
cp -r /usr/local/share/ca-certificates "$root/usr/local/share/"
chroot "$root" update-ca-certificates >/dev/null 2>&1
if command -v go >/dev/null; then export GOPROXY=${GOPROXY:-$(go env GOPROXY)}; fi
git clone --quiet --no-local . "$root/srv/sluice"
# What this machine has compiled of the same sources with the same Go is not compiled again.
cache=$(go env GOCACHE 2>/dev/null || true)
export cache
mkdir -p "$root/root/.cache/go-build"

# inside COMMAND...: in mount and process namespaces that end with it.
inside() {
  unshare --mount --pid --fork --kill-child bash -euc '
    root=$1
    shift
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/run"
    if [ -d "$cache" ]; then mount --bind "$cache" "$root/root/.cache/go-build"; fi
    exec env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
      ${GO_DL:+GO_DL="$GO_DL"} ${GOPROXY:+GOPROXY="$GOPROXY"} ${http_proxy:+http_proxy="$http_proxy"} \
      ${https_proxy:+https_proxy="$https_proxy"} ${no_proxy:+no_proxy="$no_proxy"} \
      chroot "$root" bash -c "cd /srv/sluice && exec \"\$@\"" bash "$@"' bash "$root" "$@"
}

inside bash -c '! command -v go' || die 'it has Go already'

step "$demo, where Go cannot be fetched"
if said=$(GO_DL=http://127.0.0.1:9 GOPROXY=off inside $demo 2>&1); then die 'it went on without Go'; fi
grep -x 'Go .* is missing and could not be fetched (.*): install it from https://go.dev/dl/, or name a mirror.*' <<<"$said" || die "it does not say what to do: $said"

step "$demo"
inside $demo
inside test -x bin/sluice -a -x bin/sluice-lab
step 'done'
