package ovs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/handover/mobile/datapath"
)

// Options say where Open vSwitch is. The zero value is a usual installation.
type Options struct {
	// RunDir holds its sockets; default OVS_RUNDIR or /var/run/openvswitch.
	RunDir string
	// DatapathType is "system" or "netdev"; empty means the kernel's if there
	// is one.
	DatapathType string
}

func (o Options) withDefaults() Options {
	o.RunDir = cmp.Or(o.RunDir, os.Getenv("OVS_RUNDIR"), "/var/run/openvswitch")
	if o.DatapathType == "" {
		o.DatapathType = "netdev"
		if _, err := os.Stat("/sys/module/openvswitch"); err == nil {
			o.DatapathType = "system"
		}
	}
	return o
}

// commandTimeout bounds each command of Open vSwitch and nftables.
const commandTimeout = 20 * time.Second

// mark is the external id of bridges that this package has made, markGRO that of
// ports whose GRO it has switched off.
const (
	mark    = "sluice-mobile"
	markGRO = "sluice-mobile-gro"
)

// bridge is the switch's side of a datapath, as its database has it.
type bridge struct {
	name    string // that of the VNI
	options Options
}

// Probe says whether the device has an Open vSwitch that runs. The error wraps
// [datapath.ErrUnsupported] and says what is missing.
func Probe(ctx context.Context, o Options) error {
	o = o.withDefaults()
	tools := []string{"ovs-vsctl"}
	if o.DatapathType == "netdev" {
		tools = append(tools, "nft")
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%w: %w", datapath.ErrUnsupported, err)
		}
	}
	if _, err := (bridge{options: o}).vsctl(ctx, "get", "Open_vSwitch", ".", "ovs_version"); err != nil {
		return fmt.Errorf("%w: Open vSwitch does not answer: %w", datapath.ErrUnsupported, err)
	}
	return nil
}

func (b bridge) vsctl(ctx context.Context, args ...string) (string, error) {
	db := "--db=unix:" + filepath.Join(b.options.RunDir, "db.sock")
	return command(ctx, "", "ovs-vsctl", append([]string{"--timeout=15", db}, args...)...)
}

