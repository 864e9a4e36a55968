package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/sos"
)

func sosClients() Experiment {
	return Experiment{
		Name:     "sos-clients",
		Title:    "One and two clients, each with a server of its own",
		Question: "Do two independent clients get twice as much by two pairs of agents?",
		Source:   "dissertation 2017, table 5.3.2: 8 Gbit/s by one client and server, 16 by two",
		Run:      runClients,
	}
}

// secondClient and secondServer are the names of hosts in addition to client and server.
const secondClient, secondServer = "client2", "server2"

func runClients(ctx context.Context, env *Env) (*Result, error) {
	raw, err := env.CSV("clients", "clients", "goodput_bits_per_second")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	repeats := pick(env.Scale, 3, 5, 10)
	env.Steps(2 * repeats)
	goodputs := map[int][]float64{}
	err = env.withSite(ctx, twoClients(), func(ctx context.Context, s *site) error {
		for n := 1; n <= 2; n++ {
			goodputs[n], err = env.repeat(repeats, fmt.Sprintf("%d clients", n), func() (float64, error) {
				rate, err := s.clients(ctx, env.Scale, n)
				if err != nil {
					return 0, fmt.Errorf("%d clients: %w", n, err)
				}
				return rate, raw.Row(n, rate)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return clientsResult(goodputs), nil
}

// twoClients returns two sites with two pairs of agents, two clients, and two servers.
func twoClients() lab.Topology {
	t := twoSites("clients", agentsLine, 2)
	t = withHost(t, ordinary(lab.Host{Name: secondClient}), "s1", agentsLine.MTU)
	return narrowAgents(withHost(t, ordinary(lab.Host{Name: secondServer}), "s2", agentsLine.MTU))
}

// clients returns the sum of the goodputs of n clients, each from a server of its own, all carried
// by agents.
func (s *site) clients(ctx context.Context, scale Scale, n int) (sum float64, err error) {
	before, err := s.Sessions(ctx)
	if err != nil {
		return 0, err
	}
	var transfers []testbed.Transfer
	for i := range n {
		t := s.transfer(scale, 1)
		if i > 0 {
			t.Client, t.Server = s.lab.Host(secondClient), s.lab.Host(secondServer)
			t.To = s.lab.Host(secondServer).Addr().String()
		}
		entry, err := s.Whitelist(ctx, netip.MustParseAddr(t.To), uint16(t.Port), sos.Tuning{})
		if err != nil {
			return 0, err
		}
		defer func() { _ = s.Unlist(context.WithoutCancel(ctx), entry) }() // the next part lists it again
		transfers = append(transfers, t)
	}
	type result struct {
		testbed.Goodput
		err error
	}
	results := make(chan result)
	for _, t := range transfers {
		go func() { g, err := t.Run(ctx); results <- result{g, err} }()
	}
	var errs []error
	for range n {
		r := <-results
		sum, errs = sum+r.BitsPerSecond, append(errs, r.err)
	}
	after, err := s.Sessions(ctx)
	if want := len(before) + 2*n; err == nil && len(after) < want { // iperf3 has a control connection as well
		err = fmt.Errorf("%w: %d sessions, want %d", testbed.ErrNotCarried, len(after), want)
	}
	return sum, errors.Join(append(errs, err)...)
}

func clientsResult(goodputs map[int][]float64) *Result {
	r := &Result{Network: fmt.Sprintf("two switches, %v; every agent's own link %.0f Mbit/s", agentsLine, agentLink/1e6)}
	t := Table{Title: fmt.Sprintf("Goodput of all together: means of %d transfers with 95 %% intervals", len(goodputs[1])), Columns: []string{"clients", "published Gbit/s", "times one", "ours Mbit/s", "times one"}}
	for n := 1; n <= 2; n++ {
		t.Add(n, 8*n, n, meanText(goodputs[n], 1e-6, 1), fmt.Sprintf("%.2f", mean(goodputs[n])/mean(goodputs[1])))
	}
	r.Tables = []Table{t}
	ratio := mean(goodputs[2]) / mean(goodputs[1])
	r.Claim(ratio >= 1.8, "two clients get at least 1.8 times what one gets", "%.2f times", ratio)
	r.Note("Each agent's link is limited to %.0f Mbit/s, because an agent itself carries more than this lab's software switches.", agentLink/1e6)
	return r
}
