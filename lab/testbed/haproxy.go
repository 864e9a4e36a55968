package testbed

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// haproxyConfig returns the configuration of a plain TCP proxy as an operator would tune it:
// payload stays in the kernel, and nothing is logged.
func haproxyConfig(listen netip.AddrPort, next string) string {
	return fmt.Sprintf(`global
  maxconn 4096
defaults
  mode tcp
  option splice-auto
  timeout connect 10s
  timeout client 1h
  timeout server 1h
frontend near
  bind %s
  default_backend far
backend far
  server next %s
`, listen, next)
}

// StartHAProxy runs one half of a split proxy and returns when it listens.
func StartHAProxy(ctx context.Context, at Place, dir string, listen netip.AddrPort, next string) (*Daemon, error) {
	name := strings.NewReplacer(":", "-", "[", "", "]", "").Replace("haproxy-" + listen.String())
	file := filepath.Join(dir, name+".cfg")
	if err := os.WriteFile(file, []byte(haproxyConfig(listen, next)), 0o600); err != nil {
		return nil, fmt.Errorf("configure haproxy: %w", err)
	}
	d, err := StartDaemon(ctx, at, filepath.Join(dir, name+".log"), "haproxy", "-db", "-f", file)
	if err != nil {
		return nil, err
	}
	if err := WaitListening(ctx, at, listen.Port()); err != nil {
		d.Stop()
		return nil, fmt.Errorf("haproxy at %s: %w: %s", listen, err, Tail(filepath.Join(dir, name+".log"), lastWords))
	}
	return d, nil
}
