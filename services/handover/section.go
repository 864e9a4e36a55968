package handover

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/handover/domain"
	"github.com/sluice-net/sluice/services/handover/predict"
)

// Section is the part of the controller's configuration below the key handover. Classes, pools and
// devices can be declared here and by the API. At each start and reload, a declaration in the file
// replaces a stored one of the same name, and the API cannot change it. A declaration that is no
// longer in the file is withdrawn.
type Section struct {
	Enabled bool   `yaml:"enabled" doc:"Off: the service and its part of the API do not exist."`
	Domain  string `yaml:"domain" pattern:"[A-Za-z0-9][A-Za-z0-9._-]{0,62}" form:"a name of letters, digits, dots, dashes" doc:"Name of this domain towards its neighbours, as in the certificates that they have issued to it."`

	Borders    []BorderSection             `yaml:"borders" doc:"Switch ports where the mobility network meets the rest of the world."`
	Classes    map[string]ClassSpec        `yaml:"classes" reload:"yes" doc:"Classes of devices, by name. The class default is that of devices that name none. What stands here is changed here alone, and withdrawn when it does no more; the API has others."`
	Pools      map[string]PoolSpec         `yaml:"pools" reload:"yes" doc:"Pools of addresses, by name; changed here alone, as classes are."`
	Devices    map[string]DeviceSection    `yaml:"devices" reload:"yes" doc:"Devices, by name; changed here alone, as classes are."`
	Neighbours map[string]NeighbourSection `yaml:"neighbours" doc:"Neighbouring domains, by their names. Each needs a border port with its name as peer."`
	Coverage   map[string]CellSection      `yaml:"coverage" doc:"What the attachment points cover, by name, on a plane in metres: for predictions from positions."`
	Origin     OriginSection               `yaml:"origin" doc:"Where on earth the origin of that plane is, for positions in degrees."`

	TwoPorts         string        `yaml:"two_ports" oneof:"move|refuse" doc:"What is done when a MAC address in use at a port that is up asks at another one without a signature. move: it moves, as radio networks need it. refuse: it is not answered."`
	RequestTimeout   time.Duration `yaml:"request_timeout" min:"100ms" max:"1m" doc:"How long the work on one DHCP message may take."`
	RulesTimeout     time.Duration `yaml:"rules_timeout" min:"50ms" max:"30s" doc:"How long switches may take to confirm one change of rules."`
	PrepareTimeout   time.Duration `yaml:"prepare_timeout" min:"100ms" max:"10m" doc:"How long a place stays prepared for a device that does not come."`
	NeighbourTimeout time.Duration `yaml:"neighbour_timeout" min:"20ms" max:"10s" doc:"How long neighbours may take to say whether they know a device."`
	Settle           time.Duration `yaml:"settle" min:"500ms" max:"5m" doc:"How long after a start the service waits for the switches of devices that are attached."`
	History          int           `yaml:"history" min:"1" max:"1000000" doc:"How many records of handovers are remembered."`
}

// BorderSection is a switch port where the mobility network meets the rest of the world.
type BorderSection struct {
	Name string `yaml:"name" doc:"Name for people. Empty: the peer's, or uplink."`
	Port string `yaml:"port" doc:"Switch port, like 00000000000000a1/3."`
	Peer string `yaml:"peer" doc:"Neighbouring domain behind it. Empty: an uplink."`
}

// DeviceSection is a device; see DeviceSpec.
type DeviceSection struct {
	MACs  []string      `yaml:"macs" doc:"All its MAC addresses, those of its virtual interface included, up to 16. The first is the one that everybody beyond the edge sees, wherever it is."`
	Class string        `yaml:"class" doc:"Its class."`
	Pool  string        `yaml:"pool" doc:"Pool of its address. Empty: the only pool there is."`
	IP    string        `yaml:"ip" doc:"Address that it always has. Empty: one of the pool."`
	Key   config.Secret `yaml:"key" doc:"Key by which it signs its requests, 64 hex digits. It is never shown."`
	Ports []string      `yaml:"ports" doc:"Ports where it may attach, for trigger ports, beside those of its class."`
}

