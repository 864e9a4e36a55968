package domain

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// Bounds of what a neighbour may send.
const (
	maxMACs     = 16
	maxEvidence = 1500
	// maxLocalID bounds the sum of a visitor's name and its home's.
	maxLocalID = 64
)

var (
	nameForm   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	deviceForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,63}$`)
)

// Visitor is a device as one domain describes it to another.
type Visitor struct {
	// Home is the domain that the device belongs to, and Device its name there.
	Home   string `json:"home" maxLength:"63" doc:"Domain that the device belongs to"`
	Device string `json:"device" maxLength:"64" doc:"Its name in that domain"`
	// MACs holds all its hardware addresses; hosts beyond the edge see only the first.
	MACs []openflow.MAC `json:"macs" minItems:"1" maxItems:"16" doc:"All its hardware addresses"`
	IP   netip.Addr     `json:"ip" format:"ip-address" doc:"The IPv4 address that it keeps"`
	// Policy is how the device should be moved.
	Policy registry.Policy `json:"policy,omitempty" enum:"saving,seamless" doc:"How it is moved"`
	// Signed reports whether the device has a key, so that its home can tell the device's requests
	// from those of others.
	Signed bool `json:"signed,omitempty" doc:"It signs its requests; its home can verify them"`
}

// LocalID returns the visitor's name in the domain self. It contains the home, because devices of
// two domains may have the same name.
func (v Visitor) LocalID(self string) string {
	if v.Home == self {
		return v.Device
	}
	return v.Device + "@" + v.Home
}

// check returns an error if the description is not valid by itself.
func (v Visitor) check() error {
	switch {
	case !nameForm.MatchString(v.Home):
		return fmt.Errorf("home %.80q: up to 63 letters, digits, dots, dashes and underscores", v.Home)
	case !deviceForm.MatchString(v.Device):
		return fmt.Errorf("device %.80q: up to 64 letters, digits and any of . _ : @ -", v.Device)
	case len(v.Device)+1+len(v.Home) > maxLocalID:
		return fmt.Errorf("device %q of home %q: the two names together are longer than %d", v.Device, v.Home, maxLocalID-1)
	case !v.IP.Is4() || v.IP.IsMulticast() || v.IP.IsUnspecified() || v.IP.IsLoopback():
		return fmt.Errorf("address %v: a device has one IPv4 unicast address", v.IP)
	case len(v.MACs) == 0 || len(v.MACs) > maxMACs:
		return fmt.Errorf("%d hardware addresses: 1 to %d", len(v.MACs), maxMACs)
	case v.Policy != "" && v.Policy != registry.PolicySaving && v.Policy != registry.PolicySeamless:
		return fmt.Errorf("policy %q: %s or %s", v.Policy, registry.PolicySaving, registry.PolicySeamless)
	}
	for i, m := range v.MACs {
		if m.IsZero() || m.IsMulticast() || slices.Contains(v.MACs[:i], m) {
			return fmt.Errorf("hardware address %v: unicast addresses, each once", m)
		}
	}
	return nil
}

// same reports whether both describe one device with the same addresses.
func (v Visitor) same(o Visitor) bool {
	return v.Home == o.Home && v.Device == o.Device && v.IP == o.IP && slices.Equal(v.MACs, o.MACs)
}

// clone returns a copy that shares nothing with v.
func (v Visitor) clone() Visitor {
	v.MACs = slices.Clone(v.MACs)
	return v
}

// Heading describes where a device is going, as far as that is known.
type Heading struct {
	// At is an edge port of the receiver, if the two domains have agreed on names.
	At *network.PortRef `json:"at,omitempty" doc:"Edge port of the receiving domain where it will attach, if known"`
	// MAC is the hardware address that the device will use there, if known.
	MAC openflow.MAC `json:"mac,omitzero" doc:"Hardware address that it will use there, if known"`
	// Motion lets the receiver predict the port from its own coverage.
	Motion *Motion `json:"motion,omitempty" doc:"Where it is and how it moves"`
}

// Motion is a position with its velocity. The position is in metres on the plane that both domains
// use, or in degrees.
type Motion struct {
	X       float64   `json:"x,omitempty" doc:"Metres east on a plane both domains use"`
	Y       float64   `json:"y,omitempty" doc:"Metres north on that plane"`
	Lat     *float64  `json:"lat,omitempty" minimum:"-90" maximum:"90" doc:"Degrees; with lon, instead of x and y"`
	Lon     *float64  `json:"lon,omitempty" minimum:"-180" maximum:"180" doc:"Degrees"`
	Speed   float64   `json:"speed" minimum:"0" maximum:"400" doc:"Metres per second"`
	Heading float64   `json:"heading" minimum:"0" maximum:"360" doc:"Degrees clockwise from north"`
	Time    time.Time `json:"time" doc:"When it was there"`
}

// place returns the place that the heading names; unknown parts are zero.
func (h Heading) place() Place {
	p := Place{MAC: h.MAC}
	if h.At != nil {
		p.At = *h.At
	}
	return p
}

// Evidence is a DHCP message of the device, as it arrived.
type Evidence struct {
	Src     openflow.MAC `json:"src" doc:"Source address of the frame"`
	Message []byte       `json:"message" minLength:"1" format:"byte" maxLength:"2048" doc:"The DHCP message, base64"`
}

// check returns an error if the heading is not valid.
func (h Heading) check() error {
	if h.At != nil && (h.At.Switch == 0 || h.At.Port == 0) {
		return fmt.Errorf("heading: port %v: a switch and one of its ports", h.At)
	}
	if h.MAC.IsMulticast() {
		return fmt.Errorf("heading: hardware address %v: a unicast address", h.MAC)
	}
	if m := h.Motion; m != nil && (m.Lat == nil) != (m.Lon == nil) {
		return fmt.Errorf("heading: latitude and longitude belong together")
	}
	return nil
}

// check returns an error if the evidence is not valid.
func (e *Evidence) check() error {
	if e != nil && (len(e.Message) == 0 || len(e.Message) > maxEvidence) {
		return fmt.Errorf("evidence of %d bytes: 1 to %d", len(e.Message), maxEvidence)
	}
	return nil
}
