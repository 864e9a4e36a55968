package networkapi

import "github.com/prometheus/client_golang/prometheus"

// metrics reads the network when Prometheus asks.
type metrics struct {
	core Core

	switches, links, hosts                                         *prometheus.Desc
	rules, held, packetIns, outsDropped, flowMods, errs, malformed *prometheus.Desc
}

func newMetrics(core Core) *metrics {
	bySwitch := []string{"switch"}
	return &metrics{
		core:        core,
		switches:    prometheus.NewDesc("sluice_network_switches", "Connected switches.", nil, nil),
		links:       prometheus.NewDesc("sluice_network_links", "Links between switches, each direction by itself.", nil, nil),
		hosts:       prometheus.NewDesc("sluice_network_hosts", "Known end hosts.", nil, nil),
		rules:       prometheus.NewDesc("sluice_network_rules", "Rules wanted on the switch.", bySwitch, nil),
		held:        prometheus.NewDesc("sluice_network_held_packets", "Packets that wait for a service's decision.", bySwitch, nil),
		packetIns:   prometheus.NewDesc("sluice_network_packet_ins_total", "Packets that the switch sent up.", bySwitch, nil),
		outsDropped: prometheus.NewDesc("sluice_network_packet_outs_dropped_total", "Packets for the switch that did not fit its queue.", bySwitch, nil),
		flowMods:    prometheus.NewDesc("sluice_network_flow_mods_total", "Changes of rules sent to the switch.", bySwitch, nil),
		errs:        prometheus.NewDesc("sluice_network_switch_errors_total", "Error messages from the switch.", bySwitch, nil),
		malformed:   prometheus.NewDesc("sluice_network_malformed_messages_total", "Messages from the switch that could not be read.", bySwitch, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.switches, m.links, m.hosts, m.rules, m.held, m.packetIns, m.outsDropped, m.flowMods, m.errs, m.malformed} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, label string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), label)
	}
	all := m.core.Switches()
	gauge(m.switches, len(all))
	gauge(m.links, len(m.core.Topology().Links))
	gauge(m.hosts, len(m.core.Hosts()))
	for _, sw := range all {
		id, st := sw.DPID().String(), sw.Stats()
		rules, _ := m.core.Rules(sw.DPID())
		gauge(m.rules, len(rules), id)
		gauge(m.held, st.Held, id)
		counter(m.packetIns, st.PacketIns, id)
		counter(m.outsDropped, st.PacketOutsDropped, id)
		counter(m.flowMods, st.FlowMods, id)
		counter(m.errs, st.Errors, id)
		counter(m.malformed, st.Malformed, id)
	}
}
