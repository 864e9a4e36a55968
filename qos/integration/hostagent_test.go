package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/experiment/stage"
	"github.com/sluice-net/sluice/internal/selfbuild"
)

// state is what a host agent may change of a host.
func (j *joins) state(host string) string {
	j.t.Helper()
	var all []string
	for _, args := range [][]string{
		{"nft", "list", "ruleset"}, {"ip", "mptcp", "limits"}, {"ip", "mptcp", "endpoint"}, {"sh", "-c", "grep -r . /proc/sys/net/mptcp 2>/dev/null"},
	} {
		out, err := j.lab.Host(host).Command(j.t.Context(), args[0], args[1:]...).Output()
		if err != nil {
			j.t.Fatalf("%v: %v", args, err)
		}
		all = append(all, string(out))
	}
	return strings.Join(all, "\n")
}

// Agents on both hosts open further subflows of a connection when it has become large, so that
// it has more than the rate of one way, and of none that has not. When they end, both hosts are
// as before.
func TestHostAgentGains(t *testing.T) {
	j := newJoins(t, "qhostagent")
	hosts, before := []string{"a", "b"}, map[string]string{}
	var agents []*stage.Daemon
	for _, h := range hosts {
		before[h] = j.state(h)
		d, err := stage.StartDaemon(context.WithoutCancel(t.Context()), j.lab.Host(h), filepath.Join(t.TempDir(), h+".log"),
			selfbuild.Binary(t), "host", "run", "--threshold", "512KiB", "--dscp", fmt.Sprint(subflowMark), "--state", filepath.Join(t.TempDir(), h))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Stop)
		agents = append(agents, d)
		within(t, criticalPatience, "the agent to run", func() error {
			if now := j.state(h); !strings.Contains(now, "sluice_host") || !strings.Contains(now, "path_manager:userspace") && !strings.Contains(now, "pm_type:1") {
				return fmt.Errorf("%s", now)
			}
			return nil
		})
	}
	if _, err := j.transfer(t.Context(), 256<<10, true); err != nil {
		t.Fatal(err)
	}
	if n := j.asked.Load(); n != 0 {
		t.Errorf("%d packets of a small connection have come up", n)
	}
	const size = 12 << 20
	alone, err := j.transfer(t.Context(), size, false)
	if err != nil {
		t.Fatal(err)
	}
	took, err := j.transfer(t.Context(), size, true)
	if err != nil {
		t.Fatal(err)
	}
	at := j.given()
	gain := alone.Seconds() / took.Seconds()
	t.Logf("plain TCP %v, with further subflows by %v %v: %.2f times as fast", alone, at, took, gain)
	if len(slices.Compact(at)) < 2 || gain < 1.7 {
		t.Errorf("%.2f times as fast, by %v", gain, at)
	}
	if n := j.asked.Load(); n != 3 {
		t.Errorf("%d packets have come up for three subflows", n)
	}
	for i, h := range hosts {
		agents[i].Stop()
		if now := j.state(h); now != before[h] {
			t.Errorf("host %s was\n%s\nand is\n%s", h, before[h], now)
		}
	}
}
