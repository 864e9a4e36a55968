package testbed

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/sluice-net/sluice/lab"
)

// config returns the controller's configuration: one uplink, one pool, and the other domains as
// neighbours.
func (x *HandoverDomain) config(all []*HandoverDomain) string {
	openflow := x.o.Lab.ControllerAddr()
	if len(x.o.Domains) > 1 {
		openflow, _ = x.o.Lab.ControllerAddrOf(x.Name) // Deploy has checked the name before.
	}
	n := x.Network
	var b strings.Builder
	fmt.Fprintf(&b, `data_dir: %[1]s/state
api:
  listen: %[2]s
  tls: {cert: %[1]s/controller.crt, key: %[1]s/controller.key, ca: %[1]s/ca.crt}
openflow: {listen: ["%[3]v"], plaintext: true, echo_interval: 1s, echo_timeout: 10s}
network:
  discovery: {interval: 250ms, timeout: 4s, latency_window: 4}
sos: {enabled: false}
handover:
  enabled: true
  domain: %[4]s
  borders:
    - {port: %[5]s}
`, x.dir, x.addr, openflow, x.Name, x.port(n.Root, lab.UplinkPort))
	for _, other := range all {
		if other != x {
			fmt.Fprintf(&b, "    - {port: %s, peer: %s}\n", x.port(n.Root, lab.PeeringPort), other.Name)
		}
	}
	fmt.Fprintf(&b, `  pools:
    devices: {prefix: %v, gateway: %v, first: %v}
`, n.Prefix, n.GatewayAddr, n.GatewayAddr.Next().Next())
	for _, other := range all {
		if other != x { // what this controller tells visitors from the other domain about their home network
			fmt.Fprintf(&b, "    of-%s: {prefix: %v, gateway: %v, home: %s}\n", other.Name, other.Network.Prefix, other.Network.GatewayAddr, other.Name)
		}
	}
	x.neighbours(&b, all)
	return b.String()
}

// neighbours writes the other domains, each with the certificate that it has issued to this one.
func (x *HandoverDomain) neighbours(b *strings.Builder, all []*HandoverDomain) {
	if len(all) == 1 {
		return
	}
	b.WriteString("  neighbours:\n")
	for _, other := range all {
		if other == x {
			continue
		}
		cert := filepath.Join(x.dir, "at-"+other.Name)
		fmt.Fprintf(b, "    %s: {url: %s, tls: {cert: %s.crt, key: %s.key, ca: %s}, prefixes: [%v], unsigned: %v}\n",
			other.Name, other.URL(), cert, cert, other.CAFile(), other.Network.Prefix, x.o.Unsigned)
	}
}

// port returns a switch's port as the configuration writes it.
func (x *HandoverDomain) port(sw string, port int) string {
	return fmt.Sprintf("%016x/%d", x.o.Lab.Switch(sw).DPID(), port)
}
