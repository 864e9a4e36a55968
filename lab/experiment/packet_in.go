package experiment

import (
	"context"
	_ "embed"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-net/sluice/lab/loadgen"
	"github.com/sluice-net/sluice/lab/testbed"
)

// These bound the controller's CPU time for a packet-in, and its rate of answers a second.
const (
	packetInCPUBound  = 1500 * time.Nanosecond
	packetInRateBound = 600_000.0
)

//go:embed learning_switch.py
var learningSwitch []byte

func packetIn() Experiment {
	return Experiment{
		Name:     "packet-in",
		Title:    "Packet-ins answered: Sluice, ovs-testcontroller, os-ken",
		Question: "What does a packet cost that switches cannot handle by themselves?",
		Run:      runPacketIn,
	}
}

// thisMachine runs programs outside any lab.
type thisMachine struct{}

func (thisMachine) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, name, args...)
}

// contender is a controller whose answers to packet-ins are measured.
type contender struct {
	name string
	// needs is the program without which the contender is left out.
	needs string
	start func(ctx context.Context, env *Env, dir string, port int) (*testbed.Daemon, error)
}

// peer reports whether the contender is another project's. If such a contender fails, measuring
// continues without it.
func (c contender) peer() bool { return !strings.HasPrefix(c.name, "Sluice") }

func contenders() []contender {
	return []contender{
		{"Sluice", "", startSluice("")},
		{"Sluice on one core", "taskset", startSluice("0")},
		{"ovs-testcontroller", "ovs-testcontroller", startTestController},
		{"os-ken", "osken-manager", startOSKen},
	}
}

type packetInRun struct {
	loadgen.Result
	cpu time.Duration
}

// perAnswer returns the controller's CPU time for one packet-in.
func (r packetInRun) perAnswer() time.Duration {
	return r.cpu / time.Duration(max(r.Answered, 1))
}

