package gatewayapi

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/internal/units"
)

// MediaPort is the destination port of channels' datagrams, the default port of RTP (RFC 3551,
// section 8).
const MediaPort = 5004

// firstPort is the source port of a channel's datagrams minus the channel's number.
const firstPort = 20000

// MaxNumber is the highest number of a channel.
const MaxNumber = 9999

// MinRate and MaxRate bound the declared rate of a channel, in bit/s. Controller and ingress
// gateways use the same bounds, so that no channel is declared that every gateway refuses. A
// lower rate does not suffice for picture and sound.
const (
	MinRate = units.Rate(100_000)
	MaxRate = units.Rate(1_000_000_000)
)

// SourcePort returns the source port of the datagrams of the channel that has the given number.
func SourcePort(number uint16) uint16 { return firstPort + number }

// Channel is a channel in the form that its ingress gateway gets.
type Channel struct {
	Name   string `json:"name"`
	Number uint16 `json:"number"`
	// Source is the address of the channel's producer; it is empty if the producer publishes by
	// WHIP.
	Source StoredSource `json:"source,omitempty"`
	// BitRate is the rate at which the channel may send, in bit/s.
	BitRate units.Rate `json:"bit_rate"`
	// Picture is the largest picture of a channel whose producer is transcoded.
	Picture Picture `json:"picture,omitempty"`
	// To is the destination address of the channel's datagrams.
	To netip.Addr `json:"to"`
	// PublishHash is the bcrypt hash of the producers' password; if it is empty, nobody may
	// publish.
	PublishHash string `json:"publish_hash,omitempty"`
}

// Burst requests the packets of a channel since its last key frame.
type Burst struct {
	// To is the destination of the packets: a viewer's port at its gateway.
	To netip.AddrPort `json:"to"`
}

// OnAir is the state of a channel's producer.
type OnAir string

// States of a channel's producer.
const (
	OnAirWaiting OnAir = "waiting" // nobody has sent yet
	OnAirLive    OnAir = "live"
	OnAirDown    OnAir = "down" // the producer has fallen silent
)

// Media says which media a producer sends.
type Media string

// These are the values of Media.
const (
	MediaBoth    Media = "picture and sound"
	MediaPicture Media = "picture only"
	MediaSound   Media = "sound only"
)

// ChannelState is what an ingress gateway reports of a channel each second.
type ChannelState struct {
	Channel
	OnAir OnAir `json:"on_air"`
	// Since is when OnAir last changed.
	Since time.Time `json:"since"`
	// Measured is the rate at which the channel has sent in the last second, in bit/s.
	Measured units.Rate `json:"measured"`
	// KeyFrames is the time between the last two key frames; zero means that it is not known
	// yet.
	KeyFrames units.Duration `json:"key_frames"`
	// Producer is the address of the producer, or names the process that reads the source.
	Producer string `json:"producer,omitempty"`
	// Media is what the producer of a live channel sends.
	Media Media `json:"media,omitempty"`
	// Shown says which picture viewers get of a producer that is transcoded, and how and why it differs
	// from the producer's.
	Shown string `json:"shown,omitempty"`
	// Error is why the channel does not arrive at its gateway.
	Error string `json:"error,omitempty"`
}

// ChannelEvent is an event of a channel at its ingress gateway.
type ChannelEvent struct {
	At      time.Time `json:"at"`
	Channel string    `json:"channel"`
	// What is the kind of event: "live", "down", "refused".
	What   string `json:"what" enum:"live,down,refused"`
	Detail string `json:"detail,omitempty"`
}

// MaxWatched is the maximum number of a viewer's channels: two during a change.
const MaxWatched = 2

// Viewer is what an egress gateway reports of one viewer each second.
type Viewer struct {
	ID string `json:"id"`
	// Port is the UDP port of the gateway that receives the viewer's packets.
	Port uint16 `json:"port"`
	// Shared reports whether the gateway's viewers use the same port.
	Shared bool `json:"shared,omitempty"`
	// Channels are the channels that the viewer is to get; the one it sees comes first.
	Channels []string  `json:"channels"`
	Since    time.Time `json:"since"`
	// Address is the viewer's IP address.
	Address netip.Addr `json:"address"`
	// Player is the viewer's protocol: "whep" or "websocket".
	Player string `json:"player"`
	// Changes counts the viewer's changes of channel. Zap is the duration of the last one, from
	// the request to the first packet of the new channel's key frame.
	Changes int            `json:"changes"`
	Zap     units.Duration `json:"zap"`
	Packets uint64         `json:"packets"`
	Lost    uint64         `json:"lost"` // packets lost between the ingress and the egress gateway
}

