package handover

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/handover/domain"
	"github.com/sluice-net/sluice/services/handover/predict"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// Border is a port where the mobility network meets the rest of the world.
type Border struct {
	Name string
	At   network.PortRef
	// Peer names the neighbour behind the port; empty for an uplink.
	Peer string
}

// These are the values of Settings.Claims. They say what the service does when a DHCP request
// arrives at one port from a MAC address that is in use at another.
const (
	// ClaimMove moves the device: radio networks do not report that a device has left.
	ClaimMove = "move"
	// ClaimRefuse refuses an unsigned request while the old port is up. It suits cables, where a
	// port that is up has its device.
	ClaimRefuse = "refuse"
)

// Cell is the area that an attachment point covers. If its place is a border port that leads to a
// neighbour, the neighbour's network covers the area.
type Cell struct {
	predict.Cell
	// Interface selects the MAC address that a device uses there, counted from 1. Zero stands for
	// the address that the device uses when it arrives.
	Interface int
}

// Settings holds the service's part of the controller's configuration. What an operator changes at
// run time is in the registry.
type Settings struct {
	// Domain is our own name towards neighbours.
	Domain  string
	Borders []Border
	registry.Definitions

	Neighbours []domain.Neighbour
	Timing     domain.Timing

	Cells  []Cell
	Origin *predict.Geo
	// Predict bounds the predictions.
	Predict predict.Options

	// Claims is ClaimMove or ClaimRefuse.
	Claims string
	// RequestTimeout bounds the work on one DHCP message, and RulesTimeout bounds each change of
	// rules within that work.
	RequestTimeout, RulesTimeout time.Duration
	// PrepareTimeout is how long a place stays prepared for a device that does not come.
	PrepareTimeout time.Duration
	// Settle bounds how long after a start the service waits for the switches of
	// devices that are attached.
	Settle time.Duration
	// History is the number of records of handovers that are kept.
	History int
}

// withDefaults returns the settings with defaults filled in for zero values.
func (t Settings) withDefaults() Settings {
	t.Claims = cmp.Or(t.Claims, ClaimMove)
	t.RequestTimeout = cmp.Or(t.RequestTimeout, 5*time.Second)
	t.RulesTimeout = cmp.Or(t.RulesTimeout, 2*time.Second)
	t.PrepareTimeout = cmp.Or(t.PrepareTimeout, 10*time.Second)
	t.Settle = cmp.Or(t.Settle, 10*time.Second)
	t.History = cmp.Or(t.History, 4096)
	t.Predict.MaxAge = cmp.Or(t.Predict.MaxAge, 10*time.Second)
	t.Predict.MaxSkew = cmp.Or(t.Predict.MaxSkew, time.Second)
	t.Borders = slices.SortedFunc(slices.Values(t.Borders), func(a, b Border) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Name, b.Name)) })
	return t
}

// Specs holds the classes, pools and devices of a configuration file, by name.
type Specs struct {
	Classes map[string]ClassSpec
	Pools   map[string]PoolSpec
	Devices map[string]DeviceSpec
}

// Parse parses the specifications. The faults name everything that is wrong with one of them or
// with their combination; a fault's field begins with its place in the file:
// "pools.campus.prefix".
func (s Specs) Parse() (Settings, kit.Faults) {
	var t Settings
	var faults kit.Faults
	t.Classes = parseSection(s.Classes, "classes", &faults, ClassSpec.Parse)
	t.Pools = parseSection(s.Pools, "pools", &faults, PoolSpec.Parse)
	t.Devices = parseSection(s.Devices, "devices", &faults, DeviceSpec.Parse)
	if len(faults) > 0 {
		return t, faults
	}
	t.Definitions = t.Definitions.WithDefaults()
	return t, registry.New(registry.Options{}).Fits(t.Definitions)
}

// parseSection parses the specifications of one section.
func parseSection[S, T any](all map[string]S, section string, faults *kit.Faults, parse func(S, string) (T, kit.Faults)) map[string]T {
	out := map[string]T{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v, found := parse(all[name], name)
		out[name] = v
		*faults = append(*faults, found.WithPrefix(name).WithPrefix(section)...)
	}
	return out
}
