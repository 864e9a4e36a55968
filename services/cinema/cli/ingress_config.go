package cli

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/internal/clientaddr"
)

// Ingress is the configuration of "sluice cinema ingress".
type Ingress struct {
	Name        string           `yaml:"name" pattern:"[A-Za-z0-9][A-Za-z0-9._-]{0,62}" form:"a name of letters, digits, dots, dashes" doc:"Name of the gateway in listings and logs. Empty: the machine's host name."`
	Log         config.Log       `yaml:"log" doc:"What is logged, and how."`
	Control     config.Control   `yaml:"control" doc:"The interface for the controller: HTTPS with certificates on both sides."`
	Data        GatewayData      `yaml:"data" doc:"Where the gateway is in the network that carries channels."`
	Public      GatewayPublic    `yaml:"public" doc:"The interface for producers, who publish by WHIP."`
	ICE         IngressICE       `yaml:"ice" doc:"Where producers reach it for pictures and sound by WHIP, if that is not at public.listen."`
	MaxChannels int              `yaml:"max_channels" min:"1" max:"1000" doc:"How many channels it has at most, and so how many processes that read sources."`
	FFmpeg      string           `yaml:"ffmpeg" pattern:"[A-Za-z0-9._/+-]+" form:"the name or path of a program" doc:"The program that reads and transcodes sources, by its path or by a name that is looked for in PATH. ffprobe is looked for beside it."`
	Announce    config.Announced `yaml:"announce" doc:"Announces the gateway to a controller, instead of an operator adding it there."`
}

// GatewayData configures the data interface of a gateway of Cinema.
type GatewayData struct {
	Address netip.Addr `yaml:"address" doc:"Its IPv4 address there, which must be on one of the machine's interfaces. Empty: the address that control.listen names."`
}

// IngressICE configures how producers reach the gateway's UDP port.
type IngressICE struct {
	Addresses []netip.Addr `yaml:"addresses" doc:"The addresses of a NAT before it, at which producers reach it by UDP: answers name these, and NAT forwards the port of public.listen's number to the gateway. Empty: the address that public.listen names."`
}

// GatewayPublic configures the public interface of a gateway of Cinema: that for producers or viewers.
type GatewayPublic struct {
	Listen          config.Address `yaml:"listen" doc:"Where it listens: HTTP over TCP, and media over UDP at the port of the same number."`
	TLS             config.TLS     `yaml:"tls" doc:"Certificate of the interface. Browsers want one that they trust; clients show none."`
	Plaintext       bool           `yaml:"plaintext" doc:"Permits HTTP without TLS elsewhere than on the loopback interface, as behind a proxy: passwords can be read on the way then."`
	URL             string         `yaml:"url" pattern:"https?://[^/?#]+(/[^?#]*)?" form:"a URL like https://live.example.org:8460" doc:"URL under which people reach it, with the path if a proxy has it below one. Empty: made from listen."`
	TrustedProxies  []netip.Prefix `yaml:"trusted_proxies" doc:"Addresses of reverse proxies before it: what comes by them counts as that of the client that they name last in forwarded_header. Without it, all that comes by a proxy counts as one client's."`
	ForwardedHeader string         `yaml:"forwarded_header" oneof:"X-Forwarded-For|Forwarded" doc:"The header in which the proxies name the client. Nothing else is believed, because proxies pass on other headers as clients write them."`
}

// Proxies returns the trusted proxies.
func (p *GatewayPublic) Proxies() clientaddr.Proxies {
	return clientaddr.Proxies{Trusted: p.TrustedProxies, Header: p.ForwardedHeader}
}

// DefaultIngress returns the configuration of an ingress gateway whose file sets nothing.
func DefaultIngress() *Ingress {
	return &Ingress{
		Log:         config.Log{Level: "info", Format: "text"},
		Control:     config.Control{Listen: config.Loopback(8440)},
		Public:      GatewayPublic{Listen: config.Loopback(8460), ForwardedHeader: clientaddr.XForwardedFor},
		MaxChannels: 64, FFmpeg: "ffmpeg",
	}
}

