package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/services/sos"
)

// socketsLine has the round-trip time of the published setting, 50 ms, at a rate that two cores
// sustain.
var socketsLine = line{Rate: 1e9, RTT: 50 * time.Millisecond, MTU: 9000, Offload: true}

// publishedAgents holds the published goodput of a pair of agents in Gbit/s, and the CPU usage of
// both agents in percent of one core.
type publishedAgents struct {
	gbit             float64
	sender, receiver int
}

// publishedSockets holds tables 3.2.2 and 3.2.3 of the 2018 thesis: 25 Gbit/s Ethernet, 50 ms, 20
// cores for each agent.
var publishedSockets = []struct {
	p                     int
	nonBlocking, blocking publishedAgents
}{
	{1, publishedAgents{0.584, 219, 176}, publishedAgents{0.541, 130, 132}},
	{2, publishedAgents{0.99, 244, 280}, publishedAgents{0.99, 257, 253}},
	{4, publishedAgents{3.0, 287, 301}, publishedAgents{2.9, 310, 440}},
	{8, publishedAgents{7.18, 315, 330}, publishedAgents{7.53, 387, 853}},
	{12, publishedAgents{9.2, 334, 339}, publishedAgents{9.3, 447, 1233}},
	{16, publishedAgents{14.13, 350, 377}, publishedAgents{13.9, 537, 1681}},
	{20, publishedAgents{16.01, 399, 434}, publishedAgents{15.92, 599, 1997}},
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

func runSockets(ctx context.Context, env *Env) (*Result, error) {
	l := socketsLine
	if env.Scale == Quick {
		l.Rate = 500e6
	}
	ps := pick(env.Scale, []int{1, 8}, []int{1, 2, 4, 8, 12, 16, 20}, []int{1, 2, 4, 8, 12, 16, 20, 32, 64})
	// The published agents used the kernel's cubic. With BBR one connection alone is hard to
	// surpass.
	controls := pick(env.Scale, []string{"cubic"}, []string{"cubic", "bbr"}, []string{"cubic", "bbr"})
	raw, err := env.CSV("sockets", "congestion", "connections", "goodput_bits_per_second", "sender_agent_cpu_percent", "receiver_agent_cpu_percent")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(1 + len(ps)*len(controls))
	var direct float64
	measured := map[string]map[int]carried{}
	err = env.withSite(ctx, twoSites("sockets", l, 1), func(ctx context.Context, s *site) error {
		env.Step("direct, %v", l)
		g, err := s.transfer(env.Scale, 1).Run(ctx)
		if err != nil {
			return err
		}
		direct = g.BitsPerSecond
		for _, control := range controls {
			measured[control] = map[int]carried{}
			for _, p := range ps {
				env.Step("p = %d, %s", p, control)
				c, err := s.carriedTransfer(ctx, s.transfer(env.Scale, 1), sos.Tuning{Connections: p, CongestionControl: control})
				if err != nil {
					return fmt.Errorf("p = %d, %s: %w", p, control, err)
				}
				env.Logf("%.1f Mbit/s, agents' CPU %.0f %% and %.0f %%", c.Mbit(), c.SenderCPU, c.ReceiverCPU)
				measured[control][p] = c
				if err := raw.Row(control, p, c.BitsPerSecond, c.SenderCPU, c.ReceiverCPU); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return socketsResult(l, ps, controls, direct, measured), nil
}

func socketsResult(l line, ps []int, controls []string, direct float64, measured map[string]map[int]carried) *Result {
	r := &Result{Network: "two switches, " + l.String()}
	table := Table{
		Title:   fmt.Sprintf("Goodput over p; direct TCP in the same run: %.1f Mbit/s", direct/1e6),
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
			goodput.Point(float64(p), 100*c.BitsPerSecond/l.Rate)
			sender.Point(float64(p), c.SenderCPU)
			receiver.Point(float64(p), c.ReceiverCPU)
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
			row = append(row, fmt.Sprintf("%.1f", c.Mbit()), fmt.Sprintf("%.0f %%", 100*c.BitsPerSecond/l.payload()),
				fmt.Sprintf("%.0f / %.0f %%", c.SenderCPU, c.ReceiverCPU))
		}
		table.Add(row...)
	}
	r.Tables, r.Plots = []Table{table}, []Plot{goodputs, senders, receivers}
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
			goodput.Point(p, 100*a.gbit/25)
			sender.Point(p, float64(a.sender))
			receiver.Point(p, float64(a.receiver))
			theirs[row.p] = append(theirs[row.p], fmt.Sprintf("%v Gbit/s", a.gbit), fmt.Sprintf("%d / %d %%", a.sender, a.receiver))
		}
		goodputs.Series, senders.Series, receivers.Series = append(goodputs.Series, goodput), append(senders.Series, sender), append(receivers.Series, receiver)
	}
	return theirs
}
