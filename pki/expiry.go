package pki

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Expiry is a metric of the times at which a program's own certificates expire.
type Expiry struct {
	files func() map[string]string
	desc  *prometheus.Desc
}

// NewExpiry returns the metric for the certificates that files returns, by their configuration
// keys. The files are read at each scrape, so a renewed certificate is reported without a
// restart. files may be called concurrently.
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
