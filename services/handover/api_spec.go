package handover

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/domain"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/services/handover/route"
)

// Errors of operations, besides those of the registry.
var (
	errUnknown    = errors.New("no such device")
	errNowhere    = errors.New("the device is nowhere now: it has no lease, or has not been seen since its lease began")
	errThere      = errors.New("the device is there already")
	errNoCoverage = errors.New("no coverage is configured: see handover.coverage in the configuration")
	errNotPort    = errors.New("not a port where a device can be")
	errNoDaemon   = errors.New("no daemon of the device listens for orders")
)

// apiHandlers implements the operations of the API.
type apiHandlers struct {
	*core
	placement *placement
	guards    *guards
	packets   *packetHandler
	predictor *predictor
	daemons   *daemons
}

const (
	wantMAC  = "a MAC address like 02:00:00:00:00:01"
	wantAddr = "an IPv4 address like 10.8.0.1"
	hidden   = "(hidden)"
)

// ClassSpec is a class of devices as an operator writes it.
type ClassSpec struct {
	Policy  string   `json:"policy,omitempty" yaml:"policy" enum:"saving,seamless" doc:"How its devices are moved. saving: switched over in place, nothing is sent twice. seamless: sent to both places for a while, nothing is lost."`
	Trigger string   `json:"trigger,omitempty" yaml:"trigger" enum:"signed,ports,open" doc:"What may move its devices. signed: a request signed with the device's key. ports: any request from a port of the list. open: any request with a MAC address of the device. Empty: signed for devices with a key, ports for others."`
	Ports   []string `json:"ports,omitempty" yaml:"ports" format:"dpid-port" doc:"Ports where its devices may attach, for trigger ports, like 00000000000000a1/3."`
	Overlap string   `json:"overlap,omitempty" yaml:"overlap" format:"go-duration" doc:"How long after a seamless move packets still go to the old place, too; up to 10s. Empty: 200ms."`
}

// PoolSpec is a pool of addresses as an operator writes it.
type PoolSpec struct {
	Prefix     string   `json:"prefix,omitempty" yaml:"prefix" format:"ipv4-prefix" doc:"Subnet that devices are told of, like 10.8.0.0/24."`
	First      string   `json:"first,omitempty" yaml:"first" format:"ipv4-address" doc:"First address that is given out. Empty: the first of the prefix."`
	Last       string   `json:"last,omitempty" yaml:"last" format:"ipv4-address" doc:"Last address that is given out. Empty: the last of the prefix."`
	Gateway    string   `json:"gateway,omitempty" yaml:"gateway" format:"ipv4-address" doc:"Router that devices are told of, an address of the prefix."`
	GatewayMAC string   `json:"gateway_mac,omitempty" yaml:"gateway_mac" format:"mac" doc:"MAC address by which ARP for the gateway is answered. Empty: that of the router at the uplinks, found by ARP."`
	Server     string   `json:"server,omitempty" yaml:"server" format:"ipv4-address" doc:"Address of the DHCP server towards devices. Empty: the gateway's."`
	LeaseTime  string   `json:"lease_time,omitempty" yaml:"lease_time" format:"go-duration" doc:"How long a lease holds, 1m to 8760h. Empty: 1h."`
	DNS        []string `json:"dns,omitempty" yaml:"dns" maxItems:"8" format:"ipv4-address" doc:"Name servers that devices are told of, up to 8."`
	MTU        int      `json:"mtu,omitempty" yaml:"mtu" doc:"MTU that devices are told of, 576 to 9216; 0: none."`
	Domain     string   `json:"domain,omitempty" yaml:"domain" doc:"Domain name that devices are told of."`
	Learn      bool     `json:"learn,omitempty" yaml:"learn" doc:"Gives addresses also to devices that nobody has registered; those at one port have at most half of them."`
	Class      string   `json:"class,omitempty" yaml:"class" doc:"Class of the devices that it learns."`
	Home       string   `json:"home,omitempty" yaml:"home" doc:"Domain whose devices have these addresses. Such a pool gives out no addresses here: it holds the parameters for visitors of that domain. Empty: our own."`
}

// DeviceSpec is a device as an operator writes it.
type DeviceSpec struct {
	MACs  []string `json:"macs,omitempty" yaml:"macs" format:"mac" maxItems:"16" doc:"All its MAC addresses, including that of its virtual interface, up to 16. The first is the one that everybody beyond the edge sees, wherever it is."`
	Class string   `json:"class,omitempty" yaml:"class" doc:"Its class."`
	Pool  string   `json:"pool,omitempty" yaml:"pool" doc:"Pool of its address. Empty: the only pool there is."`
	IP    string   `json:"ip,omitempty" yaml:"ip" format:"ipv4-address" doc:"Address that it always has. Empty: one of the pool."`
	Key   string   `json:"key,omitempty" yaml:"key" doc:"Key by which it signs its requests, 64 hex digits. It is never shown."`
	Ports []string `json:"ports,omitempty" yaml:"ports" format:"dpid-port" doc:"Ports where it may attach, for trigger ports, in addition to those of its class."`
}

