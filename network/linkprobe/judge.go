package linkprobe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/network/topology"
)

// The faults of links.
const (
	Dead       diagnosis.Fault = "dead"        // nothing arrives in either direction
	OneWay     diagnosis.Fault = "one-way"     // nothing arrives in this direction
	SmallMTU   diagnosis.Fault = "small-mtu"   // packets of the configured MTU do not arrive
	Small      diagnosis.Fault = "small"       // the smallest frames do not arrive, larger ones do
	Large      diagnosis.Fault = "large"       // only small frames arrive
	Cut        diagnosis.Fault = "cut"         // frames arrive without their last bytes
	Changed    diagnosis.Fault = "changed"     // frames arrive with changed bytes
	Kinds      diagnosis.Fault = "kinds"       // some kinds of frames do not arrive
	TagAdded   diagnosis.Fault = "tag-added"   // untagged frames arrive with a VLAN tag
	TagRemoved diagnosis.Fault = "tag-removed" // tagged frames arrive without their VLAN tag
	TagChanged diagnosis.Fault = "tag-changed" // VLAN tags are translated
	TagRefused diagnosis.Fault = "tag-refused" // frames with VLAN tags do not arrive
	TagNoRoom  diagnosis.Fault = "tag-no-room" // packets of the MTU do not arrive with a VLAN tag
	Shared     diagnosis.Fault = "shared"      // frames also arrive at another port
)

// Judge returns the faults of a link, from the results of its two directions.
func Judge(there, back *Direction) []diagnosis.Finding {
	if !there.arrived() && !back.arrived() {
		return []diagnosis.Finding{there.finding(Dead, diagnosis.Fail, "nothing arrives, in either direction"+there.lossPlace(),
			"look for a cable, optic, bundle or provider's circuit that is down though both ports are up; for a port of another VLAN or of another OpenFlow instance; and at the far switch's own filters")}
	}
	return append(there.judge(), back.judge()...)
}

func (w *Direction) finding(f diagnosis.Fault, l diagnosis.Level, found, remedy string) diagnosis.Finding {
	return diagnosis.Finding{Fault: f, Level: l, From: w.From, To: w.To, Found: found, Remedy: remedy}
}

// judge returns the faults of one direction of a link whose other direction works.
func (w *Direction) judge() []diagnosis.Finding {
	if !w.arrived() {
		return []diagnosis.Finding{w.finding(OneWay, diagnosis.Fail, "nothing arrives, while the other direction works"+w.lossPlace(),
			"look at this direction's fibre, optic and transmitter, and for a filter on the sending or receiving port; replace or restart what is between the two")}
	}
	out := append(w.judgeContents(), w.judgeTags()...)
	out = append(out, w.judgeCounters()...)
	if len(w.otherPorts) > 0 {
		out = append(out, w.finding(Shared, diagnosis.Warn, fmt.Sprintf("what is sent to this port also comes out at %s: a switch that is not controlled is between them", places(w.otherPorts)),
			"if that switch learns addresses, one source address on several of its links confuses it: rewrite source addresses for each link, or switch its learning off"))
	}
	return out
}

func places(at []topology.PortRef) string {
	s := make([]string, len(at))
	for i, p := range at {
		s[i] = p.String()
	}
	return strings.Join(s, ", ")
}

// kindVerdict is the fault of the frames of a kind.
type kindVerdict struct {
	fault diagnosis.Fault
	// bytes is the number of missing bytes, or the index of the first changed one.
	bytes int
}

// judgeKind judges one kind; ok is false if it has no fault.
func (w *Direction) judgeKind(k Kind) (v kindVerdict, ok bool) {
	small := w.result(frameSize{k, smallest})
	large := small
	if k.anySize() {
		large = w.result(frameSize{k, w.maxSize()})
	}
	for _, r := range []*result{large, small} {
		switch {
		case r == nil:
		case r.changedAt != 0:
			return kindVerdict{Changed, r.changedAt}, true
		case r.intactBytes < r.untaggedSize():
			return kindVerdict{Cut, r.untaggedSize() - r.intactBytes}, true
		}
	}
	switch {
	case small == nil && large != nil:
		return kindVerdict{fault: Small}, true
	case small == nil:
		return kindVerdict{fault: Kinds}, true
	case large == nil:
		return kindVerdict{fault: Large}, true
	}
	return kindVerdict{}, false
}

// judgeContents returns the faults of frames apart from their tags.
func (w *Direction) judgeContents() (out []diagnosis.Finding) {
	var order []kindVerdict
	of := map[kindVerdict][]Kind{}
	for k := LLDP; k < TaggedUDP; k++ {
		if v, bad := w.judgeKind(k); bad {
			if of[v] == nil {
				order = append(order, v)
			}
			of[v] = append(of[v], k)
		}
	}
	for _, v := range order {
		out = append(out, w.describeKinds(v, of[v]))
	}
	return out
}

