package cli

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/internal/clientaddr"
)

// Egress is the configuration of "sluice cinema egress".
type Egress struct {
	Name            string           `yaml:"name" pattern:"[A-Za-z0-9][A-Za-z0-9._-]{0,62}" form:"a name of letters, digits, dots, dashes" doc:"Name of the gateway, as its certificate has it. Empty: the machine's host name."`
	Log             config.Log       `yaml:"log" doc:"What is logged, and how."`
	Control         config.Control   `yaml:"control" doc:"The interface for the controller: HTTPS with certificates on both sides."`
	Data            EgressData       `yaml:"data" doc:"Where channels come in from the network that carries them."`
	Public          GatewayPublic    `yaml:"public" doc:"The interface for viewers: the site, and WHEP."`
	ICE             ICE              `yaml:"ice" doc:"Where viewers' browsers reach it for pictures and sound."`
	MaxViewers      int              `yaml:"max_viewers" min:"1" max:"100000" doc:"How many viewers it takes. More are sent to another gateway that has room."`
	MaxPerAddress   int              `yaml:"max_per_address" min:"1" max:"100000" doc:"How many of them may come from one address (of IPv6: one /64)."`
	Burst           bool             `yaml:"burst" doc:"Has a viewer that changes channel get what has come since the new channel's last key frame at once, and so its picture. Without it, it gets the picture with the next key frame, and nobody gets more at once than a channel sends."`
	MakeBeforeBreak bool             `yaml:"make_before_break" doc:"Has a viewer that changes channel go on with the old one until the new one's picture is there; for that long both come. Without it the old channel ends first: the viewer's picture stands still until the new one's is there, and the port before the gateway needs no room for two."`
	Announce        config.Announced `yaml:"announce" doc:"The controller: the gateway announces itself there, and asks it for channels."`
}

// EgressData configures the reception of channels.
type EgressData struct {
	Address netip.Addr       `yaml:"address" doc:"Its IPv4 address there, which must be on one of the machine's interfaces. Empty: the address that control.listen names."`
	Buckets string           `yaml:"buckets" oneof:"viewer|gateway" doc:"Who copies a channel to the gateway's viewers. viewer: the switch before it, with a bucket for each. gateway: the switch has one bucket for the gateway, and this copies to its viewers; for gateways that have many viewers of one channel, and ports that would be too narrow."`
	Ports   config.PortRange `yaml:"ports" doc:"UDP ports for channels, one for each viewer; with buckets: gateway, it takes the first that is free. Nothing else on the machine may use them: they should lie outside net.ipv4.ip_local_port_range."`
}

// ICE configures the UDP ports by which pictures and sound are sent to viewers' browsers.
type ICE struct {
	Addresses []netip.Addr `yaml:"addresses" doc:"The addresses at which viewers' browsers reach it by UDP: the machine's, or those of a NAT that forwards the port to it. Empty: the address that public.listen names."`
	Port      int          `yaml:"port" min:"0" max:"65535" doc:"UDP port for all viewers. 0: the number of public.listen's port, so that a firewall opens one number."`
}

// DefaultEgress returns the configuration of an egress gateway whose file sets nothing.
func DefaultEgress() *Egress {
	return &Egress{
		Log:        config.Log{Level: "info", Format: "text"},
		Control:    config.Control{Listen: config.Loopback(8440)},
		Data:       EgressData{Buckets: "viewer", Ports: config.PortRange{First: 30000, Last: 34095}},
		Public:     GatewayPublic{Listen: config.Loopback(8450), ForwardedHeader: clientaddr.XForwardedFor},
		MaxViewers: 500, MaxPerAddress: 64, Burst: true, MakeBeforeBreak: true,
	}
}

// Check implements config.Checked.
func (e *Egress) Check(k *config.Checker) {
	k.Files(e)
	checkGateway(k, e.Control, GatewayData{Address: e.Data.Address}, e.Public, e.Announce)
	k.Require(e.Announce.Server != "", "announce.server", "missing", "name the controller's API, like https://controller:8443: it says what there is to see")
	k.Require(e.Announce.TokenFile == "", "announce.token_file", "of no use", "remove it: the certificate of control.tls says for which gateway's viewers channels are asked")
	ports := e.Data.Ports
	n := int(ports.Last) - int(ports.First) + 1
	k.Require(ports.First >= 1024, "data.ports", "not ports of its own", "a range from 1024 on, like 30000-34095")
	k.Require(n >= e.MaxViewers || e.Data.Buckets == "gateway", "data.ports", fmt.Sprintf("%d ports", n), fmt.Sprintf("one for each viewer at least, and max_viewers is %d", e.MaxViewers))
	e.checkPublic(k)
}

func (e *Egress) checkPublic(k *config.Checker) {
	everywhere := e.Public.Listen.IsValid() && e.Public.Listen.Addr().IsUnspecified()
	k.Require(!everywhere || e.Public.URL != "", "public.url", "missing", "what people call the gateway, since public.listen names no address")
	k.Require(!everywhere || len(e.ICE.Addresses) > 0, "ice.addresses", "missing", "the addresses at which browsers reach the machine, since public.listen names none")
	checkICE(k, e.ICE.Addresses)
}

// First returns the gateway's data address, which defaults to that of its control server.
func (e *Egress) First() netip.Addr { return cmp.Or(e.Data.Address, e.Control.Listen.Addr()) }

// Agent returns the settings that the gateway has in common with the agents of all services: its name
// and addresses, its log, and how it communicates with its controller.
func (e *Egress) Agent() *config.Agent {
	a := config.DefaultAgent()
	a.Name, a.Log, a.Control, a.Announce = e.Name, e.Log, e.Control, e.Announce
	a.Data.Address, a.Sessions.Max = e.First(), e.MaxViewers
	return a
}

// URL returns the URL at which viewers reach the gateway.
func (e *Egress) URL() string {
	switch {
	case e.Public.URL != "":
		return strings.TrimRight(e.Public.URL, "/")
	case e.Public.TLS.Enabled():
		return "https://" + e.Public.Listen.String()
	}
	return "http://" + e.Public.Listen.String()
}

// Media returns the addresses and ports at which viewers' browsers reach the gateway by UDP.
func (e *Egress) Media() (all []netip.AddrPort) {
	port, addresses := uint16(e.ICE.Port), e.ICE.Addresses
	if port == 0 {
		port = e.Public.Listen.Port()
	}
	if len(addresses) == 0 {
		addresses = []netip.Addr{e.Public.Listen.Addr()}
	}
	for _, a := range addresses {
		all = append(all, netip.AddrPortFrom(a, port))
	}
	return all
}

// Logging returns the settings of the log.
func (e *Egress) Logging() config.Log { return e.Log }