// reader parses the fields of an input and collects faults. It checks only how values are written;
// whether they fit together is checked by the registry.
type reader struct{ kit.Faults }

// addr parses an IPv4 address; an empty text stands for none.
func (r *reader) addr(field, text string) netip.Addr {
	if text == "" {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(text)
	if err != nil || !a.Is4() {
		r.Add(field, text, wantAddr)
		return netip.Addr{}
	}
	return a
}

// mac parses a MAC address.
func (r *reader) mac(field, text string) openflow.MAC {
	m, err := openflow.ParseMAC(text)
	if err != nil {
		r.Add(field, text, wantMAC)
	}
	return m
}

// duration parses a duration; an empty text stands for the default.
func (r *reader) duration(field, text string, standard time.Duration) time.Duration {
	if text == "" {
		return standard
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		r.Add(field, text, "a duration with its unit, like 200ms or 1h")
	}
	return d
}

// ports parses a list of ports.
func (r *reader) ports(field string, texts []string) []network.PortRef {
	var out []network.PortRef
	for i, text := range texts {
		p, err := ParsePort(text)
		switch {
		case err != nil:
			r.Add(fmt.Sprintf("%s[%d]", field, i), text, wantPort)
		case slices.Contains(out, p):
			r.Add(fmt.Sprintf("%s[%d]", field, i), text, "each port once")
		default:
			out = append(out, p)
		}
	}
	return out
}

// Parse converts the specification into a class, and returns the faults of fields that cannot be parsed.
func (s ClassSpec) Parse(name string) (registry.Class, kit.Faults) {
	var r reader
	c := registry.Class{
		Name: name, Policy: registry.Policy(s.Policy), Trigger: registry.Trigger(s.Trigger),
		Ports: r.ports("ports", s.Ports), Overlap: r.duration("overlap", s.Overlap, 0),
	}
	return c, r.Faults
}

// Parse converts the specification into a pool, and returns the faults of fields that cannot be parsed.
func (s PoolSpec) Parse(name string) (registry.Pool, kit.Faults) {
	var r reader
	p := registry.Pool{
		Name: name, Gateway: r.addr("gateway", s.Gateway), Server: r.addr("server", s.Server),
		First: r.addr("first", s.First), Last: r.addr("last", s.Last), LeaseTime: r.duration("lease_time", s.LeaseTime, time.Hour),
		MTU: s.MTU, Domain: s.Domain, Learn: s.Learn, Class: s.Class, Home: s.Home,
	}
	prefix, err := netip.ParsePrefix(s.Prefix)
	if err != nil {
		r.Add("prefix", s.Prefix, "an IPv4 prefix like 10.8.0.0/24")
	}
	p.Prefix = prefix
	if s.GatewayMAC != "" {
		p.GatewayMAC = r.mac("gateway_mac", s.GatewayMAC)
	}
	for i, text := range s.DNS {
		p.DNS = append(p.DNS, r.addr(fmt.Sprintf("dns[%d]", i), text))
	}
	return p, r.Faults
}

// Parse converts the specification into a device, and returns the faults of fields that cannot be parsed.
func (s DeviceSpec) Parse(id string) (registry.Device, kit.Faults) {
	var r reader
	d := registry.Device{ID: id, Class: s.Class, Pool: s.Pool, IP: r.addr("ip", s.IP), Ports: r.ports("ports", s.Ports)}
	for i, text := range s.MACs {
		d.MACs = append(d.MACs, r.mac(fmt.Sprintf("macs[%d]", i), text))
	}
	if s.Key != "" {
		key, err := hex.DecodeString(s.Key)
		if err != nil || len(key) != registry.KeyBytes {
			r.Add("key", hidden, "%d hex digits; \"openssl rand -hex %d\" makes one", 2*registry.KeyBytes, registry.KeyBytes)
		}
		d.Key = key
	}
	return d, r.Faults
}

// problem turns an error into a problem document. location and value name the part of the request
// that the error is about.
func problem(err error, location string, value any) error {
	is := func(all ...error) bool {
		for _, e := range all {
			if errors.Is(err, e) {
				return true
			}
		}
		return false
	}
	switch {
	case is(errUnknown, kit.ErrUnknown, registry.ErrUnknown, domain.ErrNoDevice):
		return api.NotFound(location, value, "nothing of that name is there; list them to see what is")
	case is(domain.ErrNoNeighbour):
		return api.NotFound("body.domain", value, err.Error())
	case is(errNowhere, errThere, errNoCoverage, errNoDaemon, registry.ErrFull, registry.ErrNoLease, domain.ErrNotHere, domain.ErrMoving):
		return api.Conflict(location, value, err.Error())
	case is(errNotPort, route.ErrInvalid):
		return api.Invalid("body.port", value, err.Error())
	case is(network.ErrRefused):
		return api.Refused("a switch has refused the rules, nothing was changed: %v", err)
	}
	return kit.Problem(err, location, value)
}

// wantPort describes how a port is written.
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
