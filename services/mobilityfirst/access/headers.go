package access

import (
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

// transportSize is that of a transport header, in bytes.
const transportSize = 24

// passed are the services that chunks have alike in both profiles. A name of ours is where one of several hosts has it, so
// anycast is what every chunk is.
const passed = frame.Multihoming | frame.DelayTolerant | frame.Anycast

// heldBack are the services of chunks of ours that a host of the original release cannot read.
const heldBack = frame.Compute | frame.Custody | frame.ContentRequest | frame.ContentResponse

// errInvalid is for a chunk of a host that cannot be sent; errors wrap it.
var errInvalid = errors.New("it cannot be sent")

// letter is what a host has written, as it is sent on.
type letter struct {
	to      frame.GUID
	service frame.Service
	payload []byte // shares the memory of what was read
	version uint8
	// control says that it is a message of the transport protocol itself, which ends here.
	control bool
}

// read reads a chunk of a host as its DATA frames have brought it. The error wraps errInvalid.
func (g *guest) read(wire []byte) (l letter, err error) {
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
	case services&^passed != 0:
		return l, fmt.Errorf("its services are %#04x, of which %#04x are none of here: %w", uint16(services), uint16(services&^passed), errInvalid)
	case h.Protocol != 0:
		return l, fmt.Errorf("its protocol is %d: %w", h.Protocol, errInvalid)
	}
	t, payload, err := frame.ParseTransport(behind)
	switch {
	case err != nil:
		return l, fmt.Errorf("%w: %w", errInvalid, err)
	case !sizeOf(h.ChunkSize, len(wire), len(behind), len(payload)):
		return l, fmt.Errorf("its size is %d, and what has come are %d bytes: %w", h.ChunkSize, len(behind), errInvalid)
	case len(payload) > hostapi.MaxChunk:
		return l, fmt.Errorf("%d bytes, at most %d: %w", len(payload), hostapi.MaxChunk, errInvalid)
	}
	l = letter{to: h.Destination.GUID, service: services &^ frame.Anycast, payload: payload, version: h.Version, control: t.Kind != 0 && len(payload) == 0}
	if name, is := g.router.names[l.to]; is {
		l.to = name
	}
	return l, nil
}

// sizeOf says whether a chunk's size is one of those that it may be: the format does not say which headers count.
func sizeOf(size uint32, all ...int) bool {
	for _, n := range all {
		if int64(size) == int64(n) {
			return true
		}
	}
	return false
}

// write makes the headers of a chunk for a host: its number is that among those from its source, and its size is that of the
// transport header and the payload. What is left open by the format is zero, but for the room in megabytes that the router has
// for what the host sends.
func (g *guest) write(x hostapi.Chunk, number, packets uint32, version uint8) ([]byte, error) {
	source := x.From
	if guid, is := g.router.guids[source]; is {
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
