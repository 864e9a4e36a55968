package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// childEnv is the environment variable that names one of the parts below. Some tests need agents
// and end hosts as processes in network namespaces of their own. The test binary then starts itself
// with this variable set.
const childEnv = "SOS_TEST_CHILD"

// childMain runs a part. It prints one line once it is ready.
func childMain() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var err error
	switch part := os.Getenv(childEnv); part {
	case "agent":
		err = childAgent(ctx)
	case "sink":
		err = childSink()
	case "source":
		err = childSource()
	default:
		err = fmt.Errorf("unknown part %q", part)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// childAgent runs an agent with the configuration in SOS_TEST_CONFIG.
func childAgent(ctx context.Context) error {
	var cfg Config
	if err := json.Unmarshal([]byte(os.Getenv("SOS_TEST_CONFIG")), &cfg); err != nil {
		return err
	}
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	a, err := New(ctx, cfg)
	if err != nil {
		return err
	}
	defer a.Close()
	fmt.Println("ready")
	<-ctx.Done()
	return nil
}

// settle is how long a transfer may take to reach its rate.
const settle = 3 * time.Second

// childSink accepts one connection, reads it to the end, and prints the bytes
// and the seconds from the first byte to the last, and the same without the
// first seconds.
func childSink() error {
	ln, err := net.Listen("tcp", os.Getenv("SOS_TEST_ADDR"))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	c, err := ln.Accept()
	if err != nil {
		return err
	}
	b := make([]byte, 1<<20)
	var n, early int64
	var start, settled time.Time
	for {
		m, err := c.Read(b)
		if n == 0 {
			start = time.Now()
		}
		n += int64(m)
		if settled.IsZero() && time.Since(start) > settle {
			early, settled = n, time.Now()
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	fmt.Println(n, time.Since(start).Seconds(), n-early, time.Since(settled).Seconds())
	return nil
}

// childSource connects from SOS_TEST_FROM to SOS_TEST_ADDR and sends zeros for
// SOS_TEST_SECONDS.
func childSource() error {
	from, err := netip.ParseAddrPort(os.Getenv("SOS_TEST_FROM"))
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseFloat(os.Getenv("SOS_TEST_SECONDS"), 64)
	if err != nil {
		return err
	}
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(from), Timeout: 10 * time.Second}
	c, err := d.Dial("tcp", os.Getenv("SOS_TEST_ADDR"))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	b := make([]byte, 1<<20)
	for end := time.Now().Add(time.Duration(seconds * float64(time.Second))); time.Now().Before(end); {
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
	return c.Close()
}

// child is a started part.
type child struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

// startChild runs a part, in a namespace unless ns is empty, and waits until it is ready.
func startChild(t testing.TB, ns, part string, env ...string) *child {
	t.Helper()
	return startCommand(t, ns, append(env, childEnv+"="+part), os.Args[0])
}

func startCommand(t testing.TB, ns string, env []string, args ...string) *child {
	t.Helper()
	if ns != "" {
		args = append([]string{"ip", "netns", "exec", ns}, args...)
	}
	c := &child{cmd: exec.Command(args[0], args[1:]...)}
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.lines = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.stop(syscall.SIGKILL) })
	if len(env) > 0 && c.line() != "ready" {
		t.Fatalf("%v is not ready", args)
	}
	return c
}

// line returns the next line the part prints; empty at its end.
func (c *child) line() string {
	if c.lines.Scan() {
		return c.lines.Text()
	}
	return ""
}

// stop ends the part and returns the processor time it has used.
func (c *child) stop(sig syscall.Signal) time.Duration {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Signal(sig)
		_ = c.cmd.Wait()
	}
	return c.cmd.ProcessState.SystemTime() + c.cmd.ProcessState.UserTime()
}
