package pki

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Expiry tells, as a metric, when a program's own certificates end.
type Expiry struct {
	files func() map[string]string
	desc  *prometheus.Desc
}

// NewExpiry returns the metric of the certificates that files names, by where the
// configuration names them. The files are read at each scrape: a renewed certificate is told
// of without a restart. files may be called concurrently.
func NewExpiry(files func() map[string]string) *Expiry {
	return &Expiry{files, prometheus.NewDesc("sluice_certificate_expiry_timestamp_seconds",
		"When a certificate of this program ends, in seconds since 1970. Missing while its file cannot be read.", []string{"key"}, nil)}
}

// Describe implements prometheus.Collector.
func (m *Expiry) Describe(out chan<- *prometheus.Desc) { out <- m.desc }

// Collect implements prometheus.Collector.
func (m *Expiry) Collect(out chan<- prometheus.Metric) {
	for key, file := range m.files() {
		if cert, err := ReadCert(file); err == nil {
			out <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(cert.NotAfter.Unix()), key)
		}
	}
}
