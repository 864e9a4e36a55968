package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/pki"
)

// Certificate is one of the controller's own certificates.
type Certificate struct {
	Key    string     `json:"key" example:"api.tls" doc:"Where the configuration names it"`
	Name   string     `json:"name,omitempty" doc:"Its common name"`
	File   string     `json:"file"`
	Expiry *time.Time `json:"expiry,omitempty" doc:"When it ends"`
	Error  string     `json:"error,omitempty" doc:"Why it cannot be read now; what was read before goes on being used"`
}

// certificates reads the files as they are now: renewed ones are used without a restart.
func certificates(c *config.Controller) []Certificate {
	out := []Certificate{}
	for _, t := range c.Certificates() {
		x := Certificate{Key: t.Key, File: t.Cert}
		if cert, err := pki.ReadCert(t.Cert); err != nil {
			x.Error = err.Error()
		} else {
			x.Name, x.Expiry = cert.Subject.CommonName, &cert.NotAfter
		}
		out = append(out, x)
	}
	return out
}

// certificateMetrics tells when the controller's certificates end.
type certificateMetrics struct {
	cfg    *config.Controller
	expiry *prometheus.Desc
}

func newCertificateMetrics(cfg *config.Controller) *certificateMetrics {
	return &certificateMetrics{cfg, prometheus.NewDesc("sluice_certificate_expiry_timestamp_seconds",
		"When a certificate of the controller ends, in seconds since 1970. Missing while its file cannot be read.", []string{"key"}, nil)}
}

// Describe implements prometheus.Collector.
func (m *certificateMetrics) Describe(out chan<- *prometheus.Desc) { out <- m.expiry }

// Collect implements prometheus.Collector.
func (m *certificateMetrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range certificates(m.cfg) {
		if c.Expiry != nil {
			out <- prometheus.MustNewConstMetric(m.expiry, prometheus.GaugeValue, float64(c.Expiry.Unix()), c.Key)
		}
	}
}
