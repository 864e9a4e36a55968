package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/internal/genl"
)

const (
	// ovsTimeout bounds every Open vSwitch command.
	ovsTimeout = 60 * time.Second
	// controllerBackoff is the longest time between attempts to reach a controller, in
	// milliseconds.
	controllerBackoff = 1000
	// ovsSchema is the place where distributions install the database's schema.
	ovsSchema = "/usr/share/openvswitch/vswitch.ovsschema"
)

// startSwitches starts the daemons of all switches, a few at a time.
func (l *Lab) startSwitches(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2 * runtime.NumCPU())
	for _, s := range l.plan.Topology.Switches {
		group.Go(func() error { return l.Switch(s.Name).create(ctx) })
	}
	return group.Wait()
}

// LiveSwitch is a switch of a lab that is up.
type LiveSwitch struct {
	node
	spec Switch
}

// Switch returns a switch by its name. It panics if the topology has no such switch: that is a bug
// of the caller, as with an index out of range.
func (l *Lab) Switch(name string) *LiveSwitch {
	i := l.plan.Topology.switchIndex(name)
	if i < 0 {
		panic(fmt.Sprintf("lab %s has no switch %q", l.Name(), name))
	}
	return &LiveSwitch{node: node{lab: l, name: name}, spec: l.plan.Topology.Switches[i]}
}

// DPID returns the switch's datapath ID.
func (s *LiveSwitch) DPID() uint64 { return s.spec.DPID }

// Capabilities returns the limits of the hardware that the switch stands for.
func (s *LiveSwitch) Capabilities() []string { return s.spec.Capabilities }

// Port returns the number of the OpenFlow port at which a link ends.
func (s *LiveSwitch) Port(link string) (int, error) {
	w, err := s.lab.wire(link)
	if err != nil {
		return 0, err
	}
	if f, ok := w.endAt(s.name); ok {
		return f.Port, nil
	}
	return 0, fmt.Errorf("link %s does not end at %s", link, s.name)
}

func (s *LiveSwitch) dir() string { return filepath.Join(s.lab.dir, "ovs", s.name) }

// create makes the database and starts both daemons for the first time.
func (s *LiveSwitch) create(ctx context.Context) error {
	if err := os.MkdirAll(s.dir(), 0o755); err != nil {
		return err
	}
	if err := s.run(ctx, "ovsdb-tool", "create", filepath.Join(s.dir(), "conf.db"), ovsSchema); err != nil {
		return err
	}
	if err := s.startDatabase(ctx); err != nil {
		return err
	}
	if s.spec.Offload { // The daemon reads the setting only when it starts.
		if _, err := s.Vsctl(ctx, "--no-wait", "set", "Open_vSwitch", ".", "other_config:userspace-tso-enable=true"); err != nil {
			return err
		}
	}
	if err := s.startDaemon(ctx); err != nil {
		return err
	}
	if err := s.configure(ctx); err != nil {
		return err
	}
	return s.addFixedFlows(ctx)
}

func (s *LiveSwitch) startDaemon(ctx context.Context) error {
	return s.run(ctx, "ovs-vswitchd", s.Database(),
		"--unixctl="+filepath.Join(s.dir(), "vswitchd.ctl"),
		"--pidfile="+filepath.Join(s.dir(), "ovs-vswitchd.pid"),
		"--log-file="+filepath.Join(s.dir(), "ovs-vswitchd.log"), "--detach", "--no-chdir", "-vconsole:off")
}

// configure makes the bridge with its ports and controllers in one transaction, and waits until the
// daemon has applied it.
func (s *LiveSwitch) configure(ctx context.Context) error {
	datapath, err := datapathType(s.spec.Datapath)
	if err != nil {
		return fmt.Errorf("switch %s: %w", s.name, err)
	}
	args := []string{
		"set", "Open_vSwitch", ".", "other_config:n-handler-threads=1", "other_config:n-revalidator-threads=1",
		"--", "add-br", bridgeName, "--", "set", "Bridge", bridgeName,
		"datapath_type=" + datapath, "fail_mode=secure", "protocols=" + strings.Join(s.spec.Protocols, ","),
		fmt.Sprintf("other_config:datapath-id=%016x", s.spec.DPID), "other_config:disable-in-band=true",
	}
	for _, w := range s.lab.wires() {
		if f, ok := w.endAt(s.name); ok {
			args = append(args, "--")
			args = append(args, s.addPortArgs(f, s.lab.tcShapes(w))...)
		}
	}
	args = append(args, s.controllerArgs()...)
	args = append(args, s.tableArgs()...)
	if _, err := s.Vsctl(ctx, args...); err != nil {
		return err
	}
	return s.checkPorts(ctx)
}

