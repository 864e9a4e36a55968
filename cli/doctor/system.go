package doctor

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// wantBuffer is the size of a socket buffer in bytes that keeps a connection of 1 Gbit/s with a
// round-trip time of 150 ms busy, with a reserve.
const wantBuffer = 64 << 20

func openFiles() uint64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return math.MaxUint64 // the limit is unknown, so no finding is made
	}
	return l.Max
}

func (s *System) read(path string) string {
	b, err := os.ReadFile(filepath.Join(s.Root, path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (s *System) exists(path string) bool {
	_, err := os.Stat(filepath.Join(s.Root, path))
	return err == nil
}

func (s *System) controller() []Finding {
	return []Finding{s.fileLimit(1024, "each switch and each client of the API needs one")}
}

func (s *System) agent() []Finding {
	out := []Finding{
		s.fileLimit(65536, "a session needs 2 + 3p of them, with p connections"),
		s.root(Warn, "the agent cannot raise its socket buffers beyond the kernel's limit", "run it as root, or give it CAP_NET_ADMIN, as the systemd unit does"),
		s.congestion(),
	}
	out = append(out, s.sysctl("net.ipv4.tcp_slow_start_after_idle", "0", "idle connections between agents start slowly again"))
	for _, name := range []string{"net.core.rmem_max", "net.core.wmem_max"} {
		out = append(out, s.buffer(name))
	}
	return append(out, s.neighbours("net.ipv4.neigh.default.gc_thresh3"), s.neighbours("net.ipv6.neigh.default.gc_thresh3"))
}

func (s *System) fileLimit(want uint64, why string) Finding {
	f := Finding{Check: "open files", Level: OK, Found: fmt.Sprintf("up to %d", s.Files)}
	if s.Files < want {
		f.Level, f.Advice = Warn, fmt.Sprintf("%s: raise the limit to %d or more (systemd: LimitNOFILE=%d, shell: ulimit -n)", why, want, want)
	}
	return f
}

func (s *System) root(level Level, why, advice string) Finding {
	f := Finding{Check: "user", Level: OK, Found: "root"}
	if s.UID != 0 {
		f.Level, f.Found, f.Advice = level, fmt.Sprintf("user %d", s.UID), why+": "+advice
	}
	return f
}

func (s *System) congestion() Finding {
	f := Finding{Check: "congestion control", Level: OK, Found: s.read("/proc/sys/net/ipv4/tcp_available_congestion_control")}
	if !slices.Contains(strings.Fields(f.Found), "bbr") {
		f.Level, f.Advice = Warn, "bbr keeps a lossy link full where cubic cannot: modprobe tcp_bbr, and put tcp_bbr into /etc/modules-load.d/sluice.conf"
	}
	return f
}

// sysctlPath returns the file of a sysctl.
func sysctlPath(name string) string { return "/proc/sys/" + strings.ReplaceAll(name, ".", "/") }

func (s *System) sysctl(name, want, why string) Finding {
	got := s.read(sysctlPath(name))
	f := Finding{Check: name, Level: OK, Found: got}
	switch got {
	case want:
	case "":
		f.Level, f.Found = Info, "not there (set in another network namespace)"
	default:
		f.Level, f.Advice = Warn, fmt.Sprintf("%s: sysctl -w %s=%s, and keep it in /etc/sysctl.d/sluice.conf", why, name, want)
	}
	return f
}

func (s *System) buffer(name string) Finding {
	got := s.read(sysctlPath(name))
	n, err := strconv.ParseInt(got, 10, 64)
	f := Finding{Check: name, Level: OK, Found: got + " bytes"}
	switch {
	case err != nil:
		f.Level, f.Found = Info, "not there (set in another network namespace)"
	case n >= wantBuffer:
	case s.UID == 0:
		f.Level, f.Found = Info, f.Found+", which root may exceed"
	default:
		f.Level, f.Advice = Warn, fmt.Sprintf("too small to fill a long link with one connection: sysctl -w %s=%d", name, wantBuffer)
	}
	return f
}

// wantNeighbours is the number of hosts on the agent's own networks that it should be able to serve.
const wantNeighbours = 8192

// neighbours checks a limit of the neighbour tables, which all interfaces and network namespaces of
// the machine share (arp(7)). Packets to hosts beyond the limit are lost.
func (s *System) neighbours(name string) Finding {
	got := s.read(sysctlPath(name))
	n, err := strconv.Atoi(got)
	f := Finding{Check: name, Level: OK, Found: got + " neighbours"}
	switch {
	case err != nil:
		f.Level, f.Found = Info, "not there (without this IP version, or set in another network namespace)"
	case n < wantNeighbours:
		f.Level, f.Advice = Warn, fmt.Sprintf("connections of more clients than this on the agent's own networks fail: sysctl -w %s=%d, and gc_thresh2 to half of it", name, wantNeighbours)
	}
	return f
}

func (s *System) lab(ctx context.Context) []Finding {
	out := []Finding{
		s.root(Fail, "the lab makes network namespaces and interfaces", "run it as root"),
		s.file("network namespaces", "/proc/self/ns/net", "a kernel with CONFIG_NET_NS"),
		s.file("TAP devices", "/dev/net/tun", "modprobe tun, or a container with --device /dev/net/tun"),
		s.openVSwitch(ctx),
	}
	for _, p := range []struct{ program, packet, why string }{
		{"ovsdb-server", "openvswitch-switch", "each switch of the lab has its own"},
		{"ovs-vswitchd", "openvswitch-switch", "each switch of the lab is one"},
		{"ip", "iproute2", "namespaces and links are made with it"},
		{"ethtool", "ethtool", "checksum offloading of interfaces has to be switched off"},
		{"curl", "curl", "the demonstration downloads with it"},
		{"iperf3", "iperf3", "experiments measure with it"},
	} {
		out = append(out, s.program(p.program, p.packet, p.why))
	}
	return append(out, s.netem())
}

func (s *System) file(check, path, advice string) Finding {
	f := Finding{Check: check, Level: OK, Found: path}
	if !s.exists(path) {
		f.Level, f.Found, f.Advice = Fail, path+" is not there", "needed: "+advice
	}
	return f
}

func (s *System) program(name, packet, why string) Finding {
	path, err := s.LookPath(name)
	if err != nil {
		return Finding{Check: name, Level: Fail, Found: "not installed", Advice: why + ": apt-get install " + packet}
	}
	return Finding{Check: name, Level: OK, Found: path}
}

var ovsVersion = regexp.MustCompile(`\(Open vSwitch\) (\d+)\.(\d+)`)

func (s *System) openVSwitch(ctx context.Context) Finding {
	f := Finding{Check: "Open vSwitch", Level: Fail, Found: "not installed", Advice: "apt-get install openvswitch-switch"}
	out, err := s.Output(ctx, "ovs-vsctl", "--version")
	if err != nil {
		return f
	}
	m := ovsVersion.FindStringSubmatch(string(out))
	if m == nil {
		f.Found, f.Advice = "of a version that cannot be read", "install version 2.13 or later"
		return f
	}
	major, _ := strconv.Atoi(m[1]) // digits, by the pattern
	minor, _ := strconv.Atoi(m[2])
	f.Found = m[1] + "." + m[2]
	if major < 2 || major == 2 && minor < 13 {
		f.Advice = "too old: bundles and changes of groups need version 2.13 or later"
		return f
	}
	f.Level, f.Advice = OK, ""
	if !s.exists("/sys/module/openvswitch") {
		f.Level, f.Found = Info, f.Found+", userspace datapath (the kernel module is not loaded)"
	}
	return f
}

func (s *System) netem() Finding {
	if s.exists("/sys/module/sch_netem") || s.module("sch_netem") {
		return Finding{Check: "link emulation", Level: OK, Found: "netem of the kernel"}
	}
	return Finding{Check: "link emulation", Level: Info, Found: "no netem in this kernel: the lab uses its own delay line"}
}

func (s *System) module(name string) bool {
	release := s.read("/proc/sys/kernel/osrelease")
	b := s.read("/lib/modules/" + release + "/modules.dep")
	return strings.Contains(b, "/"+name+".ko")
}
