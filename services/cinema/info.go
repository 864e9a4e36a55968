package cinema

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// Declared is a channel as it was declared, without its secrets.
type Declared struct {
	Name            string                   `json:"name"`
	Number          uint16                   `json:"number"`
	Title           string                   `json:"title"`
	Source          gatewayapi.SourceAddress `json:"source,omitempty" doc:"Address of its producer, without its account, stream key and the values of its parameters; left out: a producer publishes it by WHIP"`
	BitRate         units.Rate               `json:"bit_rate"`
	Picture         gatewayapi.Picture       `json:"picture" enum:"360p,480p,720p,1080p,1440p" doc:"Largest picture that viewers get if its gateway encodes it"`
	Ingress         string                   `json:"ingress,omitempty" doc:"Declared ingress gateway; left out: the controller chooses"`
	ViewPassword    bool                     `json:"view_password" doc:"Whether viewers need a password"`
	PublishPassword bool                     `json:"publish_password" doc:"Whether it has a password for producers"`
}

func declared(c *Channel) Declared {
	return Declared{
		Name: c.Name, Number: c.Number, Title: cmp.Or(c.Title, c.Name), Source: gatewayapi.SourceAddress(c.Source), BitRate: c.BitRate,
		Picture: cmp.Or(c.Picture, gatewayapi.Picture720p), Ingress: c.Ingress,
		ViewPassword: c.ViewHash != "", PublishPassword: c.PublishHash != "",
	}
}

// ChannelInfo is a channel as the API shows it.
type ChannelInfo struct {
	Declared
	kit.Condition
	At        string           `json:"at,omitempty" doc:"Ingress gateway to which it is assigned"`
	OnAir     gatewayapi.OnAir `json:"on_air" enum:"waiting,live,down" doc:"State of its producer: waiting: it has not sent yet; live: it sends; down: it has fallen silent"`
	Since     *time.Time       `json:"since,omitempty" doc:"When that state began"`
	Measured  units.Rate       `json:"measured" doc:"Bit rate of the last second"`
	KeyFrames units.Duration   `json:"key_frames" doc:"Time between its last two key frames; 0s: not known"`
	Media     gatewayapi.Media `json:"media,omitempty" enum:"picture and sound,picture only,sound only" doc:"What its producer sends now"`
	Shown     string           `json:"shown,omitempty" doc:"Picture that viewers get, if its gateway encodes it, and how and why it differs from its producer's"`
	Producer  string           `json:"producer,omitempty" doc:"Address of its producer, or the process that reads its source"`
	Error     string           `json:"error,omitempty" doc:"Why it does not arrive, as its ingress gateway reports"`
	Viewers   int              `json:"viewers"`
}

// ViewerInfo is a viewer as the API shows it.
type ViewerInfo struct {
	ID       string         `json:"id"`
	Gateway  string         `json:"gateway"`
	Port     uint16         `json:"port" doc:"UDP port of the gateway for the viewer's packets; the same for all if the gateway copies to them itself"`
	Channels []string       `json:"channels" doc:"Channels that are copied to it; the one that it sees comes first, and a second one during a change"`
	Since    time.Time      `json:"since"`
	Address  string         `json:"address,omitempty" doc:"Its IP address"`
	Player   string         `json:"player,omitempty"`
	Changes  int            `json:"changes" doc:"Number of its changes of channel"`
	Zap      units.Duration `json:"zap" doc:"Duration of the last change, from the request to the first packet of the new channel's key frame"`
	Packets  uint64         `json:"packets" doc:"Packets in its stream, with those of bursts and repetitions, which no switch copies"`
	Lost     uint64         `json:"lost" doc:"Packets lost between the gateways"`
	// Delivered is counted by switches, the other figures by the gateway.
	Delivered uint64 `json:"delivered" doc:"Packets that its switch has copied to it, by the counters of its buckets, of all channels that it was copied; it lacks what they count between a reading and a change of their group, so that its difference from packets is no loss"`
}

