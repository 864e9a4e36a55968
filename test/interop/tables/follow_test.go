package tables

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// maxHops is more than a packet can pass here that does not go in circles.
const maxHops = 16

// journey is a packet on its way through the tables.
type journey struct {
	w  *world
	at network.PortRef
	h  packet.Headers
}

func (w *world) follow(at network.PortRef, h packet.Headers) journey { return journey{w, at, h} }

// visit is a copy of it at a switch. by is whose claims have decided all the way.
type visit struct {
	at network.PortRef
	h  packet.Headers
	by *kind
}

// check follows it, compares at each switch what its table does with what it should, and says
// how they differ; and where a copy leaves the network, how that is not where it belongs.
func (j journey) check(made decided) error {
	now := []visit{{at: j.at, h: j.h}}
	for range maxHops {
		var next []visit
		for _, v := range now {
			by, outs, err := j.w.compare(v.at, v.h, made)
			if err != nil {
				return fmt.Errorf("packet %v\nfrom %v: %w", packetOf(j.at.Port, &j.h), j.at, err)
			}
			if v.by != nil && *v.by != by {
				by = mixed
			}
			for _, o := range outs {
				from := network.PortRef{Switch: v.at.Switch, Port: o.port}
				if l, ok := j.w.top.LinkFrom(from); ok {
					next = append(next, visit{l.To, o.h, &by})
				} else if err := j.w.arrives(by, from, &o.h); err != nil {
					return fmt.Errorf("packet %v\nfrom %v: %w", packetOf(j.at.Port, &j.h), j.at, err)
				}
			}
		}
		if now = next; len(now) == 0 {
			return nil
		}
	}
	return fmt.Errorf("packet %v\nfrom %v goes in circles: it is at %v", packetOf(j.at.Port, &j.h), j.at, now[0].at)
}

// left is a copy that leaves a switch, and who has sent it up if that is where it goes.
type left struct {
	port, queue uint32
	packet      fake.Packet
	owner       string
}

// compare has one switch decide about a packet, and says how that differs from what it should.
func (w *world) compare(at network.PortRef, h packet.Headers, made decided) (kind, []copyOut, error) {
	tables := w.layouts[at.Switch].Tables()
	claim, rows, err := decide(w.claims(at, &h), tables)
	if err != nil {
		return 0, nil, fmt.Errorf("at %v: %w", at, err)
	}
	for _, d := range rows {
		made.note(d, tables)
	}
	outs := slices.DeleteFunc(claim.outs, func(o copyOut) bool { return o.port == nowhere })
	var want []left
	for i := range outs {
		l := left{outs[i].port, outs[i].queue, packetOf(at.Port, &outs[i].h), ""}
		if l.port == openflow.PortController {
			l.queue, l.owner = 0, owners[claim.of]
		}
		want = append(want, l)
	}
	got := w.send(at, &h)
	order := func(a, b left) int { return cmp.Or(cmp.Compare(a.port, b.port), cmp.Compare(a.queue, b.queue)) }
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	if !slices.Equal(got, want) {
		return 0, nil, fmt.Errorf("at %v, where it is %v, as %v: it leaves as\n  %v\nnot as\n  %v", at, packetOf(at.Port, &h), claim.of, got, want)
	}
	return claim.of, outs, nil
}

// send sends a packet through the tables of one switch.
func (w *world) send(at network.PortRef, h *packet.Headers) (out []left) {
	r := w.tables[at.Switch].Send(at.Port, packetOf(at.Port, h))
	for _, o := range r.Outputs {
		l := left{o.Port, o.Queue, o.Packet, ""}
		switch o.Port {
		case openflow.PortInPort:
			l.port = at.Port
		case openflow.PortController:
			l.queue = 0
			if owner := w.ledger.OwnerOf(rule.Cookie(r.Entries[len(r.Entries)-1].Cookie)); owner != nil {
				l.owner = owner.Name
			}
		}
		out = append(out, l)
	}
	return out
}

// mixed is whose claims have decided if it is not one's all the way.
const mixed = kind(-1)

// arrives says how a packet that has left by a port to a host is not where it belongs: one
// that has had one's claims all the way arrives where its destination stands.
func (w *world) arrives(by kind, at network.PortRef, h *packet.Headers) error {
	if at.Port == openflow.PortController || by == mixed || by == ordinary && h.EthDst.IsMulticast() {
		return nil
	}
	if by == device && h.Dst != w.parties[phone].ip {
		if slices.Contains(w.device.roots, at) {
			return nil
		}
		return fmt.Errorf("%v, by the mobile device's rules, leaves by %v, which is no root", packetOf(at.Port, h), at)
	}
	for i := range w.parties {
		p := &w.parties[i]
		if p.at == at && (!h.Has(packet.IPv4) && p.mac == h.EthDst || by == ordinary && p.mac == h.EthDst || by != ordinary && p.ip == h.Dst) {
			return nil
		}
	}
	return fmt.Errorf("%v, %v, leaves by %v, where its destination does not stand", packetOf(at.Port, h), by, at)
}
