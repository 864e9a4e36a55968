package qos

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
)

// state returns what a host agent may change on a host.
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

// agent starts the host agent, which records in a file what it has to undo, with further
// arguments, and waits until it runs.
func (j *joins) agent(host, state string, args ...string) *testbed.Daemon {
	j.t.Helper()
	log := state + ".log"
	d, err := testbed.StartDaemon(context.WithoutCancel(j.t.Context()), j.lab.Host(host), log,
		selfbuild.Binary(j.t), append([]string{"host", "run", "--threshold", "512KiB", "--dscp", fmt.Sprint(subflowMark), "--state", state}, args...)...)
	if err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(func() {
		d.Stop()
		if j.t.Failed() {
			j.t.Logf("the agent of %s: %s", host, testbed.Tail(log, 50))
		}
	})
	within(j.t, testTimeout, "the agent to run", func() error {
		if said := testbed.Tail(log, 10); !strings.Contains(said, "host agent runs") {
			return errors.New(said)
		}
		now := j.state(host)
		if !strings.Contains(now, "sluice_host") || !strings.Contains(now, "path_manager:userspace") && !strings.Contains(now, "pm_type:1") {
			return errors.New(now)
		}
		return nil
	})
	return d
}

// secondAgent starts another agent beside the first, with a file for its state: it is refused, says
// which process runs, and changes nothing.
func (j *joins) secondAgent(host, state string, first *testbed.Daemon) {
	j.t.Helper()
	before := j.state(host)
	ctx, cancel := context.WithTimeout(j.t.Context(), testTimeout)
	defer cancel()
	out, err := j.lab.Host(host).Command(ctx, selfbuild.Binary(j.t), "host", "run", "--state", state).CombinedOutput()
	if err == nil || !strings.Contains(string(out), fmt.Sprintf("another process has it: %d (%s host run", first.PID(), selfbuild.Binary(j.t))) {
		j.t.Errorf("a second agent: %v: %s", err, out)
	}
	if now := j.state(host); now != before {
		j.t.Errorf("beside a second agent it was\n%s\nand is\n%s", before, now)
	}
}

// TestHostAgentTakesBack checks that an agent which ends leaves nftables, sysctls, limits
// and endpoints as they were, and that the next agent undoes the changes of one that was
// killed.
func TestHostAgentTakesBack(t *testing.T) {
	t.Parallel()
	topology := lab.Topology{Name: "qhostback", Hosts: []lab.Host{{Name: "a"}, {Name: "b"}}, Links: []lab.Link{lab.Both("a", "b", delayline.Params{})}}
	j := &joins{t: t, lab: lab.New(t, topology)}
	j.run("a", "ip", "mptcp", "limits", "set", "subflows", "5", "add_addr_accepted", "3")
	j.run("a", "ip", "mptcp", "endpoint", "add", j.lab.Host("a").Addr().String(), "subflow", "backup")
	j.run("a", "nft", "add table inet others; add chain inet others output { type filter hook output priority mangle; }; add rule inet others output ip dscp set 8")
	for manager, set := range map[string]string{
		"kernel":    "echo kernel >/proc/sys/net/mptcp/path_manager || echo 0 >/proc/sys/net/mptcp/pm_type",
		"userspace": "echo userspace >/proc/sys/net/mptcp/path_manager || echo 1 >/proc/sys/net/mptcp/pm_type",
	} {
		t.Run(manager, func(t *testing.T) {
			j := &joins{t: t, lab: j.lab}
			j.run("a", "sh", "-c", set)
			before, state := j.state("a"), filepath.Join(t.TempDir(), "state")
			for _, ends := range []func(){
				func() { j.agent("a", state).Stop() },
				func() {
					first := j.agent("a", state)
					j.secondAgent("a", state, first)
					j.secondAgent("a", state+"-of-its-own", first)
					first.Stop()
				},
				func() { j.agent("a", state).Kill(); j.agent("a", state).Stop() },
				func() { j.agent("a", state).Kill(); j.agent("a", state).Kill(); j.agent("a", state).Stop() },
			} {
				ends()
				if now := j.state("a"); now != before {
					t.Errorf("it was\n%s\nand is\n%s", before, now)
				}
			}
		})
	}
}

