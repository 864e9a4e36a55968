package gnrswire

import (
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// AddressKind is the kind of an address.
type AddressKind uint16

// The kinds of addresses.
const (
	IPv4Port AddressKind = 0 // an IPv4 address and a port
	Name     AddressKind = 1 // a GUID
)

// Address is a network address or a name. Addresses of unknown kinds are carried unchanged.
type Address struct {
	Kind  AddressKind
	Value []byte
}

// AddrPortOf returns the Address of an IPv4 address and port.
func AddrPortOf(a netip.AddrPort) Address {
	four := a.Addr().Unmap().As4()
	return Address{IPv4Port, be.AppendUint16(four[:], a.Port())}
}

// NameOf returns the Address of a name.
func NameOf(g frame.GUID) Address { return Address{Name, g[:]} }

// AddrPort returns the IPv4 address and port, and false for another kind.
func (a Address) AddrPort() (netip.AddrPort, bool) {
	if a.Kind != IPv4Port || len(a.Value) != 6 {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(a.Value)), be.Uint16(a.Value[4:])), true
}

// GUID returns the name, and false for another kind.
func (a Address) GUID() (g frame.GUID, ok bool) {
	if a.Kind != Name || len(a.Value) != len(g) {
		return g, false
	}
	return frame.GUID(a.Value), true
}

// String returns the address for an operator to read.
func (a Address) String() string {
	if at, ok := a.AddrPort(); ok {
		return at.String()
	}
	if g, ok := a.GUID(); ok {
		return g.String()
	}
	return fmt.Sprintf("address of kind %d: %x", a.Kind, a.Value)
}

const addressHeader = 4 // kind and length

func (a Address) size() int { return addressHeader + len(a.Value) }

func (a Address) appendTo(b []byte) []byte {
	return append(be.AppendUint16(be.AppendUint16(b, uint16(a.Kind)), uint16(len(a.Value))), a.Value...)
}

// parseAddress parses the address at the start of b and returns the bytes behind it.
func parseAddress(b []byte) (a Address, rest []byte, err error) {
	if len(b) < addressHeader {
		return a, nil, frame.ErrShort
	}
	size := addressHeader + int(be.Uint16(b[2:]))
	if size > len(b) {
		return a, nil, frame.ErrShort
	}
	return Address{AddressKind(be.Uint16(b)), b[addressHeader:size]}, b[size:], nil
}
