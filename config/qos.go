package config

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/critical"
)

// QoS says how the QoS service works. Critical traffic and classes may also be declared by
// the API; what stands here replaces what the store has under the same name, at each start,
// and is not changed by the API. What stood here before and does no more is withdrawn.
type QoS struct {
	Enabled  bool                         `yaml:"enabled" doc:"Off: the service and its part of the API do not exist."`
	Quota    float64                      `yaml:"quota" min:"0.0001" max:"0.5" doc:"Share of each link's capacity that a class of traffic has guaranteed which names no min_rate."`
	Queues   string                       `yaml:"queues" oneof:"classes|connect" doc:"Which ports of switches with a database (see ovsdb) get a token bucket of their link's rate. classes: those that a class of traffic leaves by, with the first class. connect: all, when the switch connects."`
	Critical map[string]critical.Spec     `yaml:"critical" doc:"Critical traffic, by name: its flows are placed where the bandwidth is that they require. What stands here is changed here alone, and withdrawn when it does no more; the API has others."`
	Subflows Subflows                     `yaml:"subflows" doc:"Further subflows of large MPTCP connections, which hosts mark: each gets a path of its own, the widest that is left."`
	Classes  map[string]classes.ClassSpec `yaml:"classes" doc:"Classes of traffic, by name. One for which there is no room is degraded and tried again, where the API would refuse it. What stands here is changed here alone, and withdrawn when it does no more; the API has others."`
}

// Subflows says how further subflows of large connections are placed.
type Subflows struct {
	Enabled bool          `yaml:"enabled" doc:"On: SYNs with the mark come to the controller. Off: they go like all traffic."`
	DSCP    int           `yaml:"dscp" min:"1" max:"63" doc:"The mark: a DSCP that nothing else uses, as those for local use that end in the bits 11 (RFC 2474). Hosts are to use the same."`
	Paths   int           `yaml:"paths" min:"1" max:"16" doc:"How many paths a connection has at most; more subflows share them."`
	Most    int           `yaml:"most_per_port" min:"1" max:"8192" doc:"How many subflows that come in by one port are placed at once. More go like all traffic."`
	Plain   bool          `yaml:"plain_tcp" doc:"Connections of plain TCP that samples of packets show to be large get paths of their own, too: for hosts that have no agent. Needs sFlow: network.measure sflow or both."`
	Idle    time.Duration `yaml:"idle_timeout" min:"2s" max:"18h" doc:"How long a subflow is silent until it is taken for over."`
}

func defaultQoS() QoS {
	return QoS{
		Enabled: true, Quota: 0.05, Queues: "classes",
		Subflows: Subflows{DSCP: 11, Paths: 4, Most: 256, Idle: 30 * time.Second},
	}
}

// Definitions are the configured definitions of critical traffic, checked, by name, and
// everything that is wrong with them.
func (q *QoS) Definitions() (map[string]*critical.Definition, kit.Faults) {
	return parsed("critical", q.Critical, func(name string, spec critical.Spec) (*critical.Definition, kit.Faults) {
		spec.Name = name
		return spec.Parse()
	})
}

// ParsedClasses are the configured classes, checked, by name, and everything that is wrong
// with them.
func (q *QoS) ParsedClasses() (map[string]*classes.Class, kit.Faults) {
	return parsed("classes", q.Classes, func(name string, spec classes.ClassSpec) (*classes.Class, kit.Faults) {
		spec.Name = name
		c, faults := spec.Parse()
		return &c, faults
	})
}

// parsed is what stands under a key, by name, each read by parse.
func parsed[S, T any](key string, specs map[string]S, parse func(string, S) (T, kit.Faults)) (map[string]T, kit.Faults) {
	out := map[string]T{}
	var faults kit.Faults
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		v, wrong := parse(name, specs[name])
		faults = append(faults, wrong.Below(key+"."+name)...)
		out[name] = v
	}
	return out, faults
}

func (q *QoS) check(k *checker) {
	_, faults := q.Definitions()
	_, more := q.ParsedClasses()
	for _, f := range append(faults, more...).Below("qos") {
		k.fail(f.Field, "not usable", f.Want)
	}
}
