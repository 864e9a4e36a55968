package frame

import "fmt"

// Service is a set of bits that say how a chunk is delivered. Zero delivers it to one destination:
// to one host of those that have its name.
type Service uint16

// The bits of a service. The original release does not have DelayTolerant, Compute and Custody.
const (
	Multicast       Service = 0x0001 // deliver to each host that has the name
	Anycast         Service = 0x0002 // deliver to one of them, as without the bit
	Multihoming     Service = 0x0004
	DelayTolerant   Service = 0x0008 // the chunk may wait where there is no path
	Compute         Service = 0x0010 // a function is called on the chunk on its way
	Custody         Service = 0x0020 // the payload is another chunk, which its sender has signed for storage
	ContentRequest  Service = 0x0200
	ContentResponse Service = 0x0400
	Broadcast       Service = 0x2000
	Extended        Service = 0x8000 // extension headers follow
)

const (
	routingSize   = 60
	extensionSize = 6 // the header of an extension
	// maxExtensions limits the extension headers of a chunk.
	maxExtensions = 16
)

// Address is the source or destination of a chunk: a name, and where that is.
type Address struct {
	GUID GUID
	// NA is the network address, zero if it is unknown.
	NA uint32
}

// RoutingHeader is the header of a chunk, at the start of its first frame. Routers forward the
// chunk by it.
type RoutingHeader struct {
	Version uint8
	// Service says how the chunk is delivered. AppendTo sets the bit Extended if there are
	// Extensions, and clears it otherwise.
	Service Service
	// Protocol tells what the chunk holds: zero for a TransportHeader and its payload.
	Protocol uint8
	// ChunkSize is the size of the payload in bytes.
	ChunkSize           uint32
	Source, Destination Address
	Extensions          []Extension
}

// Extension is an extension header with further parameters of a service.
type Extension struct {
	Service Service
	Options uint16
	Body    []byte
}

// Size returns the size of the header in bytes, including its extensions.
func (h *RoutingHeader) Size() int {
	size := routingSize
	for _, e := range h.Extensions {
		size += extensionSize + len(e.Body)
	}
	return size
}

// AppendTo appends the header to b. It returns an error, and b unchanged, if extensions are too
// many or too long.
func (h *RoutingHeader) AppendTo(b []byte) ([]byte, error) {
	size := h.Size()
	if size > 0xffff || len(h.Extensions) > maxExtensions {
		return b, fmt.Errorf("routing header of %d bytes with %d extensions: %w", size, len(h.Extensions), ErrLayout)
	}
	service := h.Service &^ Extended
	if len(h.Extensions) > 0 {
		service |= Extended
	}
	b = append(b, h.Version)
	b = be.AppendUint16(b, uint16(service))
	b = append(b, h.Protocol)
	b = be.AppendUint16(b, uint16(size))
	b = be.AppendUint16(b, 0) // reserved
	b = be.AppendUint32(b, h.ChunkSize)
	b = be.AppendUint32(append(b, h.Source.GUID[:]...), h.Source.NA)
	b = be.AppendUint32(append(b, h.Destination.GUID[:]...), h.Destination.NA)
	at := routingSize
	for i, e := range h.Extensions {
		at += extensionSize + len(e.Body)
		next := at
		if i == len(h.Extensions)-1 {
			next = 0
		}
		b = be.AppendUint16(b, uint16(e.Service))
		b = be.AppendUint16(b, uint16(next))
		b = be.AppendUint16(b, e.Options)
		b = append(b, e.Body...)
	}
	return b, nil
}

// ParseRouting parses the header at the start of a chunk and returns it with the bytes behind it.
// The error wraps ErrShort or ErrLayout.
func ParseRouting(b []byte) (h RoutingHeader, payload []byte, err error) {
	if len(b) < routingSize {
		return h, nil, fmt.Errorf("routing header of %d bytes: %w", len(b), ErrShort)
	}
	size := int(be.Uint16(b[4:]))
	switch {
	case size < routingSize:
		return h, nil, fmt.Errorf("routing header, payload at %d: %w", size, ErrLayout)
	case size > len(b):
		return h, nil, fmt.Errorf("routing header of %d bytes in %d: %w", size, len(b), ErrShort)
	}
	h = RoutingHeader{
		Version: b[0], Service: Service(be.Uint16(b[1:])), Protocol: b[3], ChunkSize: be.Uint32(b[8:]),
		Source:      Address{GUID(b[12:32]), be.Uint32(b[32:])},
		Destination: Address{GUID(b[36:56]), be.Uint32(b[56:])},
	}
	if h.Service&Extended != 0 {
		h.Service &^= Extended
		if h.Extensions, err = parseExtensions(b[:size]); err != nil {
			return h, nil, err
		}
	}
	return h, b[size:], nil
}

// parseExtensions parses the extensions of a complete header. Each begins behind the one before it.
func parseExtensions(header []byte) (all []Extension, err error) {
	for at, next := routingSize, 0; ; at = next {
		if len(all) == maxExtensions {
			return nil, fmt.Errorf("routing header with more than %d extensions: %w", maxExtensions, ErrLayout)
		}
		if at+extensionSize > len(header) {
			return nil, fmt.Errorf("routing header, extension at %d of %d: %w", at, len(header), ErrLayout)
		}
		next = int(be.Uint16(header[at+2:]))
		end := next
		if next == 0 {
			end = len(header)
		}
		if end < at+extensionSize || end > len(header) {
			return nil, fmt.Errorf("routing header, extension from %d to %d of %d: %w", at, end, len(header), ErrLayout)
		}
		all = append(all, Extension{Service(be.Uint16(header[at:])), be.Uint16(header[at+4:]), header[at+extensionSize : end]})
		if next == 0 {
			return all, nil
		}
	}
}
