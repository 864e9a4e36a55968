package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/cinema/egress"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// The gateway runs as it is configured: it announces itself, asks its controller with its
// certificate, answers that and viewers, and ends with its context.
func TestCinemaEgress(t *testing.T) {
	dir := t.TempDir()
	files := gatewayFiles(t, dir)
	asked := make(chan string, 64)
	controller := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.TLS.PeerCertificates[0].Subject.CommonName + " " + r.URL.Path:
		default:
		}
		_ = json.NewEncoder(w).Encode(gatewayapi.Lineup{Channels: []gatewayapi.Listed{{Name: "news", Number: 7}}})
	}))
	var err error
	if controller.TLS, err = pki.Server(files("controller"), true, pki.RoleAgent); err != nil {
		t.Fatal(err)
	}
	controller.StartTLS()
	defer controller.Close()
	text := fmt.Sprintf("name: west\ncontrol: {listen: '127.0.0.1:0', tls: {cert: %[1]s/gateway.crt, key: %[1]s/gateway.key, ca: %[1]s/ca.crt}}\n"+
		"public: {listen: '127.0.0.1:0', tls: {cert: %[1]s/gateway.crt, key: %[1]s/gateway.key}}\nmax_viewers: 3\nannounce: {server: '%[2]s'}\n", dir, controller.URL)
	at := runGateway(t, cinemaEgressCommand, text, `control=(\S+) public=(\S+)`)
	for want := map[string]bool{"gateway /api/v1/cinema/lineup": true, "gateway /api/v1/cinema/egress/agents/announce": true}; len(want) > 0; {
		select {
		case got := <-asked:
			delete(want, got)
		case <-time.After(time.Minute):
			t.Fatalf("the controller was not asked for %v", want)
		}
	}
	for name, refused := range map[string]bool{"controller": false, "gateway": true} {
		tls, err := pki.Client(files(name))
		if err != nil {
			t.Fatal(err)
		}
		c, err := gatewayapi.NewEgress("https://"+at[1], tls, nil)
		if err != nil {
			t.Fatal(err)
		}
		st, err := c.Status(t.Context())
		c.Close()
		if (err != nil) != refused {
			t.Errorf("the %s: %v", name, err)
		}
		if !refused && (st.MaxSessions != 3 || st.PublicURL != at[2] || st.SessionPorts.First != 30000 || st.Addrs[0].String() != "127.0.0.1") {
			t.Errorf("%+v", st)
		}
	}
}

// What the reference calls defaults must be what the gateway takes for good.
func TestEgressDefaultsAgree(t *testing.T) {
	c := DefaultEgress()
	got, err := egressConfig(c, commands.Agent{Agent: c.Agent()})
	if err != nil || got.MaxViewers != 500 || got.Times != egress.DefaultTimes() || got.PublicTLS != nil || got.Ports.Last != 34095 || got.URL != "http://127.0.0.1:8450" {
		t.Errorf("%+v, %v", got, err)
	}
	c.Public.TLS = config.TLS{Cert: "/nowhere", Key: "/nowhere"}
	if _, err := egressConfig(c, commands.Agent{Agent: c.Agent()}); err == nil || !strings.Contains(err.Error(), "public.tls") {
		t.Errorf("a certificate that is not there: %v", err)
	}
}