// TreeInfo is the tree of a channel as the API shows it.
type TreeInfo struct {
	Channel  string       `json:"channel"`
	BitRate  units.Rate   `json:"bit_rate" doc:"Bit rate that is reserved for it on each link"`
	From     string       `json:"from,omitempty" doc:"Port by which it enters the network; empty: nobody watches it"`
	Links    []string     `json:"links" doc:"Links that carry it, by the ports from which they lead"`
	Former   []string     `json:"former,omitempty" doc:"Links of its old tree, on which packets in flight still arrive; for half a second"`
	Switches []TreeSwitch `json:"switches"`
	Viewers  int          `json:"viewers" doc:"Copies for viewers, and for gateways that copy to theirs themselves"`
}

// TreeSwitch is one switch of a tree.
type TreeSwitch struct {
	Switch string `json:"switch"`
	In     uint32 `json:"in" doc:"Port by which the channel enters it"`
	Out    int    `json:"out" doc:"Links over which it forwards the channel"`
	Groups int    `json:"groups" doc:"Groups that copy the channel for viewers"`
	Copies int    `json:"copies" doc:"Copies for viewers, and for gateways that copy to theirs themselves"`
}

// show converts channels to the form that the API shows.
func (s *Service) show(all []kit.Item[Channel]) []ChannelInfo {
	out := make([]ChannelInfo, len(all))
	for i := range all {
		out[i] = s.channelInfo(all[i])
	}
	return out
}

func (s *Service) channelInfo(x kit.Item[Channel]) ChannelInfo {
	i := ChannelInfo{Declared: declared(&x.Value), Condition: s.Channels.Condition(x), OnAir: gatewayapi.OnAirWaiting, Viewers: s.viewers.countWatching(x.Name)}
	i.Problem = s.problem(x.Name)
	st, at := s.sources.channelState(x.Name)
	i.At = at
	if st.Name != "" {
		i.OnAir, i.Measured, i.KeyFrames, i.Media, i.Shown, i.Producer, i.Error = onAir(st.OnAir), st.Measured, st.KeyFrames, mediaOf(st.Media), st.Shown, st.Producer, st.Error
	}
	if !st.Since.IsZero() {
		i.Since = &st.Since
	}
	return i
}

// problem returns what is wrong with a channel, or "".
func (s *Service) problem(channel string) string {
	var lines []string
	if err := s.Channels.LastError(channel); err != nil {
		lines = append(lines, err.Error())
	}
	if said := s.sources.problem(channel); said != "" {
		lines = append(lines, said)
	}
	return strings.Join(lines, "; ")
}

// onAir returns a gateway's value if it is one of the defined ones, and OnAirWaiting otherwise.
func onAir(x gatewayapi.OnAir) gatewayapi.OnAir {
	if x == gatewayapi.OnAirLive || x == gatewayapi.OnAirDown {
		return x
	}
	return gatewayapi.OnAirWaiting
}

// mediaOf returns a gateway's value if it is one of the defined ones, and "" otherwise.
func mediaOf(x gatewayapi.Media) gatewayapi.Media {
	switch x {
	case gatewayapi.MediaBoth, gatewayapi.MediaPicture, gatewayapi.MediaSound:
		return x
	}
	return ""
}

// viewerInfos converts viewers to the form that the API shows.
func (s *Service) viewerInfos(ctx context.Context, all []viewer) []ViewerInfo {
	out, delivered := []ViewerInfo{}, s.delivered.sumsByViewer(ctx)
	for _, v := range all {
		i := ViewerInfo{
			ID: v.id, Gateway: v.gateway, Port: v.port, Channels: slices.Clone(v.channels), Since: v.reported.Since, Player: v.reported.Player,
			Changes: v.reported.Changes, Zap: v.reported.Zap, Packets: v.reported.Packets, Lost: v.reported.Lost, Delivered: delivered[v.id],
		}
		if v.reported.Address.IsValid() {
			i.Address = v.reported.Address.String()
		}
		out = append(out, i)
	}
	return out
}

