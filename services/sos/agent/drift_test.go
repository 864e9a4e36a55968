package agent

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// TestAgentRestores checks that an agent restores what other programs change in the kernel, that it
// counts that in its status and its metrics, and that its sessions go on meanwhile.
func TestAgentRestores(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v6=%v", v6), func(t *testing.T) {
			r := newRig(t, v6, 1500, agentapi.Params{})
			rules := startRulesOf(t, r.chain, r.chain.x)
			if !strings.Contains(rules, r.agentX.String()) || idleSetting(t, r.chain.x) != "0" {
				t.Fatalf("rules %q, the setting is %s", rules, idleSetting(t, r.chain.x))
			}
			exchange := func() {
				t.Helper()
				for _, way := range [][2]io.ReadWriter{{r.client, r.server}, {r.server, r.client}} {
					if _, err := way[0].Write([]byte("data")); err != nil {
						t.Fatal(err)
					}
					if _, err := io.ReadFull(way[1], make([]byte, 4)); err != nil {
						t.Fatal(err)
					}
				}
			}
			exchange()
			for _, change := range []string{"rule del priority " + strconv.Itoa(startPriority), "rule flush"} {
				ip(t, fmt.Sprintf("%s -n %s %s", r.family, r.chain.x, change))
				eventually(t, "the rules after "+change, func() bool { return startRulesOf(t, r.chain, r.chain.x) == rules })
				if change == "rule flush" { // it has removed those by which the main table is used, too
					ip(t, fmt.Sprintf("%s -n %s rule add priority 32766 lookup main", r.family, r.chain.x))
				}
				exchange()
			}
			if err := inNamespace(r.chain.x, func() error { return os.WriteFile(slowStartAfterIdle, []byte("1"), 0o644) }); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the setting is restored", func() bool { return idleSetting(t, r.chain.x) == "0" })
			exchange()

			st, err := clientOf(t, r.chain.x).Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			counts := map[string]uint64{}
			for _, c := range st.Drift {
				counts[c.Thing] = c.Times
			}
			for thing, times := range map[string]uint64{"rule from " + r.agentX.String(): 2, "net.ipv4.tcp_slow_start_after_idle": 1} {
				if counts[thing] != times {
					t.Errorf("%s was restored %d times, want %d: %v", thing, counts[thing], times, counts)
				}
			}
			if n := drift.Total(st.Drift); n != 3 {
				t.Errorf("%d differences in all", n)
			}
		})
	}
}

// idleSetting returns the value of slowStartAfterIdle in a namespace.
func idleSetting(t *testing.T, ns string) (value string) {
	t.Helper()
	if err := inNamespace(ns, func() error {
		b, err := os.ReadFile(slowStartAfterIdle)
		value = strings.TrimSpace(string(b))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return value
}

// TestAgentStartedTwice checks that an agent which cannot start, because another one has its ports,
// leaves the kernel as the other one has set it up.
func TestAgentStartedTwice(t *testing.T) {
	n := newChain(t, 1500, false)
	chainAgent(t, n.x, n.agentX, nil)
	rules := startRulesOf(t, n, n.x)
	if err := inNamespace(n.x, func() error {
		cfg := DefaultConfig()
		cfg.DataAddr = n.agentX
		if a, err := New(t.Context(), cfg); err == nil {
			a.Close()
			t.Error("a second agent has started")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	st, err := clientOf(t, n.x).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if now := startRulesOf(t, n, n.x); now != rules || len(st.Drift) > 0 {
		t.Errorf("rules are %q, and were %q; the first agent had to restore %v", now, rules, st.Drift)
	}
}
