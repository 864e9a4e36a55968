package controller

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/pki"
)

// TestExpiryOfCertificatesIsTold checks that the metric follows the files: it shows a renewed
// certificate without a restart.
func TestExpiryOfCertificatesIsTold(t *testing.T) {
	cfg := testConfig(t, "memory")
	dir := t.TempDir()
	ca, err := pki.Init(dir, "ca", 1000*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Agents.TLS = config.TLS{Cert: filepath.Join(dir, "ctl.crt"), Key: filepath.Join(dir, "ctl.key"), CA: filepath.Join(dir, pki.CACertFile)}
	renew := func(valid time.Duration) string {
		pair, err := ca.Issue(pki.Request{Role: pki.RoleController, Name: "ctl", Valid: valid})
		if err != nil {
			t.Fatal(err)
		}
		if err := pair.Write(dir, "ctl"); err != nil {
			t.Fatal(err)
		}
		cert, err := pki.ReadCert(cfg.Agents.TLS.Cert)
		if err != nil {
			t.Fatal(err)
		}
		return "sluice_certificate_expiry_timestamp_seconds{key=\"agents.tls\"} " + strconv.FormatFloat(float64(cert.NotAfter.Unix()), 'g', -1, 64)
	}
	first := renew(10 * time.Hour)
	r := run(t, cfg)
	expect := func(want string) {
		t.Helper()
		if _, _, body := r.ask(t, http.MethodGet, "/metrics", ""); !strings.Contains(body, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	expect(first)
	expect(renew(500 * time.Hour))
	var s Status
	r.get(t, "/api/v1/status", &s)
	if len(s.Certificates) != 1 || s.Certificates[0].Name != "ctl" || s.Certificates[0].Expiry == nil || time.Until(*s.Certificates[0].Expiry) < 400*time.Hour {
		t.Errorf("status: %+v", s.Certificates)
	}
	if err := os.Remove(cfg.Agents.TLS.Cert); err != nil {
		t.Fatal(err)
	}
	r.get(t, "/api/v1/status", &s)
	if len(s.Certificates) != 1 || !strings.Contains(s.Certificates[0].Error, "ctl.crt") {
		t.Errorf("status without the file: %+v", s.Certificates)
	}
}
