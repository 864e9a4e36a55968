package experiment

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/sos"
)

// table1Rate is the rate of each of the two paths.
const table1Rate = 400e6

// table1Path is one of the two paths between the sites.
type table1Path struct {
	name, link string
	rtt        time.Duration
	// These are the published figures in Mbit/s for the PlanetLab and the ProtoGENI client.
	tcpPL, tcpPG, udp, sosPL, sosPG float64
}

var table1Paths = []table1Path{
	{"path 1 (short)", sitePath(0), 59 * time.Millisecond, 8, 200, 663, 620, 622},
	{"path 2 (long)", sitePath(1), 164 * time.Millisecond, 2, 70, 657, 615, 615},
}

func sosTable1() Experiment {
	return Experiment{
		Name:     "sos-table1",
		Title:    "Two paths across a country: direct, by SOS on each, and on both at once",
		Question: "What does SOS gain on a short and on a long path, and what do both together carry?",
		Source:   "SOS paper 2012, table I (GENI, two paths of 59 and 164 ms; PL and PG are the two kinds of clients there)",
		Run:      runTable1,
	}
}

func runTable1(ctx context.Context, env *Env) (*Result, error) {
	const mtu = 9000
	raw, err := env.CSV("table1", "path", "way", "goodput_bits_per_second")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	repeats := pick(env.Scale, 3, 5, 10)
	env.Steps(repeats * (3*len(table1Paths) + 1))
	r := &Result{Network: fmt.Sprintf("two sites joined by two paths of %.0f Mbit/s, 59 and 164 ms round trip, no loss, MTU %d", table1Rate/1e6, mtu)}
	table := Table{
		Title: fmt.Sprintf("Goodput in Mbit/s: means of %d transfers with 95 %% intervals; published figures are of paths of 1 Gbit/s", repeats),
		Columns: []string{
			"", "2012 TCP PL", "2012 TCP PG", "2012 UDP", "2012 SOS PL", "2012 SOS PG",
			"ours TCP", "ours UDP", "ours SOS", "SOS / UDP", "SOS / TCP",
		},
	}
	best := 0.0
	paths := make([]delayline.Params, len(table1Paths))
	for i, p := range table1Paths {
		paths[i] = delayline.Params{Rate: table1Rate, Delay: p.rtt / 2}
	}
	err = env.withSite(ctx, joinedSites("table1", mtu, paths), func(ctx context.Context, s *site) error {
		for _, p := range table1Paths {
			if err := s.useOnly(ctx, p); err != nil {
				return err
			}
			tcp, udp, bySOS, err := measureTable1(ctx, env, s, p, repeats, raw)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			best = max(best, mean(bySOS))
			table.Add(p.name, p.tcpPL, p.tcpPG, p.udp, p.sosPL, p.sosPG, meanText(tcp, 1e-6, 1), meanText(udp, 1e-6, 1),
				meanText(bySOS, 1e-6, 1), fmt.Sprintf("%.0f %%", 100*mean(bySOS)/mean(udp)), fmt.Sprintf("%.1f", mean(bySOS)/mean(tcp)))
			r.Claim(mean(bySOS) >= 0.9*mean(udp), p.name+": SOS at least 90 % of UDP", "%.0f %%", 100*mean(bySOS)/mean(udp))
		}
		if err := s.useBoth(ctx); err != nil {
			return err
		}
		both, err := env.repeat(repeats, "SOS on both paths", func() (float64, error) {
			c, err := s.carriedTransfer(ctx, s.transfer(env.Scale, 1), sos.Tuning{Paths: 2})
			if err != nil {
				return 0, fmt.Errorf("both paths: %w", err)
			}
			return c.BitsPerSecond, raw.Row("multipath", "sos", c.BitsPerSecond)
		})
		if err != nil {
			return err
		}
		table.Add("multipath", "", "", "", 640, 639, "", "", meanText(both, 1e-6, 1), "", "")
		r.Claim(mean(both) >= 1.5*best, "both paths carry at least 1.5 times the better one", "%.2f times", mean(both)/best)
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.Tables = []Table{table}
	r.Note("In 2012 both paths shared the sites' links of 1 Gbit/s, so two paths could not carry more than one. Here they share nothing but the sites' switches.")
	return r, nil
}

// measureTable1 measures the goodput of TCP, of UDP, and by SOS on one path, in bits per second.
func measureTable1(ctx context.Context, env *Env, s *site, p table1Path, repeats int, raw *CSV) (tcp, udp, bySOS []float64, err error) {
	run := func(way string, transfer func() (testbed.Goodput, error)) ([]float64, error) {
		return env.repeat(repeats, fmt.Sprintf("%s on %s", way, p.name), func() (float64, error) {
			g, err := transfer()
			if err != nil {
				return 0, fmt.Errorf("%s: %w", way, err)
			}
			return g.BitsPerSecond, raw.Row(p.name, strings.ToLower(way), g.BitsPerSecond)
		})
	}
	if tcp, err = run("TCP", func() (testbed.Goodput, error) { return s.transfer(env.Scale, 1).Run(ctx) }); err != nil {
		return
	}
	udp, err = run("UDP", func() (testbed.Goodput, error) {
		t := s.transfer(env.Scale, 1)
		t.UDPRate = fmt.Sprint(int64(table1Rate))
		return t.Run(ctx)
	})
	if err != nil {
		return
	}
	bySOS, err = run("SOS", func() (testbed.Goodput, error) {
		c, err := s.carriedTransfer(ctx, s.transfer(env.Scale, 1), sos.Tuning{Paths: 1})
		return c.Goodput, err
	})
	return
}

// useOnly unplugs the other path, and waits until packets take the one that is left.
func (s *site) useOnly(ctx context.Context, p table1Path) error {
	for _, other := range table1Paths {
		if err := s.lab.SetLink(ctx, other.link, other.link == p.link); err != nil {
			return err
		}
	}
	return s.waitRTT(ctx, p.rtt)
}

func (s *site) useBoth(ctx context.Context) error {
	for _, p := range table1Paths {
		if err := s.lab.SetLink(ctx, p.link, true); err != nil {
			return err
		}
	}
	return s.waitPaths(ctx, len(table1Paths))
}

// waitRTT waits until a ping from client to server takes about the given time.
func (s *site) waitRTT(ctx context.Context, want time.Duration) error {
	return testbed.Poll(ctx, fmt.Sprintf("a round trip of %v", want), func() error {
		got, err := testbed.Ping(ctx, s.lab.Host("client"), s.lab.Host("server").Addr())
		if err == nil && (got < want*9/10 || got > want*3/2) {
			err = fmt.Errorf("it takes %v", got)
		}
		return err
	})
}
