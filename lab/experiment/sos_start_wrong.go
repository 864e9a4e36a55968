package experiment

import (
	"context"
	"fmt"
	"net/http"

	"github.com/sluice-net/sluice/services/sos"
)

// wrongRates holds the factors of the link's rate while agents learn the path, and while transfers
// are measured.
var wrongRates = map[string]struct{ learnt, measured float64 }{wayTwice: {1, 0.5}, wayHalf: {0.5, 1}}

// rate returns the rate of the link when a cell is measured.
func (c startCell) rate() float64 {
	for way, x := range wrongRates {
		if c.way == way || c.way == nextOf(way) {
			return startLine.Rate * x.measured
		}
	}
	return startLine.Rate
}

// learnTries bounds the transfers with which agents learn a rate.
const learnTries = 10

// nextOf returns the name of the transfer after one that has begun at a wrong rate.
func nextOf(way string) string { return "next after " + way }

// wrong makes transfers whose agents know a wrong rate of the link, each with the transfer after
// it.
func (rig *startRig) wrong(ctx context.Context, c startCell, times int, keep func(startCell, startRun) error) error {
	next := c
	next.way = nextOf(c.way)
	for range times {
		if err := rig.learn(ctx, c, startLine.Rate*wrongRates[c.way].learnt); err != nil {
			return err
		}
		if err := rig.setRate(ctx, c, c.rate()); err != nil {
			return err
		}
		for _, c := range []startCell{c, next} {
			if err := rig.measure(ctx, c, 1, keep); err != nil {
				return err
			}
		}
	}
	return rig.setRate(ctx, c, startLine.Rate)
}

func (rig *startRig) setRate(ctx context.Context, c startCell, rate float64) error {
	l := startLine
	l.Rate, l.Loss = rate, c.loss
	return rig.lab.SetLinkParams(ctx, "wan", l.params())
}

// learn makes agents carry transfers until they know the link at a rate.
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
