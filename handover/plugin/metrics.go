package plugin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the service's figures for Prometheus.
type metrics struct {
	service *Service
	dhcp    *prometheus.CounterVec
	arp     *prometheus.CounterVec
	moves   *prometheus.CounterVec
	rules   *prometheus.CounterVec
	dropped *prometheus.CounterVec
	forged  *prometheus.CounterVec
	rogue   *prometheus.CounterVec
	parts   *prometheus.HistogramVec
	// resubmitted counts what an old decision of a switch sent up.
	resubmitted prometheus.Counter

	devices, leases, waiting, prepared *prometheus.Desc
}

func newMetrics(s *Service) *metrics {
	return &metrics{
		service: s,
		dhcp: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_handover_dhcp_messages_total", Help: "DHCP messages of devices, by what was decided.",
		}, []string{"verdict"}),
		arp: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_handover_arp_answers_total", Help: "ARP requests that were answered, by whose address was asked for.",
		}, []string{"target"}),
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_handover_handovers_total", Help: "What happened to devices, by kind, policy and result.",
		}, []string{"kind", "policy", "result"}),
		rules: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_handover_rule_changes_total", Help: "Rules of devices that were added, modified and deleted.",
		}, []string{"change"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_handover_messages_dropped_total", Help: "Messages of devices that were given up, by the bound that was reached.",
		}, []string{"bound"}),
		resubmitted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_handover_packets_resubmitted_total", Help: "Packets of devices that a switch judged by an old decision and sent up; they were sent through its tables again.",
		}),
		forged: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_handover_forged_arp_total", Help: "Forged ARP packets that were dropped, by who dropped them; what switches drop is counted every ten seconds.",
		}, []string{"by"}),
		rogue: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_handover_rogue_dhcp_total", Help: "Messages of DHCP servers where none is, that were dropped, by who dropped them; what switches drop is counted every ten seconds.",
		}, []string{"by"}),
		parts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sluice_handover_part_seconds", Help: "Duration of the parts of attachments and moves.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 2, 15),
		}, []string{"part"}),
		devices:  prometheus.NewDesc("sluice_handover_devices", "Known devices, by where they are.", []string{"place"}, nil),
		leases:   prometheus.NewDesc("sluice_handover_leases", "Leases that hold now.", nil, nil),
		waiting:  prometheus.NewDesc("sluice_handover_waiting", "Work for devices that waits for its turn.", nil, nil),
		prepared: prometheus.NewDesc("sluice_handover_prepared", "Places that are prepared for devices.", nil, nil),
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.dhcp, m.arp, m.moves, m.rules, m.dropped, m.forged, m.rogue, m.parts, m.resubmitted}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(out)
	}
	for _, d := range []*prometheus.Desc{m.devices, m.leases, m.waiting, m.prepared} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(out)
	}
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	st := m.service.status()
	gauge(m.devices, st.Attached, "here")
	gauge(m.devices, st.Away, "elsewhere")
	gauge(m.devices, st.Devices-st.Attached-st.Away, "nowhere")
	gauge(m.leases, st.Leases)
	gauge(m.waiting, st.Waiting)
	gauge(m.prepared, st.Prepared)
}

// ended counts a record.
func (m *metrics) ended(r *Record) {
	m.moves.WithLabelValues(string(r.Kind), r.Policy, r.Result).Inc()
	for change, n := range map[string]int{"added": r.Changes.Added, "modified": r.Changes.Modified, "deleted": r.Changes.Deleted} {
		m.rules.WithLabelValues(change).Add(float64(n))
	}
	if r.Result != ResultDone || r.Kind != KindAttach && r.Kind != KindMove {
		return
	}
	for part, d := range map[string]Duration{
		"t_a": r.Parts.Ta, "t_d": r.Parts.Td, "t_f": r.Parts.Tf, "queue": r.Parts.Queue, "store": r.Parts.Store, "trigger_to_rules": r.Parts.Trigger,
	} {
		m.parts.WithLabelValues(part).Observe(time.Duration(d).Seconds())
	}
}
