#!/bin/sh
# Compiles datapath.c, and makes the Go code that embeds it and has its types: with
# bpf2go, into this package or the folder that is named. The result depends on the
# compiler alone: what is in the repository is of Debian 12's clang 14
# (apt-get install clang llvm libbpf-dev), and a test compares when it is there.
set -eu
cd "$(dirname "$0")/.."
go tool bpf2go -output-dir "${1:-.}" -go-package ebpf -target bpfel,bpfeb datapath bpf/datapath.c -- \
	-O2 -Wall -Werror -mcpu=v3 -fdebug-compilation-dir=. "-I/usr/include/$(uname -m)-linux-gnu"
