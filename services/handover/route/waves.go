package route

import (
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Waves returns the consistent order in which the switches of a change are written: all switches
// of a wave at once, the next wave when all have confirmed. Rules are deleted after the last wave.
// A change that only deletes has no waves, but the slice is not nil. An empty old plan stands for
// a first attachment.
func Waves(old, now Plan) [][]openflow.DatapathID {
	w, _ := waves(&old, &now, true)
	return w
}

// Burst returns the fastest order in which no packet loops. Packets may be lost until all switches
// have their rules, as if the device had left its old place already. Mostly it is a single wave.
func Burst(old, now Plan) [][]openflow.DatapathID {
	w, _ := waves(&old, &now, false)
	return w
}

// Inward returns an order for a plan when it is not known which rules the switches have: one
// switch after the other, those nearest to the device first. Whatever a switch did with packets to
// the device before, those that it now sends on find their rules. The exception is that with
// several borders a branch may pass switches that send to its join.
func Inward(now Plan) [][]openflow.DatapathID {
	out := make([][]openflow.DatapathID, len(now.order))
	for i, sw := range now.order {
		out[i] = []openflow.DatapathID{sw}
	}
	return out
}

// waves puts into each wave every switch that can be written safely together with those already in
// it, those nearest to the device first. It returns false if a wave is not safe because there was
// no safe one.
func waves(old, now *Plan, lossless bool) (out [][]openflow.DatapathID, safe bool) {
	u := newUpdate(old, now)
	var rest []*site
	for i := range u.sites {
		if u.sites[i].written() {
			rest = append(rest, &u.sites[i])
		}
	}
	out, safe = [][]openflow.DatapathID{}, true
	for len(rest) > 0 {
		var wave, later []*site
		for _, s := range rest {
			s.phase = during
			if u.safe(lossless) {
				wave = append(wave, s)
				continue
			}
			s.phase = before
			later = append(later, s)
		}
		if len(wave) == 0 { // continue from the device's side
			wave, later, safe = rest[:1], rest[1:], false
		}
		var ids []openflow.DatapathID
		for _, s := range wave {
			s.phase = after
			ids = append(ids, s.sw)
		}
		out, rest = append(out, ids), later
	}
	return out, safe
}

// Compare returns what a change touches.
func Compare(old, now Plan) Change {
	var c Change
	for _, s := range newUpdate(&old, &now).sites {
		switch {
		case s.written():
			c.Written = append(c.Written, s.sw)
		case s.cleared():
			c.Cleared = append(c.Cleared, s.sw)
		}
	}
	if now.Bicast() {
		c.Join, c.Branch = now.Join, now.Branch
		return c
	}
	c.Branch, c.Gone = now.Path, old.Path
	if len(old.Path) == 0 {
		return c
	}
	if entered := now.pathFrom(old.Egress.At); len(entered) > 0 {
		c.Branch = entered
	}
	common := 0
	for common < min(len(c.Branch), len(c.Gone)) && c.Branch[common].Switch == c.Gone[common].Switch && c.Branch[common].In == c.Gone[common].In {
		common++
	}
	if common > 0 {
		c.Join = c.Branch[common-1].Switch
		c.Branch, c.Gone = c.Branch[common-1:], c.Gone[common-1:]
	}
	return c
}

// pathFrom returns the path of packets to the device that enter at a port.
func (p *Plan) pathFrom(at network.PortRef) []network.Hop {
	var hops []network.Hop
	var mac openflow.MAC
	for range p.order {
		s := site{now: p.at(at.Switch)}
		e := s.find(false, at.Port, mac, true)
		if e == nil {
			return nil
		}
		o := &e.outs[0]
		hops = append(hops, network.Hop{Switch: at.Switch, In: at.Port, Out: o.port})
		mac = o.carriedMAC(false, mac)
		if at = o.to; at.IsZero() {
			return hops
		}
	}
	return nil
}
