package config

import (
	"maps"
	"slices"

	"github.com/sluice-net/sluice/qos/bandwidth"
	"github.com/sluice-net/sluice/service"
)

// QoS says how the QoS service works. Critical traffic may also be defined by the API;
// what stands here replaces what the store has under the same name, at each start, and is
// not changed by the API. What stood here before and does no more is withdrawn.
type QoS struct {
	Enabled  bool                      `yaml:"enabled" doc:"Off: the service and its part of the API do not exist."`
	Quota    float64                   `yaml:"quota" min:"0.0001" max:"0.5" doc:"Share of each link's capacity that a class of traffic has guaranteed which names no min_rate."`
	Queues   string                    `yaml:"queues" oneof:"classes|connect" doc:"Which ports of switches with a database (see ovsdb) get a token bucket of their link's rate. classes: those that a class of traffic leaves by, with the first class. connect: all, when the switch connects."`
	Critical map[string]bandwidth.Spec `yaml:"critical" doc:"Critical traffic, by name: its flows are placed where the bandwidth is that they require. What stands here is changed here alone, and withdrawn when it does no more; the API has others."`
}

func defaultQoS() QoS { return QoS{Enabled: true, Quota: 0.05, Queues: "classes"} }

// Definitions is what is configured, checked, by name, and everything that is wrong with it.
func (q *QoS) Definitions() (map[string]*bandwidth.Definition, service.Faults) {
	out := map[string]*bandwidth.Definition{}
	var faults service.Faults
	for _, name := range slices.Sorted(maps.Keys(q.Critical)) {
		spec := q.Critical[name]
		spec.Name = name
		d, wrong := spec.Parse()
		faults = append(faults, wrong.Below(name)...)
		out[name] = d
	}
	return out, faults
}

func (q *QoS) check(k *checker) {
	_, faults := q.Definitions()
	for _, f := range faults.Below("qos.critical") {
		k.fail(f.Field, "not usable", f.Want)
	}
}
