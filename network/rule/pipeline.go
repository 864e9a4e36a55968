package rule

import "fmt"

// Table is one of the pipeline's tables. A Layout holds the numbers that the tables have in a
// switch. A switch with one table has all stages in it, with the same priorities.
type Table uint8

// The tables, in the order in which a packet passes them. In each table, the first stage that
// has a rule for the packet decides.
const (
	// TableClassify sets a packet's treatment, such as its queue.
	TableClassify Table = iota
	// TableService decides whether a service takes the packet, or sees it first.
	TableService
	// TableRoute decides where the packet goes.
	TableRoute
)

// NumTables is the number of tables.
const NumTables = int(TableRoute) + 1

var tableNames = [NumTables]string{"classify", "service", "route"}

// String returns the table's name.
func (t Table) String() string {
	if int(t) < NumTables {
		return tableNames[t]
	}
	return fmt.Sprintf("table(%d)", uint8(t))
}

// Stage is a stage of the pipeline: a question that is asked about every packet. Stages separate
// the rules of different owners. Each is a range of priorities in one table.
type Stage uint8

// The stages, by rising priority. docs/topics/pipeline.md says what happens to a packet that
// concerns two services.
const (
	// StageMiss is for packets that no other rule of a table matches. Its rules belong to the
	// core.
	StageMiss Stage = iota
	// StageRoute is for ordinary paths: default forwarding, and paths between agents.
	StageRoute
	// StageWay is for paths with a reserved bandwidth: those of critical flows and of classes of
	// traffic.
	StageWay
	// StageSelect is for packets about which a service decides at the controller before they are
	// forwarded, such as the first ones of whitelisted connections.
	StageSelect
	// StageGuard is for packets whose source address belongs to a device at another port, and for
	// packets from a neighbouring domain that no device's rule matches.
	StageGuard
	// StageRewrite is for packets that a service has taken over, such as those of sessions.
	StageRewrite
	// StageDevice is for packets of mobile devices.
	StageDevice
	// StageAdmit decides which packets may enter, and takes those that are for the controller.
	StageAdmit
	// StageClassify is for marks, which set a packet's treatment whichever path it takes. A mark
	// decides nothing else; the packet goes on to TableService.
	StageClassify
)

// stages holds the table and the priorities of each stage. On a switch with one table the
// priorities decide which stage comes first, so they do not overlap.
var stages = [...]struct {
	name        string
	table       Table
	base, width uint16
}{
	StageMiss:     {"miss", TableRoute, 0, 1},
	StageRoute:    {"route", TableRoute, 10000, 10000},
	StageWay:      {"way", TableRoute, 20000, 10000},
	StageSelect:   {"select", TableService, 30000, 500},
	StageGuard:    {"guard", TableRoute, 30500, 9500},
	StageRewrite:  {"rewrite", TableService, 40000, 100},
	StageDevice:   {"device", TableRoute, 40100, 9900},
	StageAdmit:    {"admit", TableService, 50000, 10000},
	StageClassify: {"classify", TableClassify, 60000, 5000},
}

