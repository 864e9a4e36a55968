package networkapi

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/network"
)

// metrics reads the network when Prometheus asks.
type metrics struct {
	core Core

	switches, links, hosts, unsavedHosts, refusedClaims            *prometheus.Desc
	capacity, used, latency, jitter, loss, queueLoss               *prometheus.Desc
	datagrams, failedDatagrams, malformedDatagrams, refusedReports *prometheus.Desc
	rules, held, packetIns, outsDropped, flowMods, errs, malformed *prometheus.Desc
}

func newMetrics(core Core) *metrics {
	bySwitch, byLink := []string{"switch"}, []string{"from", "to"}
	return &metrics{
		core:               core,
		switches:           prometheus.NewDesc("sluice_network_switches", "Connected switches.", nil, nil),
		links:              prometheus.NewDesc("sluice_network_links", "Links between switches, each direction by itself.", nil, nil),
		hosts:              prometheus.NewDesc("sluice_network_hosts", "Known end hosts.", nil, nil),
		unsavedHosts:       prometheus.NewDesc("sluice_network_hosts_unsaved", "End hosts that have changed and are not stored for the next start as they are.", nil, nil),
		refusedClaims:      prometheus.NewDesc("sluice_network_host_claims_refused_total", "Times that what was said of a host was not believed, by why: full, pinned, answered (it answers where it was), crowded (too many at once).", []string{"reason"}, nil),
		capacity:           prometheus.NewDesc("sluice_network_link_capacity_bytes_per_second", "Capacity of one direction of a link, configured or the speed of its ports.", byLink, nil),
		used:               prometheus.NewDesc("sluice_network_link_used_bytes_per_second", "Measured load of one direction of a link.", byLink, nil),
		latency:            prometheus.NewDesc("sluice_network_link_latency_seconds", "Measured one-way latency of one direction of a link.", byLink, nil),
		jitter:             prometheus.NewDesc("sluice_network_link_jitter_seconds", "Measured difference of latency from one probe to the next.", byLink, nil),
		loss:               prometheus.NewDesc("sluice_network_link_loss_ratio", "Measured share of packets that the path loses now.", byLink, nil),
		queueLoss:          prometheus.NewDesc("sluice_network_link_queue_loss_ratio", "Measured share of the packets of the last minute that full queues have lost.", byLink, nil),
		datagrams:          prometheus.NewDesc("sluice_network_sflow_datagrams_total", "sFlow datagrams received.", nil, nil),
		failedDatagrams:    prometheus.NewDesc("sluice_network_sflow_receive_errors_total", "Errors of the socket that receives sFlow.", nil, nil),
		malformedDatagrams: prometheus.NewDesc("sluice_network_sflow_malformed_total", "sFlow datagrams that could not be read.", nil, nil),
		refusedReports:     prometheus.NewDesc("sluice_network_sflow_refused_total", "Counters in sFlow datagrams that came from elsewhere than the switch's OpenFlow connection.", nil, nil),
		rules:              prometheus.NewDesc("sluice_network_rules", "Rules wanted on the switch.", bySwitch, nil),
		held:               prometheus.NewDesc("sluice_network_held_packets", "Packets that wait for a service's decision.", bySwitch, nil),
		packetIns:          prometheus.NewDesc("sluice_network_packet_ins_total", "Packets that the switch sent up.", bySwitch, nil),
		outsDropped:        prometheus.NewDesc("sluice_network_packet_outs_dropped_total", "Packets for the switch that did not fit its queue.", bySwitch, nil),
		flowMods:           prometheus.NewDesc("sluice_network_flow_mods_total", "Changes of rules sent to the switch.", bySwitch, nil),
		errs:               prometheus.NewDesc("sluice_network_switch_errors_total", "Error messages from the switch.", bySwitch, nil),
		malformed:          prometheus.NewDesc("sluice_network_malformed_messages_total", "Messages from the switch that could not be read.", bySwitch, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.switches, m.links, m.hosts, m.refusedClaims, m.capacity, m.used, m.latency, m.jitter, m.loss, m.queueLoss, m.datagrams, m.failedDatagrams, m.malformedDatagrams, m.refusedReports, m.rules, m.held, m.packetIns, m.outsDropped, m.flowMods, m.errs, m.malformed} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	push := m.core.PushStats()
	counter(m.datagrams, push.Datagrams)
	counter(m.failedDatagrams, push.Failed)
	counter(m.malformedDatagrams, push.Malformed)
	counter(m.refusedReports, push.Refused)
	all := m.core.Switches()
	gauge(m.switches, len(all))
	links := m.core.Topology().Links
	gauge(m.links, len(links))
	for _, l := range links {
		m.link(out, l)
	}
	gauge(m.hosts, len(m.core.Hosts()))
	gauge(m.unsavedHosts, m.core.UnsavedHosts())
	for reason, n := range m.core.RefusedClaims() {
		counter(m.refusedClaims, n, reason)
	}
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

// link writes what is known of one direction of a link.
func (m *metrics) link(out chan<- prometheus.Metric, l network.Link) {
	from, to := l.From.String(), l.To.String()
	gauge := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, from, to)
	}
	gauge(m.used, float64(l.Used)/8)
	gauge(m.loss, l.Loss)
	gauge(m.queueLoss, m.core.LinkLoad(l).Queue)
	if l.Capacity > 0 {
		gauge(m.capacity, float64(l.Capacity)/8)
	}
	if l.Latency > 0 {
		gauge(m.latency, l.Latency.Seconds())
		gauge(m.jitter, l.Jitter.Seconds())
	}
}
