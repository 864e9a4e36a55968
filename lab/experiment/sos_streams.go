package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/services/sos"
)

// streamsLine has the round-trip time of the published setting, 50 ms.
var streamsLine = line{Rate: 1e9, RTT: 50 * time.Millisecond, MTU: 9000, Offload: true}

func sosStreams() Experiment {
	return Experiment{
		Name:     "sos-streams",
		Title:    "One and several client connections to one server port",
		Question: "Does a client gain by opening several connections, each carried as a session of its own?",
		Source:   "SOS scalability thesis 2018, table 3.3.4: 12.17 Gbit/s with one stream, 17.20 with two, of 25 Gbit/s at 50 ms",
		Run:      runStreams,
	}
}

func runStreams(ctx context.Context, env *Env) (*Result, error) {
	l := streamsLine
	if env.Scale == Quick {
		l.Rate = 500e6
	}
	streams := pick(env.Scale, []int{1, 2}, []int{1, 2, 4}, []int{1, 2, 4, 8, 16})
	published := map[int]float64{1: 12.17, 2: 17.20}
	raw, err := env.CSV("streams", "streams", "way", "goodput_bits_per_second")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(2 * len(streams))
	r := &Result{Network: "two switches, " + l.String()}
	table := Table{
		Title:   "Goodput over client connections",
		Columns: []string{"client streams", "published Gbit/s", "of its link", "ours SOS Mbit/s", "of our link", "direct Mbit/s", "slowest / fastest stream"},
	}
	err = env.withSite(ctx, twoSites("streams", l, 1), func(ctx context.Context, s *site) error {
		for _, n := range streams {
			env.Step("%d streams, direct", n)
			direct, err := s.transfer(env.Scale, n).Run(ctx)
			if err != nil {
				return err
			}
			env.Step("%d streams by SOS", n)
			c, err := s.carriedTransfer(ctx, s.transfer(env.Scale, n), sos.Tuning{})
			if err != nil {
				return fmt.Errorf("%d streams: %w", n, err)
			}
			env.Logf("%.1f Mbit/s, direct %.1f", c.Mbit(), direct.Mbit())
			for way, g := range map[string]float64{"direct": direct.BitsPerSecond, "sos": c.BitsPerSecond} {
				if err := raw.Row(n, way, g); err != nil {
					return err
				}
			}
			theirs, share := "", ""
			if g := published[n]; g > 0 {
				theirs, share = fmt.Sprint(g), fmt.Sprintf("%.0f %%", 100*g/25)
			}
			low, high := quantile(c.Streams, 0), quantile(c.Streams, 1)
			table.Add(n, theirs, share, fmt.Sprintf("%.1f", c.Mbit()), fmt.Sprintf("%.0f %%", 100*c.BitsPerSecond/l.payload()),
				fmt.Sprintf("%.1f", direct.Mbit()), fmt.Sprintf("%.2f", low/high))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.Tables = []Table{table}
	return r, nil
}