// Check implements config.Checked.
func (g *Ingress) Check(k *config.Checker) {
	k.Files(g)
	checkGateway(k, g.Control, g.Data, g.Public, g.Announce)
	checkICE(k, g.ICE.Addresses)
	k.Require(g.FFmpeg != "", "ffmpeg", "empty", "the name or path of a program, like ffmpeg")
}

// checkGateway checks the settings that ingress and egress gateways have in common.
func checkGateway(k *config.Checker, control config.Control, data GatewayData, public GatewayPublic, announce config.Announced) {
	k.TLS("control.tls", control.TLS, true)
	k.TLS("public.tls", public.TLS, false)
	for key, listen := range map[string]config.Address{"control.listen": control.Listen, "public.listen": public.Listen} {
		k.Require(listen.IsValid(), key, "empty", "write "+config.AddressForm)
	}
	k.Require(control.TLS.Enabled(), "control.tls.cert", "missing", "the control interface needs cert, key and ca; make them with \"sluice pki issue agent NAME\"")
	k.Require(public.TLS.CA == "" && len(public.TLS.Roles) == 0, "public.tls.ca", "not for people", "remove ca and roles: who publishes or watches has a password")
	k.Require(!public.Listen.IsValid() || public.TLS.Enabled() || public.Listen.Loopback() || public.Plaintext,
		"public.tls.cert", "missing", "set cert and key, or public.plaintext if something before it has TLS")
	k.Distinct("public.listen", []config.Address{control.Listen, public.Listen})
	checkProxies(k, public.TrustedProxies)
	addr := cmp.Or(data.Address, control.Listen.Addr())
	k.Require(addr.Is4() && !addr.IsUnspecified() && !addr.IsMulticast(), "data.address",
		fmt.Sprintf("not an address that datagrams can come from (%v)", addr), "one IPv4 address of one interface")
	k.Require(announce.Server != "" || announce.TokenFile == "" && announce.URL == "", "announce.server", "missing", "name the controller's API, or remove announce.token_file and announce.url")
}

// maxICE bounds the addresses at which others reach a gateway by UDP.
const maxICE = 8

// checkICE checks the addresses at which others reach a gateway by UDP.
func checkICE(k *config.Checker, all []netip.Addr) {
	k.Require(len(all) <= maxICE, "ice.addresses", fmt.Sprintf("%d of them", len(all)), fmt.Sprintf("at most %d", maxICE))
	for i, a := range all {
		k.Require(a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && a.Zone() == "", fmt.Sprintf("ice.addresses[%d]", i),
			"not an address that others can use", "a unicast address without a zone, like 192.0.2.1 or 2001:db8::1")
	}
}

// maxProxies bounds the prefixes of trusted proxies, because every request is compared with each of
// them.
const maxProxies = 64

// checkProxies checks the prefixes of trusted proxies. A gateway believes what these proxies say about
// the client of a request.
func checkProxies(k *config.Checker, all []netip.Prefix) {
	k.Require(len(all) <= maxProxies, "public.trusted_proxies", fmt.Sprintf("%d of them", len(all)), fmt.Sprintf("at most %d", maxProxies))
	for i, p := range all {
		k.Require(!p.Addr().Is4In6(), fmt.Sprintf("public.trusted_proxies[%d]", i), "IPv4 as IPv6", "the IPv4 prefix itself, like 192.0.2.1/32")
		k.Require(p.Bits() > 0, fmt.Sprintf("public.trusted_proxies[%d]", i), "everybody", "the proxies' own addresses, like 192.0.2.1/32: who is trusted may call itself as it likes")
	}
}

// First returns the gateway's data address, which defaults to that of its control server.
func (g *Ingress) First() netip.Addr { return cmp.Or(g.Data.Address, g.Control.Listen.Addr()) }

// Agent returns the settings that the gateway has in common with the agents of all services: its name
// and addresses, its log, and how it communicates with its controller.
func (g *Ingress) Agent() *config.Agent {
	a := config.DefaultAgent()
	a.Name, a.Log, a.Control, a.Announce = g.Name, g.Log, g.Control, g.Announce
	a.Data.Address, a.Sessions.Max = g.First(), g.MaxChannels
	return a
}

// Logging returns the settings of the log.
func (g *Ingress) Logging() config.Log { return g.Log }
