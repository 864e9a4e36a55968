package experiment

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
)

func mfMobility() Experiment {
	return Experiment{
		Name:     "mf-mobility",
		Title:    "How long delivery to a name stops when its host moves, beside TCP, MPTCP, QUIC and handover",
		Question: "How much of what is sent to a name is lost while its host changes its link, its address or its domain, or is away, and how long does delivery stop?",
		Source:   "MobilityFirst thesis 2013, section 3.5, where it was not measured",
		Varies:   []string{"move"},
		Run:      runMFMobility,
	}
}

// mobilityMove is an event that happens to the device.
type mobilityMove struct {
	name string
	rig  *mobilityRig
	// most bounds the median silence of names, without the time that the device is away.
	most time.Duration
	// away means that the device is away for mobilityRig.absence during do.
	away bool
	rate int // messages a second
	// do lets the event happen, and undo restores the network.
	do, undo func(context.Context) error
	// adapt is what a device with two addresses does itself after do, and restore after undo. They
	// are nil if there is nothing to do.
	adapt, restore func(context.Context) error
	// steady is how long names need after undo to return to their initial state.
	steady time.Duration
	ways   []mobilityWay // without handover
	served []mobilityWay // with handover
}

// mobilityWay is a way to send to the device.
type mobilityWay struct {
	name  string
	start func(context.Context, testbed.PeerOptions) (testbed.Peer, error)
	// names means that messages are chunks to a name.
	names bool
	// stored means that a storage node keeps the chunks while the device is away.
	stored bool
}

// mobilityCell holds the runs of a move with a way. A silence does not include the time that the
// device is away.
type mobilityCell struct {
	runs roamCell
	kept []float64 // chunks that the storage node had shortly before the device came back
}

// mobilityResults holds the cells by move and way.
type mobilityResults map[string]*mobilityCell

func mobilityKey(m mobilityMove, w mobilityWay) string { return m.name + "/" + w.name }

func runMFMobility(ctx context.Context, env *Env) (*Result, error) {
	runs := pick(env.Scale, 2, 10, 30)
	raw, err := env.CSV("moves", "move", "way", "run", "gap_seconds", "lost", "doubled", "dead", "late_seconds", "away_seconds", "kept")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	one, two := newMobilityHome(env, raw), newMobilityDomains(env, raw)
	moves, err := chosen(env.Only, "move", append(one.homeMoves(), two.domainMoves()...), func(m mobilityMove) string { return m.name })
	if err != nil {
		return nil, err
	}
	steps := 0
	for _, m := range moves {
		steps += len(m.ways) + len(m.served)
	}
	env.Steps(steps)
	results := mobilityResults{}
	for _, rig := range []*mobilityRig{one, two} {
		var here []mobilityMove
		for _, m := range moves {
			if m.rig == rig {
				here = append(here, m)
			}
		}
		if len(here) == 0 {
			continue
		}
		err := env.withLab(ctx, rig.topology, func(ctx context.Context, l *lab.Lab) error {
			rig.peers.lab = l
			return rig.measureAll(ctx, here, runs, results)
		})
		if err != nil {
			return nil, err
		}
	}
	return mobilityResult(moves, results, runs), nil
}

// mobilityResult makes the table, and claims what names promise.
func mobilityResult(moves []mobilityMove, results mobilityResults, runs int) *Result {
	r := &Result{Network: fmt.Sprintf("a device with two access links of %.0f Mbit/s and %v each way, to two edge switches under one root, which learn addresses, or to an edge of each of two domains with a controller and a name service each; a router and a server behind it send to it", accessLine.Rate/1e6, accessLine.Delay)}
	t := Table{Title: fmt.Sprintf("Longest silence at the device in ms, %d runs each", runs), Columns: []string{"move", "way", "median", "worst", meanColumn, "in time again after, median", "lost", "doubled", "dead", "kept by the storage node"}}
	for _, m := range moves {
		for _, way := range slices.Concat(m.ways, m.served) {
			cell := results[mobilityKey(m, way)]
			c, kept := &cell.runs, ""
			if way.stored {
				kept = fmt.Sprintf("%.0f", median(cell.kept))
			}
			t.Add(m.name, way.name, ms1(median(c.gaps)), ms1(quantile(c.gaps, 1)), meanText(c.gaps, 1, 1), ms1(median(c.late)), c.lost, c.doubled, c.dead, kept)
			if way.names {
				mobilityClaims(r, m, way, cell)
			}
		}
	}
	r.Tables = append(r.Tables, t)
	r.Note("A silence is the time between two arrivals beyond the server's own spacing; the wire takes %v. The server sends %d messages a second, and %d where the device is away. A message is in time if it takes at most %v.", accessLine.Delay, pulseRate, awayRate, lateLimit)
	r.Note("The device is away for %v to %v, a different time in each run, so that no way benefits from the time of its next attempt. Its times count from its return.", shortestAbsence, 2*shortestAbsence)
	r.Note("Names find out by themselves: their hosts have default settings. The kernel does so for MPTCP; applications on QUIC and TCP take a silence of %v for the link's death, and know which address they have beside. TCP's application says which message it expects when it connects anew. Where TCP and QUIC keep their connection, the application does not react.", watchLimit)
	r.Note("With handover the device keeps its one address in the first domain; the device's daemon and both controllers have default settings, and nothing is announced. UDP packets are not repeated by anybody. Where the device gets another address or comes to another domain, its interface goes down, which the daemon and the hosts of names notice at once.")
	return r
}

func mobilityClaims(r *Result, m mobilityMove, way mobilityWay, cell *mobilityCell) {
	c := &cell.runs
	r.Claim(c.lost+c.doubled+c.dead == 0, fmt.Sprintf("%s, %s: everything arrives once", m.name, way.name), "%d lost, %d doubled, %d of %d runs dead", c.lost, c.doubled, c.dead, len(c.gaps))
	r.Claim(median(c.gaps) <= inMS(m.most), fmt.Sprintf("%s, %s: median silence at most %v", m.name, way.name, m.most), "%.0f ms", median(c.gaps))
	if way.stored {
		r.Claim(quantile(cell.kept, 0) > 0, fmt.Sprintf("%s, %s: the storage node has chunks when the device returns", m.name, way.name), "at least %.0f", quantile(cell.kept, 0))
	}
}
