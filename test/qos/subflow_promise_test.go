package qos

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/qos/critical"
	"github.com/sluice-net/sluice/services/qos/flowpath"
	"github.com/sluice-net/sluice/services/qos/match"
)

// metered returns the switches on which subflows pass a meter.
func (j *joins) metered() (at []string, err error) {
	for _, s := range []string{"s1", "s2", "s3", "s4", "s5"} {
		flows, err := j.lab.Switch(s).Ofctl(j.t.Context(), "dump-flows")
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(flows) {
			if strings.Contains(line, fmt.Sprint("tp_dst=", subflowPort)) && strings.Contains(line, "meter:") {
				at = append(at, s)
			}
		}
	}
	return at, nil
}

// TestSubflowGivesWayToPromise requests 8.5 of 10 Mbit/s for a flow where subflows leave
// less on all paths. The flow is accepted, because subflows yield, and those on its links
// pass meters. When it is over, they pass none.
func TestSubflowGivesWayToPromise(t *testing.T) {
	t.Parallel()
	j := newJoins(t, "qjoinsway")
	j.byKernel()
	const rate, port = 8_500_000, 5001
	d, faults := critical.Spec{Name: "film", Rate: rate, Match: match.Flow{UDPDst: match.Text(fmt.Sprint(port))}, IdleTimeout: "2s"}.Parse()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if err := j.critical.Definitions.Add(t.Context(), d.Name, d); err != nil {
		t.Fatal(err)
	}
	j.during(func() { j.promised(netip.AddrPortFrom(j.lab.Host("b").Addr(), port)) })
}

// promised sends a flow that is promised its rate beside subflows that use all paths.
func (j *joins) promised(to netip.AddrPort) {
	t := j.t
	within(t, testTimeout, "subflows that use all ways", func() error {
		all := j.subflows.Subflows()
		for _, s := range all {
			if s.Throughput < pathRate/5 {
				return fmt.Errorf("%+v", s)
			}
		}
		if at := middles(all); !slices.Equal(at, []int{2, 3, 4}) {
			return fmt.Errorf("subflows by %v", at)
		}
		return nil
	})
	s, err := testbed.StartStream(t.Context(), testbed.StreamOptions{Sender: j.lab.Host("a"), Receiver: j.lab.Host("b"), To: to, Rate: 100, Size: 1400})
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() { s.Stop() })
	defer stop()
	var film critical.Record
	within(t, testTimeout, "the flow to be accepted", func() error {
		all := j.critical.Flows()
		if len(all) != 1 || all[0].State != critical.StateAccepted {
			return fmt.Errorf("%+v", all)
		}
		film = all[0]
		return nil
	})
	within(t, testTimeout, "no subflow to go there unmetered", func() error { return j.unmetered(film) })
	since := time.Now()
	within(t, testTimeout, "the flow to arrive", func() error {
		if last := s.LastArrival(); !last.After(since) {
			return fmt.Errorf("the last packet arrived at %v", last)
		}
		return nil
	})
	stop()
	within(t, testTimeout, "the promise to be given up, and no meter to be passed", func() error {
		at, err := j.metered()
		if flows := j.critical.Flows(); len(flows) > 0 || len(at) > 0 {
			return errors.Join(err, fmt.Errorf("meters at %v; %+v", at, flows))
		}
		return err
	})
}

// unmetered returns an error while a subflow leaves a switch by a port of a critical flow
// without a meter.
func (j *joins) unmetered(film critical.Record) error {
	at, err := j.metered()
	if err != nil {
		return err
	}
	out := map[flowpath.Hop]bool{}
	for _, h := range film.Path[:len(film.Path)-1] {
		out[flowpath.Hop{Switch: h.Switch, Out: h.Out}] = true
	}
	for _, s := range j.subflows.Subflows() {
		for _, h := range s.Path[:len(s.Path)-1] {
			if out[flowpath.Hop{Switch: h.Switch, Out: h.Out}] && len(at) == 0 {
				return fmt.Errorf("%v leaves %v by port %d, and passes no meter", s.Flow, h.Switch, h.Out)
			}
		}
	}
	return nil
}
