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
	Address      string    `json:"address" doc:"Address from which the switch connected"`
	Since        time.Time `json:"since" doc:"When the switch connected"`
	Role         string    `json:"role" doc:"Role of the controller for this switch"`
	Manufacturer string    `json:"manufacturer,omitempty"`
	Hardware     string    `json:"hardware,omitempty"`
	Software     string    `json:"software,omitempty"`
	Tables       int       `json:"tables" doc:"Number of flow tables"`
	Bundles      bool      `json:"bundles" doc:"Whether changes can be made atomically"`
	Rewrite      string    `json:"rewrite" doc:"Which addresses the switch can rewrite: full, l2, or none"`
	Ports        int       `json:"ports"`
	Rules        int       `json:"rules" doc:"Number of declared rules on the switch, including those of default forwarding"`

	Drift       int         `json:"drift" doc:"Rules, groups and meters that were not as declared since the switch connected, and were repaired"`
	DriftedAt   *time.Time  `json:"drifted_at,omitempty" doc:"When something was last not as declared"`
	Deviations  []Deviation `json:"deviations,omitempty" doc:"What drift counts, by owner and kind"`
	Comparisons uint64      `json:"comparisons" doc:"How often the switch was compared with what is declared since it connected"`

	PacketIns         uint64 `json:"packet_ins" doc:"Packets that the switch has sent to the controller since it connected"`
	PacketOutsDropped uint64 `json:"packet_outs_dropped" doc:"Packets for the switch that were dropped because its queue was full"`
	Held              int    `json:"held" doc:"Packets that are held for a service's decision"`
	Errors            uint64 `json:"errors" doc:"Error messages from the switch"`
	Malformed         uint64 `json:"malformed" doc:"Messages from the switch that could not be decoded"`
}

// Deviation counts the objects of one owner and one kind that were not as declared on a switch.
type Deviation struct {
	Owner   string `json:"owner" doc:"Owner: a service, or a part of the core. Empty for rules with a cookie of Sluice whose owner this controller does not have"`
	Object  string `json:"object" enum:"rule,group,meter" doc:"Kind of the things counted"`
	Missing int    `json:"missing,omitempty" doc:"Things that were gone"`
	Changed int    `json:"changed,omitempty" doc:"Things that were different from what their owner declares"`
	Foreign int    `json:"foreign,omitempty" doc:"Things that nobody declares"`
}

func deviationsOf(all []network.Deviation) []Deviation {
	var out []Deviation
	for _, d := range all {
		out = append(out, Deviation{Owner: d.Owner, Object: string(d.Object), Missing: d.Missing, Changed: d.Changed, Foreign: d.Foreign})
	}
	return out
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
	Edge    bool   `json:"edge" doc:"Whether hosts may be behind the port: it has no link to another switch"`
	Bits    uint64 `json:"speed_bits_per_second,omitempty" doc:"Speed that the switch reports"`
	Traffic *Rate  `json:"traffic,omitempty" doc:"Measured traffic; missing until the counters have been read twice"`
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
	VLAN uint16       `json:"vlan,omitempty" doc:"VLAN of the host; missing for none"`
	IPs  []netip.Addr `json:"ips"`
	At   Place        `json:"at" doc:"Edge port behind which the host is"`
	Seen time.Time    `json:"seen"`
}

func hostOf(h network.Host) Host {
	ips := h.IPs
	if ips == nil {
		ips = []netip.Addr{}
	}
	return Host{MAC: h.MAC.String(), VLAN: h.VLAN, IPs: ips, At: placeOf(h.At), Seen: h.Seen}
}

// Path is a path through the network.
type Path struct {
	Hops    []Hop   `json:"hops"`
	Latency float64 `json:"latency_milliseconds" doc:"Sum over the links whose latency is known"`
	Cost    float64 `json:"cost" doc:"Cost of the path in the metric"`
	// Free is set only for widest paths.
	Free float64 `json:"free_bits_per_second,omitempty" doc:"Free capacity of the narrowest link, for a widest path"`
}

