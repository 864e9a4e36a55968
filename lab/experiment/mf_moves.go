package experiment

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

const (
	// movesLink is the link of the host that moves.
	movesLink = "b-s3"
	// movesInterval is the time between two chunks of each direction, and movesChunk their size.
	movesInterval, movesChunk = 2 * time.Millisecond, 1000
	// movesAway is how long the host is unplugged, and movesPause the time between two moves.
	movesAway, movesPause = 3 * time.Second, 2 * time.Second
	// movesMost bounds the median time until chunks arrive again in both directions.
	movesMost = 100 * time.Millisecond
)

func mfMoves() Experiment {
	return Experiment{
		Name:     "mf-moves",
		Title:    "How soon a name is reached again when its host is plugged into another switch, or into the same one again",
		Question: "How long after the carrier is back do chunks arrive again, to the host and from it?",
		Source:   "MobilityFirst thesis 2013, section 3.5, where it was not measured",
		Varies:   []string{"move"},
		Run:      runMFMoves,
	}
}

// movesMove is something that happens to the link of the host.
type movesMove struct {
	name string
	do   func(ctx context.Context, run int) error
}

func runMFMoves(ctx context.Context, env *Env) (*Result, error) {
	top := lab.Topology{Name: "mfmoves", Switches: []lab.Switch{{Name: "s1"}, {Name: "s2"}, {Name: "s3"}}, Hosts: []lab.Host{{Name: "a"}, {Name: "b"}}}
	for _, ends := range [][2]string{{"a", "s1"}, {"s1", "s2"}, {"s2", "s3"}, {"b", "s3"}} {
		top.Links = append(top.Links, lab.Both(ends[0], ends[1], delayline.Params{}))
	}
	raw, err := env.CSV("moves", "move", "run", "to_seconds", "from_seconds")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	r := &Result{Network: "two hosts, and three switches in a row with a controller; one host is unplugged and plugged in again while both send"}
	err = env.withLab(ctx, top, func(ctx context.Context, l *lab.Lab) (err error) {
		d, err := testbed.Deploy(ctx, testbed.Options{Lab: l, Binary: env.Binary, LogDir: env.Dir})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		rig := &plugRig{chunksRig: &chunksRig{env: env, lab: l, mtu: 1500}, raw: raw}
		defer rig.stop()
		return rig.run(ctx, r)
	})
	r.Note("The time begins when the host's interface has its carrier again, which is before its first frame.")
	return r, err
}

// plugRig is a pair of hosts that send to each other all the time.
type plugRig struct {
	*chunksRig
	raw      *CSV
	to, from movesStream // to the host that moves, and from it
}

// movesStream is a stream of small chunks between two names.
type movesStream struct {
	sender, receiver *hostapi.Client

	mu      sync.Mutex
	since   time.Time
	arrived time.Time // when the first chunk arrived after since
}

// run starts both streams and measures all moves.
func (g *plugRig) run(ctx context.Context, r *Result) error {
	var clients [2]*hostapi.Client
	for i, host := range []string{"a", "b"} {
		socket := filepath.Join(g.env.Dir, host+".sock")
		if _, err := g.chunksRig.run(ctx, host, "mf-"+host+".log", "host", "--interface", "eth0", "--socket", socket); err != nil {
			return err
		}
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			return fmt.Errorf("making a name: %w", err)
		}
		if err := testbed.Poll(ctx, "the host of names at "+socket, func() (err error) { clients[i], err = hostapi.Open(ctx, socket, key); return err }); err != nil {
			return err
		}
		defer clients[i].Close()
	}
	g.to.sender, g.to.receiver = clients[0], clients[1]
	g.from.sender, g.from.receiver = clients[1], clients[0]
	all, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	for _, s := range []*movesStream{&g.to, &g.from} {
		all.Go(func() error { return s.send(ctx) })
		all.Go(func() error { return s.receive(ctx) })
	}
	all.Go(func() error {
		defer cancel() // ends the streams
		return g.measure(ctx, r)
	})
	return all.Wait()
}

// send sends chunks until ctx ends.
func (s *movesStream) send(ctx context.Context) error {
	for {
		err := s.sender.Send(ctx, s.receiver.Name, 0, make([]byte, movesChunk), func(error) {})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		_ = tasks.Sleep(ctx, movesInterval)
	}
}

