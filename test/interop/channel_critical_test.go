package interop

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/qos/critical"
	"github.com/sluice-net/sluice/services/qos/match"
)

// TestCriticalFlowBesideChannel has a definition of critical flows mean all that an ingress
// gateway sends, its channel included. The tree leads the channel still, and no flow is placed
// for it; another flow of the same host is placed on the same link, and both get through. With
// tables and in one.
func TestCriticalFlowBesideChannel(t *testing.T) {
	t.Parallel()
	for tables, name := range []string{"tables", "one"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			criticalBesideChannel(t, buildChannels(t, busy("paircrit"+name, tables)))
		})
	}
}

func criticalBesideChannel(t *testing.T, w *world) {
	w.post("/api/v1/qos/critical", critical.Spec{Name: "voice", Rate: flowRate, IdleTimeout: "30s", Match: match.Flow{
		IPv4Src: match.Text(w.addr("in1").String()), IPProto: "udp",
	}}, nil)
	w.must(testbed.Poll(t.Context(), "the gateway's switch to ask for first packets", func() error {
		rules, err := w.lab.Switch("s2").Ofctl(t.Context(), "dump-flows")
		if err == nil && !strings.Contains(rules, "udp,nw_src="+w.addr("in1").String()) && !strings.Contains(rules, "nw_src="+w.addr("in1").String()+" ") {
			err = fmt.Errorf("it does not:\n%s", rules)
		}
		return err
	}))
	g := w.watch("out1", w.addr("out1"))
	voice, err := testbed.StartStream(t.Context(), testbed.StreamOptions{
		Sender: w.lab.Host("in1"), Receiver: w.lab.Host("client"), To: netip.AddrPortFrom(w.addr("client"), voicePort), Rate: streamPPS, Size: packetBytes,
	})
	w.must(err)
	t.Cleanup(func() { voice.Stop() })
	flows := func() (all []critical.Record) {
		w.must(w.Get(t.Context(), "/api/v1/qos/flows", &all))
		return all
	}
	w.must(testbed.Poll(t.Context(), "the other flow to be placed", func() error {
		for _, f := range flows() {
			if strings.Contains(f.Flow, w.addr("client").String()) && f.State == critical.StateAccepted {
				return nil
			}
		}
		return fmt.Errorf("there are %+v", flows())
	}))
	w.channelGoesOn(g)
	w.arrives(voice)
	for _, f := range flows() {
		if strings.Contains(f.Flow, media.Addr().String()) || strings.Contains(f.Flow, w.addr("out1").String()) {
			t.Errorf("the channel is a critical flow: %+v", f)
		}
	}
}
