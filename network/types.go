package network

import (
	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
)

// The data types that services use are defined in the small packages below;
// these names are the ones to use.
type (
	// PortRef names one port of one switch.
	PortRef = topology.PortRef
	// Link is one direction of a link between switches.
	Link = topology.Link
	// Host is an end host as the controller has learned it.
	Host = topology.Host
	// Pin is the host to which an address belongs, and the port at which that host is.
	Pin = hosts.Pin
	// HostRecord holds what is stored about a host, so that it survives a restart.
	HostRecord = hosts.Record
	// HostNote is a change of a host that is to be stored.
	HostNote = hosts.RecordChange
	// Hop is one switch of a path.
	Hop = topology.Hop
	// Path is a path through the network.
	Path = topology.Path
	// Topology is an immutable snapshot of switches and links.
	Topology = topology.Topology
	// Metric selects the quantity that a path search minimises.
	Metric = topology.Metric

	// Stage is a stage of the pipeline.
	Stage = rule.Stage
	// Rule is one flow entry as an owner declares it.
	Rule = rule.Rule
	// Group is a group entry as an owner declares it.
	Group = rule.Group
	// Meter is a meter as an owner declares it.
	Meter = rule.Meter
	// Program is everything that an owner declares under one key.
	Program = rule.Program
	// ApplyOptions configure how a program is sent to the switches.
	ApplyOptions = rule.ApplyOptions
	// ApplyReport describes what a change has sent.
	ApplyReport = rule.Report
	// InstalledRule is a rule that the ledger, the record of all declared rules, holds.
	InstalledRule = rule.Installed
	// Removed describes a rule that a switch has removed.
	Removed = rule.Removed
	// Cookie contains owner, generation and number of a rule.
	Cookie = rule.Cookie
)

// The metrics that a path search can minimise.
const (
	MetricHops        = topology.MetricHops
	MetricLatency     = topology.MetricLatency
	MetricUtilisation = topology.MetricUtilisation
	MetricCapacity    = topology.MetricCapacity
)

// The stages of the pipeline that owners may use, by rising priority.
const (
	StageRoute    = rule.StageRoute
	StageWay      = rule.StageWay
	StageSelect   = rule.StageSelect
	StageGuard    = rule.StageGuard
	StageRewrite  = rule.StageRewrite
	StageDevice   = rule.StageDevice
	StageAdmit    = rule.StageAdmit
	StageClassify = rule.StageClassify
)