// NeighbourSection is a neighbouring domain.
type NeighbourSection struct {
	URL         string         `yaml:"url" pattern:"https://[^/]+" form:"a URL like https://192.0.2.1:8443" doc:"API of its controller."`
	TLS         config.TLS     `yaml:"tls" doc:"The certificate that it has issued to us, and the authority of its own."`
	Prefixes    []netip.Prefix `yaml:"prefixes" doc:"Addresses of its devices: no other is ever accepted from it."`
	Transit     []netip.Prefix `yaml:"transit" doc:"Addresses of third domains' devices that it may pass on to us."`
	Unsigned    bool           `yaml:"unsigned" doc:"Lets it claim devices of ours that have no key, by their MAC address alone."`
	MaxVisitors int            `yaml:"max_visitors" min:"0" max:"16384" doc:"How many devices of it may be here at once; 0: 10000."`
}

// CellSection describes the area that an attachment point covers.
type CellSection struct {
	Port      string      `yaml:"port" doc:"Its switch port, like 00000000000000a1/3; or a border port with a peer, for what that domain covers."`
	Interface int         `yaml:"interface" min:"0" max:"16" doc:"Which of its MAC addresses a device uses there, from 1; 0: the one that it uses when it comes."`
	X         float64     `yaml:"x" doc:"Centre of a circle, metres east."`
	Y         float64     `yaml:"y" doc:"Centre of a circle, metres north."`
	Radius    float64     `yaml:"radius" min:"0" max:"10000000" doc:"Radius of the circle in metres."`
	Polygon   [][]float64 `yaml:"polygon" doc:"Instead of a circle: its corners, each [EAST, NORTH]."`
}

// OriginSection holds the geographic position of the origin of the coverage's plane.
type OriginSection struct {
	Lat float64 `yaml:"lat" min:"-85" max:"85" doc:"Degrees north."`
	Lon float64 `yaml:"lon" min:"-180" max:"180" doc:"Degrees east."`
}

// DefaultSection returns a section with the default values.
func DefaultSection() *Section {
	return &Section{
		Enabled: true, TwoPorts: ClaimMove,
		RequestTimeout: 5 * time.Second, RulesTimeout: 2 * time.Second, PrepareTimeout: 10 * time.Second,
		NeighbourTimeout: 500 * time.Millisecond, Settle: 10 * time.Second, History: 4096,
	}
}

// Settings converts the section into the service's settings, without the neighbours' certificates,
// and returns all its faults.
func (h *Section) Settings() (Settings, kit.Faults) {
	specs := Specs{Classes: h.Classes, Pools: h.Pools, Devices: map[string]DeviceSpec{}}
	for id, d := range h.Devices {
		specs.Devices[id] = DeviceSpec{MACs: d.MACs, Class: d.Class, Pool: d.Pool, IP: d.IP, Key: string(d.Key), Ports: d.Ports}
	}
	t, faults := specs.Parse()
	t.Domain, t.Claims, t.History, t.Settle = h.Domain, h.TwoPorts, h.History, h.Settle
	t.RequestTimeout, t.RulesTimeout, t.PrepareTimeout = h.RequestTimeout, h.RulesTimeout, h.PrepareTimeout
	t.Timing = domain.Timing{Answer: h.NeighbourTimeout}
	h.borders(&t, &faults)
	h.neighbours(&t, &faults)
	return t, append(faults, h.coverage(&t)...)
}

