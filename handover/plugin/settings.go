package plugin

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/handover/domain"
	"github.com/sluice-net/sluice/handover/predict"
	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/store/memstore"
)

// Root is a port where the mobility network meets the rest of the world.
type Root struct {
	Name string
	At   network.PortRef
	// Peer names the neighbour behind it; empty for an uplink.
	Peer string
}

// What is done when a MAC address that is in use at one port asks at another.
const (
	// ClaimMove lets it move: radio networks never tell that a device has left.
	ClaimMove = "move"
	// ClaimRefuse refuses it unless the request is signed, as long as the old
	// port is up: for cables, where a port that is up has its device.
	ClaimRefuse = "refuse"
)

// Cell is what an attachment point covers. Its place may be a root that leads to a
// neighbour: then that neighbour's network covers the area.
type Cell struct {
	predict.Cell
	// Interface says which of its MAC addresses a device uses there, from 1; zero
	// stands for the one that it uses when it comes.
	Interface int
}

// Definitions are classes, pools and devices of the configuration. They replace those of
// the same name in the store, and are changed by nobody. Those that stood there before
// and do no more are withdrawn.
type Definitions struct {
	Classes []registry.Class
	Pools   []registry.Pool
	Devices []registry.Device
}

// Settings are the roots of the service, from the controller's configuration.
// What an operator changes while it runs is in the registry.
type Settings struct {
	// Domain is our own name towards neighbours.
	Domain string
	Roots  []Root
	Definitions

	Neighbours []domain.Neighbour
	Timing     domain.Timing

	Cells  []Cell
	Origin *predict.Geo
	// Predict are the bounds of predictions.
	Predict predict.Options

	// Claims is ClaimMove or ClaimRefuse.
	Claims string
	// RequestTimeout bounds the work on one DHCP message, RulesTimeout one change
	// of rules within it.
	RequestTimeout, RulesTimeout time.Duration
	// PrepareTimeout is how long a place stays prepared for a device that does
	// not come.
	PrepareTimeout time.Duration
	// Settle bounds how long after a start the service waits for the switches of
	// devices that are attached.
	Settle time.Duration
	// History is how many records are remembered.
	History int
}

func (t Settings) withDefaults() Settings {
	t.Claims = cmp.Or(t.Claims, ClaimMove)
	t.RequestTimeout = cmp.Or(t.RequestTimeout, 5*time.Second)
	t.RulesTimeout = cmp.Or(t.RulesTimeout, 2*time.Second)
	t.PrepareTimeout = cmp.Or(t.PrepareTimeout, 10*time.Second)
	t.Settle = cmp.Or(t.Settle, 10*time.Second)
	t.History = cmp.Or(t.History, 4096)
	t.Predict.MaxAge = cmp.Or(t.Predict.MaxAge, 10*time.Second)
	t.Predict.MaxSkew = cmp.Or(t.Predict.MaxSkew, time.Second)
	t.Roots = slices.SortedFunc(slices.Values(t.Roots), compareRoots)
	return t
}

// Specs are classes, pools and devices as an operator writes them, by name.
type Specs struct {
	Classes map[string]ClassSpec
	Pools   map[string]PoolSpec
	Devices map[string]DeviceSpec
}

// Parse reads the specifications, and tells everything that is wrong with them
// and with how they fit together. A fault's field begins with where it stands:
// "pools.campus.prefix".
func (x Specs) Parse() (Settings, service.Faults) {
	var t Settings
	var faults service.Faults
	add := func(section, name string, found service.Faults) {
		faults = append(faults, found.Below(name).Below(section)...)
	}
	for _, name := range slices.Sorted(maps.Keys(x.Classes)) {
		c, found := x.Classes[name].Parse(name)
		c.Configured = true
		t.Classes = append(t.Classes, c)
		add("classes", name, found)
	}
	for _, name := range slices.Sorted(maps.Keys(x.Pools)) {
		p, found := x.Pools[name].Parse(name)
		p.Configured = true
		t.Pools = append(t.Pools, p)
		add("pools", name, found)
	}
	for _, name := range slices.Sorted(maps.Keys(x.Devices)) {
		d, found := x.Devices[name].Parse(name)
		d.Configured = true
		t.Devices = append(t.Devices, d)
		add("devices", name, found)
	}
	if len(faults) > 0 {
		return t, faults
	}
	// What makes sense together is the registry's to say: a trial shows it.
	trial := registry.New(memstore.New(), time.Now)
	if err := t.register(context.Background(), trial, func(section, name string, err error) error {
		found := faultsOf(err)
		if found == nil {
			found = service.Faults{{Value: name, Want: err.Error()}}
		}
		add(section, name, found)
		return nil
	}); err != nil {
		faults.Add("", "", "%v", err)
	}
	return t, faults
}
