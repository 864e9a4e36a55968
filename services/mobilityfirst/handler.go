package mobilityfirst

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

var be = binary.BigEndian

// ethernetHeader is the length in bytes of the Ethernet header of a frame without a label.
const ethernetHeader = 14

// HandlePacketIn handles hellos and path requests that arrive at edge ports, and those of hosts
// that have moved to ports that are still being probed. It runs on the switch's goroutine and never
// waits.
func (s *Service) HandlePacketIn(p *network.PacketIn) network.Verdict {
	h := &p.Headers
	if h.EthType != frame.EtherType || h.VLANTags > 0 || !h.EthDst.IsMulticast() || len(p.Data) < ethernetHeader {
		return network.Continue
	}
	at := place{network.PortRef{Switch: p.Switch.DPID(), Port: p.InPort}, h.EthSrc}
	return s.receive(message{place: at, received: p.At, send: p}, p.Data[ethernetHeader:])
}

// receive handles a frame's payload. The caller has set the place, the time and the send function.
func (s *Service) receive(x message, payload []byte) network.Verdict {
	edge := s.Network.IsEdge(x.At)
	if !edge && !s.Network.IsSettling(x.At) {
		return network.Continue
	}
	if !s.limits.frames.Allow(x.At, x.received) {
		return s.drop("too many")
	}
	f, err := frame.Parse(payload)
	switch f := f.(type) {
	case *frame.Hello:
		x.hello = *f
	case *frame.PathRequest:
		f.Back, f.Forth, f.Lease = 0, 0, 0 // only the controller sets these
		x.hello, x.request = f.Hello, f
	default:
		if err != nil && !errors.Is(err, frame.ErrType) {
			return s.drop("malformed")
		}
		if edge && !s.limits.floods.Allow(x.At, x.received) {
			return s.drop("too many for everybody")
		}
		return network.Continue // a frame of the original release, or of a later one: access routers need to receive their hosts' broadcasts
	}
	if !s.isHostAt(x.place) && !s.hasMoved(&x) {
		x.send = s.Network
		if edge && x.hasOwnAddress() {
			s.early.add(x)
			s.hostPlaced(x.place) // the network may have learned of the host after the check above
		}
		return network.Continue
	}
	return s.process(x)
}

// isHostAt reports whether the network knows the host at this place.
func (s *Service) isHostAt(at place) bool {
	host, known := s.Network.HostByMAC(at.MAC, 0)
	return known && host.At == at.At
}

// hasMoved reports whether a message comes from a place at which the network does not know the
// host, but from the Ethernet address that its name had elsewhere: the host has moved, if the
// message is signed. The network would learn the same later: when the port has been probed for a
// second, and when the host does not answer at its old port.
func (s *Service) hasMoved(x *message) bool {
	return s.names.wasAt(record.NameOf(x.hello.Key[:]), x.MAC)
}

// process handles a message of a host that is at its place, and returns whether the frame continues
// as if there were no service.
func (s *Service) process(x message) network.Verdict {
	if !x.hasOwnAddress() {
		return s.drop("false address")
	}
	src := endpoint{record.NameOf(x.hello.Key[:]), x.place}
	var room [2]place // so that nothing is allocated for most names
	places := room[:0]
	if x.request != nil {
		places = s.names.appendPlaces(places, x.request.Destination)
		x.flooded = len(places) == 0
	}
	if x.flooded && !s.limits.floods.Allow(x.At, x.received) {
		return s.drop("too many for unknown names")
	}
	// A repeated hello of a known host needs no signature check, because any host that can send it
	// from this place could have sent a request of its own. A hello with a new number has to be
	// verified, or another host could use the number first.
	switch old := s.names.isRepeated(src, x.hello.Number); {
	case old && x.request == nil: // hosts repeat hellos in case one is lost
	case old:
		x.repeated = true
		s.request(src, &x, places)
	default:
		s.enqueue(src, x)
	}
	if x.flooded {
		return network.Continue
	}
	return network.Stop
}

// enqueue passes a message to the workers that verify signatures. It drops the message if the
// limits or the backlog do not allow it.
func (s *Service) enqueue(src endpoint, x message) {
	if !s.limits.signatures.Allow(x.At, x.received) {
		s.drop("too many signatures")
		return
	}
	x.send = s.Network
	select {
	case s.backlog <- unverified{src, x}:
	default:
		s.drop("backlog")
	}
}

// drop counts a dropped frame and ends its handling.
func (s *Service) drop(reason string) network.Verdict {
	s.metrics.dropped.WithLabelValues(reason).Inc()
	return network.Stop
}

// work verifies signatures until ctx ends.
func (s *Service) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case x := <-s.backlog:
			s.verify(x.src, &x.message)
		}
	}
}

