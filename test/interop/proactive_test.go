package interop

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/critical"
	"github.com/sluice-net/sluice/services/qos/match"
)

// TestServicesOverProactive has rules by destination below the services: agents carry what is on
// the whitelist, with a class of traffic, a critical flow is placed, and all else goes by those
// rules; no pair of hosts has rules of its own. With tables and in one.
func TestServicesOverProactive(t *testing.T) {
	t.Parallel()
	for name, tables := range map[string]func(*lab.Topology){"tables": withTables, "one": oneTable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servicesOverProactive(t, "pairpro"+name, tables)
		})
	}
}

func servicesOverProactive(t *testing.T, name string, tables func(*lab.Topology)) {
	topology := lab.WAN(name, lab.WANOptions{Rate: rate, RTT: 20 * time.Millisecond})
	withAccess(&topology)
	tables(&topology)
	w := buildWith(t, topology, nil, "  forwarding: {mode: proactive}\n", func(*lab.Lab) string { return "" })
	w.publish(size)
	if n := w.download(); n != 0 {
		t.Errorf("%d sessions carried a connection that is on no whitelist", n)
	}
	w.byDestination()

	entry := w.whitelist()
	w.isCarried("a carried connection")
	w.post(classesPath, classes.ClassSpec{Name: "web", Priority: "0", MinRate: "10000000", Flows: w.web()}, nil)
	w.isCarried("a carried connection with a class")
	w.carriedOn("web", w.downPorts(), 10_000_000)
	w.must(w.Unlist(t.Context(), entry))

	w.post("/api/v1/qos/critical", critical.Spec{Name: "voice", Rate: flowRate, IdleTimeout: "30s", Match: match.Flow{UDPDst: match.Text(fmt.Sprint(voicePort))}}, nil)
	voice, err := testbed.StartStream(t.Context(), testbed.StreamOptions{
		Sender: w.lab.Host("server"), Receiver: w.lab.Host("client"), To: netip.AddrPortFrom(w.addr("client"), voicePort), Rate: streamPPS, Size: packetBytes,
	})
	w.must(err)
	t.Cleanup(func() { voice.Stop() })
	w.must(testbed.Poll(t.Context(), "the critical flow to be placed", func() error {
		var all []critical.Record
		err := w.Get(t.Context(), "/api/v1/qos/flows", &all)
		if err == nil && (len(all) != 1 || all[0].State != critical.StateAccepted) {
			err = fmt.Errorf("there are %+v", all)
		}
		return err
	}))
	w.arrives(voice)
	w.byDestination()
}

// byDestination waits until each switch has rules by destination; no pair of hosts has its own.
func (w *world) byDestination() {
	w.t.Helper()
	for _, sw := range w.lab.Topology().Switches {
		w.must(testbed.Poll(w.t.Context(), "rules by destination", func() error {
			rules, err := w.lab.Switch(sw.Name).Ofctl(w.t.Context(), "dump-flows")
			if err != nil {
				return err
			}
			byHost := 0
			for line := range strings.SplitSeq(rules, "\n") {
				between := strings.Contains(line, "in_port=") || strings.Contains(line, "_src=")
				if !strings.Contains(line, "dl_dst=") || strings.Contains(line, "dl_dst=01:") || strings.Contains(line, "dl_type=0x88cc") {
					continue
				}
				if !between {
					byHost++
				}
				if between && strings.Contains(line, "dl_src=") && !strings.Contains(line, "nw_") {
					w.t.Errorf("%s has a rule for a pair of hosts: %s", sw.Name, line)
				}
			}
			if byHost < 2 {
				return fmt.Errorf("%s has %d:\n%s", sw.Name, byHost, rules)
			}
			return nil
		}))
	}
}
