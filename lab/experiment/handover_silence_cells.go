package experiment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/services/handover/mobile"
)

// silenceCell is a kind of failure: which directions of which link fail, with which traffic.
type silenceCell struct {
	backhaul bool // the link behind the edge fails, and not the radio
	up, down bool // the directions that fail, as seen from the device
	traffics []silenceTraffic
}

func (c silenceCell) String() string {
	medium, dead, runs := "radio", "both", "idle"
	if c.backhaul {
		medium = "backhaul"
	}
	switch {
	case !c.down:
		dead = "up"
	case !c.up:
		dead = "down"
	}
	if len(c.traffics) > 0 {
		var names []string
		for _, t := range c.traffics {
			names = append(names, t.name)
		}
		runs = strings.Join(names, "+")
	}
	return medium + "/" + dead + "/" + runs
}

// silenceCells returns all kinds of failure.
func silenceCells() []silenceCell {
	down, up := silenceTraffic{name: "udp-down"}, silenceTraffic{name: "udp-up", up: true}
	var all []silenceCell
	for _, backhaul := range []bool{false, true} {
		for _, dead := range []silenceCell{{up: true}, {down: true}, {up: true, down: true}} {
			for _, traffics := range [][]silenceTraffic{nil, {up}, {down}, {down, up}} {
				all = append(all, silenceCell{backhaul: backhaul, up: dead.up, down: dead.down, traffics: traffics})
			}
		}
	}
	return all
}

// silenceBackhaul describes the links between switches, which are shaped so that they can fail in
// one direction.
var silenceBackhaul = delayline.Params{Rate: 1e9, Delay: time.Millisecond}

// set makes the directions of a cell's link fail, or restores the link.
func (rig *silenceRig) set(ctx context.Context, c silenceCell, dies bool) error {
	link, up, down := accessLink(0), accessLine, accessLine
	if c.backhaul {
		link, up, down = rig.backhaul(), silenceBackhaul, silenceBackhaul
	}
	if dies && c.up {
		up = lossy(up)
	}
	if dies && c.down {
		down = lossy(down)
	}
	if c.backhaul { // the upper switch is the link's first end
		up, down = down, up
	}
	return rig.lab.SetLinkDirections(ctx, link, &up, &down)
}

// backhaul returns the name of the link behind the first radio's edge.
func (rig *silenceRig) backhaul() string {
	edge, _ := rig.lab.Link(accessLink(0)).Attachment()
	for _, l := range rig.lab.Topology().Links {
		if l.B.Node == edge && l.A.Node != theDevice {
			return l.Name
		}
	}
	panic("the first radio's edge has no link to the other switches") // lab.Mobility makes one
}

// cell makes a link fail as the cell says, and returns how long the daemon needed to decide to
// leave it. Each failure but the first follows the recovery from the one before.
func (rig *silenceRig) cell(ctx context.Context, c silenceCell) (noticed time.Duration, err error) {
	if err := rig.awaitReturn(ctx); err != nil {
		return 0, err
	}
	for _, t := range c.traffics {
		stop, err := rig.start(ctx, t)
		if err != nil {
			return 0, err
		}
		defer stop(time.Now(), time.Now())
	}
	phase := time.Duration(rig.random.Int64N(int64(silenceBefore)))
	err = tasks.Sleep(ctx, silenceBefore+phase)
	if err == nil {
		err = rig.set(ctx, c, true)
	}
	died := time.Now()
	var left mobile.Move
	if err == nil {
		left, err = rig.left(ctx, died)
	}
	return left.At.Sub(died), errors.Join(err, rig.set(ctx, c, false))
}

// cells measures all kinds of failure.
func (rig *silenceRig) cells(ctx context.Context, all []silenceCell, runs int, raw *CSV) (noticed map[string][]float64, before int, err error) {
	noticed = map[string][]float64{}
	for _, c := range all {
		rig.env.Step("%s: the link dies %d times", c, runs)
		for run := 0; run < runs; {
			took, err := rig.cell(ctx, c)
			if errors.Is(err, errLeftBefore) && before < mostLeftBefore*len(all) {
				before++
				continue
			}
			if err != nil {
				return nil, before, fmt.Errorf("%s, run %d: %w", c, run+1, err)
			}
			run++
			noticed[c.String()] = append(noticed[c.String()], inMS(took))
			if err := raw.Row(c, run, took); err != nil {
				return nil, before, err
			}
		}
	}
	return noticed, before, nil
}

// silenceCellsResult adds the table of all kinds of failure, and their claims.
func silenceCellsResult(r *Result, all []silenceCell, noticed map[string][]float64) {
	table := Table{
		Title:   "From the death of a direction to the decision to leave",
		Columns: []string{"what dies / in which directions / what runs", "deaths", "p50 ms", "p95 ms", "max ms"},
	}
	for _, c := range all {
		n := noticed[c.String()]
		p95 := quantile(n, 0.95)
		table.Add(c.String(), len(n), ms1(median(n)), ms1(p95), ms1(quantile(n, 1)))
		r.Claim(p95 <= 150, c.String()+": p95 of the time until it is noticed at most 150 ms", "%.0f ms", p95)
	}
	r.Tables = append(r.Tables, table)
	r.Note("The directions are the device's: up is what it sends. The backhaul is the link behind the edge, which still answers the device itself. Each death but the first comes soon after the link's return from the one before. The traffic is UDP, which nobody answers: what comes in proves nothing about what leaves.")
}
