package testbed

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/cinema"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// CinemaRole is the role of a host as one of Cinema's gateways.
type CinemaRole string

// These are the roles.
const (
	CinemaIngress CinemaRole = "ingress"
	CinemaEgress  CinemaRole = "egress"
	// CinemaOwn is a gateway that the caller provides: it gets a certificate, but no program is
	// started.
	CinemaOwn CinemaRole = "own"
)

// apiPort is the port at which the API listens for gateways.
const apiPort = 8080

// PublicPort is the port at which Cinema's gateways serve viewers and producers. In a lab they use
// HTTP.
const PublicPort = 8000

const cinemaPath = "/api/v1/cinema"

// apiURL returns the URL of the controller's API. It is on the loopback interface of the control
// namespace, or, if there are gateways, at the controller's address.
func (d *Deployment) apiURL() string {
	if len(d.gateways) > 0 {
		return fmt.Sprintf("https://%v", netip.AddrPortFrom(d.openflow.Addr(), apiPort))
	}
	return "http://" + d.api.String()
}

// apiConfig returns the section "api" of the controller's configuration.
func (d *Deployment) apiConfig() string {
	if len(d.gateways) > 0 {
		return fmt.Sprintf("{listen: %[2]v:%[3]d, tls: {cert: %[1]s/controller.crt, key: %[1]s/controller.key, ca: %[1]s/ca.crt}}",
			d.dir, d.openflow.Addr(), apiPort)
	}
	return fmt.Sprintf("{listen: %v}", d.api)
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

// StartGateway starts the gateway of a host, also again after its process was killed.
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

// WaitGateways waits until the controller can use all gateways.
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

// GatewayUp returns an error that says why the controller cannot use the gateway of a host, or nil
// if it can.
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

// GatewayFiles returns the certificate of a gateway and its trusted authorities, and the URL of the
// controller's API.
func (d *Deployment) GatewayFiles(host string) (files pki.Files, apiURL string) {
	file := func(name string) string { return filepath.Join(d.dir, name) }
	return pki.Files{Cert: file(host + ".crt"), Key: file(host + ".key"), CA: file("ca.crt")}, d.apiURL()
}

// PublicURL returns the URL of a gateway for viewers and producers.
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

// Lineup returns the channels that viewers can choose from.
func (d *Deployment) Lineup(ctx context.Context) (l gatewayapi.Lineup, err error) {
	err = d.Get(ctx, cinemaPath+"/lineup", &l)
	return l, err
}

// LastZap waits until the gateway of the only viewer has reported so many changes of channel. It returns how long
// the last one took there: from the request to the first packet of the new channel's key frame.
func (d *Deployment) LastZap(ctx context.Context, changes int) (zap time.Duration, err error) {
	err = Poll(ctx, "the report of a change", func() error {
		var all []cinema.ViewerInfo
		if err := d.Get(ctx, cinemaPath+"/viewers", &all); err != nil {
			return err
		}
		if len(all) != 1 || all[0].Changes != changes {
			return fmt.Errorf("%d viewers, want one with %d changes: %+v", len(all), changes, all)
		}
		zap = time.Duration(all[0].Zap)
		return nil
	})
	return zap, err
}

// WaitOnAir waits until all channels of the lineup are live.
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

// CinemaNetwork returns the topology of lab.Cinema and the roles of its hosts.
func CinemaNetwork(name string, link delayline.Params) (lab.Topology, map[string]CinemaRole) {
	return lab.Cinema(name, link), map[string]CinemaRole{"in1": CinemaIngress, "in2": CinemaIngress, "out1": CinemaEgress, "out2": CinemaEgress}
}

// Viewer is the host of CinemaNetwork for a viewer.
const Viewer = "viewer"