// command runs a tool and returns what it prints.
func command(ctx context.Context, stdin, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// socket is where the bridge takes controllers.
func (b bridge) socket() string { return filepath.Join(b.options.RunDir, b.name+".mgmt") }

// create makes the bridge, or takes over the one that a daemon which was killed
// has left, without its ports. It returns the interfaces whose GRO that one has
// switched off.
func (b bridge) create(ctx context.Context, c datapath.Config) (gro []string, err error) {
	if gro, err = b.clear(ctx); err != nil {
		return gro, err
	}
	_, err = b.vsctl(ctx,
		"--may-exist", "add-br", b.name,
		"--", "set", "Bridge", b.name, "datapath_type="+b.options.DatapathType, "fail_mode=secure", "protocols=OpenFlow13",
		"other_config:hwaddr="+strconv.Quote(c.VNIMAC.String()), "other_config:disable-in-band=true", "external_ids:"+mark+"="+b.name,
		"--", "set", "Interface", b.name, "mtu_request="+strconv.Itoa(c.FitMTU(nil)))
	if err != nil {
		return gro, err
	}
	return gro, b.checkPort(ctx, b.name)
}

// clear removes the ports of a bridge that was left behind, and returns those whose
// GRO was switched off. A bridge or an interface of that name that is not ours is an
// error.
func (b bridge) clear(ctx context.Context) (gro []string, err error) {
	bridges, err := b.vsctl(ctx, "list-br")
	if err != nil {
		return nil, err
	}
	found := false
	for _, name := range strings.Fields(bridges) {
		found = found || name == b.name
	}
	if !found {
		if _, err := net.InterfaceByName(b.name); err == nil {
			return nil, fmt.Errorf("virtual interface %s: there is already an interface of that name", b.name)
		}
		return nil, nil
	}
	if id, err := b.vsctl(ctx, "br-get-external-id", b.name, mark); err != nil || id == "" {
		return nil, errors.Join(fmt.Errorf("virtual interface %s: there is already a bridge of that name", b.name), err)
	}
	ports, err := b.vsctl(ctx, "list-ports", b.name)
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Fields(ports) {
		off, err := b.vsctl(ctx, "--if-exists", "get", "Interface", name, "external_ids:"+markGRO)
		if err != nil {
			return gro, err
		}
		if off != "" {
			gro = append(gro, name)
		}
		if err := b.removePort(ctx, name); err != nil {
			return gro, err
		}
	}
	return gro, nil
}

// addPort makes an interface a port and returns its number. That its GRO was
// switched off is kept with it, for the case that the daemon is killed.
func (b bridge) addPort(ctx context.Context, name string, wanted int, gro bool) (uint32, error) {
	args := []string{"--may-exist", "add-port", b.name, name, "--", "set", "Interface", name, "ofport_request=" + strconv.Itoa(wanted)}
	if gro {
		args = append(args, "external_ids:"+markGRO+"=off")
	}
	if _, err := b.vsctl(ctx, args...); err != nil {
		return 0, err
	}
	if err := b.checkPort(ctx, name); err != nil {
		return 0, err
	}
	text, err := b.vsctl(ctx, "get", "Interface", name, "ofport")
	if err != nil {
		return 0, err
	}
	number, err := strconv.ParseInt(text, 10, 32)
	if err != nil || number <= 0 {
		return 0, fmt.Errorf("interface %s: Open vSwitch gave it the port number %q", name, text)
	}
	return uint32(number), nil
}

// checkPort reports why the switch could not open an interface.
func (b bridge) checkPort(ctx context.Context, name string) error {
	text, err := b.vsctl(ctx, "get", "Interface", name, "error")
	if err != nil {
		return err
	}
	if text != "[]" {
		return fmt.Errorf("interface %s: Open vSwitch: %s", name, text)
	}
	return nil
}

func (b bridge) removePort(ctx context.Context, name string) error {
	_, err := b.vsctl(ctx, "--if-exists", "del-port", b.name, name)
	return err
}

// remove deletes the bridge and with it the VNI, if it is ours.
func (b bridge) remove(ctx context.Context) error {
	if id, err := b.vsctl(ctx, "br-get-external-id", b.name, mark); err != nil || id == "" {
		return nil // there is none
	}
	_, err := b.vsctl(ctx, "--if-exists", "del-br", b.name)
	return err
}

func (b bridge) setMTU(ctx context.Context, mtu int) error {
	_, err := b.vsctl(ctx, "set", "Interface", b.name, "mtu_request="+strconv.Itoa(mtu))
	return err
}

// userspaceTSO reports whether ports take frames larger than the MTU.
func (b bridge) userspaceTSO(ctx context.Context) bool {
	v, err := b.vsctl(ctx, "--if-exists", "get", "Open_vSwitch", ".", "other_config:userspace-tso-enable")
	return err == nil && strings.Trim(v, `"`) == "true"
}

// settle empties the switch's caches of forwarding decisions, so that what
// comes next meets the tables as they are; by itself the switch takes up to half
// a second. It speaks the daemon's own control protocol (JSON-RPC on a unix
// socket).
func (b bridge) settle(ctx context.Context) error {
	sockets, err := filepath.Glob(filepath.Join(b.options.RunDir, "ovs-vswitchd.*.ctl"))
	if err != nil || len(sockets) == 0 {
		return fmt.Errorf("no control socket of ovs-vswitchd in %s", b.options.RunDir)
	}
	var last error
	for _, path := range sockets { // those of daemons that were killed stay behind
		if last = control(ctx, path, "revalidator/purge"); last == nil {
			return nil
		}
	}
	return last
}

func control(ctx context.Context, path, method string) error {
	ctx, cancel := context.WithTimeout(ctx, greeting)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	ask := map[string]any{"id": 0, "method": method, "params": []string{}}
	if err := json.NewEncoder(conn).Encode(ask); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	var answer struct {
		Error any `json:"error"`
	}
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	if answer.Error != nil {
		return fmt.Errorf("%s: %v", method, answer.Error)
	}
	return nil
}
