package cli

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/internal/logtest"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/pki"
)

// gatewayFiles makes the certificates "gateway" and "controller" in a folder, and says where.
func gatewayFiles(t *testing.T, dir string) func(name string) pki.Files {
	t.Helper()
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
	return func(name string) pki.Files {
		return pki.Files{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key"), CA: filepath.Join(dir, "ca.crt")}
	}
}

// runGateway runs a gateway with a configuration until the test ends, and returns what the line
// says that tells of its start.
func runGateway(t *testing.T, of func(*commands.App) *cobra.Command, config, line string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var log logtest.Log
	cmd := of(&commands.App{Output: command.Output{Out: &log, Err: &log}})
	cmd.SetArgs([]string{"--config", file})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	runs := regexp.MustCompile(line)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !runs.MatchString(log.String()); <-tick.C {
		if time.Since(began) > time.Minute {
			t.Fatalf("it does not run: %s", log.String())
		}
	}
	return runs.FindStringSubmatch(log.String())
}
