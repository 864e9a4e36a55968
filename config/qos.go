package config

import (
	"maps"
	"slices"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/qos/bandwidth"
	"github.com/sluice-net/sluice/qos/match"
)

// QoS says how the QoS service works. Critical traffic may also be defined by the API;
// what stands here replaces what the store has under the same name, at each start, and is
// not changed by the API. What stood here before and does no more is withdrawn.
type QoS struct {
	Enabled  bool                   `yaml:"enabled" doc:"Off: the service and its part of the API do not exist."`
	Quota    float64                `yaml:"quota" min:"0.0001" max:"0.5" doc:"Share of each link's capacity that a class of traffic has guaranteed which names no min_rate."`
	Queues   string                 `yaml:"queues" oneof:"classes|connect" doc:"Which ports of switches with a database (see ovsdb) get a token bucket of their link's rate. classes: those that a class of traffic leaves by, with the first class. connect: all, when the switch connects."`
	Critical map[string]QoSCritical `yaml:"critical" doc:"Critical traffic, by name: its flows are placed where the bandwidth is that they require. What stands here is changed here alone, and withdrawn when it does no more; the API has others."`
}

// QoSCritical is critical traffic; see bandwidth.Spec.
type QoSCritical struct {
	Rate        units.Rate `yaml:"rate" doc:"Bandwidth that each flow requires, at most 1Tbit."`
	ReverseRate units.Rate `yaml:"reverse_rate" doc:"Bandwidth required in the reverse direction. Not given: a 32nd of rate, for acknowledgements."`
	Match       match.Flow `yaml:"match" doc:"Which packets are critical."`
	IdleTimeout string     `yaml:"idle_timeout" doc:"How long a flow is silent before it is over. Empty: 30s."`
	Once        bool       `yaml:"once" doc:"Decide when a flow begins, and only then; otherwise one for which there was no room is accepted when there is."`
}

func defaultQoS() QoS { return QoS{Enabled: true, Quota: 0.05, Queues: "classes"} }

// Definitions is what is configured, checked, and everything that is wrong with it.
func (q *QoS) Definitions() ([]*bandwidth.Definition, []match.Fault) {
	var out []*bandwidth.Definition
	var faults []match.Fault
	for _, name := range slices.Sorted(maps.Keys(q.Critical)) {
		c := q.Critical[name]
		spec := bandwidth.Spec{Name: name, Rate: c.Rate, Match: c.Match, IdleTimeout: c.IdleTimeout, Once: c.Once}
		if c.ReverseRate != 0 {
			spec.ReverseRate = &c.ReverseRate
		}
		d, wrong := spec.Parse()
		for _, f := range wrong {
			f.Field = name + "." + f.Field
			faults = append(faults, f)
		}
		out = append(out, d)
	}
	return out, faults
}

func (q *QoS) check(k *checker) {
	_, faults := q.Definitions()
	for _, f := range faults {
		k.fail("qos.critical."+f.Field, "not usable", f.Want)
	}
}