// treeInfos lists the trees of all channels.
func (tm *treeManager) treeInfos() []TreeInfo {
	out := []TreeInfo{}
	for _, x := range tm.Channels.Items() {
		out = append(out, tm.treeInfo(x))
	}
	return out
}

func (tm *treeManager) treeInfo(x kit.Item[Channel]) TreeInfo {
	i := TreeInfo{Channel: x.Name, BitRate: x.Value.BitRate, Links: []string{}, Switches: []TreeSwitch{}}
	tm.mu.Lock()
	defer tm.mu.Unlock()
	cs := tm.states[x.Name]
	if cs == nil || len(cs.applied.Edges)+len(cs.copies) == 0 {
		return i
	}
	i.From = cs.applied.Root.String()
	onward := map[openflow.DatapathID]int{}
	for _, e := range cs.applied.Edges {
		onward[e.From.Switch]++
		i.Links = append(i.Links, e.From.String())
	}
	for _, e := range cs.draining.tree.Edges {
		if !slices.Contains(cs.applied.Edges, e) {
			i.Former = append(i.Former, e.From.String())
		}
	}
	in := cs.applied.InPorts()
	for _, d := range slices.Sorted(maps.Keys(in)) {
		c := cs.copies[d]
		i.Switches = append(i.Switches, TreeSwitch{Switch: d.String(), In: in[d], Out: onward[d], Groups: c.groups, Copies: c.copies})
		i.Viewers += c.copies
	}
	return i
}

// lineup returns the channels and gateways from which viewers can choose.
func (s *Service) lineup() gatewayapi.Lineup {
	out := gatewayapi.Lineup{Channels: []gatewayapi.Listed{}, Gateways: []gatewayapi.Gateway{}}
	for _, x := range s.Channels.Items() {
		c := &x.Value
		st, at := s.sources.channelState(x.Name)
		l := gatewayapi.Listed{
			Name: c.Name, Number: c.Number, Title: cmp.Or(c.Title, c.Name), OnAir: onAir(st.OnAir), Viewers: s.viewers.countWatching(c.Name), Protected: c.ViewHash != "",
		}
		if c.Source == "" && c.PublishHash != "" {
			l.PublishAt = s.sources.publicURL(at)
		}
		out.Channels = append(out.Channels, l)
	}
	slices.SortFunc(out.Channels, func(a, b gatewayapi.Listed) int { return cmp.Compare(a.Number, b.Number) })
	for _, a := range s.egress.List() {
		st := a.State()
		g := gatewayapi.Gateway{Name: a.Name, URL: publicURL(st.Status.PublicURL)}
		if st.Unfit(s.Media) == "" {
			g.Room = s.room(a)
		}
		out.Gateways = append(out.Gateways, g)
	}
	return out
}

// LinkInfo is the bandwidth that channels reserve of one direction of a link, as the API shows it.
type LinkInfo struct {
	Link     string     `json:"link" doc:"Port from which the link leads"`
	To       string     `json:"to" doc:"Port to which the link leads"`
	Channels int        `json:"channels" doc:"Channels that use the link"`
	Kept     units.Rate `json:"kept" doc:"Sum of their declared bit rates, which is reserved for them"`
	Most     units.Rate `json:"most" doc:"The most that channels may reserve of it; 0bit: its capacity is not known, and no channel is refused for it"`
}

// linkInfos lists the links between switches, each direction separately.
func (tm *treeManager) linkInfos() []LinkInfo {
	links := tm.Network.Topology().Links
	out := make([]LinkInfo, len(links))
	for i, x := range tm.reservations.Loads(links) {
		out[i] = LinkInfo{links[i].From.String(), links[i].To.String(), x.Channels, rateOf(x.Taken), rateOf(x.Most)}
	}
	return out
}

func rateOf(bits uint64) units.Rate { return units.Rate(min(bits, math.MaxInt64)) }
