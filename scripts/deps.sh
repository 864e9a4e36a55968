#!/usr/bin/env bash
# Installs what Sluice runs against. Arguments, in any number:
#   root   stop unless run by root
#   go     fetch Go into .go unless a usable one is there
#   unzip  for Go, where it comes as a module
#   bare   what makes a Debian for make test-bare
#   demo   Open vSwitch, a web server, curl and the like, as far as they are missing
#   test   what the tests and experiments compare themselves with, likewise
#   cinema what makes and shows channels, likewise
#   smoke  what make test needs besides demo, likewise
set -euo pipefail

die() { printf '%s\n' "$@" >&2; exit 1; }

need_root() {
  [ "$(id -u)" -eq 0 ] || die 'This builds network namespaces and needs root. Run it again with sudo, for example: sudo make demo'
}

# Since 1.21 the go command fetches the version that go.mod names, unless it was told not to.
need_go() {
  local want have
  want=$(awk '$1 == "go" { print $2; exit }' go.mod)
  have=$(cd / && GOTOOLCHAIN=local go env GOVERSION 2>/dev/null || true)
  have=${have#go}
  at_least "${have:-0}" "$want" && return
  at_least "${have:-0}" 1.21 && [ "$(go env GOTOOLCHAIN 2>/dev/null)" != local ] && return
  scripts/go.sh
}

at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# install COMMAND=PACKAGE ... installs the packages whose command, or file if it
# begins with a slash, is missing.
install() {
  local pair missing=()
  for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null || [ -x "/usr/sbin/${pair%%=*}" ] || [ -f "${pair%%=*}" ] || missing+=("${pair#*=}")
  done
  [ "${#missing[@]}" -gt 0 ] || return 0
  command -v apt-get >/dev/null || die "Missing: ${missing[*]} (Debian's names). This system has no apt-get; install them by hand."
  need_root
  echo "installing by apt: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update
  without_services apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
}

# Sluice starts its own Open vSwitch, web server and proxies inside its lab and
# needs none of the distribution's services, so nothing that is installed here
# starts listening on this machine, now or at the next boot.
without_services() {
  local policy=/usr/sbin/policy-rc.d made= before after
  before=$(enabled_services)
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    made=yes
  fi
  local status=0
  "$@" || status=$?
  [ -z "$made" ] || rm -f "$policy"
  after=$(enabled_services)
  comm -13 <(echo "$before") <(echo "$after") | while read -r unit; do
    [ -z "$unit" ] || systemctl --quiet disable "$unit" 2>/dev/null || true
  done
  return "$status"
}

enabled_services() {
  systemctl list-unit-files --type=service --state=enabled --no-legend 2>/dev/null | awk '{ print $1 }' | sort || true
}

plugins=/usr/lib/$(uname -m)-linux-gnu/gstreamer-1.0
rtsp=("$plugins"/libgstx264.so=gstreamer1.0-plugins-ugly "$plugins"/libgstrtp.so=gstreamer1.0-plugins-good "$plugins"/libgstopus.so=gstreamer1.0-plugins-base
  /usr/lib/python3/dist-packages/gi/__init__.py=python3-gi "${plugins%/*}"/girepository-1.0/GstRtspServer-1.0.typelib=gir1.2-gst-rtsp-server-1.0)
cinema=(ffmpeg=ffmpeg /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf=fonts-dejavu-core)

[ "$#" -gt 0 ] || die 'usage: scripts/deps.sh [root] [go] [unzip] [bare] [demo] [test] [cinema] [smoke]'
for group in "$@"; do
  case "$group" in
    root) need_root ;;
    go) need_go ;;
    unzip) install unzip=unzip ;;
    bare) install debootstrap=debootstrap ;;
    demo) install ovs-vswitchd=openvswitch-switch ip=iproute2 ss=iproute2 ethtool=ethtool curl=curl nginx=nginx-light ping=iputils-ping ;;
    test) venv=()
          python3 -c 'import ensurepip' 2>/dev/null || venv=(python3-venv=python3-venv)
          install "${venv[@]}" gcc=gcc /usr/include/stdlib.h=libc6-dev git=git unzip=unzip iperf3=iperf3 tshark=tshark haproxy=haproxy jq=jq \
            openssl=openssl ovs-testcontroller=openvswitch-testcontroller osken-manager=python3-os-ken \
            gtlsserver=ngtcp2-server gtlsclient=ngtcp2-client \
            dhclient=isc-dhcp-client udhcpc=udhcpc dhcpcd=dhcpcd-base keepalived=keepalived nft=nftables mptcpize=mptcpize rsync=rsync \
            clang=clang llvm-strip=llvm /usr/include/bpf/bpf_helpers.h=libbpf-dev \
            node=nodejs npm=npm chromium=chromium janus=janus pimd=pimd redis-server=redis-server etcd=etcd-server "${cinema[@]}" "${rtsp[@]}" ;;
    cinema) install chromium=chromium "${cinema[@]}" ;;
    smoke) install dhclient=isc-dhcp-client iperf3=iperf3 mptcpize=mptcpize nft=nftables jq=jq node=nodejs npm=npm "${cinema[@]}" ;;
    *) die "unknown group '$group'; known: root, go, unzip, bare, demo, test, cinema, smoke" ;;
  esac
done
