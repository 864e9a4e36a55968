package cli

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/sos/agent"
)

// TestAgentDefaultsAgree checks that the defaults in the reference are those that the agent uses.
func TestAgentDefaultsAgree(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.Init(dir, "ca", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Request{Role: pki.RoleAgent, Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Write(dir, "a"); err != nil {
		t.Fatal(err)
	}
	c := config.DefaultAgent()
	c.Control.TLS = config.TLS{Cert: filepath.Join(dir, "a.crt"), Key: filepath.Join(dir, "a.key"), CA: filepath.Join(dir, "ca.crt")}
	got := agentConfig(commands.Agent{Agent: c})
	if err := got.Validate(); err != nil {
		t.Errorf("the agent refuses the defaults: %v", err)
	}
	if len(got.DataPorts) != 8 || got.DataAddr != c.Control.Listen.Addr() {
		t.Errorf("data address %v, ports %v", got.DataAddr, got.DataPorts)
	}
	want := agent.DefaultConfig()
	for _, f := range []struct {
		name      string
		got, want any
	}{
		{"sessions.max", got.MaxSessions, want.MaxSessions},
		{"sessions.idle", got.IdleTimeout, want.IdleTimeout},
		{"sessions.dial_timeout", got.DialTimeout, want.DialTimeout},
		{"data.warm", got.WarmPerPeer, want.WarmPerPeer},
		{"data.warm_for", got.WarmIdle, want.WarmIdle},
		{"transfer.connections", got.Connections, want.Connections},
		{"transfer.auto_connections", got.AutoConnections, want.AutoConnections},
		{"transfer.chunk", got.ChunkBytes, want.ChunkBytes},
		{"transfer.queue", got.Queue, want.Queue},
		{"transfer.buffer", got.BufferBytes, want.BufferBytes},
	} {
		if f.got != f.want {
			t.Errorf("%s: the configuration says %v, the agent %v", f.name, f.got, f.want)
		}
	}
}
