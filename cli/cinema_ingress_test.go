package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
	"github.com/sluice-net/sluice/cinema/ingress"
	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/internal/logtest"
	"github.com/sluice-net/sluice/pki"
)

// The gateway runs as it is configured, answers its controller alone, and ends with its context.
func TestCinemaIngress(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.Init(dir, "ca", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, role := range map[string]pki.Role{"gateway": pki.RoleAgent, "controller": pki.RoleController} {
		pair, err := ca.Issue(pki.Request{Role: role, Name: name, Hosts: []string{"127.0.0.1"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := pair.Write(dir, name); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "ingress.yaml")
	text := fmt.Sprintf("control: {listen: '127.0.0.1:0', tls: {cert: %[1]s/gateway.crt, key: %[1]s/gateway.key, ca: %[1]s/ca.crt}}\n"+
		"public: {listen: '127.0.0.1:0', tls: {cert: %[1]s/gateway.crt, key: %[1]s/gateway.key}}\nmax_channels: 3\n", dir)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var log logtest.Log
	app := &App{Output: command.Output{Out: &log, Err: &log}}
	cmd := cinemaIngressCommand(app)
	cmd.SetArgs([]string{"--config", file})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	runs := regexp.MustCompile(`control=(\S+) .*public=(\S+)`)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !runs.MatchString(log.String()); <-tick.C {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("it does not run: %s", log.String())
		}
	}
	at := runs.FindStringSubmatch(log.String())
	for name, refused := range map[string]bool{"controller": false, "gateway": true} {
		client, err := pki.Client(pki.Files{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key"), CA: filepath.Join(dir, "ca.crt")})
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
	c := config.DefaultIngress()
	got, err := ingressConfig(c, Agent{Agent: c.Agent()})
	if err != nil || got.MaxChannels != ingress.DefaultMaxChannels || got.FFmpeg != "ffmpeg" || got.PublicTLS != nil {
		t.Errorf("%+v, %v", got, err)
	}
	c.Public.TLS = config.TLS{Cert: "/nowhere", Key: "/nowhere"}
	if _, err := ingressConfig(c, Agent{Agent: c.Agent()}); err == nil || !strings.Contains(err.Error(), "public.tls") {
		t.Errorf("a certificate that is not there: %v", err)
	}
}
