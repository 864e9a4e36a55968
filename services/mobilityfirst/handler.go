package mobilityfirst

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

var be = binary.BigEndian

// ethernetHeader is how many bytes stand before a frame without a label.
const ethernetHeader = 14

// said is what a host has said: a hello, or a request with one.
type said struct {
	place
	hello   frame.Hello
	request *frame.PathRequest // nil for a hello alone
	flooded bool               // the request goes to everybody
	known   bool               // whoever asks has said the same hello before: it does not look for another way
	send    sender             // for what follows at once
	at      time.Time
}

// signed is what a worker looks at.
type signed struct {
	who end
	said
}

// HandlePacketIn takes hellos and path requests that come in where hosts are. It runs on the switch's
// goroutine and never waits.
func (s *Service) HandlePacketIn(p *network.PacketIn) network.Verdict {
	h := &p.Headers
	if h.EthType != frame.EtherType || h.VLANTags > 0 || !h.EthDst.IsMulticast() || len(p.Data) < ethernetHeader {
		return network.Continue
	}
	at := place{network.PortRef{Switch: p.Switch.DPID(), Port: p.InPort}, h.EthSrc}
	return s.receive(said{place: at, at: p.At, send: p.Send}, p.Data[ethernetHeader:])
}

// receive takes what somebody has said, as a frame's payload.
func (s *Service) receive(x said, payload []byte) network.Verdict {
	if !s.Network.IsEdge(x.At) {
		return network.Continue
	}
	if !s.limits.mayAsk(x.At, x.at) {
		return s.drop("too many")
	}
	f, err := frame.Parse(payload)
	switch f := f.(type) {
	case *frame.Hello:
		x.hello = *f
	case *frame.PathRequest:
		f.Back, f.Forth, f.Lease = 0, 0, 0 // who asks does not say these
		x.hello, x.request = f.Hello, f
	default:
		if err != nil && !errors.Is(err, frame.ErrType) {
			return s.drop("malformed")
		}
		if !s.limits.mayFlood(x.At, x.at) {
			return s.drop("too many for everybody")
		}
		return network.Continue // of the original release, or of another: access routers are to hear their hosts
	}
	if !s.isAt(x.place) {
		x.send = s.Network.Send
		if x.own() {
			s.early.keep(x)
			s.believed(x.place) // since just now
		}
		return network.Continue
	}
	return s.take(x)
}

// isAt says whether the core believes that a host is at a place.
func (s *Service) isAt(at place) bool {
	host, known := s.Network.HostByMAC(at.MAC, 0)
	return known && host.At == at.At
}

// own says whether a host speaks of the place where it is.
func (x *said) own() bool {
	return openflow.MAC(x.hello.MAC) == x.MAC && !x.MAC.IsMulticast() && !x.MAC.IsZero() && x.hello.Challenge == 0
}

// take deals with what was said, and says whether it goes on as if there were no service.
func (s *Service) take(x said) network.Verdict {
	if !x.own() {
		return s.drop("false address")
	}
	who := end{record.NameOf(x.hello.Key[:]), x.place}
	x.flooded = x.request != nil && !s.names.known(x.request.Destination)
	if x.flooded && !s.limits.mayFlood(x.At, x.at) {
		return s.drop("too many for unknown names")
	}
	// What a known host asks once more needs no signature: whoever sends from there could have asked
	// itself. A number that is new has to be looked at, lest another uses it first.
	switch old := s.names.saysOld(who, x.hello.Number); {
	case old && x.request == nil: // hosts say hello more than once, lest it is lost
	case old:
		x.known = true
		s.request(who, &x)
	default:
		s.queue(who, x)
	}
	if x.flooded {
		return network.Continue
	}
	return network.Stop
}

// queue has a worker look at a signature.
func (s *Service) queue(who end, x said) {
	if !s.limits.mayVerify(x.At, x.at) {
		s.drop("too many signatures")
		return
	}
	x.send = s.Network.Send
	select {
	case s.backlog <- signed{who, x}:
	default:
		s.drop("backlog")
	}
}

