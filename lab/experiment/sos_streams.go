package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	published := map[int]interval{1: {12.17, 0.521}, 2: {17.20, 0.420}}
	raw, err := env.CSV("streams", "streams", "way", "goodput_bits_per_second")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	repeats := pick(env.Scale, 3, 5, 10)
	env.Steps(2 * len(streams) * repeats)
	r := &Result{Network: "two switches, " + l.String()}
	table := Table{
		Title:   fmt.Sprintf("Goodput over client connections: means of %d transfers with 95 %% intervals", repeats),
		Columns: []string{"client streams", "published Gbit/s", "of its link", "ours SOS Mbit/s", "of our link", "direct Mbit/s", "slowest / fastest stream"},
	}
	means := map[int]float64{}
	err = env.withSite(ctx, twoSites("streams", l, 1), func(ctx context.Context, s *site) error {
		for _, n := range streams {
			var direct, bySOS, evenness []float64
			for range repeats {
				env.Step("%d streams, direct", n)
				d, err := s.transfer(env.Scale, n).Run(ctx)
				if err != nil {
					return err
				}
				env.Step("%d streams by SOS", n)
				c, err := s.carriedTransfer(ctx, s.transfer(env.Scale, n), sos.Tuning{})
				if err != nil {
					return fmt.Errorf("%d streams: %w", n, err)
				}
				env.Logf("%.1f Mbit/s, direct %.1f", c.Mbit(), d.Mbit())
				if err := errors.Join(raw.Row(n, "direct", d.BitsPerSecond), raw.Row(n, "sos", c.BitsPerSecond)); err != nil {
					return err
				}
				direct, bySOS = append(direct, d.BitsPerSecond), append(bySOS, c.BitsPerSecond)
				evenness = append(evenness, slices.Min(c.Streams)/slices.Max(c.Streams))
			}
			means[n] = mean(bySOS)
			theirs, share := "", ""
			if p, ok := published[n]; ok {
				theirs, share = p.String(), fmt.Sprintf("%.0f %%", 100*p.mean/25)
			}
			table.Add(n, theirs, share, meanText(bySOS, 1e-6, 1), fmt.Sprintf("%.0f %%", 100*mean(bySOS)/l.payload()),
				meanText(direct, 1e-6, 1), meanText(evenness, 1, 2))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.Tables = []Table{table}
	last := streams[len(streams)-1]
	r.Claim(means[last] >= 0.95*means[1], fmt.Sprintf("%d streams by SOS carry together at least 95 %% of what one does", last), "%.1f and %.1f Mbit/s", means[last]/1e6, means[1]/1e6)
	return r, nil
}
