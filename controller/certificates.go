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

// newCertificateMetrics tells when the controller's certificates end.
func newCertificateMetrics(cfg *config.Controller) prometheus.Collector {
	return pki.NewExpiry(func() map[string]string {
		all := map[string]string{}
		for _, t := range cfg.Certificates() {
			all[t.Key] = t.Cert
		}
		return all
	})
}