// drop ends a frame.
func (s *Service) drop(why string) network.Verdict {
	s.metrics.dropped.WithLabelValues(why).Inc()
	return network.Stop
}

// work looks at signatures until ctx ends.
func (s *Service) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case x := <-s.backlog:
			s.hear(x.who, &x.said)
		}
	}
}

// hear believes what a name's owner has signed.
func (s *Service) hear(who end, x *said) {
	if _, err := record.VerifyHello(&x.hello); err != nil {
		s.drop("false signature")
		return
	}
	switch s.names.learn(who, x.hello.Number, x.at) {
	case isOld:
		s.drop("old")
		return
	case full:
		s.drop("no room") // for the place; what it asks of other names goes on
	case isNew:
		s.moved(who, x)
	}
	if x.request != nil {
		s.request(who, x)
	}
}

// moved tells those who send to a name, or have asked for it in vain, that it is at a new place: they ask.
func (s *Service) moved(who end, x *said) {
	s.publish("name.found", NameEvent{who.name.String(), placeInfo(who.place)})
	to := s.paths.to(who.name, who.place)
	for _, e := range s.names.followed(who.name) {
		to[e] = struct{}{}
	}
	for e := range to {
		if !s.limits.mayTell(x.At, x.at) {
			return
		}
		s.send(s.Network.Send, e.place, who.MAC, &x.hello)
	}
}

// request has a path made to where a name is, and asks its host for the answer. It never waits.
func (s *Service) request(who end, x *said) {
	places := s.names.find(x.request.Destination)
	if len(places) == 0 {
		s.names.follow(x.request.Destination, who, x.at)
		s.metrics.unknown.Inc()
		return
	}
	if x.flooded {
		return // it was heard just now; whoever asks does so again
	}
	to, others := s.choose(who, x, places)
	for i, e := range to {
		if i > 0 && !s.limits.mayLead(x.At, x.at) {
			s.drop("too many places")
			return
		}
		s.lead(who, x, e, others)
	}
}

// lead has a path made to a name's host, and asks it for the answer. If there can be none, others of
// the name's hosts are asked, too.
func (s *Service) lead(who end, x *said, to end, others []end) {
	q := *x.request
	then := func(send sender, p *path, err error) {
		s.pass(send, q, who, to, p, err)
		if err != nil {
			for _, e := range others {
				if !s.limits.mayLead(x.At, x.at) {
					s.drop("too many places")
					return
				}
				s.pass(send, q, who, e, nil, err)
			}
		}
	}
	p, err := s.paths.lease(who, to, x, func(p *path, err error) {
		if err == nil {
			s.metrics.setup.Observe(time.Since(x.at).Seconds())
		}
		then(s.Network.Send, p, err)
	})
	if p != nil || err != nil {
		then(x.send, p, err)
	}
}

// pass asks the host of a name for the answer to a request, by a path or, if there is an error, without one.
func (s *Service) pass(send sender, q frame.PathRequest, from, to end, p *path, err error) {
	if err != nil {
		s.metrics.without.Inc()
		s.Log.Debug("a request goes on without a path", "from", from.name, "to", to.name, "error", err)
	} else {
		s.metrics.by.Inc()
		q.Forth, q.Back = p.labels(to)
		q.Lease = uint32(s.Lease.Milliseconds())
	}
	s.send(send, to.place, from.MAC, &q)
}

// sender sends a frame out of a port.
type sender func(network.PortRef, []byte) error

// send sends a frame to a host, as from another.
func (s *Service) send(send sender, to place, from openflow.MAC, f frame.Frame) {
	b := be.AppendUint16(append(append(make([]byte, 0, 256), to.MAC[:]...), from[:]...), frame.EtherType)
	if err := send(to.At, f.AppendTo(b)); err != nil {
		s.drop("not sent")
	}
}
