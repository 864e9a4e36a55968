package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/services/sos"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// socketsLine has the round-trip time of the published setting, 50 ms, at a rate that two cores
// sustain.
var socketsLine = line{Rate: 1e9, RTT: 50 * time.Millisecond, MTU: 9000, Offload: true}

// publishedAgents holds the published goodput of agents in Gbit/s, and the CPU usage of the senders'
// and the receivers' agents in percent of one core, each with its 95 % interval.
type publishedAgents struct {
	gbit             interval
	sender, receiver interval
}

// publishedSockets holds tables 3.2.2 and 3.2.3 of the 2018 thesis: 25 Gbit/s Ethernet, 50 ms, 20
// cores for each agent.
var publishedSockets = []struct {
	p                     int
	nonBlocking, blocking publishedAgents
}{
	{1, publishedAgents{interval{0.584, 0.096}, interval{219, 33}, interval{176, 31}}, publishedAgents{interval{0.541, 0.091}, interval{130, 22}, interval{132, 19}}},
	{2, publishedAgents{interval{0.99, 0.134}, interval{244, 37}, interval{280, 41}}, publishedAgents{interval{0.99, 0.1}, interval{257, 46}, interval{253, 43}}},
	{4, publishedAgents{interval{3.0, 0.387}, interval{287, 54}, interval{301, 46}}, publishedAgents{interval{2.9, 0.345}, interval{310, 46}, interval{440, 46}}},
	{8, publishedAgents{interval{7.18, 0.399}, interval{315, 53}, interval{330, 44}}, publishedAgents{interval{7.53, 0.424}, interval{387, 39}, interval{853, 49}}},
	{12, publishedAgents{interval{9.2, 0.388}, interval{334, 57}, interval{339, 45}}, publishedAgents{interval{9.3, 0.432}, interval{447, 46}, interval{1233, 52}}},
	{16, publishedAgents{interval{14.13, 0.401}, interval{350, 58}, interval{377, 47}}, publishedAgents{interval{13.9, 0.42}, interval{537, 49}, interval{1681, 54}}},
	{20, publishedAgents{interval{16.01, 0.311}, interval{399, 49}, interval{434, 43}}, publishedAgents{interval{15.92, 0.245}, interval{599, 46}, interval{1997, 13}}},
}

func sosSockets() Experiment {
	return Experiment{
		Name:     "sos-sockets",
		Title:    "Goodput and CPU over the number of connections between the agents",
		Question: "How many connections does a long link need, and what do they cost?",
		Source:   "SOS scalability thesis 2018, tables 3.2.2 (non-blocking I/O) and 3.2.3 (blocking), figures 3.2.2 to 3.2.4; SOS paper 2012, figure 3, printed without numbers",
		Run:      runSockets,
	}
}

// socketsSamples holds the goodputs measured in bit/s with one number of connections, and the CPU
// usages of the agents in percent of one core.
type socketsSamples struct{ rates, sender, receiver []float64 }

// socketsConnections returns the numbers of connections that are measured. Agents refuse more than
// agentapi.MaxConnections.
func socketsConnections(s Scale) []int {
	return pick(s, []int{1, 8}, []int{1, 2, 4, 8, 12, 16, 20}, []int{1, 2, 4, 8, 12, 16, 20, 32, agentapi.MaxConnections})
}

// socketsBest is the share of the link's payload rate that the best number of connections has to
// reach.
const socketsBest = 0.8

