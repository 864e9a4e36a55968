package loadgen

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/network"
)

// childEnv is the environment variable with the options of a generator that runs as a process of
// its own.
const childEnv = "SLUICE_LOADGEN"

// event is a line that a generator process writes to its standard output.
type event struct {
	Begin, End bool
	Result     *Result
	Error      string
}

// Child runs the generator or a controller and exits, if [Measure] or [Compare] started this
// process for that. A program or test that calls these must call Child first.
func Child() {
	if address, ok := os.LookupEnv(controllerEnv); ok {
		fmt.Fprintln(os.Stderr, runController(address))
		os.Exit(1)
	}
	text, ok := os.LookupEnv(childEnv)
	if !ok {
		return
	}
	say := json.NewEncoder(os.Stdout)
	var o Options
	err := json.Unmarshal([]byte(text), &o)
	var r Result
	if err == nil {
		o.OnBegin = func() { _ = say.Encode(event{Begin: true}) }
		o.OnEnd = func() { _ = say.Encode(event{End: true}) }
		r, err = Run(context.Background(), o)
	}
	last := event{Result: &r}
	if err != nil {
		last.Error = err.Error()
	}
	if say.Encode(last) != nil || err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// Measurement is a result with the CPU time that the controller used for it.
type Measurement struct {
	Result
	// CPU is the time, user and system, between the begin and the end of the measurement.
	CPU time.Duration
}

// CPUPerAnswer returns the controller's CPU time for one packet-in.
func (m *Measurement) CPUPerAnswer() time.Duration {
	return m.CPU / time.Duration(max(m.Answered, 1))
}

// Measure runs the generator in a process of its own, by starting this program again, and reads the
// controller's CPU clock when the measurement begins and ends. The program must call [Child] first.
func Measure(ctx context.Context, o Options, cpu func() (time.Duration, error)) (m Measurement, err error) {
	text, err := json.Marshal(o)
	if err != nil {
		return m, err
	}
	self, err := os.Executable()
	if err != nil {
		return m, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return m, err
	}
	if err := cmd.Start(); err != nil {
		return m, err
	}
	m, err = follow(out, cpu)
	if werr := cmd.Wait(); err == nil && werr != nil {
		err = fmt.Errorf("load generator: %w: %s", werr, stderr.Bytes())
	}
	return m, err
}

func follow(out io.Reader, cpu func() (time.Duration, error)) (m Measurement, err error) {
	var begin, end time.Duration
	for in := json.NewDecoder(bufio.NewReader(out)); ; {
		var e event
		if err := in.Decode(&e); err != nil {
			return m, fmt.Errorf("load generator has ended without a result: %w", err)
		}
		switch {
		case e.Error != "":
			return m, fmt.Errorf("load generator: %s", e.Error)
		case e.Begin:
			begin, err = cpu()
		case e.End:
			end, err = cpu()
		case e.Result != nil:
			return Measurement{Result: *e.Result, CPU: end - begin}, nil
		}
		if err != nil {
			return m, err
		}
	}
}

// OwnCPU returns the CPU time that this process has used.
func OwnCPU() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// runController runs this controller with its whole chain of handlers, for [Compare].
func runController(address string) error {
	n, err := network.New(network.Config{Listen: []string{address}, DiscoverySettle: settle})
	if err != nil {
		return err
	}
	return n.Run(context.Background())
}

// settle is how long the controller looks for links behind a new port. Loads against it must wait
// longer.
const settle = 200 * time.Millisecond
