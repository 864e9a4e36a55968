package experiment

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/qos/critical"
	"github.com/sluice-net/sluice/services/qos/match"
)

const (
	squareTrunk = 15e6
	squarePort  = 5003
	// squareSilent bounds the median time without packets of a critical flow when a link of its
	// path fails, and squareCuts is the number of such failures.
	squareSilent = 200 * time.Millisecond
	squareCuts   = 10
	// squarePromise is the bandwidth in bit/s that is promised to each of three flows on one link.
	// Two of them send squarePolite packets a second with squareSize bytes of payload each, which
	// is less. One sends squareRude times as many.
	squarePromise = 4_000_000
	squarePolite  = 330
	squareSize    = 1400
	squareRude    = 3
	squareFor     = 5 * time.Second
)

// onSquare holds the measurements of critical UDP flows between two switches that are joined by two
// paths.
type onSquare struct {
	silent []float64               // ms, one for each failure of a link
	polite [2]testbed.StreamReport // of flows that do not exceed their promised rate
	rude   float64                 // bit/s of frames of the flow that does
}

// squareRun measures critical flows while links fail, and while one flow exceeds its promised rate.
func squareRun(ctx context.Context, env *Env) (m onSquare, err error) {
	q := &qosNetwork{
		name: "qsquare", trunk: squareTrunk, trunks: [][2]string{{"s1", "s2"}, {"s2", "s4"}, {"s1", "s3"}, {"s3", "s4"}},
		hosts: [][2]string{{"a1", "s1"}, {"a2", "s1"}, {"a3", "s1"}, {"b1", "s4"}, {"b2", "s4"}, {"b3", "s4"}},
	}
	err = q.up(ctx, env, func(ctx context.Context, l *lab.Lab) error {
		return q.controlled(ctx, env, l, 8, func(ctx context.Context, n *testbed.Network) error {
			var flows []qosFlow
			for i := range 3 {
				flows = append(flows, qosFlow{from: fmt.Sprint("a", i+1), to: fmt.Sprint("b", i+1)})
			}
			if err := introduceHosts(ctx, l, flows); err != nil {
				return err
			}
			if err := n.Do(ctx, http.MethodPost, "/api/v1/qos/critical", critical.Spec{
				Name: "film", Rate: units.Rate(squarePromise), Match: match.Flow{UDPDst: match.Text(fmt.Sprint(squarePort))}, IdleTimeout: "2s",
			}, nil); err != nil {
				return err
			}
			s := &squareRig{l: l, n: n, onSquare: &m}
			env.Step("a link of a critical flow fails, %d times", squareCuts)
			if err := s.cut(ctx); err != nil {
				return err
			}
			env.Step("one of three critical flows sends %d times its promise", squareRude)
			return s.excess(ctx)
		})
	})
	return m, err
}

// squareRig is the network of squareRun with its controller.
type squareRig struct {
	l *lab.Lab
	n *testbed.Network
	*onSquare
}

func (s *squareRig) stream(ctx context.Context, i, rate, size int) (*testbed.Stream, error) {
	to := s.l.Host(fmt.Sprint("b", i))
	return testbed.StartStream(ctx, testbed.StreamOptions{Sender: s.l.Host(fmt.Sprint("a", i)), Receiver: to, To: netip.AddrPortFrom(to.Addr(), squarePort), Rate: rate, Size: size})
}

// accepted waits until there are exactly want flows, and all of them are accepted.
func (s *squareRig) accepted(ctx context.Context, want int) (all []critical.Record, err error) {
	err = testbed.Poll(ctx, fmt.Sprintf("%d accepted flows", want), func() error {
		all = nil
		if err := s.n.Get(ctx, "/api/v1/qos/flows", &all); err != nil {
			return err
		}
		if len(all) != want {
			return fmt.Errorf("%d", len(all))
		}
		for _, f := range all {
			if f.State != critical.StateAccepted {
				return fmt.Errorf("%+v", f)
			}
		}
		return nil
	})
	return all, err
}

// links waits until want links are up.
func (s *squareRig) links(ctx context.Context, want int) error {
	return testbed.Poll(ctx, fmt.Sprintf("%d links", want), func() error {
		var found []struct{}
		if err := s.n.Get(ctx, "/api/v1/network/links", &found); err != nil {
			return err
		}
		if len(found) != want {
			return fmt.Errorf("%d", len(found))
		}
		return nil
	})
}