// lastTable is the highest table that Open vSwitch offers to controllers.
const lastTable = 253

// tableArgs returns arguments of ovs-vsctl that allow no rules in tables above the first, if the
// switch has one table only.
func (s *LiveSwitch) tableArgs() []string {
	if s.spec.Tables != 1 {
		return nil
	}
	args := []string{"--", "--id=@full", "create", "Flow_Table", "flow_limit=0", "--", "set", "Bridge", bridgeName}
	for n := 1; n <= lastTable; n++ {
		args = append(args, fmt.Sprintf("flow_tables:%d=@full", n))
	}
	return args
}

// addPortArgs returns the commands of ovs-vsctl that make an interface a port. shaped reports
// whether tc gives the interface its properties.
func (s *LiveSwitch) addPortArgs(f iface, shaped bool) []string {
	args := []string{
		"--may-exist", "add-port", bridgeName, f.Name,
		"--", "set", "Interface", f.Name, "ofport_request=" + strconv.Itoa(f.Port),
	}
	if shaped {
		// Without a QoS record the daemon would remove the interface's qdisc.
		id := "@qos" + strconv.Itoa(f.Port)
		args = append(args, "--", "--id="+id, "create", "QoS", "type=linux-noop",
			"--", "set", "Port", f.Name, "qos="+id)
	}
	return args
}

func (s *LiveSwitch) controllerArgs() []string {
	if len(s.spec.Flows) > 0 {
		return nil
	}
	var args, ids []string
	for i, c := range s.lab.plan.Topology.Controllers {
		if !s.obeys(c.Name) {
			continue
		}
		id := "@c" + strconv.Itoa(i)
		ids = append(ids, id)
		target := fmt.Sprintf("target=\"tcp:%s:%d\"", s.lab.plan.ControlIP[c.Name], c.Port)
		args = append(args, "--", "--id="+id, "create", "Controller", target,
			"max_backoff="+strconv.Itoa(controllerBackoff), "inactivity_probe=5000")
	}
	return append(args, "--", "set", "Bridge", bridgeName, "controller=["+strings.Join(ids, ",")+"]")
}

func (s *LiveSwitch) obeys(controller string) bool {
	if len(s.spec.Controllers) == 0 {
		return true
	}
	for _, name := range s.spec.Controllers {
		if name == controller {
			return true
		}
	}
	return false
}

// checkPorts returns an error if the daemon could not open a port.
func (s *LiveSwitch) checkPorts(ctx context.Context) error {
	out, err := s.output(ctx, "ovs-vsctl", "--timeout=30", "--db="+s.Database(), "--format=csv", "--no-headings",
		"--columns=name,error", "find", "Interface", "error!=[]")
	if err != nil {
		return err
	}
	if out = strings.TrimSpace(out); out != "" {
		return fmt.Errorf("switch %s: %s", s.name, out)
	}
	return nil
}

func (s *LiveSwitch) addFixedFlows(ctx context.Context) error {
	for _, flow := range s.spec.Flows {
		if _, err := s.Ofctl(ctx, "add-flow", flow); err != nil {
			return err
		}
	}
	return nil
}

// Ofctl runs ovs-ofctl COMMAND on the switch's bridge with further arguments,
// speaking the switch's first protocol, and returns what it prints.
func (s *LiveSwitch) Ofctl(ctx context.Context, command string, args ...string) (string, error) {
	mgmt := "unix:" + filepath.Join(s.dir(), bridgeName+".mgmt")
	all := append([]string{"-O", s.spec.Protocols[0], command, mgmt}, args...)
	return s.output(ctx, "ovs-ofctl", all...)
}

// Vsctl runs ovs-vsctl against the switch's database and returns what it prints.
func (s *LiveSwitch) Vsctl(ctx context.Context, args ...string) (string, error) {
	return s.output(ctx, "ovs-vsctl", append([]string{"--timeout=30", "--db=" + s.Database()}, args...)...)
}

