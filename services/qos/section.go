package qos

import (
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/critical"
)

// Section is the part of the controller's configuration below the key qos. Critical traffic and
// classes may also be declared by the API. At each start, a declaration of the configuration
// replaces the one that the store has under the same name, and the API cannot change it. A
// declaration that has been removed from the configuration is withdrawn.
type Section struct {
	Enabled  bool                         `yaml:"enabled" doc:"Off: the service and its part of the API do not exist."`
	Quota    float64                      `yaml:"quota" min:"0.0001" max:"0.5" doc:"Share of each link's capacity that a class of traffic has guaranteed which names no min_rate."`
	Queues   string                       `yaml:"queues" oneof:"classes|connect" doc:"Which ports of switches with a database (see ovsdb) get a token bucket of their link's rate. classes: those that a class of traffic leaves by, with the first class. connect: all, when the switch connects."`
	Critical map[string]critical.Spec     `yaml:"critical" reload:"yes" doc:"Critical traffic, by name: its flows are placed where the bandwidth is that they require. What stands here is changed here alone, and withdrawn when it does no more; the API has others."`
	Subflows SubflowsSection              `yaml:"subflows" doc:"Further subflows of large MPTCP connections, which hosts mark: each gets a path of its own, the widest that is left."`
	Classes  map[string]classes.ClassSpec `yaml:"classes" reload:"yes" doc:"Classes of traffic, by name. One for which there is no room is degraded and tried again, where the API would refuse it. What stands here is changed here alone, and withdrawn when it does no more; the API has others."`
}

// SubflowsSection configures how further subflows of large connections are placed.
type SubflowsSection struct {
	Enabled bool          `yaml:"enabled" doc:"On: SYNs with the mark come to the controller. Off: they go like all traffic."`
	DSCP    int           `yaml:"dscp" min:"1" max:"63" doc:"The mark: a DSCP that nothing else uses, as those for local use that end in the bits 11 (RFC 2474). Hosts are to use the same."`
	Paths   int           `yaml:"paths" min:"1" max:"16" doc:"How many paths a connection has at most; more subflows share them."`
	Most    int           `yaml:"most_per_port" min:"1" max:"8192" doc:"How many subflows that come in by one port are placed at once. More go like all traffic."`
	Plain   bool          `yaml:"plain_tcp" doc:"Connections of plain TCP that samples of packets show to be large get paths of their own, too: for hosts that have no agent. Needs sFlow: network.measure sflow or both."`
	Idle    time.Duration `yaml:"idle_timeout" min:"2s" max:"18h" doc:"How long a subflow is silent until it is taken for over."`
}

// DefaultSection returns the section with its default values.
func DefaultSection() *Section {
	return &Section{
		Enabled: true, Quota: 0.05, Queues: "classes",
		Subflows: SubflowsSection{DSCP: 11, Paths: 4, Most: 256, Idle: 30 * time.Second},
	}
}

// Definitions returns the configured definitions of critical traffic, checked, by name, and
// everything that is wrong with them.
func (q *Section) Definitions() (map[string]*critical.Definition, kit.Faults) {
	return kit.ParseSpecs("critical", q.Critical, func(name string, spec critical.Spec) (*critical.Definition, kit.Faults) {
		spec.Name = name
		return spec.Parse()
	})
}

// ParsedClasses returns the configured classes, checked, by name, and everything that is wrong with
// them.
func (q *Section) ParsedClasses() (map[string]*classes.Class, kit.Faults) {
	return kit.ParseSpecs("classes", q.Classes, func(name string, spec classes.ClassSpec) (*classes.Class, kit.Faults) {
		spec.Name = name
		c, faults := spec.Parse()
		return &c, faults
	})
}

// Check implements config.Section.
func (q *Section) Check(k *config.Checker, c *config.Controller) {
	_, faults := q.Definitions()
	_, more := q.ParsedClasses()
	append(faults, more...).Report(k, Name)
	const plain = "qos.subflows.plain_tcp"
	k.Require(!q.Subflows.Plain || c.Network.Measure != "poll", plain, "without samples of packets: network.measure is poll", "set network.measure to sflow or both")
	k.Require(!q.Subflows.Plain || q.Subflows.Enabled, plain, "without qos.subflows.enabled", "set both, or neither")
}
