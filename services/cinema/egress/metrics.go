package egress

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics holds the gateway's metrics.
type metrics struct {
	registry   *prometheus.Registry
	in, out    atomic.Uint64 // bytes of media
	unexpected prometheus.Counter
	repaired   prometheus.Counter
	slow       prometheus.Counter
	repairs    prometheus.Counter
	late       prometheus.Counter
	refused    *prometheus.CounterVec
	zap        prometheus.Histogram
}

func newMetrics(viewers func() int) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		unexpected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_cinema_strange_datagrams_total", Help: "Datagrams dropped because they are malformed, or come from a source that no viewer receives.",
		}),
		repaired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_cinema_repaired_pictures_total", Help: "Times that a player's picture was restored from the last key frame.",
		}),
		slow: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_cinema_slow_players_total", Help: "Times that a WebSocket player was too slow, and missed pictures until the next key frame.",
		}),
		repairs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_cinema_missing_asked_total", Help: "Times that a channel was requested again because a part of it was missing.",
		}),
		late: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_cinema_late_changes_total", Help: "Times that the key frame of the channel to which a viewer changes had not arrived by its deadline. The change is made again once.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_cinema_refused_requests_total", Help: "Requests of viewers that were refused, by HTTP status.",
		}, []string{"status"}),
		zap: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_cinema_zap_seconds", Help: "Time from the request to change channel to the first packet of the new channel's key frame.",
			Buckets: []float64{.005, .01, .02, .04, .06, .1, .15, .25, .5, 1, 2, 5},
		}),
	}
	bytes := func(name, help string, n *atomic.Uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(n.Load()) })
	}
	m.registry.MustRegister(m.unexpected, m.repaired, m.slow, m.repairs, m.late, m.refused, m.zap,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sluice_cinema_viewers", Help: "Viewers of this gateway."}, func() float64 { return float64(viewers()) }),
		bytes("sluice_cinema_received_bytes_total", "Bytes of channels' datagrams that were received.", &m.in),
		bytes("sluice_cinema_sent_bytes_total", "Bytes of media that were sent to viewers.", &m.out))
	return m
}

// refuse counts a refusal.
func (m *metrics) refuse(status int) { m.refused.WithLabelValues(strconv.Itoa(status)).Inc() }

// totals returns the bytes received and sent. held is always zero, as the gateway holds nothing
// for sessions that end.
func (m *metrics) totals() (in, out, held uint64) { return m.in.Load(), m.out.Load(), 0 }
