package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/sos/plugin"
)

// socketsLine has the 50 ms of the published setting, at a rate that two cores sustain.
var socketsLine = line{Rate: 1e9, RTT: 50 * time.Millisecond, MTU: 9000, Offload: true}

// publishedSockets is table 3.2.2 of the 2018 thesis: 25 Gbit/s Ethernet, 50 ms,
// 20 cores an agent.
var publishedSockets = []struct {
	p              int
	gbit           float64
	sender, recver int // CPU, %
}{
	{1, 0.584, 219, 176},
	{2, 0.99, 244, 280},
	{4, 3.0, 287, 301},
	{8, 7.18, 315, 330},
	{12, 9.2, 334, 339},
	{16, 14.13, 350, 377},
	{20, 16.01, 399, 434},
}

func sosSockets() Experiment {
	return Experiment{
		Name:     "sos-sockets",
		Title:    "Goodput and CPU over the number of connections between the agents",
		Question: "How many connections does a long link need, and what do they cost?",
		Source:   "SOS scalability thesis 2018, table 3.2.2 (non-blocking I/O); SOS paper 2012, figure 3, printed without numbers",
		Run:      runSockets,
	}
}

func runSockets(ctx context.Context, env *Env) (*Result, error) {
	l := socketsLine
	if env.Scale == Quick {
		l.Rate = 500e6
	}
	ps := pick(env.Scale, []int{1, 8}, []int{1, 2, 4, 8, 12, 16, 20}, []int{1, 2, 4, 8, 12, 16, 20, 32, 64})
	// The published agents had the kernel's cubic; with BBR one connection is hard to beat.
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
				c, err := s.through(ctx, s.transfer(env.Scale, 1), plugin.Tuning{Connections: p, CongestionControl: control})
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
		Columns: []string{"p", "published Gbit/s", "published CPU"},
	}
	goodputs := Plot{Name: "goodput", Title: "Goodput as a share of the link", X: "connections between the agents", Y: "% of the link's rate"}
	cpus := Plot{Name: "cpu", Title: "CPU of the sender's agent", X: "connections between the agents", Y: "% of one core"}
	published, publishedCPU := Series{Label: "2018, of 25 Gbit/s", Published: true}, Series{Label: "2018", Published: true}
	theirs := map[int]string{}
	theirCPU := map[int]string{}
	for _, row := range publishedSockets {
		published.Point(float64(row.p), 100*row.gbit/25)
		publishedCPU.Point(float64(row.p), float64(row.sender))
		theirs[row.p] = fmt.Sprint(row.gbit)
		theirCPU[row.p] = fmt.Sprintf("%d / %d %%", row.sender, row.recver)
	}
	goodputs.Series, cpus.Series = []Series{published}, []Series{publishedCPU}
	for _, control := range controls {
		table.Columns = append(table.Columns, "ours "+control+", Mbit/s", "share of the link", "CPU sender / receiver")
		ours, cpu := Series{Label: "ours, " + control}, Series{Label: "ours, " + control}
		for _, p := range ps {
			ours.Point(float64(p), 100*measured[control][p].BitsPerSecond/l.Rate)
			cpu.Point(float64(p), measured[control][p].SenderCPU)
		}
		goodputs.Series, cpus.Series = append(goodputs.Series, ours), append(cpus.Series, cpu)
	}
	for _, p := range ps {
		row := []any{p, theirs[p], theirCPU[p]}
		for _, control := range controls {
			c := measured[control][p]
			row = append(row, fmt.Sprintf("%.1f", c.Mbit()), fmt.Sprintf("%.0f %%", 100*c.BitsPerSecond/l.payload()),
				fmt.Sprintf("%.0f / %.0f %%", c.SenderCPU, c.ReceiverCPU))
		}
		table.Add(row...)
	}
	r.Tables, r.Plots = []Table{table}, []Plot{goodputs, cpus}
	r.Note("The published agents ran on 20 cores each with a 25 Gbit/s link; everything here shares this machine. Compare shapes, not heights.")
	return r
}
