package network

import (
	"fmt"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// maxLostLinkAge is how long a lost link is remembered.
	maxLostLinkAge = 24 * time.Hour
	// maxLostLinksPerSwitch is the number of lost links that are remembered of one switch, and
	// maxLostLinks that of all switches.
	maxLostLinksPerSwitch = 64
	maxLostLinks          = 4096
)

// lostLinks holds links that existed and are lost. The zero value is empty.
type lostLinks struct {
	mu    sync.Mutex
	links map[openflow.DatapathID]map[uint32]lostLink // by the switch and the port of the sending end
	count int
}

type lostLink struct {
	link Link
	at   time.Time
}

// add records that one direction of a link is lost. If there are too many of the sending switch, it
// drops the oldest of these. If there are too many in all, it does not record the link.
func (x *lostLinks) add(l Link, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	of := x.links[l.From.Switch]
	if _, ok := of[l.From.Port]; !ok {
		if len(of) >= maxLostLinksPerSwitch {
			x.delete(oldest(of).link.From)
		}
		if x.count >= maxLostLinks {
			return
		}
		x.count++
	}
	if x.links == nil {
		x.links = map[openflow.DatapathID]map[uint32]lostLink{}
	}
	if x.links[l.From.Switch] == nil {
		x.links[l.From.Switch] = map[uint32]lostLink{}
	}
	x.links[l.From.Switch][l.From.Port] = lostLink{l, now}
}

// oldest returns the link that was lost first.
func oldest(of map[uint32]lostLink) (first lostLink) {
	for _, l := range of {
		if first.at.IsZero() || l.at.Before(first.at) {
			first = l
		}
	}
	return first
}

// remove records that a link exists. It drops the lost link that left by the same port.
func (x *lostLinks) remove(l Link) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.delete(l.From)
}

// delete drops the link that left by a port. The mutex is held.
func (x *lostLinks) delete(from PortRef) {
	of := x.links[from.Switch]
	if _, ok := of[from.Port]; !ok {
		return
	}
	x.count--
	if delete(of, from.Port); len(of) == 0 {
		delete(x.links, from.Switch)
	}
}

// classify returns the lost links. gone holds those with an end that is not up. silent holds those
// with both ends up: only their probes are lost.
func (x *lostLinks) classify(up func(PortRef) bool, now time.Time) (gone []lostLink, silent []Link) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, of := range x.links {
		for _, l := range of {
			reverse := x.links[l.link.To.Switch][l.link.To.Port]
			switch {
			case now.Sub(l.at) > maxLostLinkAge:
				x.delete(l.link.From)
			case up(l.link.From) && up(l.link.To):
				silent = append(silent, l.link)
			case reverse.link.To != l.link.From || now.Sub(reverse.at) > maxLostLinkAge || l.link.From.Compare(l.link.To) < 0: // report only one of both directions
				gone = append(gone, l)
			}
		}
	}
	return gone, silent
}

// goneLinkFinding returns the finding for a lost link with an end that is not up.
func (d *Doctor) goneLinkFinding(l lostLink) diagnosis.Finding {
	at := l.link.From
	if d.switches.reachable(at) {
		at = l.link.To
	}
	why, remedy := fmt.Sprintf("switch %v is not connected", at.Switch), "see why the switch has left: its power, its way to the controller, the controller's log"
	if s, ok := d.switches.get(at.Switch); ok {
		if _, ok := s.Port(at.Port); ok {
			why, remedy = fmt.Sprintf("port %v is down", at), "look at cable, optic and the far end, and whether the port is switched off"
		} else {
			why, remedy = fmt.Sprintf("switch %v has no port %d any more", at.Switch, at.Port), "see whether the port is still in the switch's OpenFlow instance, and has kept its number"
		}
	}
	return diagnosis.Finding{
		Fault: diagnosis.Gone, Level: diagnosis.Warn, From: l.link.From, To: l.link.To,
		Found: fmt.Sprintf("the link was there until %s, and is not: %s", l.at.Format(time.DateTime), why), Remedy: remedy + "; nothing if it was taken away",
	}
}