func (h *Section) borders(t *Settings, faults *kit.Faults) {
	taken := map[network.PortRef]bool{}
	for i, r := range h.Borders {
		field := fmt.Sprintf("borders[%d]", i)
		at, err := ParsePort(r.Port)
		faults.Check(err == nil, field+".port", r.Port, "a switch port like 00000000000000a1/3")
		faults.Check(err != nil || !taken[at], field+".port", r.Port, "a port of its own: another border port has this one")
		_, known := h.Neighbours[r.Peer]
		faults.Check(r.Peer == "" || known, field+".peer", r.Peer, "the name of one of handover.neighbours, or nothing for an uplink")
		taken[at] = true
		t.Borders = append(t.Borders, Border{Name: cmp.Or(r.Name, r.Peer, "uplink"), At: at, Peer: r.Peer})
	}
}

func (h *Section) neighbours(t *Settings, faults *kit.Faults) {
	for _, name := range slices.Sorted(maps.Keys(h.Neighbours)) {
		n := h.Neighbours[name]
		d := domain.Neighbour{Name: name, URL: n.URL, Prefixes: n.Prefixes, Transit: n.Transit, Unsigned: n.Unsigned, MaxVisitors: n.MaxVisitors}
		for _, r := range t.Borders {
			if r.Peer == name {
				d.Peering = r.At
			}
		}
		var wrong kit.Faults
		wrong.Check(!d.Peering.IsZero(), "", name, "a border port in handover.borders with this name as peer: without it no packet can go there")
		wrong.Check(n.URL != "", "url", "", "the URL of its controller's API, like https://192.0.2.1:8443")
		wrong.Check(len(n.Prefixes) > 0, "prefixes", "", "the prefixes of its devices' addresses: without any, none is accepted")
		for field, list := range map[string][]netip.Prefix{"prefixes": n.Prefixes, "transit": n.Transit} {
			for i, p := range list {
				wrong.Check(p.Addr().Is4() && p == p.Masked(), fmt.Sprintf("%s[%d]", field, i), p.String(), "an IPv4 prefix without host bits, like 10.1.0.0/16")
			}
		}
		*faults = append(*faults, wrong.WithPrefix("neighbours."+name)...)
		faults.Check(h.Domain != "", "domain", "", "the name of this domain: neighbours have to know it")
		t.Neighbours = append(t.Neighbours, d)
	}
}

func (h *Section) coverage(t *Settings) kit.Faults {
	var faults kit.Faults
	if h.Origin != (OriginSection{}) {
		t.Origin = &predict.Geo{Lat: h.Origin.Lat, Lon: h.Origin.Lon}
	}
	for _, name := range slices.Sorted(maps.Keys(h.Coverage)) {
		c := h.Coverage[name]
		at, err := ParsePort(c.Port)
		if err != nil {
			faults.Add("coverage."+name+".port", c.Port, "a switch port like 00000000000000a1/3")
			continue
		}
		cell := Cell{Interface: c.Interface, Cell: predict.Cell{Name: name, Place: at, Area: predict.Area{Centre: predict.Point{X: c.X, Y: c.Y}, Radius: c.Radius}}}
		for i, p := range c.Polygon {
			if len(p) != 2 {
				faults.Add(fmt.Sprintf("coverage.%s.polygon[%d]", name, i), p, "two numbers, metres east and metres north")
				continue
			}
			cell.Area.Polygon = append(cell.Area.Polygon, predict.Point{X: p[0], Y: p[1]})
		}
		t.Cells = append(t.Cells, cell)
	}
	if len(faults) > 0 {
		return faults
	}
	cells := make([]predict.Cell, len(t.Cells))
	for i, c := range t.Cells {
		cells[i] = c.Cell
	}
	if _, err := predict.NewCoverage(cells); err != nil {
		faults.Add("coverage", "", "%v", err)
	}
	return faults
}

// Check implements config.Section.
func (h *Section) Check(k *config.Checker, _ *config.Controller) {
	if !h.Enabled {
		return
	}
	_, faults := h.Settings()
	faults.Report(k, Name)
	for name, n := range h.Neighbours {
		k.TLS("handover.neighbours."+name+".tls", n.TLS, true)
		k.Require(n.TLS.Enabled(), "handover.neighbours."+name+".tls", "missing", "cert, key and ca: a neighbour is spoken to with certificates only")
	}
}
