package testbed

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/cinema"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// CinemaRole says which of Cinema's gateways a host is.
type CinemaRole string

// The roles.
const (
	CinemaIngress CinemaRole = "ingress"
	CinemaEgress  CinemaRole = "egress"
	// CinemaOwn is a gateway of the caller's own: it gets a certificate, and no program.
	CinemaOwn CinemaRole = "own"
)

// apiPort is where the API listens for gateways.
const apiPort = 8080

// PublicPort is where people reach Cinema's gateways: HTTP, in a lab.
const PublicPort = 8000

const cinemaPath = "/api/v1/cinema"

// apiURL is that of the controller's API: on the loopback interface of the control
// namespace, or, where gateways ask it, at the controller's address.
func (d *Deployment) apiURL() string {
	if len(d.gateways) > 0 {
		return fmt.Sprintf("https://%v", netip.AddrPortFrom(d.lab.ControllerAddr().Addr(), apiPort))
	}
	return "http://" + apiAddress
}

// apiConfig is the section "api" of the controller's configuration.
func (d *Deployment) apiConfig() string {
	if len(d.gateways) > 0 {
		return fmt.Sprintf("{listen: %[2]v:%[3]d, tls: {cert: %[1]s/controller.crt, key: %[1]s/controller.key, ca: %[1]s/ca.crt}}",
			d.dir, d.lab.ControllerAddr().Addr(), apiPort)
	}
	return fmt.Sprintf("{listen: %s}", apiAddress)
}

// startGateways starts all gateways, and returns when the controller can use them.
func (d *Deployment) startGateways(ctx context.Context) error {
	for _, host := range slices.Sorted(maps.Keys(d.gateways)) {
		if d.gateways[host] == CinemaOwn {
			continue
		}
		if err := d.StartGateway(ctx, host); err != nil {
			return err
		}
	}
	return d.WaitGateways(ctx)
}

// StartGateway starts the gateway of a host, also after its process was killed.
func (d *Deployment) StartGateway(ctx context.Context, host string) error {
	h, role := d.lab.Host(host), d.gateways[host]
	more := map[CinemaRole]string{CinemaIngress: d.ingressConfig, CinemaEgress: d.egressConfig}[role]
	data := fmt.Sprintf("{address: %v}", h.Addr())
	if role == CinemaEgress && d.egressBuckets != "" {
		data = fmt.Sprintf("{address: %v, buckets: %s}", h.Addr(), d.egressBuckets)
	}
	text := fmt.Sprintf(`name: %[2]s
control:
  listen: %[3]v
  tls: {cert: %[1]s/%[2]s.crt, key: %[1]s/%[2]s.key, ca: %[1]s/ca.crt}
data: %[8]s
public: {listen: "%[4]v:%[5]d", plaintext: true}
announce: {server: "%[6]s"}
%[7]s`, d.dir, host, netip.AddrPortFrom(h.ControlAddr(), agentPort), h.Addr(), PublicPort, d.apiURL(), more, data)
	return d.startProgram(ctx, host, text, PublicPort, "cinema", string(role))
}

// WaitGateways returns when the controller can use all gateways.
func (d *Deployment) WaitGateways(ctx context.Context) error {
	return Poll(ctx, "the gateways", func() error {
		for host, role := range d.gateways {
			if role == CinemaOwn {
				continue
			}
			if err := d.GatewayUp(ctx, host, role); err != nil {
				return fmt.Errorf("%w: %s", err, d.LastWords(host))
			}
		}
		return nil
	})
}

// GatewayUp says why the controller cannot use the gateway of a host.
func (d *Deployment) GatewayUp(ctx context.Context, host string, role CinemaRole) error {
	var all []agents.AgentInfo
	if err := d.Get(ctx, cinemaPath+"/"+string(role)+"/agents", &all); err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(a agents.AgentInfo) bool { return a.Name == host })
	if i < 0 {
		return fmt.Errorf("%s gateway %s is not known", role, host)
	}
	if a := all[i]; a.State != agents.Up || len(a.Places) == 0 {
		return fmt.Errorf("%s gateway %s is %s, places %v: %s", role, host, a.State, a.Places, a.Error)
	}
	return nil
}

// GatewayFiles are the certificate of a gateway and what it trusts, and APIURL is where it
// reaches the controller.
func (d *Deployment) GatewayFiles(host string) (files pki.Files, apiURL string) {
	file := func(name string) string { return filepath.Join(d.dir, name) }
	return pki.Files{Cert: file(host + ".crt"), Key: file(host + ".key"), CA: file("ca.crt")}, d.apiURL()
}

// PublicURL is where people reach a gateway.
func (d *Deployment) PublicURL(host string) string {
	return fmt.Sprintf("http://%v", netip.AddrPortFrom(d.lab.Host(host).Addr(), PublicPort))
}

// AddChannel declares a channel.
func (d *Deployment) AddChannel(ctx context.Context, c cinema.ChannelSpec) error {
	if err := d.Do(ctx, http.MethodPost, cinemaPath+"/channels", c, nil); err != nil {
		return fmt.Errorf("add channel %s: %w", c.Name, err)
	}
	return nil
}

// Lineup is what viewers can choose from.
func (d *Deployment) Lineup(ctx context.Context) (l gatewayapi.Lineup, err error) {
	err = d.Get(ctx, cinemaPath+"/lineup", &l)
	return l, err
}

// WaitOnAir returns when all channels of the lineup are live.
func (d *Deployment) WaitOnAir(ctx context.Context) error {
	return Poll(ctx, "the channels", func() error {
		l, err := d.Lineup(ctx)
		for _, c := range l.Channels {
			if err == nil && c.OnAir != gatewayapi.OnAirLive {
				err = fmt.Errorf("channel %s is %s", c.Name, c.OnAir)
			}
		}
		return err
	})
}

// CinemaNetwork is lab.Cinema, and what its hosts are.
func CinemaNetwork(name string, link delayline.Params) (lab.Topology, map[string]CinemaRole) {
	return lab.Cinema(name, link), map[string]CinemaRole{"in1": CinemaIngress, "in2": CinemaIngress, "out1": CinemaEgress, "out2": CinemaEgress}
}

// Viewer is the host of CinemaNetwork on which somebody watches.
const Viewer = "viewer"
