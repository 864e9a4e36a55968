package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/handover"
)

const handoverPath = "/api/v1/handover"

// HandoverOptions holds the options of DeployHandover.
type HandoverOptions struct {
	Lab    *lab.Lab
	Binary string // path of sluice
	LogDir string // folder for the programs' output; must exist
	// Domains lists one operator, or two whose border ports are joined.
	Domains []HandoverNetwork
	// Unsigned lets each domain claim devices of the other that have no key.
	Unsigned bool
}

// HandoverNetwork is one operator's network.
type HandoverNetwork struct {
	Name    string // the name of its controller in the lab, if there are several
	Network lab.MobilityDomain
}

// HandoverDeployment is a controller for each operator, each a process of its own with certificates
// from an authority of its own.
type HandoverDeployment struct {
	Domains []*HandoverDomain
	dir     string
}

// HandoverDomain is one operator's controller.
type HandoverDomain struct {
	*client.Client
	HandoverNetwork

	o      HandoverOptions
	dir    string // folder of its authority, certificates and state
	addr   string // address of its API
	daemon *Daemon
}

// handoverAPI is the port of the controller's API, all of which is at its address in the control
// network.
const handoverAPI = 8443

// DeployHandover starts the controllers, and returns when each has its switches and knows the links
// between them.
func DeployHandover(ctx context.Context, o HandoverOptions) (*HandoverDeployment, error) {
	dir, err := os.MkdirTemp("", "sluice-stage-")
	if err != nil {
		return nil, fmt.Errorf("deploy: %w", err)
	}
	d := &HandoverDeployment{dir: dir}
	if err := d.deploy(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("deploy: %w", err), d.Close())
	}
	return d, nil
}

func (d *HandoverDeployment) deploy(ctx context.Context, o HandoverOptions) error {
	for _, n := range o.Domains {
		addr, err := o.controllerAddr(n.Name)
		if err != nil {
			return err
		}
		x := &HandoverDomain{HandoverNetwork: n, o: o, dir: filepath.Join(d.dir, n.Name), addr: fmt.Sprintf("%s:%d", addr, handoverAPI)}
		if err := x.issue(addr); err != nil {
			return err
		}
		d.Domains = append(d.Domains, x)
	}
	for _, x := range d.Domains {
		if err := x.introduce(d.Domains); err != nil {
			return err
		}
	}
	for _, x := range d.Domains {
		if err := x.Start(ctx, d.Domains); err != nil {
			return err
		}
	}
	for _, x := range d.Domains {
		if err := x.settle(ctx); err != nil {
			return fmt.Errorf("controller %s: %w: %s", x.Name, err, x.lastWords())
		}
	}
	return nil
}

// controllerAddr returns the address of a controller in the lab's control network.
func (o HandoverOptions) controllerAddr(name string) (string, error) {
	if len(o.Domains) == 1 {
		return o.Lab.ControllerAddr().Addr().String(), nil
	}
	a, err := o.Lab.ControllerAddrOf(name)
	return a.Addr().String(), err
}

// issue makes the domain's authority and its own certificate.
func (x *HandoverDomain) issue(addr string) error {
	if err := os.MkdirAll(x.dir, 0o700); err != nil {
		return err
	}
	ca, err := pki.Init(x.dir, "sluice lab "+x.Name, 24*time.Hour)
	if err != nil {
		return err
	}
	pair, err := ca.Issue(pki.Request{Role: pki.RoleController, Name: "controller", Hosts: []string{addr}})
	if err != nil {
		return err
	}
	return pair.Write(x.dir, "controller")
}

// introduce gives every other domain a certificate of this domain's authority.
func (x *HandoverDomain) introduce(all []*HandoverDomain) error {
	ca, err := pki.Load(x.dir)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other == x {
			continue
		}
		pair, err := ca.Issue(pki.Request{Role: pki.RoleNeighbour, Name: other.Name})
		if err != nil {
			return err
		}
		if err := pair.Write(other.dir, "at-"+x.Name); err != nil {
			return err
		}
	}
	return nil
}

// Start starts the controller, also again after Kill. It keeps its state.
func (x *HandoverDomain) Start(ctx context.Context, all []*HandoverDomain) error {
	file := filepath.Join(x.dir, "controller.yaml")
	if err := os.WriteFile(file, []byte(x.config(all)), 0o600); err != nil {
		return fmt.Errorf("configure controller %s: %w", x.Name, err)
	}
	log := filepath.Join(x.o.LogDir, "controller-"+x.Name+".log")
	p, err := StartDaemon(ctx, x.o.Lab.Control(), log, x.o.Binary, "controller", "--config", file)
	if err != nil {
		return err
	}
	x.daemon = p
	return nil
}

func (x *HandoverDomain) lastWords() string {
	return Tail(filepath.Join(x.o.LogDir, "controller-"+x.Name+".log"), lastWords)
}

