package plugin

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/sluice-net/sluice/mobilityfirst/frame"
	"github.com/sluice-net/sluice/mobilityfirst/record"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
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
	x := said{place: place{network.PortRef{Switch: p.Switch.DPID(), Port: p.InPort}, h.EthSrc}, at: p.At, send: p.Send}
	if !s.Network.IsEdge(x.At) {
		return network.Continue
	}
	if !s.limits.mayAsk(x.At, x.at) {
		return s.drop("too many")
	}
	if host, known := s.Network.HostByMAC(x.MAC, 0); !known || host.At != x.At {
		return network.Continue // the core does not believe that it is there
	}
	f, err := frame.Parse(p.Data[ethernetHeader:])
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
		return network.Continue // of the original release, or of another: their hosts hear each other
	}
	return s.take(x)
}

// take deals with what was said, and says whether it goes on as if there were no service.
func (s *Service) take(x said) network.Verdict {
	if openflow.MAC(x.hello.MAC) != x.MAC || x.MAC.IsMulticast() || x.MAC.IsZero() || x.hello.Challenge != 0 {
		return s.drop("false address")
	}
	who := end{record.NameOf(x.hello.Key[:]), x.place}
	x.flooded = x.request != nil && !s.names.known(x.request.Destination)
	if x.flooded && !s.limits.mayFlood(x.At, x.at) {
		return s.drop("too many for unknown names")
	}
	// What a known host asks once more needs no signature: whoever sends from there could have asked
	// itself. A number that is new has to be looked at, lest another uses it first.
	if x.request != nil && s.names.saysOld(who, x.hello.Number) {
		s.request(who, &x)
	} else {
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
		s.drop("no room")
		return
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
	for _, at := range places {
		to := end{x.request.Destination, at}
		if at.At == who.At || at.MAC == who.MAC {
			continue // they hear each other
		}
		q := *x.request
		p, err := s.paths.lease(who, to, x.at, func(p *path, err error) {
			if err == nil {
				s.metrics.setup.Observe(time.Since(x.at).Seconds())
			}
			s.pass(s.Network.Send, q, who, to, p, err)
		})
		if p != nil || err != nil {
			s.pass(x.send, q, who, to, p, err)
		}
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