// Offsets within the stages: of two rules for a packet the one with the higher offset decides.
// Rules that never match the same packet may share an offset. "Leased" means that the switch removes
// the rules when no controller renews them.
const (
	// In StageRoute.
	RouteOpen          = 10   // along the spanning tree, while there is no controller
	RouteAsk           = 50   // packets without any other rule go to the controller; leased
	RouteFlood         = 100  // group addresses, along the spanning tree
	RoutePrefix        = 110  // to the switch of a prefix; the prefix's length is added
	RouteFlow          = 200  // between two hosts
	RouteHost          = 250  // to a host, from everywhere
	RouteNoLabel       = 270  // drops frames of MobilityFirst with an unknown label
	RouteLabel         = 280  // paths between names, by label
	RouteLearn         = 300  // packets that reveal hosts go to the controller; leased
	RouteBlocked       = 310  // drops everything from a port that is blocked because of a loop
	RouteBlockedProbe  = 311  // probes of loops from such a port go to the controller; leased
	RouteSubflowAsk    = 400  // SYNs with the mark of further subflows go to the controller; leased
	RouteSubflowQuiet  = 405  // drops such SYNs from a port that sends too many of them; leased
	RouteSubflow       = 410  // placed subflows
	RouteAgents        = 3000 // between two agents
	RouteAgentsTreated = 3010 // between two agents, with a promised treatment

	// In StageWay.
	WayCriticalAsk  = 0    // first packets of critical flows go to the controller; leased
	WayCriticalFlow = 300  // placed critical flows
	WayCriticalCopy = 310  // ends of their connections, copied to the controller
	WayClass        = 1000 // classes of traffic, up to offset 1999, by the class's priority

	// In StageSelect.
	SelectOpen         = 0   // first packets of whitelisted connections, while there is no controller
	SelectCriticalAsk  = 50  // first packets of critical flows of mobile hosts; leased
	SelectCriticalFlow = 100 // placed critical flows of mobile hosts
	SelectCriticalCopy = 110 // ends of their connections, copied to the controller
	SelectConnection   = 200 // first packets of whitelisted connections; leased
	SelectAgent        = 400 // packets that an agent sends outside a session

	// In StageGuard.
	GuardSource = 0 // all of the stage's rules; some use the next higher offset

	// In StageRewrite.
	RewriteStray   = 0  // packets of a session's end host from another port than its own
	RewriteSession = 10 // sessions of agents
	// No packet matches both rules of channels and rules of sessions, because the address of a
	// channel is never that of a host.
	RewriteChannelGuard = 50 // drops packets to channels that nobody watches here; some use the next higher offset
	RewriteChannel      = 60 // channels, along their trees

	// In StageDevice.
	DeviceUp       = 0   // from a device
	DeviceDown     = 100 // to a device
	DeviceDownPort = 110 // to a device, from one port
	DeviceBranch   = 120 // copies to a device, by their destination MAC address

	// In StageAdmit.
	AdmitARP     = 0    // ARP about devices goes to the controller
	AdmitAnswer  = 10   // ARP that a switch answers itself
	AdmitDHCP    = 20   // DHCP of devices goes to the controller
	AdmitOffence = 100  // packets that only the controller may send go to it
	AdmitSilence = 110  // drops such packets from ports that have sent too many of them
	AdmitLLDP    = 5000 // probes of link discovery
	AdmitExamine = 9999 // probes of a link examination

	// In StageClassify. A mark has the offset of its path's rule.
	ClassifyClass = WayClass
)

// The packet-in chain: the order in which the controller's parts handle a packet that a switch
// sends up. A service that is not listed here chooses a priority between ChainHosts and
// ChainForwarding.
const (
	ChainDiscovery = 0
	ChainHosts     = 10
	ChainHandover  = 90
	ChainSOS       = 100
	ChainCritical  = 200 // after the services that take connections over, which may replace their packets
	ChainSubflow   = 210

	ChainMobilityFirst = 220
	ChainForwarding    = 1000
)

// Base returns the lowest priority of the stage.
func (s Stage) Base() uint16 { return stages[s].base }

// Width returns the number of priorities in the stage: offsets run from 0 to Width-1.
func (s Stage) Width() uint16 { return stages[s].width }

// Table returns the table that the stage is in.
func (s Stage) Table() Table { return stages[s].table }

// Valid reports whether owners may use the stage.
func (s Stage) Valid() bool { return s >= StageRoute && s <= StageClassify }

// String returns the stage's name.
func (s Stage) String() string {
	if s <= StageClassify {
		return stages[s].name
	}
	return fmt.Sprintf("stage(%d)", uint8(s))
}

// OfPriority returns the stage and offset of a priority. ok is false for a priority outside
// every stage that owners may use.
func OfPriority(priority uint16) (s Stage, offset uint16, ok bool) {
	for s = StageClassify; s > StageMiss && s.Base() > priority; {
		s--
	}
	offset = priority - s.Base()
	return s, offset, s.Valid() && offset < s.Width()
}
