package handover

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// wantPort says how a port is written.
const wantPort = "a switch port like 00000000000000a1/3"

// ParsePort parses a port as PortRef prints it: "00000000000000a1/3".
func ParsePort(s string) (network.PortRef, error) {
	name, number, ok := strings.Cut(s, "/")
	d, err := openflow.ParseDatapathID(name)
	n, err2 := strconv.ParseUint(number, 10, 32)
	if !ok || err != nil || err2 != nil || n == 0 || n > uint64(openflow.PortMax) {
		return network.PortRef{}, fmt.Errorf("%q is not %s", s, wantPort)
	}
	return network.PortRef{Switch: d, Port: uint32(n)}, nil
}

// Port is a switch port in the API: "00000000000000a1/3".
type Port struct{ network.PortRef }

// MarshalText formats the port.
func (p Port) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses what MarshalText has formatted.
func (p *Port) UnmarshalText(b []byte) (err error) {
	p.PortRef, err = ParsePort(string(b))
	return err
}

// toStrings formats each element.
func toStrings[T fmt.Stringer](all []T) []string {
	out := make([]string, len(all))
	for i, x := range all {
		out[i] = x.String()
	}
	return out
}
