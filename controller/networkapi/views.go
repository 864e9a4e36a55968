package networkapi

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/openflow"
)

// Place is a port of a switch.
type Place struct {
	Switch string `json:"switch" example:"00000000000000a1" doc:"Datapath identifier"`
	Port   uint32 `json:"port" example:"3"`
}

func placeOf(r network.PortRef) Place { return Place{Switch: r.Switch.String(), Port: r.Port} }

// Switch is a connected switch.
type Switch struct {
	DPID         string    `json:"dpid" example:"00000000000000a1" doc:"Datapath identifier"`
	Name         string    `json:"name,omitempty" doc:"Name in the controller's configuration"`
	Address      string    `json:"address" doc:"Where it connected from"`
	Since        time.Time `json:"since" doc:"When it connected"`
	Role         string    `json:"role" doc:"The controller's role towards it"`
	Manufacturer string    `json:"manufacturer,omitempty"`
	Hardware     string    `json:"hardware,omitempty"`
	Software     string    `json:"software,omitempty"`
	Tables       int       `json:"tables" doc:"Number of flow tables"`
	Bundles      bool      `json:"bundles" doc:"Changes can be made atomic"`
	Rewrite      string    `json:"rewrite" doc:"Which addresses it can rewrite: full, l2, or none"`
	Ports        int       `json:"ports"`
	Rules        int       `json:"rules" doc:"Rules wanted on it, those of default forwarding included"`

	PacketIns         uint64 `json:"packet_ins" doc:"Packets it sent up since it connected"`
	PacketOutsDropped uint64 `json:"packet_outs_dropped" doc:"Packets for it that did not fit its queue"`
	Held              int    `json:"held" doc:"Packets that wait for a service's decision"`
	Errors            uint64 `json:"errors" doc:"Error messages from it"`
	Malformed         uint64 `json:"malformed" doc:"Messages from it that could not be read"`
}

// SwitchDetail is a switch with its ports.
type SwitchDetail struct {
	Switch
	PortList []Port `json:"port_list"`
}

// Port is a port of a switch.
type Port struct {
	Place
	Name    string `json:"name"`
	MAC     string `json:"mac"`
	Up      bool   `json:"up"`
	Edge    bool   `json:"edge" doc:"Hosts may stand behind it; no link to another switch"`
	Bits    uint64 `json:"speed_bits_per_second,omitempty" doc:"What the switch says about its speed"`
	Traffic *Rate  `json:"traffic,omitempty" doc:"Measured; missing until two readings have been made"`
}

