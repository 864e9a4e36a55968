package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/services/cinema/ingress"
)

// The gateway runs as it is configured, answers its controller alone, and ends with its context.
func TestCinemaIngress(t *testing.T) {
	dir := t.TempDir()
	files := gatewayFiles(t, dir)
	text := fmt.Sprintf("control: {listen: '127.0.0.1:0', tls: {cert: %[1]s/gateway.crt, key: %[1]s/gateway.key, ca: %[1]s/ca.crt}}\n"+
		"public: {listen: '127.0.0.1:0', tls: {cert: %[1]s/gateway.crt, key: %[1]s/gateway.key}}\nmax_channels: 3\n", dir)
	at := runGateway(t, cinemaIngressCommand, text, `control=(\S+) .*public=(\S+)`)
	for name, refused := range map[string]bool{"controller": false, "gateway": true} {
		client, err := pki.Client(files(name))
		if err != nil {
			t.Fatal(err)
		}
		c, err := gatewayapi.NewIngress("https://"+at[1], client, nil)
		if err != nil {
			t.Fatal(err)
		}
		st, err := c.Status(t.Context())
		c.Close()
		if (err != nil) != refused {
			t.Errorf("the %s: %v", name, err)
		}
		if !refused && (st.MaxSessions != 3 || !strings.HasPrefix(at[2], "https://127.0.0.1:") || st.PublicURL != at[2] || st.Addrs[0].String() != "127.0.0.1") {
			t.Errorf("%+v", st)
		}
	}
}

// What the reference calls defaults must be what the gateway takes for good.
func TestIngressDefaultsAgree(t *testing.T) {
	c := DefaultIngress()
	got, err := ingressConfig(c, commands.Agent{Agent: c.Agent()})
	if err != nil || got.MaxChannels != ingress.DefaultMaxChannels || got.FFmpeg != "ffmpeg" || got.PublicTLS != nil {
		t.Errorf("%+v, %v", got, err)
	}
	c.Public.TLS = config.TLS{Cert: "/nowhere", Key: "/nowhere"}
	if _, err := ingressConfig(c, commands.Agent{Agent: c.Agent()}); err == nil || !strings.Contains(err.Error(), "public.tls") {
		t.Errorf("a certificate that is not there: %v", err)
	}
}
