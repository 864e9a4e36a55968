package networkapi

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
)

// newMetrics returns the network's metrics, which are read when Prometheus collects them.
func newMetrics(core *network.Network) prometheus.Collector {
	m := kit.NewMetrics("network")
	gauge := func(name, help string, of func() int) {
		m.Gauges(name, help, nil, func(is func(float64, ...string)) { is(float64(of())) })
	}
	gauge("switches", "Connected switches.", func() int { return len(core.Switches()) })
	gauge("links", "Links between switches, each direction by itself.", func() int { return len(core.Topology().Links) })
	gauge("hosts", "Known end hosts.", func() int { return len(core.Hosts()) })
	gauge("destinations", "Hosts and prefixes that all switches have rules for; none while rules are written, or if forwarding is reactive.", func() int { return core.HostStats().Destinations })
	gauge("hosts_unsaved", "End hosts whose latest changes are not stored yet.", func() int { return core.HostStats().Unsaved })
	m.Totals("host_claims_refused_total", "Claims about hosts that were refused, by reason: full, pinned, answered (the host answers at its old place), crowded (too many claims at once).", []string{"reason"}, func(is func(float64, ...string)) {
		for reason, n := range core.HostStats().Refused {
			is(float64(n), reason)
		}
	})
	sFlowMetrics(m, core)
	linkMetrics(m, core)
	switchMetrics(m, core)
	return m
}

func sFlowMetrics(m *kit.Metrics, core *network.Network) {
	total := func(name, help string, of func(network.PushStats) uint64) {
		m.Totals(name, help, nil, func(is func(float64, ...string)) { is(float64(of(core.Traffic().PushStats()))) })
	}
	total("sflow_datagrams_total", "sFlow datagrams received.", func(p network.PushStats) uint64 { return p.Datagrams })
	total("sflow_receive_errors_total", "Errors of the socket that receives sFlow.", func(p network.PushStats) uint64 { return p.Failed })
	total("sflow_malformed_total", "sFlow datagrams that could not be parsed.", func(p network.PushStats) uint64 { return p.Malformed })
	total("sflow_refused_total", "Counters in sFlow datagrams whose source is not the address of the switch's OpenFlow connection.", func(p network.PushStats) uint64 { return p.Refused })
}

// linkMetrics collects the metrics of each direction of a link. It leaves out unknown values.
func linkMetrics(m *kit.Metrics, core *network.Network) {
	gauge := func(name, help string, known func(network.Link) bool, of func(network.Link) float64) {
		m.Gauges("link_"+name, help, []string{"from", "to"}, func(is func(float64, ...string)) {
			for _, l := range core.Topology().Links {
				if known(l) {
					is(of(l), l.From.String(), l.To.String())
				}
			}
		})
	}
	always := func(network.Link) bool { return true }
	speed := func(l network.Link) bool { return l.Capacity > 0 }
	probed := func(l network.Link) bool { return l.Latency > 0 }
	gauge("capacity_bytes_per_second", "Capacity of one direction of a link, configured or the speed of its ports.", speed, func(l network.Link) float64 { return float64(l.Capacity) / 8 })
	gauge("used_bytes_per_second", "Measured load of one direction of a link.", always, func(l network.Link) float64 { return float64(l.Used) / 8 })
	gauge("latency_seconds", "Measured one-way latency of one direction of a link.", probed, func(l network.Link) float64 { return l.Latency.Seconds() })
	gauge("jitter_seconds", "Measured difference of latency from one probe to the next.", probed, func(l network.Link) float64 { return l.Jitter.Seconds() })
	gauge("loss_ratio", "Measured share of packets that the path loses now.", always, func(l network.Link) float64 { return l.Loss })
	gauge("queue_loss_ratio", "Measured share of the packets of the last minute that full queues have lost.", always, func(l network.Link) float64 { return core.Traffic().Link(l).Queue })
}

func switchMetrics(m *kit.Metrics, core *network.Network) {
	each := func(of func(*network.Switch) float64) func(func(float64, ...string)) {
		return func(is func(float64, ...string)) {
			for _, sw := range core.Switches() {
				is(of(sw), sw.DPID().String())
			}
		}
	}
	by := []string{"switch"}
	m.Gauges("rules", "Rules declared for the switch.", by, each(func(s *network.Switch) float64 { return float64(len(s.Rules())) }))
	m.Gauges("held_packets", "Packets that wait for a service's decision.", by, each(func(s *network.Switch) float64 { return float64(s.Stats().Held) }))
	m.Totals("packet_ins_total", "Packet-ins of the switch, by kind.", []string{"switch", "kind"}, func(is func(float64, ...string)) {
		for _, sw := range core.Switches() {
			for kind, n := range sw.Stats().PacketInsOf {
				is(float64(n), sw.DPID().String(), network.PacketKind(kind).String())
			}
		}
	})
	m.Totals("messages_total", "OpenFlow messages between the controller and the switch, by direction (sent to the switch, or received), type, and subject: that of a multipart message, or lldp for LLDP packets. A message in a bundle counts as an experimenter message.", []string{"switch", "direction", "type", "about"}, func(is func(float64, ...string)) {
		for _, sw := range core.Switches() {
			st := sw.Stats()
			for direction, messages := range map[string]network.Messages{"sent": st.Sent, "received": st.Received} {
				for kind, n := range messages.All() {
					is(float64(n), sw.DPID().String(), direction, strings.ToLower(kind.Type.String()), kind.About)
				}
			}
		}
	})
	m.Totals("drift_total", "Rules, groups and meters that were not as declared on the switch, by owner, kind (rule, group or meter), and how: missing, changed, or foreign, which nobody declares.", []string{"switch", "owner", "object", "how"}, func(is func(float64, ...string)) {
		for _, sw := range core.Switches() {
			for _, d := range sw.Stats().Drift.Deviations {
				for how, n := range map[string]int{"missing": d.Missing, "changed": d.Changed, "foreign": d.Foreign} {
					is(float64(n), sw.DPID().String(), d.Owner, string(d.Object), how)
				}
			}
		}
	})
	m.Totals("comparisons_total", "Comparisons of the switch with what is declared for it.", by, each(func(s *network.Switch) float64 { return float64(s.Stats().Drift.Comparisons) }))
	m.Totals("packet_outs_dropped_total", "Packets for the switch that were dropped because its queue was full.", by, each(func(s *network.Switch) float64 { return float64(s.Stats().PacketOutsDropped) }))
	m.Totals("flow_mods_total", "Changes of rules sent to the switch.", by, each(func(s *network.Switch) float64 { return float64(s.Stats().FlowMods) }))
	m.Totals("group_mods_total", "Changes of groups sent to the switch.", by, each(func(s *network.Switch) float64 { return float64(s.Stats().GroupMods) }))
	m.Totals("switch_errors_total", "Error messages from the switch.", by, each(func(s *network.Switch) float64 { return float64(s.Stats().Errors) }))
	m.Totals("malformed_messages_total", "Messages from the switch that could not be parsed.", by, each(func(s *network.Switch) float64 { return float64(s.Stats().Malformed) }))
}
