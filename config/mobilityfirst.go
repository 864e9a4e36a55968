package config

import (
	"time"

	"github.com/sluice-net/sluice/mobilityfirst/plugin"
)

// MobilityFirst says how the MobilityFirst service works.
type MobilityFirst struct {
	Enabled  bool          `yaml:"enabled" doc:"Off: the service and its part of the API do not exist; hosts find names by broadcasts, and send to Ethernet addresses."`
	Lease    time.Duration `yaml:"lease" min:"30s" max:"5m" doc:"How long a path between two names is there unless it is asked for again, which hosts do that send."`
	MaxPaths int           `yaml:"max_paths" min:"1" max:"1000000" doc:"Paths at one time: a quarter of them may be asked for from one switch, half of those from one port. Each has two rules at every switch that it passes. Between other names frames go by Ethernet addresses."`
}

func defaultMobilityFirst() MobilityFirst {
	return MobilityFirst{Enabled: true, Lease: plugin.DefaultLease, MaxPaths: plugin.DefaultMaxPaths}
}