// cut makes links of a flow's path fail, one after the other.
func (s *squareRig) cut(ctx context.Context) error {
	stream, err := s.stream(ctx, 1, 1000, 200)
	if err != nil {
		return err
	}
	defer stream.Stop()
	for round := range squareCuts {
		all, err := s.accepted(ctx, 1)
		if err != nil {
			return err
		}
		via := fmt.Sprintf("s%d", uint64(all[0].Path[1].Switch))
		link := []string{"s1-" + via, via + "-s4"}[round%2]
		began := time.Now()
		if err := s.l.SetLink(ctx, link, false); err != nil {
			return err
		}
		if err := testbed.Poll(ctx, "packets on another way", func() error {
			all, err := s.accepted(ctx, 1)
			if err != nil {
				return err
			}
			if all[0].Moves != round+1 {
				return fmt.Errorf("it has been moved %d times", all[0].Moves)
			}
			return nil
		}); err != nil {
			return err
		}
		moved := time.Now()
		if err := testbed.Poll(ctx, "packets", func() error {
			if last := stream.LastArrival(); !last.After(moved) {
				return fmt.Errorf("the last came at %v", last)
			}
			return nil
		}); err != nil {
			return err
		}
		if err := s.l.SetLink(ctx, link, true); err != nil {
			return err
		}
		if err := s.links(ctx, 8); err != nil {
			return err
		}
		s.silent = append(s.silent, inMS(stream.Snapshot().Between(began, moved.Add(time.Second)).Gap))
	}
	return nil
}

// excess lets three flows share one link, where one of them sends more than it was promised.
func (s *squareRig) excess(ctx context.Context) error {
	if err := testbed.Poll(ctx, "no flow of before", func() error {
		_, err := s.accepted(ctx, 0)
		return err
	}); err != nil {
		return err
	}
	if err := s.l.SetLink(ctx, "s1-s3", false); err != nil {
		return err
	}
	if err := s.links(ctx, 6); err != nil {
		return err
	}
	var streams []*testbed.Stream
	defer func() {
		for _, x := range streams {
			x.Stop()
		}
	}()
	for i, rate := range []int{squarePolite, squarePolite, squareRude * squarePolite} {
		x, err := s.stream(ctx, i+1, rate, squareSize)
		if err != nil {
			return err
		}
		streams = append(streams, x)
		if _, err := s.accepted(ctx, i+1); err != nil {
			return err
		}
	}
	if err := testbed.Poll(ctx, "its excess to be told", func() error {
		all, err := s.accepted(ctx, 3)
		if err == nil && (all[2].Excess == 0 || !strings.Contains(all[2].Reason, "drops")) {
			err = fmt.Errorf("%+v", all[2])
		}
		return err
	}); err != nil {
		return err
	}
	began := time.Now()
	if err := tasks.Sleep(ctx, squareFor); err != nil {
		return err
	}
	ended := time.Now()
	if err := tasks.Sleep(ctx, time.Second); err != nil { // until packets in flight have arrived
		return err
	}
	for i := range s.polite {
		s.polite[i] = streams[i].Snapshot().Between(began, ended)
	}
	r := streams[2].Snapshot().Between(began, ended)
	s.rude = float64(r.Sent-r.Lost) * (squareSize + 42) * 8 / squareFor.Seconds()
	return nil
}

// report adds the table and the claims.
func (m onSquare) report(res *Result) {
	t := Table{Title: "Critical flows of UDP on two ways", Columns: []string{"what", "measured"}}
	for i, v := range m.silent {
		t.Add(fmt.Sprintf("silence at failure %d of a link, ms", i+1), ms2(v))
	}
	for i, r := range m.polite {
		t.Add(fmt.Sprintf("lost by flow %d, which keeps to its promise", i+1), fmt.Sprintf("%d of %d", r.Lost, r.Sent))
	}
	t.Add(fmt.Sprintf("arrived of the flow that sends %d times its promise, Mbit/s", squareRude), fmt.Sprintf("%.2f", m.rude/1e6))
	res.Tables = append(res.Tables, t)
	res.Claim(median(m.silent) <= inMS(squareSilent), fmt.Sprintf("when a link of its way fails, a critical flow is silent for at most %v, in the median of %d", squareSilent, squareCuts),
		"%.0f ms, at most %.0f ms", median(m.silent), quantile(m.silent, 1))
	kept := true
	for _, r := range m.polite {
		kept = kept && r.Lost*100 <= r.Sent
	}
	res.Claim(kept, fmt.Sprintf("two critical flows lose at most 1 %% of their packets to a third on the same link that sends %d times its promise", squareRude),
		"%d of %d and %d of %d", m.polite[0].Lost, m.polite[0].Sent, m.polite[1].Lost, m.polite[1].Sent)
	res.Claim(m.rude >= 3.9e6 && m.rude <= 4.2e6, "of the third arrive 3.9 to 4.2 Mbit/s, where 4 were promised", "%.2f Mbit/s", m.rude/1e6)
}
