package cinema

import (
	"net/netip"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// Section holds the settings below the key cinema of the controller's configuration. Channels may
// also be declared by the API. At each start and reload, a configured channel replaces a stored one of
// the same name; the API cannot change it. A channel that is no longer configured is withdrawn.
type Section struct {
	Enabled      bool       `yaml:"enabled" doc:"Off: the service and its part of the API do not exist."`
	MediaAddress netip.Addr `yaml:"media_address" doc:"IPv4 address to which the packets of all channels go inside the network. No host has it, and switches lead nothing else there."`
	LinkShare    float64    `yaml:"link_share" min:"0.01" max:"1" doc:"Share of each link's capacity that channels may take together, by their declared bit rates. The rest is left to other traffic."`
	LinkMACs     bool       `yaml:"link_macs" doc:"Channels cross each link between switches from a source MAC address of its own. It is for learning switches in between, which would see one address at several ports."`

	ControlSubnets []netip.Prefix            `yaml:"control_subnets" doc:"Subnets in which gateways that announce themselves may have their control address. Elsewhere it must be the address from which they announce themselves."`
	Channels       map[string]ChannelSection `yaml:"channels" reload:"yes" doc:"Channels, by name. What stands here is changed here alone, and withdrawn when it does no more; the API has others."`
}

// ChannelSection is a channel; see ChannelSpec.
type ChannelSection struct {
	Number  int                      `yaml:"number" min:"1" max:"9999" doc:"Number of its own, by which its packets are known."`
	Title   string                   `yaml:"title" doc:"What viewers see. Empty: its name."`
	Source  gatewayapi.SourceAddress `yaml:"source" doc:"Where it comes from: test:, file:/PATH, or a URL with rtsp, rtmp, srt or udp. Empty: a producer publishes it by WHIP."`
	BitRate units.Rate               `yaml:"bit_rate" min:"100kbit" max:"1Gbit" doc:"What it may send; so much is kept for it on each link that carries it."`
	Picture string                   `yaml:"picture" oneof:"360p|480p|720p|1080p|1440p" doc:"Largest picture that viewers get if its gateway encodes it. A larger one is scaled down; a producer by WHIP is not encoded. Empty: 720p."`
	Ingress string                   `yaml:"ingress" doc:"Ingress gateway that has it. Empty: the controller chooses."`

	ViewHash    config.Secret `yaml:"view_hash" doc:"Hash of the password of its viewers, by bcrypt, like those that \"htpasswd -nB USER\" prints behind the colon. Empty: everybody may watch."`
	PublishHash config.Secret `yaml:"publish_hash" doc:"The same of its producers. Empty: nobody publishes it by WHIP."`
}

// DefaultSection returns the settings of a controller whose configuration does not have the key
// cinema.
func DefaultSection() *Section {
	return &Section{Enabled: true, MediaAddress: DefaultMedia, LinkShare: DefaultShare}
}

// ParsedChannels checks the configured channels. It returns them by name, and all their faults.
func (c *Section) ParsedChannels() (map[string]Channel, kit.Faults) {
	numbers := map[uint16]string{}
	return kit.ParseSpecs("channels", c.Channels, func(name string, x ChannelSection) (Channel, kit.Faults) {
		spec := ChannelSpec{Name: name, Number: x.Number, Title: x.Title, Source: gatewayapi.StoredSource(x.Source), BitRate: x.BitRate, Picture: gatewayapi.Picture(x.Picture), Ingress: x.Ingress}
		out, faults := spec.ParseFile(string(x.ViewHash), string(x.PublishHash))
		other, taken := numbers[out.Number]
		faults.Check(!taken, "number", x.Number, "a number of its own: channel %s has this one", other)
		numbers[out.Number] = name
		return out, faults
	})
}

// Check implements config.Section.
func (c *Section) Check(k *config.Checker, _ *config.Controller) {
	a := c.MediaAddress
	k.Require(a.Is4() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && !a.IsLinkLocalUnicast(), "cinema.media_address",
		"no unicast IPv4 address", "one that no host of the network has, like "+DefaultMedia.String())
	_, faults := c.ParsedChannels()
	faults.Report(k, Name)
}
