package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover"
)

// roamSite is a mobility lab with a controller, in which simulated devices roam on the raw
// interfaces of one host.
type roamSite struct {
	lab     *lab.Lab
	network lab.MobilityDomain
	domain  *testbed.HandoverDomain
	radios  []*testbed.Radio // one at each edge
}

// setLatencies sets the latencies of the control connections, by switch, and of the links between
// switches.
func (s *roamSite) setLatencies(ctx context.Context, control func(name string) time.Duration, between func(lab.Link) time.Duration) error {
	top := s.lab.Topology()
	for _, sw := range top.Switches {
		if err := s.lab.SetLinkParams(ctx, "control-"+sw.Name, delayline.Params{Delay: control(sw.Name)}); err != nil {
			return err
		}
	}
	isSwitch := func(node string) bool {
		return slices.ContainsFunc(top.Switches, func(w lab.Switch) bool { return w.Name == node })
	}
	for _, l := range top.Links {
		if !isSwitch(l.A.Node) || !isSwitch(l.B.Node) {
			continue
		}
		if err := s.lab.SetLinkParams(ctx, l.Name, delayline.Params{Delay: between(l)}); err != nil {
			return err
		}
	}
	return nil
}

// withRoaming builds the lab, starts the controller, runs f, and takes everything down again.
func (e *Env) withRoaming(ctx context.Context, name string, o lab.MobilityOptions, f func(context.Context, *roamSite) error) error {
	return e.withLab(ctx, lab.Mobility(name, o), func(ctx context.Context, l *lab.Lab) error {
		d, err := testbed.DeployHandover(ctx, testbed.HandoverOptions{
			Lab: l, Binary: e.Binary, LogDir: e.Dir, Domains: []testbed.HandoverNetwork{{Name: "home", Network: o.Domain()}},
		})
		if err != nil {
			return err
		}
		defer d.Close()
		s := &roamSite{lab: l, network: o.Domain(), domain: d.Domains[0]}
		defer s.closeRadios()
		if err := s.openRadios(o.Interfaces); err != nil {
			return err
		}
		return f(ctx, s)
	})
}

// openRadios opens the first n interfaces of the host on which devices roam.
func (s *roamSite) openRadios(n int) error {
	for i := range n {
		r, err := testbed.OpenRadio(s.lab.Host(theDevice), fmt.Sprintf("eth%d", i))
		if err != nil {
			return err
		}
		s.radios = append(s.radios, r)
	}
	return nil
}

func (s *roamSite) closeRadios() {
	for _, r := range s.radios {
		r.Close()
	}
}

// portOf returns the switch port of a radio.
func (s *roamSite) portOf(r *testbed.Radio) string {
	sw, port := s.lab.Link(theDevice + "-" + r.Name()).Attachment()
	return fmt.Sprintf("%016x/%d", s.lab.Switch(sw).DPID(), port)
}

// waitLatencies waits until the controller has measured about the given latency on every link
// between switches.
func (s *roamSite) waitLatencies(ctx context.Context, want time.Duration) error {
	return testbed.Poll(ctx, fmt.Sprintf("links of %v", want), func() error {
		var links []struct {
			Latency float64 `json:"latency_milliseconds"`
		}
		if err := s.domain.Get(ctx, "/api/v1/network/links", &links); err != nil {
			return err
		}
		for _, l := range links {
			if off := l.Latency - inMS(want); off < -latencySlack || off > latencySlack+inMS(want)/5 {
				return fmt.Errorf("one has %.1f ms", l.Latency)
			}
		}
		return nil
	})
}

// latencySlack is what switches and controller themselves add to a probe, in ms.
const latencySlack = 3.0

// roamer is a simulated device that is registered.
type roamer struct {
	*testbed.Station
	ID string
}

// newStation registers a simulated device of a class. At the radios second it has another
// interface, so that it can be at two places at once.
func (s *roamSite) newStation(ctx context.Context, n uint16, class string, second ...*testbed.Radio) (*roamer, error) {
	one, other := openflow.MAC{0x0a, 0, 0, 0, byte(n >> 8), byte(n)}, openflow.MAC{0x0a, 0, 0, 1, byte(n >> 8), byte(n)}
	d := &roamer{Station: &testbed.Station{Home: one, Radios: map[*testbed.Radio]openflow.MAC{}}, ID: fmt.Sprintf("station%d", n)}
	for _, r := range second {
		d.Radios[r] = other
	}
	return d, s.domain.PutDevice(ctx, d.ID, handover.DeviceSpec{MACs: []string{one.String(), other.String()}, Class: class})
}

// lastRecord returns the controller's latest record of a device.
func (s *roamSite) lastRecord(ctx context.Context, id string) (handover.Record, error) {
	var record handover.Record
	err := testbed.Poll(ctx, "the record of a move", func() error {
		all, err := s.domain.Records(ctx, id)
		if err == nil && len(all) == 0 {
			err = errors.New("there is none")
		}
		if err != nil {
			return err
		}
		record = all[0]
		if record.Result == handover.ResultPending {
			return errors.New("the move is not over")
		}
		return nil
	})
	return record, err
}

// awaitPackets waits until n more packets of a stream have arrived.
func awaitPackets(ctx context.Context, s *testbed.Stream, n int) error {
	_, before := s.Count()
	return testbed.Poll(ctx, "packets of the stream", func() error {
		if sent, received := s.Count(); received < before+n {
			return fmt.Errorf("%d of %d sent have arrived", received, sent)
		}
		return nil
	})
}

// firstArrival records the time of the first packet that arrives at a place.
type firstArrival struct {
	once sync.Once
	at   time.Time
	seen chan struct{}
}

func newFirstArrival() *firstArrival { return &firstArrival{seen: make(chan struct{})} }

func (f *firstArrival) note(at time.Time) {
	f.once.Do(func() { f.at = at; close(f.seen) })
}

func (f *firstArrival) wait(ctx context.Context) (time.Time, error) {
	t := time.NewTimer(giveUp)
	defer t.Stop()
	select {
	case <-f.seen:
		return f.at, nil
	case <-t.C:
		return time.Time{}, fmt.Errorf("nothing for %v", giveUp)
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
}
