package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/sos"
)

func sosSites() Experiment {
	return Experiment{
		Name:     "sos-sites",
		Title:    "Two pairs of SOS agents on one link",
		Question: "Do pairs of agents that do not know of each other share the link between their sites fairly, and what do they remember of it?",
		Varies:   []string{"way"},
		Run:      runSites,
	}
}

// sitePairs is the number of pairs of agents that share the link.
const sitePairs = 2

// sitesRun holds the rates of two sessions of different pairs of agents, in bits per second.
type sitesRun struct {
	each     []float64 // begun together
	together float64
	late     float64 // of a session that began late, from its second second on
	sure     float64 // the lowest rate of the link that an agent was sure of afterwards; zero for none
}

func runSites(ctx context.Context, env *Env) (*Result, error) {
	ways, err := chosen(env.Only, "way", []string{wayUnknownPath, wayKnownLink}, func(s string) string { return s })
	if err != nil {
		return nil, err
	}
	raw, err := env.CSV("sites", "way", "one", "other", "late", "sure")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(2 * len(ways))
	l := startLine
	r := &Result{Network: fmt.Sprintf("two switches, %v between them, its queue one bandwidth-delay product, two agents at each", l)}
	t := Table{Title: "Mbit/s of two sessions of different pairs of agents", Columns: []string{"way", "one", "other", "late", "lowest rate that an agent is sure of"}}
	for _, way := range ways {
		network := func(l *lab.Lab) (string, error) {
			if way == wayUnknownPath {
				return "", nil
			}
			return testbed.DeclareLinks(l, func(k lab.Link) float64 { return cmp.Or(k.AtoB.Rate, plainRate) })
		}
		var x sitesRun
		err := env.withSiteOf(ctx, twoSites("sites", l, sitePairs), network, func(ctx context.Context, s *site) (err error) {
			x, err = s.shareBetweenPairs(ctx, env, way)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", way, err)
		}
		if err := raw.Row(way, x.each[0], x.each[1], x.late, x.sure); err != nil {
			return nil, err
		}
		t.Add(way, fmt.Sprintf("%.1f", x.each[0]/1e6), fmt.Sprintf("%.1f", x.each[1]/1e6), fmt.Sprintf("%.1f", x.late/1e6), fmt.Sprintf("%.1f", x.sure/1e6))
		half := l.payload() / sitePairs
		r.Claim(x.together >= 0.93*l.payload(), way+": together at least 93 % of the link", "%.0f %%", 100*x.together/l.payload())
		r.Claim(jain(x.each) >= 0.95, way+": Jain's index at least 0.95", "%.3f", jain(x.each))
		r.Claim(x.late >= 0.8*half, way+": a session that comes later has at least 80 % of half of the link after a second", "%.0f %%", 100*x.late/half)
		r.Claim(x.sure == 0 || x.sure >= 0.8*l.payload(), way+": no agent is sure of a rate below 80 % of the link's", "%.0f %%", 100*x.sure/l.payload())
	}
	r.Tables = []Table{t}
	return r, nil
}

// shareBetweenPairs runs two sessions at once, each by a pair of agents of its own, and then, with
// agents that know nothing, one that begins later than the other.
func (s *site) shareBetweenPairs(ctx context.Context, env *Env, way string) (r sitesRun, err error) {
	server := s.lab.Host("server").Addr()
	for _, port := range []uint16{iperfPort, lateUserPort} {
		if _, err := s.Whitelist(ctx, server, port, sos.Tuning{}); err != nil {
			return r, err
		}
	}
	if err := s.NearByHops(ctx); err != nil {
		return r, err
	}
	one := s.transfer(env.Scale, 1)
	other := one
	other.Port = lateUserPort
	env.Step("%s: two sessions at once", way)
	a, b, err := bothTransfers(ctx, one, other, 0)
	if err != nil {
		return r, err
	}
	r.each, r.together = []float64{a, b}, a+b
	env.Logf("%.1f and %.1f Mbit/s", a/1e6, b/1e6)
	if r.sure, err = s.lowestSureRate(ctx); err != nil {
		return r, err
	}
	for i := 1; i <= sitePairs; i++ {
		for _, role := range []string{"x", "y"} {
			if err := testbed.RestartAgent(ctx, s.Deployment, pairName(role, i)); err != nil {
				return r, err
			}
		}
	}
	env.Step("%s: one session, and one that comes later", way)
	one.Omit, one.Time = 0, 14*time.Second
	other.Omit, other.Time = time.Second, 5*time.Second
	if _, r.late, err = bothTransfers(ctx, one, other, 5*time.Second); err != nil {
		return r, err
	}
	env.Logf("%.1f Mbit/s from the second second on", r.late/1e6)
	sure, err := s.lowestSureRate(ctx)
	if r.sure == 0 || sure > 0 && sure < r.sure {
		r.sure = sure
	}
	return r, err
}

// bothTransfers runs two transfers, the second with a delay, and returns their rates in bits per
// second.
func bothTransfers(ctx context.Context, one, other testbed.Transfer, delay time.Duration) (a, b float64, err error) {
	done := make(chan error, 1)
	go func() {
		g, err := one.Run(ctx)
		a = g.BitsPerSecond
		done <- err
	}()
	err = tasks.Sleep(ctx, delay)
	if err == nil {
		var g testbed.Goodput
		g, err = other.Run(ctx)
		b = g.BitsPerSecond
	}
	err = errors.Join(err, <-done)
	return a, b, err
}

// lowestSureRate returns the lowest rate in bits per second that a client's agent is sure of, or zero.
func (s *site) lowestSureRate(ctx context.Context) (lowest float64, err error) {
	for i := 1; i <= sitePairs; i++ {
		var paths []sos.PathInfo
		if err := s.Get(ctx, "/api/v1/sos/agents/"+pairName("x", i)+"/paths", &paths); err != nil {
			return 0, err
		}
		for _, p := range paths {
			if rate := float64(p.Rate); rate > 0 && !p.Doubtful && !p.Seen.IsZero() && (lowest == 0 || rate < lowest) {
				lowest = rate
			}
		}
	}
	return lowest, nil
}
