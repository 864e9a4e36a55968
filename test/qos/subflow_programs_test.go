package qos

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/qos/subflows"
)

// deployed is such a network under a controller that is a process of its own.
type deployed struct {
	*testbed.Deployment
	*joins
	log string
}

// deploy starts a controller with rules by destination and the given settings in its
// section qos. If queues is set, the switches' queues are configured, too.
func deploy(t *testing.T, topology lab.Topology, qos string, queues bool) *deployed {
	t.Helper()
	l, dir := lab.New(t, topology), t.TempDir()
	services := "qos: {" + qos + "}\n"
	if queues {
		services = "qos: {queues: connect, " + qos + "}\novsdb:\n  switches:\n"
		for _, s := range topology.Switches {
			services += fmt.Sprintf("    %016x: %s\n", l.Switch(s.Name).DPID(), l.Switch(s.Name).Database())
		}
		stop, err := testbed.StartClassifiers(context.WithoutCancel(t.Context()), l, selfbuild.Binary(t), dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
	text := "  forwarding: {mode: proactive}\n  switches:\n"
	for _, s := range topology.Switches {
		var ports []string
		for port := range 8 {
			ports = append(ports, fmt.Sprintf("%d: %s", port+1, units.FormatRate(pathRate)))
		}
		text += fmt.Sprintf("    %016x: {name: %s, capacity: {%s}}\n", l.Switch(s.Name).DPID(), s.Name, strings.Join(ports, ", "))
	}
	d, err := testbed.Deploy(context.WithoutCancel(t.Context()), testbed.Options{
		Lab: l, Binary: selfbuild.Binary(t), LogDir: dir, Network: text, Services: services,
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &deployed{d, &joins{t: t, lab: l}, filepath.Join(dir, "controller.log")}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("controller: %s", testbed.Tail(w.log, 30))
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	w.ready()
	return w
}

// ready waits until all links are known and hosts reach each other.
func (w *deployed) ready() {
	w.t.Helper()
	within(w.t, testTimeout, "all links", func() error {
		n, err := w.Links(w.t.Context())
		if err == nil && n != 12 {
			err = fmt.Errorf("%d", n)
		}
		return err
	})
	for _, h := range w.lab.Topology().Hosts {
		if h.Name == "b" {
			continue
		}
		within(w.t, testTimeout, "the hosts to reach each other", func() error {
			return w.lab.Host(h.Name).Command(w.t.Context(), "ping", "-c1", "-W1", w.lab.Host("b").Addr().String()).Run()
		})
	}
	const still = 2 * time.Second
	wanted, since := 0.0, time.Now()
	within(w.t, testTimeout, "the rules of forwarding", func() error {
		m, err := w.Metrics(w.t.Context())
		if now := m.Sum("sluice_network_rules"); now != wanted {
			wanted, since = now, time.Now()
		}
		led, hosts := m["sluice_network_destinations"], len(w.lab.Topology().Hosts)
		if err == nil && (led < float64(hosts) || time.Since(since) < still) {
			err = fmt.Errorf("there are %.0f, since %v, for %.0f of %d hosts", wanted, since, led, hosts)
		}
		return err
	})
}

// listed returns the subflows that have been placed.
func (w *deployed) listed() (all []subflows.Subflow, err error) {
	err = w.Get(w.t.Context(), "/api/v1/qos/subflows", &all)
	return all, err
}

// rules returns the rules of subflows in all switches, as these list them, without
// counters.
func (w *deployed) rules() (all []string, err error) {
	for _, s := range w.lab.Topology().Switches {
		flows, err := w.lab.Switch(s.Name).Ofctl(w.t.Context(), "dump-flows", "--no-stats")
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(flows) {
			if strings.Contains(line, "tcp,") && strings.Contains(line, "tp_src=") {
				all = append(all, s.Name+" "+strings.TrimSpace(line))
			}
		}
	}
	return all, nil
}