func runPacketIn(ctx context.Context, env *Env) (*Result, error) {
	raw, err := env.CSV("packet-in", "controller", "switches", "window", "answers_per_second", "cpu_seconds_per_answer", "p50_seconds", "p99_seconds", "reordered")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	loads := []loadgen.Options{{Switches: 1, Window: 1}, {Switches: 1, Window: 256}, {Switches: 16, Window: 256}}
	all := contenders()
	env.Steps(len(loads) * len(all))
	r := &Result{Network: "no network: the load generator is as many switches on loopback connections, on the same cores as the controller"}
	for _, load := range loads {
		load.Warmup, load.Duration = time.Second, pick[time.Duration](env.Scale, 2, 5, 20)*time.Second
		load.Settle = 3 * time.Second
		table := Table{
			Title:   fmt.Sprintf("%d switches, %d packets of each under way", load.Switches, load.Window),
			Columns: []string{"controller", "answers/s", "CPU each", "one core would answer", "p50", "p99", "reordered"},
		}
		for _, c := range all {
			env.Step("%s, %d switches, window %d", c.name, load.Switches, load.Window)
			if _, err := exec.LookPath(c.needs); c.needs != "" && err != nil {
				r.Note("%s is not installed and was left out.", c.needs)
				continue
			}
			run, err := c.load(ctx, env, load)
			if err != nil && c.peer() && ctx.Err() == nil {
				r.Note("%s did not stand %d switches with %d packets of each under way, and is left out there: %v.", c.name, load.Switches, load.Window, err)
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			env.Logf("%v, %v CPU each", &run.Result, run.perAnswer())
			if err := raw.Row(c.name, load.Switches, load.Window, run.PerSecond(), run.perAnswer(), run.Latency(0.5), run.Latency(0.99), run.Reordered); err != nil {
				return nil, err
			}
			table.Add(c.name, fmt.Sprintf("%.0f", run.PerSecond()), run.perAnswer(), fmt.Sprintf("%.0f", 1/run.perAnswer().Seconds()),
				run.Latency(0.5).Round(time.Microsecond), run.Latency(0.99).Round(time.Microsecond), run.Reordered)
			packetInClaims(r, c, load, run)
		}
		r.Tables = append(r.Tables, table)
	}
	r.Note("Every answer is the packet brought back by a packet-out. CPU is that of the controller's process. The generator takes its share of the same cores, so answers a second are fewer than the controller alone would give; the column beside CPU says what that would be.")
	return r, nil
}

func packetInClaims(r *Result, c contender, load loadgen.Options, run packetInRun) {
	if c.peer() || load.Window == 1 {
		return
	}
	at := fmt.Sprintf("%s, %d switches", c.name, load.Switches)
	r.Claim(run.perAnswer() <= packetInCPUBound, fmt.Sprintf("%s: at most %v of CPU for a packet-in", at, packetInCPUBound), "%v", run.perAnswer())
	r.Claim(run.Reordered == 0, at+": order kept", "%d reordered", run.Reordered)
	if c.name != "Sluice" {
		r.Claim(run.PerSecond() >= packetInRateBound, fmt.Sprintf("%s: at least %.0f answers a second", at, packetInRateBound), "%.0f", run.PerSecond())
	}
}

// load starts the controller, puts the load on it, and stops it.
func (c contender) load(ctx context.Context, env *Env, load loadgen.Options) (run packetInRun, err error) {
	dir, err := os.MkdirTemp("", "sluice-packet-in-")
	if err != nil {
		return run, err
	}
	defer os.RemoveAll(dir)
	port, err := freePort()
	if err != nil {
		return run, err
	}
	d, err := c.start(ctx, env, dir, port)
	if err != nil {
		return run, err
	}
	defer d.Stop()
	if err := testbed.WaitListening(ctx, thisMachine{}, uint16(port)); err != nil {
		return run, err
	}
	var begin, end time.Duration
	var beginErr, endErr error
	load.Network, load.Address = "tcp", fmt.Sprintf("127.0.0.1:%d", port)
	load.OnBegin = func() { begin, beginErr = testbed.CPUTime(d.PID()) }
	load.OnEnd = func() { end, endErr = testbed.CPUTime(d.PID()) }
	if run.Result, err = loadgen.Run(ctx, load); err != nil {
		return run, err
	}
	if beginErr != nil || endErr != nil {
		return run, fmt.Errorf("the controller has died (%w, %w)", beginErr, endErr)
	}
	if run.Answered == 0 {
		return run, fmt.Errorf("no packet came back of %d", run.Sent)
	}
	run.cpu = end - begin
	return run, nil
}

// freePort returns a port at which nobody listens now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// startSluice returns a function that starts this program's controller with all services. cores, in
// taskset's notation, restricts it to some cores.
func startSluice(cores string) func(context.Context, *Env, string, int) (*testbed.Daemon, error) {
	return func(ctx context.Context, env *Env, dir string, port int) (*testbed.Daemon, error) {
		api, err := freePort()
		if err != nil {
			return nil, err
		}
		file := filepath.Join(dir, "controller.yaml")
		text := fmt.Sprintf(`data_dir: %[1]s/state
log: {level: warn}
api: {listen: "127.0.0.1:%[2]d"}
openflow: {listen: ["127.0.0.1:%[3]d"]}
network: {discovery: {interval: 1s, timeout: 4s}}
`, dir, api, port)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, err
		}
		log := filepath.Join(env.Dir, "sluice.log")
		if cores == "" {
			return testbed.StartDaemon(ctx, thisMachine{}, log, env.Binary, "controller", "--config", file)
		}
		return testbed.StartDaemon(ctx, thisMachine{}, log, "taskset", "-c", cores, env.Binary, "controller", "--config", file)
	}
}

func startTestController(ctx context.Context, env *Env, dir string, port int) (*testbed.Daemon, error) {
	return testbed.StartDaemon(ctx, thisMachine{}, filepath.Join(env.Dir, "ovs-testcontroller.log"), "ovs-testcontroller",
		"--unixctl="+filepath.Join(dir, "ctl"), fmt.Sprintf("ptcp:%d:127.0.0.1", port))
}

func startOSKen(ctx context.Context, env *Env, dir string, port int) (*testbed.Daemon, error) {
	app := filepath.Join(dir, "learning_switch.py")
	if err := os.WriteFile(app, learningSwitch, 0o600); err != nil {
		return nil, err
	}
	return testbed.StartDaemon(ctx, thisMachine{}, filepath.Join(env.Dir, "os-ken.log"), "osken-manager",
		"--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", fmt.Sprint(port), app)
}