// Hop is one switch of a path.
type Hop struct {
	Switch string `json:"switch"`
	In     uint32 `json:"in" doc:"Port by which packets enter"`
	Out    uint32 `json:"out" doc:"Port by which they leave"`
}

func pathOf(p network.Path) Path {
	out := Path{Latency: milliseconds(p.Latency), Cost: p.Cost, Hops: make([]Hop, len(p.Hops))}
	for i, h := range p.Hops {
		out.Hops[i] = Hop{Switch: h.Switch.String(), In: h.In, Out: h.Out}
	}
	return out
}

// Rule is a flow entry that an owner has declared.
type Rule struct {
	Switch    string     `json:"switch"`
	Owner     string     `json:"owner" doc:"Owner of the rule: a service, or a part of the core"`
	Name      string     `json:"name" doc:"Name under which the owner has declared the rule"`
	Table     uint8      `json:"table"`
	Stage     string     `json:"stage" doc:"Stage of the pipeline: classify; admit, rewrite or select; device, guard, way, route or miss"`
	Priority  uint16     `json:"priority"`
	Match     string     `json:"match"`
	Actions   string     `json:"actions"`
	Cookie    string     `json:"cookie"`
	Idle      float64    `json:"idle_timeout_seconds,omitempty"`
	Hard      float64    `json:"hard_timeout_seconds,omitempty"`
	Confirmed bool       `json:"confirmed" doc:"Whether the switch has acknowledged the rule"`
	Packets   uint64     `json:"packets"`
	Bytes     uint64     `json:"bytes"`
	CountedAt *time.Time `json:"counted_at,omitempty" doc:"When the counters were read: at most a second ago, longer ago if the switch does not answer, missing if they have not been read yet"`
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

// rewrite summarizes which fields of packets a switch can write.
func rewrite(c network.Capabilities) string {
	switch {
	case c.CanSet(openflow.FieldIPv4Dst) && c.CanSet(openflow.FieldTCPDst):
		return "full"
	case c.CanSet(openflow.FieldEthDst):
		return "l2"
	}
	return "none"
}

// eventAttrs is a network event in the event stream.
type eventAttrs struct {
	Switch string `json:"switch,omitempty"`
	Port   uint32 `json:"port,omitempty"`
	Link   *Link  `json:"link,omitempty"`
	Host   *Host  `json:"host,omitempty"`
	From   *Place `json:"from,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Drift counts what was not as declared on a switch. Pause is the time in seconds before the
	// switch is repaired again.
	Drift []Deviation `json:"drift,omitempty"`
	Pause float64     `json:"pause_seconds,omitempty"`
	// LeftOut is the number of events of the port that were not published before this one.
	LeftOut int `json:"left_out,omitempty"`
}

// EventAttrs converts a network.Event to its form in the event stream. It returns other values
// unchanged.
func EventAttrs(attrs any) any {
	e, ok := attrs.(network.Event)
	if !ok {
		return attrs
	}
	out := eventAttrs{Reason: e.Reason, LeftOut: e.LeftOut}
	switch e.Kind {
	case network.SwitchUp, network.SwitchDown, network.SwitchRefused:
		out.Switch = e.Switch.String()
	case network.SwitchDrifted:
		out.Switch, out.Drift, out.Pause = e.Switch.String(), deviationsOf(e.Drift), e.Pause.Seconds()
	case network.PortUp, network.PortDown, network.HostRefused, network.EventsLeftOut:
		out.Switch, out.Port = e.Port.Switch.String(), e.Port.Port
	case network.LoopFound, network.LoopGone:
		out.Switch, out.Port, out.From = e.Port.Switch.String(), e.Port.Port, knownPlace(e.From)
	case network.LinkUp, network.LinkDown, network.LinkMisplaced:
		out.Link = new(linkOf(e.Link, stats.Loss{}))
	default:
		out.Host, out.From = new(hostOf(e.Host)), knownPlace(e.From)
	}
	return out
}
