package access

import (
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

// transportSize is the size of a transport header in bytes.
const transportSize = 24

// commonServices lists the services that both profiles have. A chunk of Sluice's goes to one host
// of a name anyway, so every chunk is anycast.
const commonServices = frame.Multihoming | frame.DelayTolerant | frame.Anycast

// unsupportedServices lists the services of Sluice's chunks that a host of the original release
// cannot read.
const unsupportedServices = frame.Compute | frame.Custody | frame.ContentRequest | frame.ContentResponse

// errInvalid means that a chunk of a host cannot be sent; errors wrap it.
var errInvalid = errors.New("it cannot be sent")

// message is a host's chunk in the form in which it is sent on.
type message struct {
	to      frame.GUID
	service frame.Service
	payload []byte // shares the memory of the input
	version uint8
	// control is set for a message of the transport protocol itself, which the router discards.
	control bool
}

// read parses a chunk of a host from its DATA frames. The error wraps errInvalid.
func (g *guest) read(wire []byte) (l message, err error) {
	h, behind, err := frame.ParseRouting(wire)
	if err != nil {
		return l, fmt.Errorf("%w: %w", errInvalid, err)
	}
	services := h.Service
	for _, e := range h.Extensions {
		services |= e.Service
	}
	switch {
	case h.Source.GUID != g.GUID:
		return l, fmt.Errorf("its source is %v: %w", h.Source.GUID, errInvalid)
	case services&^commonServices != 0:
		return l, fmt.Errorf("its services are %#04x, and %#04x are not supported: %w", uint16(services), uint16(services&^commonServices), errInvalid)
	case h.Protocol != 0:
		return l, fmt.Errorf("its protocol is %d: %w", h.Protocol, errInvalid)
	}
	t, payload, err := frame.ParseTransport(behind)
	switch {
	case err != nil:
		return l, fmt.Errorf("%w: %w", errInvalid, err)
	case !isSize(h.ChunkSize, len(wire), len(behind), len(payload)):
		return l, fmt.Errorf("its size is %d, and %d bytes have arrived: %w", h.ChunkSize, len(behind), errInvalid)
	case len(payload) > hostapi.MaxChunk:
		return l, fmt.Errorf("%d bytes, at most %d: %w", len(payload), hostapi.MaxChunk, errInvalid)
	}
	l = message{to: h.Destination.GUID, service: services &^ frame.Anycast, payload: payload, version: h.Version, control: t.Kind != 0 && len(payload) == 0}
	if name, ok := g.router.names[l.to]; ok {
		l.to = name
	}
	return l, nil
}

// isSize reports whether a chunk's size field has one of the possible values. There are several,
// because the format does not say which headers the size includes.
func isSize(size uint32, all ...int) bool {
	for _, n := range all {
		if int64(size) == int64(n) {
			return true
		}
	}
	return false
}

// write returns the headers of a chunk for a host. number is the chunk's number among those from
// its source. The size field counts the transport header and the payload. Fields that the format
// leaves open are zero, except for the window, which is the router's memory for the host's chunks
// in megabytes.
func (g *guest) write(x hostapi.Chunk, number, packets uint32, version uint8) ([]byte, error) {
	source := x.From
	if guid, ok := g.router.guids[source]; ok {
		source = guid
	}
	h := frame.RoutingHeader{
		Version: version, Service: x.Service, ChunkSize: uint32(transportSize + len(x.Payload)),
		Source: frame.Address{GUID: source}, Destination: frame.Address{GUID: g.GUID},
	}
	b, err := h.AppendTo(nil)
	t := frame.TransportHeader{Sequence: number, Size: uint32(len(x.Payload)), Packets: packets, Window: uint16(min(g.router.Memory>>20, 0xffff))}
	return t.AppendTo(b), err
}