// Rate is a port's traffic over the last interval.
type Rate struct {
	At        time.Time `json:"at"`
	Seconds   float64   `json:"interval_seconds"`
	RxBits    float64   `json:"rx_bits_per_second"`
	TxBits    float64   `json:"tx_bits_per_second"`
	RxPackets float64   `json:"rx_packets_per_second"`
	TxPackets float64   `json:"tx_packets_per_second"`
	RxDropped float64   `json:"rx_dropped_per_second"`
	TxDropped float64   `json:"tx_dropped_per_second"`
	RxErrors  float64   `json:"rx_errors_per_second"`
	TxErrors  float64   `json:"tx_errors_per_second"`
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Host is an end host.
type Host struct {
	MAC  string       `json:"mac"`
	VLAN uint16       `json:"vlan,omitempty" doc:"VLAN it was seen in, missing for none"`
	IPs  []netip.Addr `json:"ips"`
	At   Place        `json:"at" doc:"The edge port behind which it stands"`
	Seen time.Time    `json:"seen"`
}

func hostOf(h network.Host) Host {
	ips := h.IPs
	if ips == nil {
		ips = []netip.Addr{}
	}
	return Host{MAC: h.MAC.String(), VLAN: h.VLAN, IPs: ips, At: placeOf(h.At), Seen: h.Seen}
}

// Path is a way through the network.
type Path struct {
	Hops    []Hop   `json:"hops"`
	Latency float64 `json:"latency_milliseconds" doc:"Sum over the links whose latency is known"`
	Cost    float64 `json:"cost" doc:"In terms of the metric"`
	// Free is set for widest paths only.
	Free float64 `json:"free_bits_per_second,omitempty" doc:"Of the narrowest link, for a widest path"`
}

// Hop is one switch of a path.
type Hop struct {
	Switch string `json:"switch"`
	In     uint32 `json:"in" doc:"Port by which packets come in"`
	Out    uint32 `json:"out" doc:"Port by which they leave"`
}

func pathOf(p network.Path) Path {
	out := Path{Latency: milliseconds(p.Latency), Cost: p.Cost, Hops: make([]Hop, len(p.Hops))}
	for i, h := range p.Hops {
		out.Hops[i] = Hop{Switch: h.Switch.String(), In: h.In, Out: h.Out}
	}
	return out
}

// Rule is a flow entry that an owner wants.
type Rule struct {
	Switch    string     `json:"switch"`
	Owner     string     `json:"owner" doc:"Who declared it: a service, or a part of the core"`
	Name      string     `json:"name" doc:"Under which of the owner's names"`
	Table     uint8      `json:"table"`
	Stage     string     `json:"stage" doc:"Stage of the pipeline: classify; admit, rewrite or select; device, guard, way, route or miss"`
	Priority  uint16     `json:"priority"`
	Match     string     `json:"match"`
	Actions   string     `json:"actions"`
	Cookie    string     `json:"cookie"`
	Idle      float64    `json:"idle_timeout_seconds,omitempty"`
	Hard      float64    `json:"hard_timeout_seconds,omitempty"`
	Confirmed bool       `json:"confirmed" doc:"The switch has acknowledged it"`
	Packets   uint64     `json:"packets"`
	Bytes     uint64     `json:"bytes"`
	CountedAt *time.Time `json:"counted_at,omitempty" doc:"When the switch told the counters: a second ago at most, longer if it does not answer, never if it was not asked yet"`
}

func ruleOf(r *rule.Installed) Rule {
	out := Rule{
		Switch: r.Switch.String(), Owner: r.Owner, Name: r.Name, Table: r.Number, Stage: r.Stage.String(), Priority: r.Priority(),
		Match: r.Match.String(), Actions: actions(r), Cookie: r.Cookie.String(), Idle: r.Idle.Seconds(), Hard: r.Hard.Seconds(),
		Confirmed: r.Confirmed, Packets: r.Packets, Bytes: r.Bytes,
	}
	if !r.CountersAt.IsZero() {
		out.CountedAt = &r.CountersAt
	}
	return out
}

// rewrite sums up what a switch can write into packets.
func rewrite(c network.Capabilities) string {
	switch {
	case c.CanSet(openflow.FieldIPv4Dst) && c.CanSet(openflow.FieldTCPDst):
		return "full"
	case c.CanSet(openflow.FieldEthDst):
		return "l2"
	}
	return "none"
}

// eventAttrs is a network event as the event stream shows it.
type eventAttrs struct {
	Switch string `json:"switch,omitempty"`
	Port   uint32 `json:"port,omitempty"`
	Link   *Link  `json:"link,omitempty"`
	Host   *Host  `json:"host,omitempty"`
	From   *Place `json:"from,omitempty"`
	Reason string `json:"reason,omitempty"`
	// LeftOut is how many events of the port were not published before this one.
	LeftOut int `json:"left_out,omitempty"`
}

// EventAttrs turns a network.Event into what the event stream shows; anything
// else is left as it is.
func EventAttrs(attrs any) any {
	e, ok := attrs.(network.Event)
	if !ok {
		return attrs
	}
	out := eventAttrs{Reason: e.Reason, LeftOut: e.LeftOut}
	switch e.Kind {
	case network.SwitchUp, network.SwitchDown, network.SwitchRefused:
		out.Switch = e.Switch.String()
	case network.PortUp, network.PortDown, network.HostRefused, network.EventsLeftOut:
		out.Switch, out.Port = e.Port.Switch.String(), e.Port.Port
	case network.LinkUp, network.LinkDown, network.LinkMisplaced:
		out.Link = new(linkOf(e.Link, stats.Loss{}))
	default:
		out.Host, out.From = new(hostOf(e.Host)), knownPlace(e.From)
	}
	return out
}
