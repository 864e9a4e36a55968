package testbed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/lab"
)

// Options holds the options of Deploy.
type Options struct {
	Lab    *lab.Lab
	Binary string // path of sluice
	LogDir string // folder for the programs' output; must exist
	// Controller names the controller of the lab that is started, and whose switches Deploy waits
	// for. Empty means the first one.
	Controller string
	// Network and Services are added to the controller's configuration: lines of its section
	// "network", indented by two, and further sections.
	Network, Services string
	// Gateways holds the roles of Cinema's gateways by host. If there are any, the API listens for
	// them at the controller's address in the control network.
	Gateways map[string]CinemaRole
	// IngressConfig and EgressConfig are lines that are added to the configuration of gateways.
	IngressConfig, EgressConfig string
	// EgressBuckets is the value of data.buckets in the configuration of egress gateways, which
	// determines who copies channels to their viewers. Empty means the default.
	EgressBuckets string
}

// Deployment is a controller and agents that run in a lab, each a process of its own, with
// certificates from an authority of their own.
type Deployment struct {
	*client.Client

	lab               *lab.Lab
	controllerName    string
	openflow          netip.AddrPort // the controller's
	api               netip.AddrPort // the controller's, if there are no gateways
	binary            string
	dir, logs         string
	network, services string
	gateways          map[string]CinemaRole

	ingressConfig, egressConfig, egressBuckets string

	controller *Daemon
	agents     map[string]*Daemon
}

const (
	apiAddress  = "127.0.0.1:8080" // of the first controller; others have the next ports
	agentPort   = 8440
	readyWithin = 30 * time.Second
)

// Deploy starts a controller, and an agent on every host of the lab that is meant for one. It
// returns when every switch is connected and every agent is usable.
func Deploy(ctx context.Context, o Options) (*Deployment, error) {
	d, err := DeployAgents(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := d.begin(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("deploy: %w", err), d.Close())
	}
	return d, nil
}

// DeployAgents starts the agents without a controller.
func DeployAgents(ctx context.Context, o Options) (*Deployment, error) {
	dir, err := os.MkdirTemp("", "sluice-stage-")
	if err != nil {
		return nil, fmt.Errorf("deploy: %w", err)
	}
	d := &Deployment{
		lab: o.Lab, binary: o.Binary, dir: dir, logs: o.LogDir, network: o.Network, services: o.Services,
		gateways: o.Gateways, ingressConfig: o.IngressConfig, egressConfig: o.EgressConfig, egressBuckets: o.EgressBuckets, agents: map[string]*Daemon{},
	}
	err = d.chooseController(o.Controller)
	if err == nil {
		err = d.issueCertificates()
	}
	for _, host := range d.agentHosts() {
		if err == nil {
			err = d.StartAgent(ctx, host)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("deploy: %w", err), d.Close())
	}
	return d, nil
}

// chooseController sets the addresses of the controller with a name; empty means the first one.
func (d *Deployment) chooseController(name string) error {
	all := d.lab.Topology().Controllers
	n := max(slices.IndexFunc(all, func(c lab.Controller) bool { return c.Name == name }), 0)
	d.controllerName = cmp.Or(name, all[n].Name)
	first := netip.MustParseAddrPort(apiAddress)
	d.api = netip.AddrPortFrom(first.Addr(), first.Port()+uint16(n))
	var err error
	d.openflow, err = d.lab.ControllerAddrOf(d.controllerName)
	return err
}

func (d *Deployment) begin(ctx context.Context) error {
	if err := d.StartController(ctx); err != nil {
		return err
	}
	if err := d.connect(ctx); err != nil {
		return err
	}
	if err := d.startGateways(ctx); err != nil {
		return err
	}
	return d.settle(ctx)
}

