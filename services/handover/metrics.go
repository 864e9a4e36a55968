package handover

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/kit"
)

// metrics holds the service's metrics for Prometheus.
type metrics struct {
	*kit.Metrics
	dhcp, arp, moves, rules *prometheus.CounterVec
	dropped, forged, rogue  *prometheus.CounterVec
	parts                   *prometheus.HistogramVec
	// resubmitted counts the packets that switches sent up because of an outdated decision.
	resubmitted prometheus.Counter
}

func newMetrics(s *Service) *metrics {
	m := kit.NewMetrics(Name)
	m.Gauges("devices", "Known devices, by where they are.", []string{"place"}, func(is func(float64, ...string)) {
		st := s.api.status()
		is(float64(st.Attached), "here")
		is(float64(st.Away), "elsewhere")
		is(float64(st.Devices-st.Attached-st.Away), "nowhere")
	})
	m.Gauges("leases", "Leases that are valid now.", nil, func(is func(float64, ...string)) { is(float64(s.api.status().Leases)) })
	m.Gauges("waiting", "Work for devices that waits in the queue.", nil, func(is func(float64, ...string)) { is(float64(s.api.status().Waiting)) })
	m.Gauges("prepared", "Places that are prepared for devices.", nil, func(is func(float64, ...string)) { is(float64(s.api.status().Prepared)) })
	return &metrics{
		Metrics:     m,
		dhcp:        m.Counters("dhcp_messages_total", "DHCP messages of devices, by decision.", "verdict"),
		arp:         m.Counters("arp_answers_total", "ARP requests that were answered, by the owner of the requested address.", "target"),
		moves:       m.Counters("handovers_total", "Events of devices, by kind, policy and result.", "kind", "policy", "result"),
		rules:       m.Counters("rule_changes_total", "Rules of devices that were added, modified and deleted.", "change"),
		dropped:     m.Counters("messages_dropped_total", "Messages of devices that were dropped, by the bound that was reached.", "bound"),
		resubmitted: m.Counter("packets_resubmitted_total", "Packets of devices that a switch sent to the controller by an outdated decision; they were resubmitted to its tables."),
		forged:      m.Counters("forged_arp_total", "Forged ARP packets that were dropped, by who dropped them; those dropped by switches are counted every ten seconds.", "by"),
		rogue:       m.Counters("rogue_dhcp_total", "Messages of DHCP servers that were dropped because there is no server at that place, by who dropped them; those dropped by switches are counted every ten seconds.", "by"),
		parts:       m.Durations("part_seconds", "Duration of the parts of attachments and moves.", "part"),
	}
}

// countRecord counts a record.
func (m *metrics) countRecord(r *Record) {
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
