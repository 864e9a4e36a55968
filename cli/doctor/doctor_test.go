package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services"
)

// machine returns a System with the given files and programs.
func machine(t *testing.T, files, programs map[string]string) *System {
	t.Helper()
	s := &System{
		Root: t.TempDir(), UID: 1000, Files: 1 << 20,
		LookPath: func(name string) (string, error) {
			if _, ok := programs[name]; !ok {
				return "", errors.New("not there")
			}
			return "/usr/bin/" + name, nil
		},
		Output: func(_ context.Context, name string, _ ...string) ([]byte, error) {
			if out, ok := programs[name]; ok {
				return []byte(out), nil
			}
			return nil, errors.New("not there")
		},
	}
	for path, text := range files {
		full := filepath.Join(s.Root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func level(t *testing.T, all []Finding, check string, want Level, says string) {
	t.Helper()
	for _, f := range all {
		if f.Check != check {
			continue
		}
		if f.Level != want || !strings.Contains(f.Found+f.Advice, says) {
			t.Errorf("%s: %+v, want %s saying %q", check, f, want, says)
		}
		if (f.Level == Fail || f.Level == Warn) == (f.Advice == "") {
			t.Errorf("%s: level %s with advice %q", check, f.Level, f.Advice)
		}
		return
	}
	t.Errorf("%s was not checked: %+v", check, all)
}

func TestAgent(t *testing.T) {
	const ipv4, ipv6, core = "/proc/sys/net/ipv4/", "/proc/sys/net/ipv6/", "/proc/sys/net/core/"
	good := machine(t, map[string]string{
		ipv4 + "tcp_available_congestion_control": "reno cubic bbr", ipv4 + "tcp_slow_start_after_idle": "0",
		core + "rmem_max": "67108864", core + "wmem_max": "67108864",
		ipv4 + "neigh/default/gc_thresh3": "8192", ipv6 + "neigh/default/gc_thresh3": "131072",
	}, nil)
	good.UID = 0
	for _, f := range good.Run(t.Context(), Agent) {
		if f.Level != OK || f.For != Agent {
			t.Errorf("a good machine: %+v", f)
		}
	}
	poor := machine(t, map[string]string{
		ipv4 + "tcp_available_congestion_control": "reno cubic", ipv4 + "tcp_slow_start_after_idle": "1", core + "rmem_max": "212992",
		ipv4 + "neigh/default/gc_thresh3": "1024",
	}, nil)
	poor.Files = 100
	all := poor.Run(t.Context(), Agent)
	level(t, all, "open files", Warn, "LimitNOFILE")
	level(t, all, "user", Warn, "CAP_NET_ADMIN")
	level(t, all, "congestion control", Warn, "modprobe tcp_bbr")
	level(t, all, "net.ipv4.tcp_slow_start_after_idle", Warn, "sysctl -w")
	level(t, all, "net.core.rmem_max", Warn, "sysctl -w")
	level(t, all, "net.core.wmem_max", Info, "namespace")
	level(t, all, "net.ipv4.neigh.default.gc_thresh3", Warn, "sysctl -w")
	level(t, all, "net.ipv6.neigh.default.gc_thresh3", Info, "IP version")
}

func TestLab(t *testing.T) {
	version := "ovs-vsctl (Open vSwitch) 3.1.0\nDB Schema 8.3.1\n"
	s := machine(t, map[string]string{
		"/proc/self/ns/net": "", "/proc/sys/kernel/osrelease": "6.1.0", "/lib/modules/6.1.0/modules.dep": "kernel/net/sched/sch_netem.ko:",
	}, map[string]string{"ovs-vsctl": version, "ovsdb-server": "", "ip": ""})
	all := s.Run(t.Context(), Lab)
	level(t, all, "user", Fail, "root")
	level(t, all, "network namespaces", OK, "")
	level(t, all, "TAP devices", Fail, "modprobe tun")
	level(t, all, "Open vSwitch", Info, "userspace")
	level(t, all, "ovsdb-server", OK, "")
	level(t, all, "ovs-vswitchd", Fail, "apt-get install openvswitch-switch")
	level(t, all, "link emulation", OK, "netem")
	for out, want := range map[string]Level{"ovs-vsctl (Open vSwitch) 2.12.0": Fail, "something": Fail} {
		s := machine(t, nil, map[string]string{"ovs-vsctl": out})
		level(t, s.Run(t.Context(), Lab), "Open vSwitch", want, "2.13")
	}
	level(t, machine(t, nil, nil).Run(t.Context(), Lab), "Open vSwitch", Fail, "apt-get")
	level(t, machine(t, nil, nil).Run(t.Context(), Lab), "link emulation", Info, "delay line")
}

func TestControllerConfiguration(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.Init(dir, "ca", time.Hour*24*365)
	if err != nil {
		t.Fatal(err)
	}
	otherDir := t.TempDir()
	if _, err := pki.Init(otherDir, "other", time.Hour); err != nil {
		t.Fatal(err)
	}
	names := func(name, authority string) config.TLS {
		return config.TLS{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key"), CA: filepath.Join(authority, pki.CACertFile)}
	}
	for name, valid := range map[string]time.Duration{"good": 60 * 24 * time.Hour, "old": time.Hour} {
		pair, err := ca.Issue(pki.Request{Role: pki.RoleController, Name: name, Valid: valid})
		if err != nil {
			t.Fatal(err)
		}
		if err := pair.Write(dir, name); err != nil {
			t.Fatal(err)
		}
	}
	c := services.DefaultConfig()
	c.DataDir = dir
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := c.OpenFlow.Listen[0].UnmarshalText([]byte("192.0.2.77:0")); err != nil {
		t.Fatal(err)
	}
	c.API.TLS, c.Agents.TLS, c.OpenFlow.TLS = names("old", dir), names("good", otherDir), names("good", dir)
	all := ForController(t.Context(), c)
	level(t, all, "data folder", Warn, "chmod 700")
	level(t, all, "openflow.listen", Fail, "no interface")
	level(t, all, "api.tls", Warn, "expires soon")
	level(t, all, "agents.tls", Fail, "belong together")
	level(t, all, "openflow.tls", OK, "good")
	c.API.TLS.Key = filepath.Join(dir, "good.key")
	c.Agents.TLS = config.TLS{}
	all = ForController(t.Context(), c)
	level(t, all, "api.tls", Fail, "pair")
	level(t, all, "agents.tls", Warn, "no agent")
}