func runSockets(ctx context.Context, env *Env) (*Result, error) {
	l := socketsLine
	if env.Scale == Quick {
		l.Rate = 500e6
	}
	ps := socketsConnections(env.Scale)
	// The published agents used the kernel's cubic. With BBR one connection alone is hard to
	// surpass.
	controls := pick(env.Scale, []string{"cubic"}, []string{"cubic", "bbr"}, []string{"cubic", "bbr"})
	raw, err := env.CSV("sockets", "congestion", "connections", "goodput_bits_per_second", "sender_agent_cpu_percent", "receiver_agent_cpu_percent")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	repeats := pick(env.Scale, 3, 3, 5)
	env.Steps(repeats * (1 + len(ps)*len(controls)))
	var direct []float64
	measured := map[string]map[int]*socketsSamples{}
	err = env.withSite(ctx, twoSites("sockets", l, 1), func(ctx context.Context, s *site) error {
		direct, err = env.repeat(repeats, fmt.Sprintf("direct, %v", l), func() (float64, error) {
			g, err := s.transfer(env.Scale, 1).Run(ctx)
			return g.BitsPerSecond, err
		})
		if err != nil {
			return err
		}
		for _, control := range controls {
			measured[control] = map[int]*socketsSamples{}
			for _, p := range ps {
				var cell socketsSamples
				cell.rates, err = env.repeat(repeats, fmt.Sprintf("p = %d, %s", p, control), func() (float64, error) {
					c, err := s.carriedTransfer(ctx, s.transfer(env.Scale, 1), sos.Tuning{Connections: p, CongestionControl: control})
					if err != nil {
						return 0, fmt.Errorf("p = %d, %s: %w", p, control, err)
					}
					cell.sender, cell.receiver = append(cell.sender, c.SenderCPU), append(cell.receiver, c.ReceiverCPU)
					return c.BitsPerSecond, raw.Row(control, p, c.BitsPerSecond, c.SenderCPU, c.ReceiverCPU)
				})
				if err != nil {
					return err
				}
				measured[control][p] = &cell
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return socketsResult(l, ps, controls, direct, measured), nil
}

func socketsResult(l line, ps []int, controls []string, direct []float64, measured map[string]map[int]*socketsSamples) *Result {
	r := &Result{Network: "two switches, " + l.String()}
	table := Table{
		Title:   fmt.Sprintf("Goodput over p: means of %d transfers with 95 %% intervals; direct TCP in the same run: %s Mbit/s", len(direct), meanText(direct, 1e-6, 1)),
		Columns: []string{"p", "published, non-blocking", "CPU sender / receiver", "published, blocking", "CPU sender / receiver"},
	}
	goodputs := Plot{Name: "goodput", Title: "Goodput as a share of the link", X: "connections between the agents", Y: "% of the link's rate"}
	senders := Plot{Name: "cpu", Title: "CPU of the sender's agent", X: "connections between the agents", Y: "% of one core"}
	receivers := Plot{Name: "cpu-receiver", Title: "CPU of the receiver's agent", X: "connections between the agents", Y: "% of one core"}
	theirs := plotPublishedSockets(&goodputs, &senders, &receivers)
	for _, control := range controls {
		table.Columns = append(table.Columns, "ours "+control+", Mbit/s", "share of the link", "CPU sender / receiver")
		label := "ours, " + control
		goodput, sender, receiver := Series{Label: label}, Series{Label: label}, Series{Label: label}
		for _, p := range ps {
			c := measured[control][p]
			goodput.Point(float64(p), 100*mean(c.rates)/l.Rate)
			sender.Point(float64(p), mean(c.sender))
			receiver.Point(float64(p), mean(c.receiver))
		}
		goodputs.Series, senders.Series, receivers.Series = append(goodputs.Series, goodput), append(senders.Series, sender), append(receivers.Series, receiver)
	}
	for _, p := range ps {
		row := append([]any{p}, theirs[p]...)
		for len(row) < 5 { // not published
			row = append(row, "")
		}
		for _, control := range controls {
			c := measured[control][p]
			row = append(row, meanText(c.rates, 1e-6, 1), fmt.Sprintf("%.0f %%", 100*mean(c.rates)/l.payload()),
				meanText(c.sender, 1, 0)+" / "+meanText(c.receiver, 1, 0)+" %")
		}
		table.Add(row...)
	}
	r.Tables, r.Plots = []Table{table}, []Plot{goodputs, senders, receivers}
	for _, control := range controls {
		best, at := 0.0, 0
		for _, p := range ps {
			if rate := mean(measured[control][p].rates); rate > best {
				best, at = rate, p
			}
		}
		r.Claim(best >= socketsBest*l.payload(), fmt.Sprintf("%s: the best number of connections has at least %.0f %% of what the link carries", control, 100*socketsBest), "%.0f %% with %d", 100*best/l.payload(), at)
	}
	r.Note("The published agents ran on 20 cores each with a 25 Gbit/s link; everything here shares this machine. Compare shapes, not heights.")
	return r
}

// plotPublishedSockets adds the published figures to the plots, and returns the columns of a table
// by p.
func plotPublishedSockets(goodputs, senders, receivers *Plot) map[int][]any {
	theirs := map[int][]any{}
	for _, way := range []string{"non-blocking", "blocking"} {
		label := "2018, " + way
		goodput, sender, receiver := Series{Label: label + ", of 25 Gbit/s", Published: true}, Series{Label: label, Published: true}, Series{Label: label, Published: true}
		for _, row := range publishedSockets {
			a, p := row.nonBlocking, float64(row.p)
			if way == "blocking" {
				a = row.blocking
			}
			goodput.Point(p, 100*a.gbit.mean/25)
			sender.Point(p, a.sender.mean)
			receiver.Point(p, a.receiver.mean)
			theirs[row.p] = append(theirs[row.p], fmt.Sprintf("%v Gbit/s", a.gbit), fmt.Sprintf("%v / %v %%", a.sender, a.receiver))
		}
		goodputs.Series, senders.Series, receivers.Series = append(goodputs.Series, goodput), append(senders.Series, sender), append(receivers.Series, receiver)
	}
	return theirs
}
