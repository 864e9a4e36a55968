package networkapi

import (
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/stats"
)

// eventAttrs is a network event as the event stream shows it.
type eventAttrs struct {
	Switch string `json:"switch,omitempty"`
	Port   uint32 `json:"port,omitempty"`
	Link   *Link  `json:"link,omitempty"`
	Host   *Host  `json:"host,omitempty"`
	From   *Place `json:"from,omitempty"`
	Reason string `json:"reason,omitempty"`
	// LeftOut is how many events of the port were not published before this one.
	LeftOut int `json:"left_out,omitempty"`
}

// EventAttrs turns a network.Event into what the event stream shows; anything
// else is left as it is.
func EventAttrs(attrs any) any {
	e, ok := attrs.(network.Event)
	if !ok {
		return attrs
	}
	out := eventAttrs{Reason: e.Reason, LeftOut: e.LeftOut}
	switch e.Kind {
	case network.SwitchUp, network.SwitchDown, network.SwitchRefused:
		out.Switch = e.Switch.String()
	case network.PortUp, network.PortDown, network.HostRefused, network.EventsLeftOut:
		out.Switch, out.Port = e.Port.Switch.String(), e.Port.Port
	case network.LinkUp, network.LinkDown, network.LinkMisplaced:
		l := linkOf(e.Link, stats.Loss{})
		out.Link = &l
	default:
		h := hostOf(e.Host)
		out.Host = &h
		if !e.From.IsZero() {
			p := placeOf(e.From)
			out.From = &p
		}
	}
	return out
}