// verify checks the signature of a message, and learns its name's place if the signature is valid.
func (s *Service) verify(src endpoint, x *message) {
	if _, err := record.VerifyHello(&x.hello); err != nil {
		s.drop("false signature")
		return
	}
	switch s.names.learn(src, x.hello.Number, x.received) {
	case helloStale:
		s.drop("old")
		return
	case helloRefused:
		s.drop("no room") // the place is not learned, but a request is still handled
	case helloNew:
		s.announce(src, x)
	}
	if x.request != nil {
		s.request(src, x, s.names.find(x.request.Destination))
	}
}

// announce tells other hosts that a name has a new place, or is back at an old one: it sends the
// hello to the hosts that send to the name, and to those that have asked for it in vain. They then
// request a path.
func (s *Service) announce(src endpoint, x *message) {
	if s.Bus != nil && s.limits.events.Allow(x.At, x.received) {
		s.Bus.Publish(Name+".name.found", NameEvent{src.name.String(), placeInfo(src.place)})
	}
	hosts := map[place]struct{}{}
	for e := range s.paths.peersOf(src.name) {
		hosts[e.place] = struct{}{}
	}
	for _, at := range s.names.takeSubscribers(src.name) {
		hosts[at] = struct{}{}
	}
	for at := range hosts {
		if !s.limits.notifications.Allow(x.At, x.received) {
			return
		}
		s.send(s.Network, at, src.MAC, &x.hello)
	}
}

// request sets up a path to the requested name, which is at these places, and asks the name's host
// for the answer. It never waits.
func (s *Service) request(src endpoint, x *message, places []place) {
	if len(places) == 0 {
		s.names.subscribe(x.request.Destination, src.place, x.received)
		s.metrics.unknownName.Inc()
		return
	}
	if x.flooded {
		return // the name was not known when the request arrived, so the switch has broadcast it; the host repeats it
	}
	if len(places) == 1 {
		if places[0].isApart(src.place) {
			s.forwardByPath(src, x, endpoint{x.request.Destination, places[0]}, nil)
		}
		return
	}
	to, others := s.choose(src, x, places)
	for i, e := range to {
		if i > 0 && !s.limits.forwards.Allow(x.At, x.received) {
			s.drop("too many places")
			return
		}
		s.forwardByPath(src, x, e, others)
	}
}

// forwardByPath sets up a path to a name's host and forwards the request to it. If no path is
// possible, it forwards the request to the other hosts of the name as well, without a path.
func (s *Service) forwardByPath(src endpoint, x *message, to endpoint, others []endpoint) {
	if p := s.paths.renew(src, to, x); p != nil { // most requests are for paths that exist
		s.forward(x.send, x.request, src, to, p, nil)
		return
	}
	s.openPath(src, *x, to, others)
}

// openPath is forwardByPath for a path that has no rules yet.
func (s *Service) openPath(src endpoint, x message, to endpoint, others []endpoint) {
	q := *x.request
	done := func(send sender, p *path, err error) {
		s.forward(send, &q, src, to, p, err)
		if err != nil {
			for _, e := range others {
				if !s.limits.forwards.Allow(x.At, x.received) {
					s.drop("too many places")
					return
				}
				s.forward(send, &q, src, e, nil, err)
			}
		}
	}
	p, err := s.paths.lease(src, to, &x, func(p *path, err error) {
		if err == nil {
			s.metrics.setup.Observe(time.Since(x.received).Seconds())
		}
		done(s.Network, p, err)
	})
	if p != nil || err != nil {
		done(x.send, p, err)
	}
}

// forward sends a request to a host of the requested name, with the labels of a path or, if err is
// not nil, without labels. It writes the labels into the request.
func (s *Service) forward(send sender, q *frame.PathRequest, from, to endpoint, p *path, err error) {
	q.Forth, q.Back, q.Lease = 0, 0, 0
	if err != nil {
		s.metrics.withoutPath.Inc()
		s.Log.Debug("forwarding a request without a path", "from", from.name, "to", to.name, "error", err)
	} else {
		s.metrics.withPath.Inc()
		q.Forth, q.Back = p.labels(to)
		q.Lease = uint32(s.Lease.Milliseconds())
	}
	s.send(send, to.place, from.MAC, q)
}

// sender sends frames out of ports. It does not keep them.
type sender interface {
	Send(at network.PortRef, frame []byte) error
}

// buffers holds buffers for frames that are sent.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 256); return &b }}

// send sends a frame to a host, with from as the source address.
func (s *Service) send(send sender, to place, from openflow.MAC, f frame.Frame) {
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	*b = f.AppendTo(be.AppendUint16(append(append((*b)[:0], to.MAC[:]...), from[:]...), frame.EtherType))
	if err := send.Send(to.At, *b); err != nil {
		s.drop("not sent")
	}
}

// hostPlaced processes the early messages from a place, if the network now knows the host there.
func (s *Service) hostPlaced(at place) {
	if !s.isHostAt(at) {
		return // the network knows the host only in a VLAN
	}
	for _, x := range s.early.take(at) {
		if time.Since(x.received) <= earlyLifetime {
			s.process(x)
		}
	}
}