// agentHosts returns the hosts of SOS's agents.
func (d *Deployment) agentHosts() []string {
	var names []string
	for _, h := range d.lab.Topology().Hosts {
		if h.Agent && d.gateways[h.Name] == "" {
			names = append(names, h.Name)
		}
	}
	return names
}

// StartController starts the controller, also again after it was killed. It keeps its state.
func (d *Deployment) StartController(ctx context.Context) error {
	file := filepath.Join(d.dir, "controller.yaml")
	text := fmt.Sprintf(`data_dir: %[1]s/controller
api: %[2]s
openflow: {listen: ["%[3]v"], plaintext: true}
network:
  discovery: {interval: 1s, timeout: 4s}
%[4]sagents:
  tls: {cert: %[1]s/controller.crt, key: %[1]s/controller.key, ca: %[1]s/ca.crt}
%[5]s`, d.dir, d.apiConfig(), d.openflow, d.network, d.services)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("configure the controller: %w", err)
	}
	p, err := StartDaemon(ctx, d.lab.Control(), d.controllerLog(), d.binary, "controller", "--config", file)
	if err != nil {
		return err
	}
	d.controller = p
	return nil
}

// controllerLog returns the path of the controller's log, which is controller.log for the first.
func (d *Deployment) controllerLog() string {
	name := "controller"
	if d.controllerName != d.lab.Topology().Controllers[0].Name {
		name += "-" + d.controllerName
	}
	return filepath.Join(d.logs, name+".log")
}

// StartAgent starts the agent of a host.
func (d *Deployment) StartAgent(ctx context.Context, host string) error {
	h := d.lab.Host(host)
	text := fmt.Sprintf(`name: %[2]s
control:
  listen: %[3]v
  tls: {cert: %[1]s/%[2]s.crt, key: %[1]s/%[2]s.key, ca: %[1]s/ca.crt}
data: {address: %[4]v}
`, d.dir, host, netip.AddrPortFrom(h.ControlAddr(), agentPort), d.dataAddr(host))
	return d.startProgram(ctx, host, text, agentPort, "agent")
}

// startProgram starts the program on a host with its configuration, and returns when it listens.
func (d *Deployment) startProgram(ctx context.Context, host, config string, port uint16, command ...string) error {
	h, file := d.lab.Host(host), filepath.Join(d.dir, host+".yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return fmt.Errorf("configure %s of %s: %w", strings.Join(command, " "), host, err)
	}
	p, err := StartDaemon(ctx, h, filepath.Join(d.logs, host+".log"), d.binary, append(command, "--config", file)...)
	if err != nil {
		return err
	}
	d.agents[host] = p
	if err := WaitListening(ctx, h, port); err != nil {
		return fmt.Errorf("%s of %s: %w: %s", strings.Join(command, " "), host, err, d.LastWords(host))
	}
	return nil
}

// dataAddr returns the address of an agent on the link to its peer. If the agent has several links,
// that is the one that it shares with another agent.
func (d *Deployment) dataAddr(host string) netip.Addr {
	agents := map[string]bool{}
	for _, name := range d.agentHosts() {
		agents[name] = true
	}
	for _, l := range d.lab.Topology().Links {
		if !agents[l.A.Node] || !agents[l.B.Node] {
			continue
		}
		for _, end := range []lab.End{l.A, l.B} {
			if end.Node == host && len(end.Addresses) > 0 {
				return end.Addresses[0].Addr()
			}
		}
	}
	return d.lab.Host(host).Addr()
}

// Controller returns the controller's process.
func (d *Deployment) Controller() *Daemon { return d.controller }

// Agent returns the process of a host's agent.
func (d *Deployment) Agent(host string) *Daemon { return d.agents[host] }

// Close ends every program and removes keys and state.
func (d *Deployment) Close() error {
	if d.Client != nil {
		d.Client.Close()
	}
	if d.controller != nil {
		d.controller.Stop()
	}
	for _, a := range d.agents {
		a.Stop()
	}
	return os.RemoveAll(d.dir)
}
