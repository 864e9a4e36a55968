package rule

import "fmt"

// Stage is a stage of the pipeline: a question that is asked of every packet. Stages
// keep the owners apart. All of them stand in one table, as ranges of priorities: the
// first stage that has a rule for a packet decides what becomes of it.
type Stage uint8

// The stages, the last one first. docs/topics/pipeline.md has what stands in each, and
// what becomes of a packet that concerns two services.
const (
	// StageMiss is for what no other rule matches; the core owns it.
	StageMiss Stage = iota
	// StageRoute says where a packet goes: default forwarding, the ways between agents.
	StageRoute
	// StageClassify says which treatment has been promised to a packet, and which way
	// goes with it: critical flows and classes.
	StageClassify
	// StageSelect has services asked who want to see a packet first.
	StageSelect
	// StageRewrite is for packets that are somebody else's from here on: those of
	// sessions and of mobile devices.
	StageRewrite
	// StageAdmit says what may come in, and what is the controller's own business.
	StageAdmit
)

// Offsets within the stages: of two rules for a packet the one of the higher offset
// decides. Rules that no packet can be for both of share one.
const (
	// In StageRoute.
	RouteOpen   = 10   // along the tree, when no controller is there
	RouteAsk    = 50   // what no other rule is for goes to the controller; leased
	RouteFlood  = 100  // group addresses, along the tree
	RouteFlow   = 200  // between two hosts
	RouteLearn  = 300  // what tells of hosts goes to the controller; leased
	RouteAgents = 3000 // between two agents

	// In StageClassify.
	ClassifyCriticalAsk  = 0    // first packets of critical flows go to the controller; leased
	ClassifyCriticalFlow = 300  // flows that have been placed
	ClassifyCriticalCopy = 310  // ends of their connections, which the controller sees too
	ClassifyClass        = 1000 // classes, up to 1999, by their priority

	// In StageSelect.
	SelectConnection = 0    // first packets of whitelisted connections; leased
	SelectSource     = 500  // what has a device's address and comes from elsewhere; and one above
	SelectAgent      = 1000 // what an agent sends outside a session

	// In StageRewrite.
	RewriteSession  = 0   // sessions of agents
	RewriteUp       = 100 // from a device
	RewriteDown     = 200 // to a device
	RewriteDownPort = 210 // to a device, by the port
	RewriteBranch   = 220 // copies to a device

	// In StageAdmit.
	AdmitARP     = 0    // ARP about devices goes to the controller
	AdmitAnswer  = 10   // ARP that a switch answers
	AdmitDHCP    = 20   // DHCP of devices goes to the controller
	AdmitOffence = 100  // what only the controller may say
	AdmitSilence = 110  // ports that have said it too often
	AdmitLLDP    = 5000 // probes of links
	AdmitExamine = 9999 // probes of an examination
)

// The packet-in chain: in this order the controller's parts are asked about a packet that
// a switch sends up. A service of your own stands between ChainHosts and ChainForwarding.
const (
	ChainDiscovery  = 0
	ChainHosts      = 10
	ChainHandover   = 90
	ChainSOS        = 100
	ChainCritical   = 200 // behind services that take connections over: these are then no longer what they look like
	ChainForwarding = 1000
)

// StageWidth is the number of priorities in each stage: offsets run from 0 to
// StageWidth-1.
const StageWidth = 10000

var stageNames = [...]string{StageMiss: "miss", StageRoute: "route", StageClassify: "classify", StageSelect: "select", StageRewrite: "rewrite", StageAdmit: "admit"}

// Base is the lowest priority of the stage.
func (s Stage) Base() uint16 { return uint16(s) * StageWidth }

// Valid reports whether s is a stage that owners may use.
func (s Stage) Valid() bool { return s >= StageRoute && s <= StageAdmit }

// String is the stage's name.
func (s Stage) String() string {
	if s <= StageAdmit {
		return stageNames[s]
	}
	return fmt.Sprintf("stage(%d)", uint8(s))
}

// OfPriority splits a wire priority into its stage and offset. ok is false for
// priorities outside every stage.
func OfPriority(priority uint16) (s Stage, offset uint16, ok bool) {
	s = Stage(priority / StageWidth)
	return s, priority % StageWidth, s.Valid()
}
