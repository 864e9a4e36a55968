package loadgen

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

//go:embed osken.py
var oskenApp []byte

// CompareOptions holds the options of [Compare].
type CompareOptions struct {
	// Load describes the load that each controller gets; Compare fills in the address.
	Load Options
	// Python is the path of an interpreter that has os-ken installed. Without it os-ken is left
	// out.
	Python string
}

// Comparison is the result of one controller, or the reason why it was left out.
type Comparison struct {
	Name string
	Measurement
	LeftOut error
}

// controllerEnv is the environment variable with the address of a controller that runs as a process
// of its own.
const controllerEnv = "SLUICE_LOADGEN_CONTROLLER"

// peer is a controller to compare with.
type peer struct {
	name    string
	command func(ctx context.Context, dir, port string) (*exec.Cmd, error)
}

// Compare runs the same load against this controller, ovs-testcontroller and os-ken, one after the
// other. Each is a process of its own with one working thread, and so is the generator. The program
// must call [Child] first.
func Compare(ctx context.Context, o CompareOptions) ([]Comparison, error) {
	dir, err := os.MkdirTemp("", "sluice-loadgen-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var out []Comparison
	for _, p := range []peer{{"sluice", sluice}, {"ovs-testcontroller", testController}, {"os-ken", osken(o.Python)}} {
		c := Comparison{Name: p.name}
		c.Measurement, c.LeftOut = p.measure(ctx, dir, o.Load)
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		out = append(out, c)
	}
	return out, nil
}

func sluice(ctx context.Context, _, port string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), controllerEnv+"=127.0.0.1:"+port, "GOMAXPROCS=1")
	return cmd, nil
}

func testController(ctx context.Context, dir, port string) (*exec.Cmd, error) {
	path, err := exec.LookPath("ovs-testcontroller")
	if err != nil {
		return nil, fmt.Errorf("ovs-testcontroller is not installed: %w", err)
	}
	cmd := exec.CommandContext(ctx, path, "-O", "OpenFlow13", "--unixctl="+filepath.Join(dir, "ctl"), "ptcp:"+port+":127.0.0.1")
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+dir, "OVS_LOGDIR="+dir)
	return cmd, nil
}

func osken(python string) func(context.Context, string, string) (*exec.Cmd, error) {
	return func(ctx context.Context, dir, port string) (*exec.Cmd, error) {
		if python == "" {
			return nil, errors.New("no Python with os-ken was named")
		}
		app := filepath.Join(dir, "osken.py")
		if err := os.WriteFile(app, oskenApp, 0o600); err != nil {
			return nil, err
		}
		return exec.CommandContext(ctx, python, app, port), nil
	}
}

func (p peer) measure(ctx context.Context, dir string, load Options) (m Measurement, err error) {
	port, err := freePort()
	if err != nil {
		return m, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd, err := p.command(ctx, dir, port)
	if err != nil {
		return m, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return m, err
	}
	defer func() {
		cancel()
		_ = cmd.Wait()
	}()
	load.Network, load.Address = "tcp", net.JoinHostPort("127.0.0.1", port)
	if err := awaitListener(ctx, load.Address); err != nil {
		return m, fmt.Errorf("%s: %w: %s", p.name, err, stderr.Bytes())
	}
	m, err = Measure(ctx, load, func() (time.Duration, error) { return processCPU(cmd.Process.Pid) })
	if err != nil {
		return m, fmt.Errorf("%s: %w", p.name, err)
	}
	return m, nil
}

// freePort returns a port at which nobody listens.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// awaitListener waits until a program listens at the address.
func awaitListener(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return err
		}
	}
}

// clockTick is the unit of CPU times in /proc.
const clockTick = 10 * time.Millisecond

// processCPU returns the CPU time, user and system, of a process.
func processCPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(text), ") ") // The name before it may hold anything.
	f := strings.Fields(after)
	if len(f) < 13 {
		return 0, fmt.Errorf("CPU time of process %d: /proc says %q", pid, text)
	}
	user, err1 := strconv.ParseInt(f[11], 10, 64)
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * clockTick, errors.Join(err1, err2)
}

// WriteTable writes a comparison as a table for people.
func WriteTable(w io.Writer, all []Comparison) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "controller\tanswers/s\tCPU per packet-in\tflow-mods per packet-in\tlatency p50\tlatency p99\treordered")
	for i := range all {
		c := &all[i]
		if c.LeftOut != nil {
			_, _ = fmt.Fprintf(t, "%s\tleft out: %v\n", c.Name, c.LeftOut)
			continue
		}
		_, _ = fmt.Fprintf(t, "%s\t%.0f\t%v\t%.2f\t%v\t%v\t%d\n", c.Name, c.PerSecond(), c.CPUPerAnswer(),
			float64(c.FlowMods)/float64(max(c.Answered, 1)), c.Latency(0.5), c.Latency(0.99), c.Reordered)
	}
	return t.Flush()
}