// settle connects to the API and waits until the network is known.
func (x *HandoverDomain) settle(ctx context.Context) error {
	var token []byte
	err := Poll(ctx, "the controller's token", func() (err error) {
		token, err = os.ReadFile(x.TokenFile())
		return err
	})
	if err != nil {
		return err
	}
	trust, err := pki.Client(pki.Files{CA: x.CAFile()}, pki.RoleController)
	if err != nil {
		return err
	}
	x.Client, err = client.New(client.Options{
		Server: x.URL(), Token: strings.TrimSpace(string(token)), TLS: trust, Dial: x.o.Lab.Control().DialContext,
	})
	if err != nil {
		return err
	}
	return x.AwaitNetwork(ctx)
}

// AwaitNetwork waits until the controller has its switches and knows the links between them. It can
// be called after Kill and Start.
func (x *HandoverDomain) AwaitNetwork(ctx context.Context) error {
	switches, links := x.expected()
	for _, want := range []struct {
		path string
		n    int
	}{{"/api/v1/network/switches", switches}, {"/api/v1/network/links", links}} {
		err := Poll(ctx, want.path, func() error {
			var all []struct{}
			err := x.Get(ctx, want.path, &all)
			if err == nil && len(all) < want.n {
				err = fmt.Errorf("%d of %d are known", len(all), want.n)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// expected returns the number of switches and of directed links of the domain.
func (x *HandoverDomain) expected() (switches, links int) {
	t := x.o.Lab.Topology()
	ours := map[string]bool{}
	for _, s := range t.Switches {
		if len(s.Controllers) == 0 || s.Controllers[0] == x.Name {
			ours[s.Name] = true
		}
	}
	for _, l := range t.Links {
		if ours[l.A.Node] && ours[l.B.Node] {
			links += 2
		}
	}
	return len(ours), links
}

// PID returns the process ID of the controller.
func (x *HandoverDomain) PID() int { return x.daemon.PID() }

// Kill ends the controller as a crash would.
func (x *HandoverDomain) Kill() { x.daemon.Kill() }

// URL returns the URL of the controller's API in the control network.
func (x *HandoverDomain) URL() string { return "https://" + x.addr }

// TokenFile returns the path of the file with the API's token.
func (x *HandoverDomain) TokenFile() string { return filepath.Join(x.dir, "state", "token") }

// CAFile returns the path of the certificate of the authority that has issued the API's
// certificate.
func (x *HandoverDomain) CAFile() string { return filepath.Join(x.dir, pki.CACertFile) }

// Close ends every controller and removes keys and state.
func (d *HandoverDeployment) Close() error {
	for _, x := range d.Domains {
		if x.Client != nil {
			x.Client.Close()
		}
		if x.daemon != nil {
			x.daemon.Stop()
		}
	}
	return os.RemoveAll(d.dir)
}

// PutClass registers a class of devices.
func (x *HandoverDomain) PutClass(ctx context.Context, name string, spec handover.ClassSpec) error {
	return putClass(ctx, x.Client, name, spec)
}

// PutDevice registers a device.
func (x *HandoverDomain) PutDevice(ctx context.Context, id string, spec handover.DeviceSpec) error {
	return putDevice(ctx, x.Client, id, spec)
}

// PutClass registers a class of devices.
func (d *Deployment) PutClass(ctx context.Context, name string, spec handover.ClassSpec) error {
	return putClass(ctx, d.Client, name, spec)
}

// PutDevice registers a device.
func (d *Deployment) PutDevice(ctx context.Context, id string, spec handover.DeviceSpec) error {
	return putDevice(ctx, d.Client, id, spec)
}

func putClass(ctx context.Context, c *client.Client, name string, spec handover.ClassSpec) error {
	return c.Do(ctx, http.MethodPut, handoverPath+"/classes/"+url.PathEscape(name), spec, nil)
}

func putDevice(ctx context.Context, c *client.Client, id string, spec handover.DeviceSpec) error {
	return c.Do(ctx, http.MethodPut, handoverPath+"/devices/"+url.PathEscape(id), spec, nil)
}

// Prepare prepares a place for a device: a switch port, and the address that the device will use
// there.
func (x *HandoverDomain) Prepare(ctx context.Context, id, port string, mac openflow.MAC) error {
	in := struct {
		Port string `json:"port"`
		MAC  string `json:"mac"`
	}{port, mac.String()}
	return x.Do(ctx, http.MethodPost, handoverPath+"/devices/"+url.PathEscape(id)+"/prepare", in, nil)
}

// Records returns the events of a device, the latest first.
func (x *HandoverDomain) Records(ctx context.Context, id string) ([]handover.Record, error) {
	var all []handover.Record
	return all, x.Get(ctx, handoverPath+"/handovers?device="+url.QueryEscape(id), &all)
}