// TestHostAgentRestores checks that an agent restores what other programs remove or change, tells
// and counts it, and ends without an error even if they have just done so.
func TestHostAgentRestores(t *testing.T) {
	t.Parallel()
	topology := lab.Topology{Name: "qhostdrift", Hosts: []lab.Host{{Name: "a"}, {Name: "b"}}, Links: []lab.Link{lab.Both("a", "b", delayline.Params{})}}
	j := &joins{t: t, lab: lab.New(t, topology)}
	before, file := j.state("a"), filepath.Join(t.TempDir(), "state")
	d := j.agent("a", file, "--metrics", "127.0.0.1:9411")
	declared := j.state("a")
	for name, change := range map[string]string{
		"the whole ruleset is gone":  "nft flush ruleset",
		"the table is gone":          "nft delete table inet sluice_host",
		"the rules are gone":         "nft flush table inet sluice_host",
		"a rule is added":            "nft add rule inet sluice_host output tcp dport 80 drop",
		"another path manager is on": "echo kernel >/proc/sys/net/mptcp/path_manager || echo 0 >/proc/sys/net/mptcp/pm_type",
	} {
		j.run("a", "sh", "-c", change)
		within(t, testTimeout, "what the agent has declared, after "+name, func() error {
			if now := j.state("a"); now != declared {
				return errors.New(now)
			}
			return nil
		})
	}
	metrics := func() string {
		out, err := j.lab.Host("a").Command(t.Context(), "curl", "-s", "http://127.0.0.1:9411/metrics").Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for _, want := range []string{`sluice_host_agent_drift_total{thing="nftables table inet sluice_host"} 4`, `sluice_host_agent_drift_total{thing="net.mptcp.p`} {
		if got := metrics(); !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
	j.run("a", "nft", "flush", "ruleset")
	d.Stop()
	if said := testbed.Tail(file+".log", 50); strings.Count(said, "it was restored") < 4 || strings.Contains(said, "level=ERROR") || strings.Contains(strings.ToLower(said), "nft:") {
		t.Errorf("the agent has said %s", said)
	}
	if now := j.state("a"); now != before {
		t.Errorf("it was\n%s\nand is\n%s", before, now)
	}
}

// TestHostAgentsOpenSubflows checks that agents on both hosts open further subflows of a
// connection that has become large, that these are placed on more than one path, and that
// other connections get none. When the agents end, both hosts are as before. The experiment
// multipath-gain measures how much faster connections are.
func TestHostAgentsOpenSubflows(t *testing.T) {
	t.Parallel()
	j := newJoins(t, "qhostagent")
	hosts, before := []string{"a", "b"}, map[string]string{}
	var agents []*testbed.Daemon
	for _, h := range hosts {
		before[h] = j.state(h)
		agents = append(agents, j.agent(h, filepath.Join(t.TempDir(), h)))
	}
	if err := j.transfer(t.Context(), 256<<10, true); err != nil {
		t.Fatal(err)
	}
	if syns, others := j.asked(); syns+others != 0 {
		t.Errorf("%d SYNs and %d packets of a small connection have come up", syns, others)
	}
	j.during(func() {
		within(t, testTimeout, "three further subflows", func() error {
			if at := j.given(); len(at) != 3 {
				return fmt.Errorf("by %v", at)
			}
			return nil
		})
	})
	if at := j.given(); len(slices.Compact(at)) < 2 {
		t.Errorf("they go by %v", at)
	}
	if syns, others := j.asked(); syns != 3 || others != 0 {
		t.Errorf("SYNs of %d subflows have come up, and %d other packets", syns, others)
	}
	for i, h := range hosts {
		agents[i].Stop()
		if now := j.state(h); now != before[h] {
			t.Errorf("host %s was\n%s\nand is\n%s", h, before[h], now)
		}
	}
}
