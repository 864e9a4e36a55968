package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// haproxyConfig is a plain TCP proxy as an operator would tune it: payload
// stays in the kernel, and nothing is logged.
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

// daemon is a program that runs in a lab until it is stopped.
type daemon struct {
	cmd    *exec.Cmd
	cancel context.CancelFunc
	done   chan struct{}
}

// startDaemon starts a program; its output goes to a file.
func startDaemon(ctx context.Context, at place, log string, name string, args ...string) (*daemon, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := at.Command(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		cancel()
		out.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	d := &daemon{cmd: cmd, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(d.done)
		defer out.Close()
		_ = cmd.Wait() // killed by stop, or dead: whoever talks to it notices
	}()
	return d, nil
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

func (d *daemon) stop() {
	d.cancel()
	<-d.done
}

// startHAProxy runs one half of a split proxy and returns when it listens.
func startHAProxy(ctx context.Context, at place, dir string, listen netip.AddrPort, next string) (*daemon, error) {
	name := strings.NewReplacer(":", "-", "[", "", "]", "").Replace("haproxy-" + listen.String())
	file := filepath.Join(dir, name+".cfg")
	if err := os.WriteFile(file, []byte(haproxyConfig(listen, next)), 0o600); err != nil {
		return nil, fmt.Errorf("configure haproxy: %w", err)
	}
	d, err := startDaemon(ctx, at, filepath.Join(dir, name+".log"), "haproxy", "-db", "-f", file)
	if err != nil {
		return nil, err
	}
	if err := waitListening(ctx, at, listen.Port()); err != nil {
		d.stop()
		return nil, fmt.Errorf("haproxy at %s: %w", listen, err)
	}
	return d, nil
}

// waitListening returns when something at that place listens on the TCP port.
func waitListening(ctx context.Context, at place, port uint16) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := at.Command(ctx, "ss", "-Hltn", fmt.Sprintf("sport = :%d", port)).Output()
		if err == nil && len(out) > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nothing listens on port %d: %w", port, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