// ViewerEvent is an event of a viewer at its egress gateway.
type ViewerEvent struct {
	At     time.Time `json:"at"`
	Viewer string    `json:"viewer"`
	// What is the kind of event: "joined", "changed", "left".
	What    string         `json:"what" enum:"joined,changed,left"`
	Channel string         `json:"channel,omitempty"`
	Zap     units.Duration `json:"zap,omitempty"`
	// Grant is the number of the controller's grant by which the viewer has changed. The
	// viewer's other channels then end, unless a later grant for this viewer exists.
	Grant  uint64 `json:"grant,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// Wanted requests channels for a viewer. Without channels, it says that the viewer has left.
type Wanted struct {
	// Gateway is the name of the egress gateway, as in its certificate.
	Gateway string `json:"gateway" maxLength:"63" doc:"Name of the egress gateway, as in its certificate"`
	Viewer  string `json:"viewer" pattern:"^[0-9a-f]{32}$" patternDescription:"32 hex digits" doc:"Identifier that the gateway gave the viewer"`
	Port    uint16 `json:"port" minimum:"1024" maximum:"65535" doc:"UDP port of the gateway for the viewer's packets"`
	// Shared reports whether other viewers may have the same port. A channel is copied to a shared
	// port once.
	Shared   bool     `json:"shared,omitempty" doc:"All viewers of the gateway with this flag share the port: a channel is copied there once, and the gateway copies it to them"`
	Channels []string `json:"channels" maxItems:"2" nullable:"false" doc:"Names of channels; the one that the viewer sees comes first. None: the viewer has left"`
	// Password is the password of the channel that is new among Channels.
	Password string `json:"password,omitempty" maxLength:"72" writeOnly:"true" doc:"Password of the new channel, if it has one"`
	// Burst requests the packets since the last key frame of the new channel. If no channel is
	// new, it requests the packets of the first channel, because some were lost.
	Burst bool `json:"burst,omitempty" doc:"Send the packets since the last key frame of the new channel, or, if none is new, of the first one, because some were lost"`
}

// Granted answers a Wanted with the sources of the channels.
type Granted struct {
	Channels []Source `json:"channels"`
	// Number identifies the grant in the record of the change. It is zero if the controller ends
	// no channels by records.
	Number uint64 `json:"number,omitempty" doc:"Number of this grant, for the record of the change: with it the gateway says that the viewer needs only the first channel from now on"`
}

// Source is the source of a channel's datagrams.
type Source struct {
	Channel string         `json:"channel"`
	From    netip.AddrPort `json:"from"`
}

// Lineup lists what viewers can choose from.
type Lineup struct {
	Channels []Listed  `json:"channels"`
	Gateways []Gateway `json:"gateways"`
}

// Listed is a channel as viewers see it.
type Listed struct {
	Name      string `json:"name"`
	Number    uint16 `json:"number"`
	Title     string `json:"title"`
	OnAir     OnAir  `json:"on_air"`
	Viewers   int    `json:"viewers"`
	Protected bool   `json:"protected" doc:"Whether viewers need a password"`
	// PublishAt is the URL of the ingress gateway at which the channel's producer publishes. It is
	// empty if producers cannot publish the channel.
	PublishAt string `json:"publish_at,omitempty"`
}

// Gateway is an egress gateway as viewers see it.
type Gateway struct {
	Name string `json:"name"`
	// Room is how many more viewers the gateway takes; zero also while it drains.
	Room int `json:"room"`
	// URL is the address of the gateway's page.
	URL string `json:"url"`
}

// Key returns GATEWAY/VIEWER, which identifies the viewer among those of all gateways.
func (w *Wanted) Key() string { return fmt.Sprintf("%s/%s", w.Gateway, w.Viewer) }
