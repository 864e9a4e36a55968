package gatewayapi

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/internal/units"
)

// MediaPort is the destination port of channels' datagrams, that of RTP (RFC 3551, section 8).
const MediaPort = 5004

// firstPort is the source port of a channel's datagrams, less its number.
const firstPort = 20000

// MaxNumber is the greatest number of a channel.
const MaxNumber = 9999

// What a channel may be declared to send at least and at most, in bit/s. Controller and ingress
// gateways hold to the same bounds, so that none is declared that every gateway refuses: what is
// less is no picture with sound.
const (
	MinRate = units.Rate(100_000)
	MaxRate = units.Rate(1_000_000_000)
)

// SourcePort is the port from which the datagrams of the channel with a number come.
func SourcePort(number uint16) uint16 { return firstPort + number }

// Channel is a channel as its ingress gateway has it.
type Channel struct {
	Name   string `json:"name"`
	Number uint16 `json:"number"`
	// Source is where it comes from; empty is a producer that publishes it by WHIP.
	Source string `json:"source,omitempty"`
	// BitRate is what it may send, in bit/s.
	BitRate units.Rate `json:"bit_rate"`
	// To is the address to which its datagrams go.
	To netip.Addr `json:"to"`
	// PublishHash is that of the password of its producers, by bcrypt; empty: none publishes.
	PublishHash string `json:"publish_hash,omitempty"`
}

// Burst asks for the packets from the last key frame on.
type Burst struct {
	// To is the address to which they go: a viewer's port at its gateway.
	To netip.AddrPort `json:"to"`
}

// OnAir says whether a channel's producer sends.
type OnAir string

// What a channel can be.
const (
	OnAirWaiting OnAir = "waiting" // nobody has sent yet
	OnAirLive    OnAir = "live"
	OnAirDown    OnAir = "down" // the producer has fallen silent
)

// ChannelState is what an ingress gateway tells of a channel each second.
type ChannelState struct {
	Channel
	OnAir OnAir `json:"on_air"`
	// Since is when OnAir became so.
	Since time.Time `json:"since"`
	// Measured is what it has sent in the last second, in bit/s.
	Measured units.Rate `json:"measured"`
	// KeyFrames is the time between the last two key frames; 0: not known yet.
	KeyFrames units.Duration `json:"key_frames"`
	// Producer is the address of who publishes it, or the process that reads it.
	Producer string `json:"producer,omitempty"`
	// Error is why it does not come.
	Error string `json:"error,omitempty"`
}

// ChannelEvent is what an ingress gateway records.
type ChannelEvent struct {
	At      time.Time `json:"at"`
	Channel string    `json:"channel"`
	// What has happened: "live", "down", "refused".
	What   string `json:"what" enum:"live,down,refused"`
	Detail string `json:"detail,omitempty"`
}

// MaxWatched is how many channels a viewer may have at once: two while it changes.
const MaxWatched = 2

// Viewer is one viewer of an egress gateway, as it tells of it each second.
type Viewer struct {
	ID string `json:"id"`
	// Port is the UDP port at which the gateway gets the viewer's packets.
	Port uint16 `json:"port"`
	// Shared says that the port is that of others of its viewers too.
	Shared bool `json:"shared,omitempty"`
	// Channels are those that it is to get, the one that it sees first.
	Channels []string  `json:"channels"`
	Since    time.Time `json:"since"`
	// Address is where the viewer is.
	Address netip.Addr `json:"address"`
	// Player is how: "whep" or "websocket".
	Player string `json:"player"`
	// Changes counts its changes of channel; Zap is what the last one took, from the
	// request to the first packet of the new channel's key frame.
	Changes int            `json:"changes"`
	Zap     units.Duration `json:"zap"`
	Packets uint64         `json:"packets"`
	Lost    uint64         `json:"lost"` // between ingress and gateway
}

// ViewerEvent is what an egress gateway records.
type ViewerEvent struct {
	At     time.Time `json:"at"`
	Viewer string    `json:"viewer"`
	// What has happened: "joined", "changed", "left".
	What    string         `json:"what" enum:"joined,changed,left"`
	Channel string         `json:"channel,omitempty"`
	Zap     units.Duration `json:"zap,omitempty"`
	Detail  string         `json:"detail,omitempty"`
}

// Wanted is which channels a viewer is to get; none: it has left.
type Wanted struct {
	// Gateway is the name of the egress gateway, which its certificate has too.
	Gateway string `json:"gateway" maxLength:"63" doc:"Name of the egress gateway, as in its certificate"`
	Viewer  string `json:"viewer" pattern:"^[0-9a-f]{32}$" patternDescription:"32 hex digits" doc:"Identifier that the gateway gave the viewer"`
	Port    uint16 `json:"port" minimum:"1024" maximum:"65535" doc:"UDP port of the gateway for the viewer's packets"`
	// Shared says that other viewers may have the port too: a channel is copied there once.
	Shared   bool     `json:"shared,omitempty" doc:"The port is that of all viewers of the gateway that say so: a channel is copied there once, and the gateway copies it to them"`
	Channels []string `json:"channels" maxItems:"2" nullable:"false" doc:"Names of channels, the one that is seen first; none: the viewer has left"`
	// Password is that of the channel that is new among them.
	Password string `json:"password,omitempty" maxLength:"72" writeOnly:"true" doc:"Password of the channel that is new, if it has one"`
	// Burst asks the ingress gateway of the channel that is new for the packets from the
	// last key frame on. If none is new, it is that of the first, of which some were lost.
	Burst bool `json:"burst,omitempty" doc:"Send what has come since the last key frame of the channel that is new, or of the first if none is, because some was lost"`
}

// Granted says where the packets of the channels come from.
type Granted struct {
	Channels []Source `json:"channels"`
}

// Source is where a channel's datagrams come from.
type Source struct {
	Channel string         `json:"channel"`
	From    netip.AddrPort `json:"from"`
}

// Lineup is what viewers can choose from.
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
	Protected bool   `json:"protected" doc:"Watching it needs a password"`
	// PublishAt is the ingress gateway at which its producer publishes; empty if nobody does.
	PublishAt string `json:"publish_at,omitempty"`
}

// Gateway is an egress gateway as viewers see it.
type Gateway struct {
	Name string `json:"name"`
	// Room is how many viewers more it takes; 0 if none, as when it is draining.
	Room int `json:"room"`
	// URL is that of its page.
	URL string `json:"url"`
}

// Key is how a viewer is called where those of all gateways are.
func (w *Wanted) Key() string { return fmt.Sprintf("%s/%s", w.Gateway, w.Viewer) }
