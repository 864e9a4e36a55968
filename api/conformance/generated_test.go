package conformance

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/live"
)

// Variables of the environment by which "make test-api" says what to run, and for how
// long. The program takes those that begin with SLUICE_ for settings.
const (
	toolVariable = "SCHEMATHESIS"
	timeVariable = "APITIME"
	seedVariable = "APISEED"
)

// TestGeneratedRequests sends what schemathesis makes of the OpenAPI document for the
// time given, and fails on any answer that the document does not promise.
func TestGeneratedRequests(t *testing.T) {
	live.Test(t)
	tool := os.Getenv(toolVariable)
	if tool == "" {
		t.Skipf("%s is not set: make test-api installs schemathesis and runs this", toolVariable)
	}
	budget, err := time.ParseDuration(os.Getenv(timeVariable))
	if err != nil {
		t.Fatalf("%s: %v", timeVariable, err)
	}
	alone(t)
	c := start(t)
	c.connectSwitches(t)
	c.define(t)

	config, err := filepath.Abs("schemathesis.toml")
	if err != nil {
		t.Fatal(err)
	}
	// It ends by itself at the time given; what it does then is bounded here.
	ctx, cancel := context.WithTimeout(t.Context(), budget+2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, "--config-file", config, "run", c.url+"/openapi.json",
		"--tls-verify", c.ca, "-H", "Authorization: Bearer "+c.token, "--max-time", strconv.Itoa(int(budget.Seconds())),
		"--seed", os.Getenv(seedVariable),
		"--no-color", "--continue-on-failure", "--output-truncate", "false")
	cmd.Dir = t.TempDir() // it leaves files behind
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s\nlog of the controller:\n%s", err, out, c.log.tail())
		return
	}
	t.Logf("%s", out)
}

// alone makes sure that nothing but this machine can be reached: some generated
// requests name agents, and the controller connects to them.
func alone(t *testing.T) {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			t.Fatalf("%s is up: run this by make test-api, in a network namespace of its own", i.Name)
		}
	}
}
