package rule

import "fmt"

// Table is one of the pipeline's tables. Which number it has in a switch is the switch's
// Layout; one with a single table has all stages in it, by the same priorities.
type Table uint8

// The tables, in the order in which a packet passes them. In each, the first stage that
// has a rule for a packet decides.
const (
	// TableClassify notes which treatment has been promised to a packet.
	TableClassify Table = iota
	// TableService says whether a service has it, or wants to see it first.
	TableService
	// TableRoute says where it goes.
	TableRoute
)

// NumTables is the number of tables.
const NumTables = int(TableRoute) + 1

var tableNames = [NumTables]string{"classify", "service", "route"}

// String is the table's name.
func (t Table) String() string {
	if int(t) < NumTables {
		return tableNames[t]
	}
	return fmt.Sprintf("table(%d)", uint8(t))
}

// Stage is a stage of the pipeline: a question that is asked of every packet. Stages keep
// the owners apart. Each stands in one table, as a range of priorities.
type Stage uint8

// The stages, by rising priority. docs/topics/pipeline.md has what becomes of a packet that
// concerns two services.
const (
	// StageMiss is for what no other rule of a table matches; the core owns it.
	StageMiss Stage = iota
	// StageRoute is the ordinary way: default forwarding, the ways between agents.
	StageRoute
	// StageWay is for ways that have been promised: critical flows and classes.
	StageWay
	// StageSelect has services asked who want to see a packet first.
	StageSelect
	// StageGuard is for what has an address that belongs elsewhere.
	StageGuard
	// StageRewrite is for packets that are a service's from here on: those of sessions.
	StageRewrite
	// StageDevice is for packets of mobile devices.
	StageDevice
	// StageAdmit says what may come in, and what is the controller's own business.
	StageAdmit
	// StageClassify is for marks: which treatment a packet has, wherever it goes. A mark
	// decides nothing else; the packet goes on to TableService.
	StageClassify
)

// stages has for each stage its table, and its priorities. On a switch with one table
// they say which stage comes first, so they do not overlap.
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

// Offsets within the stages: of two rules for a packet the one of the higher offset
// decides. Rules that no packet can be for both of share one.
const (
	// In StageRoute.
	RouteOpen          = 10   // along the tree, when no controller is there
	RouteAsk           = 50   // what no other rule is for goes to the controller; leased
	RouteFlood         = 100  // group addresses, along the tree
	RoutePrefix        = 110  // to the switch of a prefix, and as many above as the prefix has bits
	RouteFlow          = 200  // between two hosts
	RouteHost          = 250  // to a host, from everywhere
	RouteNoLabel       = 270  // frames of MobilityFirst with a label that is not there end
	RouteLabel         = 280  // paths between names, by label
	RouteLearn         = 300  // what tells of hosts goes to the controller; leased
	RouteSubflowAsk    = 400  // SYNs with the mark of further subflows go to the controller; leased
	RouteSubflowQuiet  = 405  // SYNs with the mark from a port with too many of them end; leased
	RouteSubflow       = 410  // subflows that have been placed
	RouteAgents        = 3000 // between two agents
	RouteAgentsTreated = 3010 // the same, what has been promised a treatment

	// In StageWay.
	WayCriticalAsk  = 0    // first packets of critical flows go to the controller; leased
	WayCriticalFlow = 300  // flows that have been placed
	WayCriticalCopy = 310  // ends of their connections, which the controller sees too
	WayClass        = 1000 // classes, up to 1999, by their priority

	// In StageSelect.
	SelectOpen         = 0   // first packets of whitelisted connections, when no controller is there
	SelectCriticalAsk  = 50  // first packets of critical flows of hosts that move; leased
	SelectCriticalFlow = 100 // such flows that have been placed
	SelectCriticalCopy = 110 // ends of their connections, which the controller sees too
	SelectConnection   = 200 // first packets of whitelisted connections; leased
	SelectAgent        = 400 // what an agent sends outside a session

	// In StageGuard.
	GuardSource = 0 // what has a device's address and comes from elsewhere; and one above

	// In StageRewrite.
	RewriteStray   = 0  // what an end host of a session sends from where it is not known to be
	RewriteSession = 10 // sessions of agents
	// No address of a host is that of channels, so nothing is for these and for a session.
	RewriteChannelGuard = 50 // what goes to the address of channels and is of none that is watched here; and one above
	RewriteChannel      = 60 // channels, along their trees

	// In StageDevice.
	DeviceUp       = 0   // from a device
	DeviceDown     = 100 // to a device
	DeviceDownPort = 110 // to a device, by the port
	DeviceBranch   = 120 // copies to a device

	// In StageAdmit.
	AdmitARP     = 0    // ARP about devices goes to the controller
	AdmitAnswer  = 10   // ARP that a switch answers
	AdmitDHCP    = 20   // DHCP of devices goes to the controller
	AdmitOffence = 100  // what only the controller may say
	AdmitSilence = 110  // ports that have said it too often
	AdmitLLDP    = 5000 // probes of links
	AdmitExamine = 9999 // probes of an examination

	// In StageClassify. A mark has the offset of the way that it belongs to.
	ClassifyClass = WayClass
)

// The packet-in chain: in this order the controller's parts are asked about a packet that
// a switch sends up. A service of your own stands between ChainHosts and ChainForwarding.
const (
	ChainDiscovery = 0
	ChainHosts     = 10
	ChainHandover  = 90
	ChainSOS       = 100
	ChainCritical  = 200 // behind services that take connections over: these are then no longer what they look like
	ChainSubflow   = 210

	ChainMobilityFirst = 220
	ChainForwarding    = 1000
)

// Base is the lowest priority of the stage.
func (s Stage) Base() uint16 { return stages[s].base }

// Width is the number of priorities in the stage: offsets run from 0 to Width-1.
func (s Stage) Width() uint16 { return stages[s].width }

// Table is the table that the stage stands in.
func (s Stage) Table() Table { return stages[s].table }

// Valid reports whether s is a stage that owners may use.
func (s Stage) Valid() bool { return s >= StageRoute && s <= StageClassify }

// String is the stage's name.
func (s Stage) String() string {
	if s <= StageClassify {
		return stages[s].name
	}
	return fmt.Sprintf("stage(%d)", uint8(s))
}

// OfPriority splits a priority into its stage and offset. ok is false for priorities
// outside every stage that owners may use.
func OfPriority(priority uint16) (s Stage, offset uint16, ok bool) {
	for s = StageClassify; s > StageMiss && s.Base() > priority; {
		s--
	}
	offset = priority - s.Base()
	return s, offset, s.Valid() && offset < s.Width()
}
