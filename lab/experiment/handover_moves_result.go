package experiment

import "fmt"

func movesResult(r *Result, cases []movesCase, samples []*movesSamples) {
	table := Table{
		Title: "Seamless moves, and what became of the packets",
		Columns: []string{
			"case", "devices at once", "packets a second of each", "way", "moves", "packets", "lost", "moves with loss", "doubled", "reordered", "refused by the sender",
			"silence: p50 ms", "p99 ms", "max ms",
		},
	}
	leases := Table{
		Title:   "From the device's decision to the network's answer, and what this machine was too slow for",
		Columns: []string{"case", "p50 ms", "p95 ms", "p99 ms", "max ms", "asked for again after a kill", "packets that full sockets dropped", "the kernel's backlog", "lost by a device that stands still"},
	}
	for i, c := range cases {
		s := samples[i]
		for _, d := range []struct {
			name string
			way  movesDirection
		}{{"up", s.up}, {"down", s.down}} {
			w := d.way
			table.Add(c.name, c.devices, c.rate, d.name, s.moves, w.sent, w.lost, w.hit, w.doubled, w.reordered, w.refused,
				ms1(median(w.silence)), ms1(quantile(w.silence, 0.99)), ms1(quantile(w.silence, 1)))
			if c.single {
				continue
			}
			r.Claim(w.lost == 0, fmt.Sprintf("%s, %s: no packet lost in %d moves", c.name, d.name, s.moves), "%d of %d, in %d moves", w.lost, w.sent, w.hit)
			r.Claim(w.doubled == 0, fmt.Sprintf("%s, %s: no packet arrives twice", c.name, d.name), "%d", w.doubled)
		}
		leases.Add(c.name, ms1(median(s.lease)), ms1(quantile(s.lease, 0.95)), ms1(quantile(s.lease, 0.99)), ms1(quantile(s.lease, 1)), s.repeated, s.drops.Sockets, s.drops.Backlog, s.still)
	}
	r.Tables = append(r.Tables, table, leases)
	r.Note("A packet counts for the move before it was sent; the pauses between moves are random (their logarithm evenly, so that short ones are as frequent as long ones), from a fixed seed.")
	r.Note("One radio: it is away from its old place before it is at the new one, and what is sent meanwhile is lost whatever the policy; that is shown for comparison.")
	r.Note("Loaded: a program that does nothing else keeps one core busy. Killed: all devices begin a move at once, the controller gets SIGKILL within %v of that and is started again at once.", killWithin)
}