// Appctl runs ovs-appctl against the switch's daemon and returns what it prints.
func (s *LiveSwitch) Appctl(ctx context.Context, args ...string) (string, error) {
	return s.output(ctx, "ovs-appctl", append([]string{"-t", filepath.Join(s.dir(), "vswitchd.ctl")}, args...)...)
}

// Cached returns the cached decisions of the datapath, as ovs-appctl prints them
// (dpctl/dump-flows), that contain all the given texts.
func (s *LiveSwitch) Cached(ctx context.Context, texts ...string) (found []string, err error) {
	all, err := s.Appctl(ctx, "dpctl/dump-flows")
	for line := range strings.Lines(all) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			found = append(found, line)
		}
	}
	return found, err
}

// Stop ends the switch's daemon: the switch then forwards nothing, and its flow table is lost. Its
// configuration stays.
func (s *LiveSwitch) Stop(ctx context.Context) error {
	pid, err := s.PID()
	if err != nil {
		return fmt.Errorf("stop switch %s: %w", s.name, err)
	}
	if err := endProcess(ctx, pid); err != nil {
		return fmt.Errorf("stop switch %s: %w", s.name, err)
	}
	return nil
}

// Kill ends the switch's daemon by a signal that it cannot handle. What the daemon cleans up when
// it is stopped, like the queues of its ports, stays.
func (s *LiveSwitch) Kill(ctx context.Context) error {
	pid, err := s.PID()
	if err != nil {
		return fmt.Errorf("kill switch %s: %w", s.name, err)
	}
	if err := killProcess(ctx, pid); err != nil {
		return fmt.Errorf("kill switch %s: %w", s.name, err)
	}
	return nil
}

// Start starts the switch's daemon again and waits until its ports are back.
func (s *LiveSwitch) Start(ctx context.Context) error {
	if err := s.startDaemon(ctx); err != nil {
		return err
	}
	if _, err := s.Vsctl(ctx, "set", "Open_vSwitch", ".", "external_ids:started="+strconv.FormatInt(time.Now().UnixNano(), 10)); err != nil {
		return err
	}
	if err := s.checkPorts(ctx); err != nil {
		return err
	}
	return s.addFixedFlows(ctx)
}

// PID returns the process ID of the switch's daemon.
func (s *LiveSwitch) PID() (int, error) {
	b, err := os.ReadFile(filepath.Join(s.dir(), "ovs-vswitchd.pid"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, errors.New("it does not run")
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(bytes.TrimSpace(b)))
}

// command prepares an Open vSwitch program that uses the switch's own directories.
func (s *LiveSwitch) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(append(os.Environ(), s.lab.tuning.env()...),
		"OVS_RUNDIR="+s.dir(), "OVS_LOGDIR="+s.dir(), "OVS_DBDIR="+s.dir(), "OVS_SYSCONFDIR="+s.dir())
	return cmd
}

func (s *LiveSwitch) run(ctx context.Context, name string, args ...string) error {
	_, err := s.output(ctx, name, args...)
	return err
}

// output runs an Open vSwitch program in the switch's namespace.
func (s *LiveSwitch) output(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := s.command(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := inNamespace(s.lab.plan.namespace(s.name), cmd.Start); err != nil {
		return "", fmt.Errorf("switch %s: %s: %w", s.name, name, err)
	}
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return "", fmt.Errorf("switch %s: %s %s: %w: %s", s.name, name, firstWord(args), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

func firstWord(args []string) string {
	for _, a := range args {
		if !strings.HasPrefix(a, "-") {
			return a
		}
	}
	return ""
}

// kernelDatapath reports whether the kernel has Open vSwitch's datapath.
func kernelDatapath() bool {
	_, err := genl.Find("ovs_datapath")
	return err == nil
}

// datapathType returns Open vSwitch's name of the requested datapath.
func datapathType(requested string) (string, error) {
	switch {
	case requested == DatapathUserspace:
		return "netdev", nil
	case kernelDatapath():
		return "system", nil
	case requested == DatapathKernel:
		return "", errors.New("this kernel has no Open vSwitch datapath: use datapath userspace or auto")
	}
	return "netdev", nil
}
