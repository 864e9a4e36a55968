package experiment

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/mobilityfirst"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/rawlink"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// newNames returns the keys of n new names.
func newNames(n int) (all []ed25519.PrivateKey, err error) {
	for range n {
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			return nil, fmt.Errorf("making a name: %w", err)
		}
		all = append(all, key)
	}
	return all, nil
}

// makeNames makes the names of the hosts.
func (g *setupRig) makeNames() (err error) {
	if g.answerers, err = newNames(g.requests/(setupHosts*setupSources) + 1); err != nil {
		return err
	}
	for _, key := range g.answerers {
		g.destinations = append(g.destinations, record.NameOfOwner(key))
	}
	g.sources, err = newNames(setupHosts * setupSources)
	return err
}

// pair returns the i-th pair of a source and a destination.
func (g *setupRig) pair(i int) (source int, to frame.GUID) {
	return i % len(g.sources), g.destinations[i/len(g.sources)]
}

// announceNames sends hellos for the hosts' names until the controller knows all of them.
func (g *setupRig) announceNames(ctx context.Context, names map[*rawlink.Socket][]ed25519.PrivateKey) error {
	return testbed.PollFor(ctx, time.Minute, "the names", func() error {
		var infos []mobilityfirst.NameInfo
		if err := g.deployment.Get(ctx, "/api/v1/mobilityfirst/names", &infos); err != nil {
			return err
		}
		known := map[string]bool{}
		for _, i := range infos {
			known[i.Name] = true
		}
		missing := 0
		for s, keys := range names {
			for _, key := range keys {
				if known[record.NameOfOwner(key).String()] {
					continue
				}
				missing++
				if err := g.hello(s, key); err != nil {
					return err
				}
			}
		}
		if missing == 0 {
			return nil
		}
		return errors.Join(fmt.Errorf("%d names are not known", missing), tasks.Sleep(ctx, time.Second))
	})
}

// keepAnnouncing sends hellos for the hosts' names every 10 s, as sluice mf host does, until ctx ends.
func (g *setupRig) keepAnnouncing(ctx context.Context, names map[*rawlink.Socket][]ed25519.PrivateKey) error {
	for tasks.Sleep(ctx, 10*time.Second) == nil {
		if g.silent.Load() {
			continue
		}
		for s, keys := range names {
			for _, key := range keys {
				if err := g.hello(s, key); err != nil {
					return fmt.Errorf("saying hello: %w", err)
				}
			}
		}
	}
	return nil
}

// spend returns the controller's CPU time while do runs.
func (g *setupRig) spend(do func() error) (time.Duration, error) {
	before, err := testbed.CPUTime(g.controller.PID())
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := testbed.CPUTime(g.controller.PID())
	return after - before, err
}

// times calls do n times, and returns the time of each call in seconds.
func (g *setupRig) times(ctx context.Context, what string, n int, do func(ctx context.Context, i int) error) (took []float64, err error) {
	for i := range n {
		began := time.Now()
		if err := do(ctx, i); err != nil {
			return nil, fmt.Errorf("number %d: %w", i+1, err)
		}
		took = append(took, time.Since(began).Seconds())
		if err := errors.Join(g.raw.Row(what, i+1, took[i]), tasks.Sleep(ctx, setupEvery-time.Since(began))); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// frame returns the next request of one of the source names.
func (g *setupRig) frame(source int, to frame.GUID) []byte {
	g.id++
	s := g.asks[source/setupSources]
	q := frame.PathRequest{ID: g.id, Destination: to, Hello: frame.Hello{MAC: s.MAC}}
	copy(q.Hello.Key[:], g.sources[source].Public().(ed25519.PublicKey))
	return q.AppendTo(s.AppendHeader(nil, everybody, 0))
}

// request requests a path, and waits for the answer.
func (g *setupRig) request(ctx context.Context, source int, to frame.GUID) error {
	host := source / setupSources
	if err := g.say(g.asks[host], g.frame(source, to)); err != nil {
		return err
	}
	return g.await(ctx, host, g.id, 1)
}

// byLabel sends a frame from the first host with the label of the path that was requested last, and
// waits for the answer.
func (g *setupRig) byLabel(ctx context.Context, i int) error {
	f := frame.Probe{Sequence: uint32(i)}
	if err := g.say(g.asks[0], f.AppendTo(g.asks[0].AppendHeader(nil, g.there, g.label))); err != nil {
		return err
	}
	return g.receive(ctx, 0, func(f frame.Frame) (bool, error) {
		a, ok := f.(*frame.Probe)
		return ok && a.Ack && a.Sequence == uint32(i), nil
	})
}

// await waits for the answers to n requests, beginning with the given one.
func (g *setupRig) await(ctx context.Context, host int, first uint64, n int) error {
	return g.receive(ctx, host, func(f frame.Frame) (bool, error) {
		if grant, ok := f.(*frame.PathGrant); ok && grant.Hello.Challenge >= first {
			if g.label = grant.Label; g.label == 0 {
				return false, errors.New("the answer has no label")
			}
			n--
		}
		return n == 0, nil
	})
}

// receive passes a host's frames to take until that returns true.
func (g *setupRig) receive(ctx context.Context, host int, take func(frame.Frame) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	for {
		frames, err := g.asks[host].Receive(ctx)
		if err != nil {
			return fmt.Errorf("waiting for the answer: %w", err)
		}
		for _, x := range frames {
			f, err := frame.Parse(x.Payload)
			if err != nil {
				continue
			}
			if last, err := take(f); last || err != nil {
				return err
			}
		}
	}
}

// answer answers requests and probes until ctx ends.
func (g *setupRig) answer(ctx context.Context) error {
	back := uint16(0)
	for {
		frames, err := g.answers.Receive(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("the host that answers: %w", err)
		}
		var answers [][]byte
		for _, x := range frames {
			asked, _ := frame.Parse(x.Payload)
			switch f := asked.(type) {
			case *frame.PathRequest:
				back = f.Back
				forth := f.Forth
				if g.reflected.Load() {
					forth, back = reflectedLabel, reflectedLabel
				}
				grant := frame.PathGrant{Label: forth, Lease: f.Lease, Hello: frame.Hello{MAC: g.there, Challenge: f.ID}}
				answers = append(answers, grant.AppendTo(g.answers.AppendHeader(nil, x.From, back)))
			case *frame.Probe:
				answers = append(answers, (&frame.Probe{Ack: true, Sequence: f.Sequence}).AppendTo(g.answers.AppendHeader(nil, x.From, back)))
			}
		}
		if err := g.say(g.answers, answers...); err != nil {
			return fmt.Errorf("the host that answers: %w", err)
		}
	}
}