// describeKinds returns the finding for kinds with the same fault.
func (w *Direction) describeKinds(v kindVerdict, of []Kind) diagnosis.Finding {
	which := names(of)
	switch v.fault {
	case Changed:
		return w.finding(Changed, diagnosis.Fail, fmt.Sprintf("%s: arrives changed, the first time in byte %d", which, v.bytes+1),
			"a device on the way rewrites or spoils packets: look for address translation and tunnels, and replace hardware one piece at a time")
	case Cut:
		return w.finding(Cut, diagnosis.Fail, fmt.Sprintf("%s: arrives without its last %d bytes", which, v.bytes),
			"no switch counts this as an error: replace or restart, one at a time, the modules and routers between the two ports, and ask the circuit's provider to do so")
	case Kinds:
		return w.finding(Kinds, diagnosis.Fail, which+": none arrives, of any size, while other kinds do"+w.lossPlace(),
			"look for filters and protection (ARP inspection, storm control, hybrid modes) on both ports; where one end is a port channel, try a single port; then the switches' firmware")
	case Small:
		return w.finding(Small, diagnosis.Fail, fmt.Sprintf("%s: frames of %d bytes do not arrive, larger ones do", which, smallest),
			"a device on the way takes frames for too short: look for tunnels and bridges that take off headers without padding what is left")
	default:
		return w.tooLarge(of)
	}
}

// tooLarge returns the finding for kinds of which only small frames arrive.
func (w *Direction) tooLarge(of []Kind) diagnosis.Finding {
	n := w.sizeSearch.largest(of[0])
	if all := int(TCPDF-ICMP) + 1; len(of) < all || n < ethHeader+MinMTU {
		return w.finding(Large, diagnosis.Fail, fmt.Sprintf("%s: nothing larger than %d bytes arrives (%d bytes of payload of a ping)", names(of), n, n-ethHeader-ipv4Header-8),
			"this is no MTU that anybody sets: replace or restart the modules and routers between the two ports, and ask the circuit's provider to do so")
	}
	found := fmt.Sprintf("IP packets of up to %d bytes arrive, the MTU is said to be %d", n-ethHeader, w.MTU)
	remedy := fmt.Sprintf("raise the MTU of every device on the way to %d bytes, or lower that of hosts and agents to %d", w.MTU, n-ethHeader)
	if d := w.maxSize() - n; d == ethHeader || d == ethHeader+tagSize || d == ethHeader+2*tagSize || d == ethHeader+tagSize+4 {
		found += fmt.Sprintf(": a device on the way counts the Ethernet header (%d bytes) in its MTU", d)
		remedy = fmt.Sprintf("set that device's MTU to %d or more: it means layer 2 by it, the ends mean layer 3", w.MTU+d)
	}
	return w.finding(SmallMTU, diagnosis.Fail, found, remedy)
}

func names(of []Kind) string {
	if slices.Equal(of, []Kind{ICMP, ICMPDF, UDP, UDPDF, TCP, TCPDF}) {
		return "IP of every kind"
	}
	s := make([]string, len(of))
	for i, k := range of {
		s[i] = k.String()
	}
	return strings.Join(s, ", ")
}

// judgeTags returns the faults of VLAN tags.
func (w *Direction) judgeTags() (out []diagnosis.Finding) {
	for _, r := range w.results {
		if r.kind != TaggedUDP && r.tagged {
			out = append(out, w.finding(TagAdded, diagnosis.Fail, fmt.Sprintf("frames without a VLAN tag arrive with one, of VLAN %d", r.vlan),
				"the sending port is an access port of that VLAN in its own switch, or the receiving one hands tags on: have both ends be untagged, or both trunks, in the OpenFlow instance"))
			break
		}
	}
	if !w.result(frameSize{UDP, smallest}).intact() {
		return out // if UDP is lost, losses of tagged frames prove nothing
	}
	roomy := w.result(frameSize{UDP, w.maxSize()}).intact() || w.sizeSearch.passes >= smallest+tagSize
	small, large := w.result(frameSize{TaggedUDP, smallest + tagSize}), w.result(frameSize{TaggedUDP, w.maxSize() + tagSize})
	switch {
	case small == nil && large == nil && !roomy:
		// The frame may only be too large.
	case small == nil && large == nil:
		out = append(out, w.finding(TagRefused, diagnosis.Warn, fmt.Sprintf("frames with a VLAN tag (%d) do not arrive", probeVLAN),
			"no fault if no host or service uses VLANs; else make both ports trunks of all VLANs that are used"))
	case small != nil && !small.tagged:
		out = append(out, w.finding(TagRemoved, diagnosis.Fail, "VLAN tags are taken off",
			"make both ports trunks: a port in access mode takes tags off, and mixes VLANs"))
	case small != nil && small.vlan != probeVLAN:
		out = append(out, w.finding(TagChanged, diagnosis.Fail, fmt.Sprintf("VLAN %d arrives as VLAN %d", probeVLAN, small.vlan),
			"a circuit on the way translates VLANs: have it not do so, or set network.ignore_vlan, so that a host is not taken for two"))
	case large == nil && w.result(frameSize{UDP, w.maxSize()}).intact():
		out = append(out, w.finding(TagNoRoom, diagnosis.Warn, fmt.Sprintf("packets of the MTU (%d) arrive without a VLAN tag, not with one", w.MTU),
			"no fault if no host or service uses VLANs; else have every device on the way carry frames that are 4 bytes larger"))
	}
	return out
}
