package ingress

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/pki"
)

// totals holds counters since the gateway's start.
type totals struct {
	in, out    atomic.Uint64 // bytes of datagrams
	unexpected atomic.Uint64 // datagrams that are not in the house format
	excess     atomic.Uint64 // datagrams dropped because they exceed a channel's rate
	unsent     atomic.Uint64 // datagrams that the kernel has refused
	failures   atomic.Uint64 // times that ffmpeg has ended
	bursts     atomic.Uint64
	refused    atomic.Uint64 // refused producers

	refusals lograte.Limit // limits the events about refused producers
}

// registry returns the Prometheus registry of the gateway's metrics.
func (g *Gateway) registry() *prometheus.Registry {
	counter := func(name, help string, from *atomic.Uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "sluice", Subsystem: "cinema_ingress", Name: name, Help: help},
			func() float64 { return float64(from.Load()) })
	}
	t, r := &g.totals, prometheus.NewRegistry()
	r.MustRegister(
		counter("received_bytes_total", "Bytes of datagrams of producers.", &t.in),
		counter("sent_bytes_total", "Bytes of channels' datagrams.", &t.out),
		counter("strange_datagrams_total", "Datagrams of producers that are not of the house format.", &t.unexpected),
		counter("excess_datagrams_total", "Datagrams beyond the bit rate of their channel.", &t.excess),
		counter("unsent_datagrams_total", "Datagrams that the kernel has not taken.", &t.unsent),
		counter("source_failures_total", "Ends of processes that read sources.", &t.failures),
		counter("bursts_total", "Groups of pictures that were sent to one viewer.", &t.bursts),
		counter("producers_refused_total", "Producers that were refused.", &t.refused),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "sluice", Subsystem: "cinema_ingress", Name: "channels", Help: "Channels now."},
			func() float64 { return float64(len(g.list())) }),
		drift.NewCollector("cinema_ingress", g.drift.List),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if len(g.cfg.Certificates) > 0 {
		r.MustRegister(pki.NewExpiry(func() map[string]string { return g.cfg.Certificates }))
	}
	return r
}
