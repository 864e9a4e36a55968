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
		Title:    "Goodput and the agents' CPU over the number of agent pairs",
		Question: "Does throughput grow with the agents that share the work?",
		Source:   "dissertation 2017, figure 5.3.6: 0.33 Gbit/s direct; 2.07, 5.13 and 8.46 Gbit/s with 1, 2 and 3 pairs. Thesis 2018, table 3.4.1: 8.69, 15.25, 21.45, 23.22 and 22.21 Gbit/s with 1 to 5 pairs, with the CPU of the agents as in figure 3.4.6",
		Run:      runAgents,
	}
}

var (
	// publishedAgents2017 holds figure 5.3.6, in Gbit/s.
	publishedAgents2017 = map[int]float64{1: 2.07, 2: 5.13, 3: 8.46}
	// publishedAgents2018 holds table 3.4.1, of which figures 3.4.5 and 3.4.6 are drawn. The CPU
	// usages are those of all senders' and of all receivers' agents together.
	publishedAgents2018 = map[int]publishedAgents{
		1: {interval{8.69, 0.452}, interval{264, 45}, interval{247, 49}},
		2: {interval{15.25, 0.51}, interval{507, 47}, interval{460, 45}},
		3: {interval{21.45, 0.421}, interval{605, 48}, interval{586, 46}},
		4: {interval{23.22, 0.59}, interval{687, 47}, interval{608, 43}},
		5: {interval{22.21, 0.541}, interval{703, 51}, interval{640, 53}},
	}
)

// agentsSamples holds the measurements of one number of pairs: rates in bits per second, and the
// CPU usages of all agents of a side together in percent of one core.
type agentsSamples struct{ rates, senders, receivers []float64 }

func runAgents(ctx context.Context, env *Env) (*Result, error) {
	pairs := pick(env.Scale, []int{1, 2}, []int{1, 2, 3}, []int{1, 2, 3, 4, 5})
	raw, err := env.CSV("agents", "pairs", "goodput_bits_per_second", "sender_agents_cpu_percent", "receiver_agents_cpu_percent")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	repeats := pick(env.Scale, 3, 5, 10)
	env.Steps(repeats * len(pairs))
	measured := map[int]*agentsSamples{}
	for _, n := range pairs {
		t := narrowAgents(twoSites("agents", agentsLine, n))
		err := env.withSite(ctx, t, func(ctx context.Context, s *site) (err error) {
			var m agentsSamples
			measured[n] = &m
			m.rates, err = env.repeat(repeats, fmt.Sprintf("%d pairs of agents, as many client connections", n), func() (float64, error) {
				c, err := s.carriedTransfer(ctx, s.transfer(env.Scale, n), sos.Tuning{})
				if err != nil {
					return 0, fmt.Errorf("%d pairs: %w", n, err)
				}
				m.senders, m.receivers = append(m.senders, c.SenderCPU), append(m.receivers, c.ReceiverCPU)
				return c.BitsPerSecond, raw.Row(n, c.BitsPerSecond, c.SenderCPU, c.ReceiverCPU)
			})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return agentsResult(pairs, measured), nil
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

func agentsResult(pairs []int, measured map[int]*agentsSamples) *Result {
	r := &Result{Network: fmt.Sprintf("two switches, %v; every agent's own link %.0f Mbit/s", agentsLine, agentLink/1e6)}
	one := mean(measured[pairs[0]].rates)
	table := Table{Title: fmt.Sprintf("Goodput over pairs of agents: means of %d transfers with 95 %% intervals", len(measured[pairs[0]].rates)), Columns: []string{"pairs", "2017 Gbit/s", "2018 Gbit/s", "ours Mbit/s", "2017, times one pair", "2018, times one pair", "ours, times one pair"}}
	cpu := Table{Title: "CPU of all agents of a side together, in percent of one core", Columns: []string{"pairs", "2018 senders", "2018 receivers", "ours senders", "ours receivers"}}
	ours := Series{Label: "ours"}
	then2017, then2018 := Series{Label: "2017", Published: true}, Series{Label: "2018", Published: true}
	senders, receivers := Series{Label: "senders, ours"}, Series{Label: "receivers, ours"}
	senders2018, receivers2018 := Series{Label: "senders, 2018", Published: true}, Series{Label: "receivers, 2018", Published: true}
	for _, n := range pairs {
		m, x := measured[n], float64(n)
		ratio := mean(m.rates) / one
		ours.Point(x, ratio)
		senders.Point(x, mean(m.senders))
		receivers.Point(x, mean(m.receivers))
		var gbit2017, times2017 string
		if published, ok := publishedAgents2017[n]; ok {
			times := published / publishedAgents2017[1]
			then2017.Point(x, times)
			gbit2017, times2017 = fmt.Sprint(published), fmt.Sprintf("%.2f", times)
		}
		published := publishedAgents2018[n]
		times2018 := published.gbit.mean / publishedAgents2018[1].gbit.mean
		then2018.Point(x, times2018)
		senders2018.Point(x, published.sender.mean)
		receivers2018.Point(x, published.receiver.mean)
		table.Add(n, gbit2017, published.gbit, meanText(m.rates, 1e-6, 1), times2017, fmt.Sprintf("%.2f", times2018), fmt.Sprintf("%.2f", ratio))
		cpu.Add(n, published.sender, published.receiver, meanText(m.senders, 1, 0), meanText(m.receivers, 1, 0))
	}
	r.Tables = []Table{table, cpu}
	r.Plots = []Plot{
		{Name: "agents", Title: "Goodput relative to one pair", X: "pairs of agents", Y: "times", Series: []Series{then2017, then2018, ours}},
		{Name: "cpu", Title: "CPU of all agents of a side together", X: "pairs of agents", Y: "% of one core", Series: []Series{senders2018, receivers2018, senders, receivers}},
	}
	last := pairs[len(pairs)-1]
	ratio := mean(measured[last].rates) / one
	r.Claim(ratio >= 0.9*float64(last), fmt.Sprintf("%d pairs carry at least %.1f times what one does", last, 0.9*float64(last)), "%.2f times", ratio)
	r.Note("Each agent's link is limited to %.0f Mbit/s, because an agent itself carries more than this lab's software switches.", agentLink/1e6)
	r.Note("The published agents of 2018 had a machine each and a network of 27 Gbit/s: compare how their CPU usage grows, not its height.")
	return r
}