// receive receives chunks until ctx ends.
func (s *movesStream) receive(ctx context.Context) error {
	for {
		x, err := s.receiver.Receive(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = s.receiver.Take(x)
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		if s.arrived.IsZero() {
			s.arrived = time.Now()
		}
		s.mu.Unlock()
	}
}

// restart makes the stream record the next arrival.
func (s *movesStream) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since, s.arrived = time.Now(), time.Time{}
}

// gap waits for the next arrival, and returns how long it took.
func (s *movesStream) gap(ctx context.Context) (took time.Duration, err error) {
	err = testbed.Poll(ctx, "chunks after a move", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.arrived.IsZero() {
			return errors.New("nothing has arrived")
		}
		took = s.arrived.Sub(s.since)
		return nil
	})
	return took, err
}

// moves returns what happens to the host: it alternates between two switches, or it is unplugged
// for a while.
func (g *plugRig) moves() []movesMove {
	return []movesMove{
		{"another switch", func(ctx context.Context, run int) error {
			return g.lab.MoveLink(ctx, movesLink, []string{"s1", "s3"}[run%2])
		}},
		{fmt.Sprintf("unplugged for %v", movesAway), func(ctx context.Context, _ int) error {
			if err := g.lab.SetLink(ctx, movesLink, false); err != nil {
				return err
			}
			if err := tasks.Sleep(ctx, movesAway); err != nil {
				return err
			}
			return g.lab.SetLink(ctx, movesLink, true)
		}},
	}
}

// measure measures all moves.
func (g *plugRig) measure(ctx context.Context, r *Result) error {
	runs := pick(g.env.Scale, 4, 20, 100)
	moves, err := chosen(g.env.Only, "move", g.moves(), func(m movesMove) string { return m.name })
	if err != nil {
		return err
	}
	g.env.Steps(len(moves) * runs)
	t := Table{Title: fmt.Sprintf("Time from the carrier to the first chunk in ms, %d runs each", runs), Columns: []string{"move", "to the host, median", "worst", "from the host, median", "worst"}}
	for _, m := range moves {
		var to, from []float64
		for run := range runs {
			g.env.Step("%s", m.name)
			if err := tasks.Sleep(ctx, movesPause); err != nil {
				return err
			}
			if err := g.once(ctx, m, run); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			there, err := g.to.gap(ctx)
			if err != nil {
				return fmt.Errorf("%s, to the host: %w", m.name, err)
			}
			back, err := g.from.gap(ctx)
			if err != nil {
				return fmt.Errorf("%s, from the host: %w", m.name, err)
			}
			g.env.Logf("%v to the host, %v from it", there.Round(time.Millisecond), back.Round(time.Millisecond))
			to, from = append(to, inMS(there)), append(from, inMS(back))
			if err := g.raw.Row(m.name, run+1, there, back); err != nil {
				return err
			}
		}
		t.Add(m.name, ms1(median(to)), ms1(quantile(to, 1)), ms1(median(from)), ms1(quantile(from, 1)))
		r.Claim(median(to) <= inMS(movesMost) && median(from) <= inMS(movesMost), fmt.Sprintf("%s: chunks arrive again within %v of the carrier, median of each direction", m.name, movesMost), "%.0f and %.0f ms", median(to), median(from))
	}
	r.Tables = append(r.Tables, t)
	return nil
}

// once does a move, and has the streams record the first arrivals after the carrier is back.
func (g *plugRig) once(ctx context.Context, m movesMove, run int) error {
	moved := make(chan error, 1)
	go func() { moved <- m.do(ctx, run) }()
	had, back := true, false
	var err error
	for done := false; !done || !had; {
		select {
		case err = <-moved:
			done = true
			if err != nil {
				return err
			}
		case <-time.After(time.Millisecond / 2):
		}
		has, failed := g.hasCarrier()
		if failed != nil {
			return errors.Join(failed, ctx.Err())
		}
		if has && !had {
			g.to.restart()
			g.from.restart()
			back = true
		}
		had = has
	}
	if !back {
		return errors.New("the host has not lost its carrier")
	}
	return ctx.Err()
}

// hasCarrier reports whether the host that moves has a carrier.
func (g *plugRig) hasCarrier() (has bool, err error) {
	err = g.lab.Host("b").Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err == nil {
			has = i.Flags&net.FlagRunning != 0
		}
		return err
	})
	return has, err
}
