package experiment

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/sos"
)

// linkRates holds the rates of the link, as factors of its usual one: while agents learn the path,
// when a measured transfer begins, and from the middle of that transfer on.
type linkRates struct{ learnt, first, last float64 }

// ratesOf holds the rates of the ways in which the link does not always have its usual one.
var ratesOf = map[string]linkRates{
	wayTwice: {1, 0.5, 0.5}, wayHalf: {0.5, 1, 1},
	wayHalved: {1, 1, 0.5}, wayDoubled: {0.5, 0.5, 1},
}

// changedSizes lists the megabytes of the transfers during which the link changes: those that take
// long enough for agents to notice.
var changedSizes = []int{50, 500}

// changes reports whether the link's rate changes in the middle of the cell's transfer.
func (c startCell) changes() bool { return c.way == wayHalved || c.way == wayDoubled }

// isMeasured reports whether the cell is one that the experiment measures. What connections save at the
// beginning shows in short transfers only.
func (c startCell) isMeasured() bool {
	if c.way == wayNoConnections && c.megabytes > shortMegabytes {
		return false
	}
	return !c.changes() || slices.Contains(changedSizes, c.megabytes)
}

// rates returns the rates of the link when the cell's transfer begins and when it ends.
func (c startCell) rates() (first, last float64) {
	for way, x := range ratesOf {
		if c.way == way || c.way == nextOf(way) {
			return startLine.Rate * x.first, startLine.Rate * x.last
		}
	}
	return startLine.Rate, startLine.Rate
}

// middle returns half of the time that the link permits at its first rate. That is when its rate
// changes, if it does.
func (c startCell) middle() time.Duration {
	first, _ := c.rates()
	return startLine.RTT + timeAt(first, c.bits()/2)
}

// ideal returns the time that the link permits: two round trips, and the bytes at its rates.
func (c startCell) ideal() time.Duration {
	first, last := c.rates()
	carried := first * (c.middle() - 2*startLine.RTT).Seconds()
	return c.middle() + timeAt(last, c.bits()-carried)
}

// bits returns the size of the cell's file.
func (c startCell) bits() float64 { return float64(c.megabytes) * 8e6 }

// timeAt returns the time that bits take at a rate.
func timeAt(rate, bits float64) time.Duration {
	return time.Duration(bits / rate * float64(time.Second))
}

// learnTries bounds the transfers with which agents learn a rate.
const learnTries = 10

// nextOf returns the name of the transfer after one that has begun at a wrong rate.
func nextOf(way string) string { return "next after " + way }

// otherRates makes transfers of a way in ratesOf. Where agents know a wrong rate when a transfer
// begins, otherRates measures the transfer after it, too.
func (rig *startRig) otherRates(ctx context.Context, c startCell, times int, keep func(startCell, startRun) error) error {
	next := c
	next.way = nextOf(c.way)
	for range times {
		if err := rig.learn(ctx, c, startLine.Rate*ratesOf[c.way].learnt); err != nil {
			return err
		}
		if c.changes() {
			if err := rig.changing(ctx, c, keep); err != nil {
				return err
			}
			continue
		}
		first, _ := c.rates()
		if err := rig.setRate(ctx, c, first); err != nil {
			return err
		}
		for _, c := range []startCell{c, next} {
			if err := rig.measure(ctx, c, 1, keep); err != nil {
				return err
			}
		}
	}
	return nil
}

// changing makes one transfer and changes the link's rate in its middle. The link has its first
// rate already.
func (rig *startRig) changing(ctx context.Context, c startCell, keep func(startCell, startRun) error) error {
	_, last := c.rates()
	var r startRun
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := tasks.Sleep(groupCtx, c.middle()); err != nil {
			return err
		}
		return rig.setRate(groupCtx, c, last)
	})
	group.Go(func() (err error) {
		r, err = rig.transfer(groupCtx, c)
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	return keep(c, r)
}

func (rig *startRig) setRate(ctx context.Context, c startCell, rate float64) error {
	l := startLine
	l.Rate, l.Loss = rate, c.loss
	return rig.lab.SetLinkParams(ctx, "wan", l.params())
}

// learn makes agents carry transfers until they know the link at a rate. Agents that know another
// rate forget it first: a higher one would stay, as a doubtful one, and transfers begin at half of it.
func (rig *startRig) learn(ctx context.Context, c startCell, rate float64) error {
	if err := rig.setRate(ctx, c, rate); err != nil {
		return err
	}
	l := startLine
	l.Rate = rate
	sender := "y1"
	if c.direction == directionUp {
		sender = "x1"
	}
	c.megabytes = startPrime
	for try := 0; ; try++ {
		known, err := rig.knownRate(ctx, sender)
		if err != nil {
			return err
		}
		if 0.85*l.payload() < known && known < 1.1*l.payload() {
			return nil
		}
		if try == 0 && known > 0 {
			if err := rig.restartAgents(ctx); err != nil {
				return err
			}
		}
		if try == learnTries {
			return fmt.Errorf("agent %s knows %.0f Mbit/s after %d transfers over a link of %.0f", sender, known/1e6, try, rate/1e6)
		}
		if _, err := rig.transfer(ctx, c); err != nil {
			return err
		}
	}
}

// knownRate returns the rate of an agent's one path, in bits a second.
func (rig *startRig) knownRate(ctx context.Context, agent string) (float64, error) {
	var paths []sos.PathInfo
	err := rig.Do(ctx, http.MethodGet, "/api/v1/sos/agents/"+agent+"/paths", nil, &paths)
	if err != nil || len(paths) == 0 {
		return 0, err
	}
	return float64(paths[0].Rate), nil
}
