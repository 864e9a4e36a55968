package tables

import "fmt"

// kind is what a claim is about.
type kind int

// The kinds of claims. Classes have one for each priority.
const (
	probe          kind = iota // a probe of a link
	control                    // DHCP and ARP of devices
	device                     // a packet of a mobile device, at its port or on its way
	elsewhere                  // what has a device's address
	session                    // a segment of a session
	firstPacket                // of a whitelisted connection
	stray                      // what an agent sends outside a session
	agents                     // what an agent sends another
	placed                     // a packet of a critical flow that has been placed
	criticalPacket             // another critical packet
	channeled                  // a packet of a channel, on its tree
	unannounced                // what goes to the address of channels
	joined                     // a packet of a further subflow that has been placed
	joining                    // a SYN with the mark of further subflows
	byLabel                    // a frame of MobilityFirst with the label of a path
	noLabel                    // one with another label
	ordinary                   // everything
	classified                 // a packet of the class of priority 0; the others follow
	numKinds       = classified + 8
)

var kindNames = [...]string{"probe", "control", "device", "elsewhere", "session", "first packet", "stray", "between agents", "placed", "critical", "channel", "to channels", "subflow", "joining", "by label", "no label", "ordinary"}

func (k kind) String() string {
	if k >= classified {
		return fmt.Sprintf("class of priority %d", k-classified)
	}
	return kindNames[k]
}

// owners are those whose rules send packets of a kind to the controller.
var owners = map[kind]string{
	probe: "network", ordinary: "network", control: "handover", elsewhere: "handover", firstPacket: "sos", stray: "sos",
	placed: "qos-bandwidth", criticalPacket: "qos-bandwidth", joining: "qos-subflow",
}

// decision is a row of the table of docs/topics/pipeline.md: of two claims on a packet the
// one that decides. oneTable says that on a switch with one table it is the other. marked says
// that with tables the packet keeps the class's queue all the same.
type decision struct {
	first, second    kind
	oneTable, marked bool
}

// decisions are the rows, in the order of the document's.
var decisions = []decision{
	// connection of the whitelist, and class
	{first: session, second: classified, marked: true},
	{first: firstPacket, second: classified},
	{first: stray, second: classified},
	{first: classified, second: agents}, // a class of the agents' own addresses
	// connection of the whitelist, and critical flow
	{first: session, second: placed},
	{first: session, second: criticalPacket},
	{first: firstPacket, second: placed},
	{first: firstPacket, second: criticalPacket},
	{first: stray, second: placed},
	{first: stray, second: criticalPacket},
	{first: placed, second: agents},
	{first: criticalPacket, second: agents},
	// connection of the whitelist, and mobile device
	{first: session, second: device, oneTable: true},
	{first: firstPacket, second: device, oneTable: true},
	{first: stray, second: device, oneTable: true},
	// class, and critical flow
	{first: classified, second: placed},
	{first: classified, second: criticalPacket},
	// class, and mobile device
	{first: device, second: classified, marked: true},
	// critical flow, and mobile device
	{first: device, second: placed},
	{first: device, second: criticalPacket},
	// mobile device, and what has its address and comes from elsewhere
	{first: device, second: elsewhere},
	{first: session, second: elsewhere},
	{first: firstPacket, second: elsewhere, oneTable: true}, // to the controller by either
	{first: elsewhere, second: classified},
	{first: elsewhere, second: placed},
	{first: elsewhere, second: criticalPacket},
	// channel, and what else goes to the address of channels
	{first: channeled, second: unannounced},
	// channel, and connection of the whitelist: to that address there is none
	{first: unannounced, second: stray},
	{first: unannounced, second: firstPacket},
	// channel, and critical flow
	{first: channeled, second: criticalPacket},
	{first: unannounced, second: criticalPacket},
	// channel, and mobile device
	{first: channeled, second: device, oneTable: true},
	{first: unannounced, second: device, oneTable: true},
	{first: channeled, second: elsewhere},
	{first: unannounced, second: elsewhere},
	// further subflow, and anything else
	{first: unannounced, second: joining},
	{first: session, second: joined},
	{first: session, second: joining},
	{first: firstPacket, second: joined},
	{first: firstPacket, second: joining},
	{first: stray, second: joined},
	{first: stray, second: joining},
	{first: agents, second: joined},
	{first: agents, second: joining},
	{first: classified, second: joined},
	{first: classified, second: joining},
	{first: placed, second: joined},
	{first: placed, second: joining},
	{first: criticalPacket, second: joined},
	{first: criticalPacket, second: joining},
	{first: device, second: joined},
	{first: device, second: joining},
	{first: elsewhere, second: joined},
	{first: elsewhere, second: joining},
	{first: joined, second: ordinary},
	{first: joining, second: ordinary},
	// frame of MobilityFirst with a label, and class
	{first: classified, second: byLabel},
	{first: classified, second: noLabel},
	{first: byLabel, second: noLabel},
	{first: byLabel, second: ordinary},
	{first: noLabel, second: ordinary},
	// within SOS, within critical flows, and within subflows
	{first: session, second: firstPacket},
	{first: session, second: stray},
	{first: stray, second: firstPacket},
	{first: stray, second: agents},
	{first: firstPacket, second: agents},
	{first: placed, second: criticalPacket},
	{first: joined, second: joining},
	// the ordinary way is for what nobody else has
	{first: channeled, second: ordinary},
	{first: unannounced, second: ordinary},
	{first: session, second: ordinary},
	{first: firstPacket, second: ordinary},
	{first: stray, second: ordinary},
	{first: agents, second: ordinary},
	{first: classified, second: ordinary},
	{first: placed, second: ordinary},
	{first: criticalPacket, second: ordinary},
	{first: device, second: ordinary},
	{first: elsewhere, second: ordinary},
	// anything, and DHCP, ARP and probes of the controller's
	{first: control, second: unannounced},
	{first: control, second: classified},
	{first: control, second: criticalPacket},
	{first: control, second: device},
	{first: control, second: elsewhere},
	{first: control, second: ordinary},
	{first: probe, second: ordinary},
}

// between finds the row of two kinds: which of them decides, and whether the class's queue
// stays. It is false if there is none.
func between(a, b kind, tables bool) (first kind, row decision, ok bool) {
	if a >= classified && b >= classified { // the class of higher priority has it
		return min(a, b), decision{first: classified, second: classified}, true
	}
	for _, d := range decisions {
		for _, x := range [][2]kind{{a, b}, {b, a}} {
			if same(d.first, x[0]) && same(d.second, x[1]) {
				if d.oneTable && !tables {
					return x[1], d, true
				}
				return x[0], d, true
			}
		}
	}
	return 0, decision{}, false
}

func same(of, k kind) bool { return of == k || of == classified && k > classified }

// decide picks the claim that decides at a switch, and gives it the queue of a class that goes
// with it. It says by which rows.
func decide(all []claim, tables bool) (best claim, rows []decision, err error) {
	best = all[0]
	for _, c := range all[1:] {
		if first, _, ok := between(best.of, c.of, tables); ok && first == c.of {
			best = c
		}
	}
	queue := numKinds
	for _, c := range all {
		if c.of == best.of {
			continue
		}
		first, row, ok := between(best.of, c.of, tables)
		if !ok || first != best.of {
			return claim{}, nil, fmt.Errorf("no row says that %v comes before %v", best.of, c.of)
		}
		rows = append(rows, row)
		if row.marked && tables && c.of < queue { // of two classes the first has it
			queue = c.of
			for i := range best.outs {
				best.outs[i].queue = c.outs[0].queue
			}
		}
	}
	return best, rows, nil
}
