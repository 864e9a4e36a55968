package agent

import (
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/pki"
)

// TestExpiryIsTold checks that an agent reports when its certificate expires, also after a renewal.
func TestExpiryIsTold(t *testing.T) {
	ca, a, conf := secured(t)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}}
	told := func() {
		t.Helper()
		cert, err := pki.ReadCert(filepath.Join(ca.dir, "agent1.crt"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Get("https://" + a.ControlAddr().String() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		want := `sluice_certificate_expiry_timestamp_seconds{key="control.tls"} ` + strconv.FormatFloat(float64(cert.NotAfter.Unix()), 'g', -1, 64)
		if !strings.Contains(string(b), want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	told()
	ca.files("agent1", pki.RoleAgent, 30*time.Minute)
	told()
}
