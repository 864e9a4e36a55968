package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/services/sos"
)

// chunkLine has the round-trip time between Clemson and Utah, 53 ms.
var chunkLine = line{Rate: 1e9, RTT: 53 * time.Millisecond, MTU: 9000, Offload: true}

func sosChunk() Experiment {
	return Experiment{
		Name:     "sos-chunk",
		Title:    "Goodput over the number of connections and the size of chunks",
		Question: "How do chunk size and number of connections work together?",
		Source: "dissertation 2017, figure 5.3.3: 130 Mbit/s direct; up to 5.08 Gbit/s of 10 Gbit/s with 7,000 connections and 60,000-byte chunks, " +
			"h-TCP on the agents",
		Run: runChunk,
	}
}

func runChunk(ctx context.Context, env *Env) (*Result, error) {
	l := chunkLine
	if env.Scale == Quick {
		l.Rate = 500e6
	}
	ps := pick(env.Scale, []int{8}, []int{1, 4, 16, 64}, []int{1, 2, 4, 8, 16, 32, 64, 128})
	chunks := pick(env.Scale, []int{16 << 10, 256 << 10}, []int{8 << 10, 60000, 256 << 10, 1 << 20}, []int{4 << 10, 8 << 10, 16 << 10, 32 << 10, 60000, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20})
	raw, err := env.CSV("chunks", "connections", "chunk_bytes", "goodput_bits_per_second", "sender_agent_cpu_percent", "receiver_agent_cpu_percent")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(1 + len(ps)*len(chunks))
	r := &Result{Network: "two switches, " + l.String()}
	table := Table{Columns: []string{"p \\ chunk"}}
	for _, c := range chunks {
		table.Columns = append(table.Columns, fmt.Sprintf("%d B", c))
	}
	plot := Plot{Name: "chunks", Title: "Goodput over chunk size", X: "chunk, bytes", Y: "Mbit/s", LogX: true}
	err = env.withSite(ctx, twoSites("chunk", l, 1), func(ctx context.Context, s *site) error {
		env.Step("direct, %v", l)
		direct, err := s.transfer(env.Scale, 1).Run(ctx)
		if err != nil {
			return err
		}
		table.Title = fmt.Sprintf("Goodput in Mbit/s (cubic); direct TCP in the same run: %.1f Mbit/s", direct.Mbit())
		for _, p := range ps {
			row, series := []any{p}, Series{Label: fmt.Sprintf("p = %d", p)}
			for _, chunk := range chunks {
				env.Step("p = %d, chunks of %d bytes", p, chunk)
				c, err := s.carriedTransfer(ctx, s.transfer(env.Scale, 1), sos.Tuning{Connections: p, ChunkBytes: chunk, CongestionControl: "cubic"})
				if err != nil {
					return fmt.Errorf("p = %d, chunk %d: %w", p, chunk, err)
				}
				env.Logf("%.1f Mbit/s", c.Mbit())
				row = append(row, fmt.Sprintf("%.1f", c.Mbit()))
				series.Point(float64(chunk), c.Mbit())
				if err := raw.Row(p, chunk, c.BitsPerSecond, c.SenderCPU, c.ReceiverCPU); err != nil {
					return err
				}
			}
			table.Add(row...)
			plot.Series = append(plot.Series, series)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.Tables, r.Plots = []Table{table}, []Plot{plot}
	r.Note("Published, on a 10 Gbit/s link: 130 Mbit/s direct, at best 5.08 Gbit/s with 7,000 connections and 60,000-byte chunks. The figure itself is printed without numbers. Our agents accept at most 128 connections a session, and need far fewer.")
	return r, nil
}
