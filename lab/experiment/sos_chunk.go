package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/services/sos"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// chunkRepeats is how often each cell is measured.
const chunkRepeats = 3

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

// chunkConnections and chunkSizes return the numbers of connections and the sizes of chunks that are
// measured. Agents refuse more than agentapi.MaxConnections.
func chunkConnections(s Scale) []int {
	return pick(s, []int{8}, []int{1, 4, 16, 64}, []int{1, 2, 4, 8, 16, 32, agentapi.MaxConnections})
}

func chunkSizes(s Scale) []int {
	return pick(s, []int{16 << 10, 256 << 10}, []int{8 << 10, 60000, 256 << 10, 1 << 20}, []int{4 << 10, 8 << 10, 16 << 10, 32 << 10, 60000, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20})
}

// chunkBest is the share of the link's payload rate that the best cell has to reach.
const chunkBest = 0.8

func runChunk(ctx context.Context, env *Env) (*Result, error) {
	l := chunkLine
	if env.Scale == Quick {
		l.Rate = 500e6
	}
	ps, chunks := chunkConnections(env.Scale), chunkSizes(env.Scale)
	raw, err := env.CSV("chunks", "connections", "chunk_bytes", "goodput_bits_per_second", "sender_agent_cpu_percent", "receiver_agent_cpu_percent")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(chunkRepeats * (1 + len(ps)*len(chunks)))
	r := &Result{Network: "two switches, " + l.String()}
	table := Table{Columns: []string{"p \\ chunk"}}
	for _, c := range chunks {
		table.Columns = append(table.Columns, fmt.Sprintf("%d B", c))
	}
	plot := Plot{Name: "chunks", Title: "Goodput over chunk size", X: "chunk, bytes", Y: "Mbit/s", LogX: true}
	best, bestAt := 0.0, ""
	err = env.withSite(ctx, twoSites("chunk", l, 1), func(ctx context.Context, s *site) error {
		direct, err := env.repeat(chunkRepeats, fmt.Sprintf("direct, %v", l), func() (float64, error) {
			g, err := s.transfer(env.Scale, 1).Run(ctx)
			return g.BitsPerSecond, err
		})
		if err != nil {
			return err
		}
		table.Title = fmt.Sprintf("Goodput in Mbit/s (cubic), means of %d transfers with 95 %% intervals; direct TCP in the same run: %s Mbit/s", chunkRepeats, meanText(direct, 1e-6, 1))
		for _, p := range ps {
			row, series := []any{p}, Series{Label: fmt.Sprintf("p = %d", p)}
			for _, chunk := range chunks {
				cell := fmt.Sprintf("p = %d, chunks of %d bytes", p, chunk)
				rates, err := env.repeat(chunkRepeats, cell, func() (float64, error) {
					c, err := s.carriedTransfer(ctx, s.transfer(env.Scale, 1), sos.Tuning{Connections: p, ChunkBytes: chunk, CongestionControl: "cubic"})
					if err != nil {
						return 0, fmt.Errorf("%s: %w", cell, err)
					}
					return c.BitsPerSecond, raw.Row(p, chunk, c.BitsPerSecond, c.SenderCPU, c.ReceiverCPU)
				})
				if err != nil {
					return err
				}
				row = append(row, meanText(rates, 1e-6, 1))
				series.Point(float64(chunk), mean(rates)/1e6)
				if rate := mean(rates); rate > best {
					best, bestAt = rate, cell
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
	r.Claim(best >= chunkBest*l.payload(), fmt.Sprintf("the best cell has at least %.0f %% of what the link carries (published: half of it, with 7,000 connections)", 100*chunkBest),
		"%.0f %%, %s", 100*best/l.payload(), bestAt)
	r.Note("Published, on a 10 Gbit/s link: 130 Mbit/s direct, at best 5.08 Gbit/s with 7,000 connections and 60,000-byte chunks. The figure itself is printed without numbers. Our agents accept at most %d connections a session, and need far fewer.", agentapi.MaxConnections)
	return r, nil
}
