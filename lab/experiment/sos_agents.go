package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/services/sos"
)

// agentsLine is wide enough for all pairs of agents together, so that each agent's own link is the
// bottleneck.
var agentsLine = line{Rate: 1e9, RTT: 53 * time.Millisecond, MTU: 9000, Offload: true}

// agentLink is the rate of each agent's own link. An agent can carry more than the lab's switches,
// so that further pairs would bring nothing without this limit.
const agentLink = 150e6

func sosAgents() Experiment {
	return Experiment{
		Name:     "sos-agents",
		Title:    "Goodput over the number of agent pairs",
		Question: "Does throughput grow with the agents that share the work?",
		Source:   "dissertation 2017, figure 5.3.6: 0.33 Gbit/s direct; 2.07, 5.13 and 8.46 Gbit/s with 1, 2 and 3 pairs. Thesis 2018, table 3.4.1: 8.69, 15.25, 21.45, 23.22 and 22.21 Gbit/s with 1 to 5 pairs",
		Run:      runAgents,
	}
}

var (
	publishedAgents2017 = map[int]interval{1: {mean: 2.07}, 2: {mean: 5.13}, 3: {mean: 8.46}}
	publishedAgents2018 = map[int]interval{1: {8.69, 0.452}, 2: {15.25, 0.51}, 3: {21.45, 0.421}, 4: {23.22, 0.59}, 5: {22.21, 0.541}}
)

func runAgents(ctx context.Context, env *Env) (*Result, error) {
	pairs := pick(env.Scale, []int{1, 2}, []int{1, 2, 3}, []int{1, 2, 3, 4, 5})
	raw, err := env.CSV("agents", "pairs", "goodput_bits_per_second")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	repeats := pick(env.Scale, 3, 5, 10)
	env.Steps(repeats * len(pairs))
	goodputs := map[int][]float64{}
	for _, n := range pairs {
		t := narrowAgents(twoSites("agents", agentsLine, n))
		err := env.withSite(ctx, t, func(ctx context.Context, s *site) (err error) {
			goodputs[n], err = env.repeat(repeats, fmt.Sprintf("%d pairs of agents, as many client connections", n), func() (float64, error) {
				c, err := s.carriedTransfer(ctx, s.transfer(env.Scale, n), sos.Tuning{})
				if err != nil {
					return 0, fmt.Errorf("%d pairs: %w", n, err)
				}
				return c.BitsPerSecond, raw.Row(n, c.BitsPerSecond)
			})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return agentsResult(pairs, goodputs), nil
}

// narrowAgents sets the rate of every agent's own link to agentLink.
func narrowAgents(t lab.Topology) lab.Topology {
	agents := map[string]bool{}
	for _, h := range t.Hosts {
		agents[h.Name] = h.Agent
	}
	p := delayline.Params{Rate: agentLink}
	for i, l := range t.Links {
		if agents[l.A.Node] {
			t.Links[i].AtoB, t.Links[i].BtoA = p, p
		}
	}
	return t
}

func agentsResult(pairs []int, goodputs map[int][]float64) *Result {
	r := &Result{Network: fmt.Sprintf("two switches, %v; every agent's own link %.0f Mbit/s", agentsLine, agentLink/1e6)}
	table := Table{Title: fmt.Sprintf("Goodput over pairs of agents: means of %d transfers with 95 %% intervals", len(goodputs[pairs[0]])), Columns: []string{"pairs", "2017 Gbit/s", "2018 Gbit/s", "ours Mbit/s", "2017, times one pair", "2018, times one pair", "ours, times one pair"}}
	ours := Series{Label: "ours"}
	then2017, then2018 := Series{Label: "2017", Published: true}, Series{Label: "2018", Published: true}
	times := func(series *Series, published map[int]interval, n int) string {
		if _, ok := published[n]; !ok {
			return ""
		}
		series.Point(float64(n), published[n].mean/published[1].mean)
		return fmt.Sprintf("%.2f", published[n].mean/published[1].mean)
	}
	figure := func(published map[int]interval, n int) string {
		switch p, ok := published[n]; {
		case !ok:
			return ""
		case p.margin == 0: // not published
			return fmt.Sprint(p.mean)
		default:
			return p.String()
		}
	}
	for _, n := range pairs {
		ratio := mean(goodputs[n]) / mean(goodputs[pairs[0]])
		ours.Point(float64(n), ratio)
		table.Add(n, figure(publishedAgents2017, n), figure(publishedAgents2018, n), meanText(goodputs[n], 1e-6, 1),
			times(&then2017, publishedAgents2017, n), times(&then2018, publishedAgents2018, n), fmt.Sprintf("%.2f", ratio))
	}
	r.Tables = []Table{table}
	r.Plots = []Plot{{Name: "agents", Title: "Goodput relative to one pair", X: "pairs of agents", Y: "times", Series: []Series{then2017, then2018, ours}}}
	last := pairs[len(pairs)-1]
	ratio := mean(goodputs[last]) / mean(goodputs[pairs[0]])
	r.Claim(ratio >= 0.9*float64(last), fmt.Sprintf("%d pairs carry at least %.1f times what one does", last, 0.9*float64(last)), "%.2f times", ratio)
	r.Note("Each agent's link is limited to %.0f Mbit/s, because an agent itself carries more than this lab's software switches.", agentLink/1e6)
	return r
}
