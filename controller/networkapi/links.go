package networkapi

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/stats"
)

// Link is one direction of a link between two switches.
type Link struct {
	From      Place   `json:"from"`
	To        Place   `json:"to"`
	Latency   float64 `json:"latency_milliseconds,omitempty" doc:"Measured one-way latency; missing while unknown"`
	Jitter    float64 `json:"jitter_milliseconds" doc:"Mean difference of latency from one probe to the next (RFC 3550), measured; 0 while unknown"`
	Capacity  uint64  `json:"capacity_bits_per_second,omitempty" doc:"Configured capacity, or the speed of the slower port; missing while unknown"`
	Used      uint64  `json:"used_bits_per_second"`
	Available uint64  `json:"available_bits_per_second,omitempty" doc:"Capacity minus the used bandwidth; missing if the capacity is not known"`
	// Losses on the path and losses in queues are reported separately.
	Loss        float64    `json:"loss" doc:"Share of the packets sent that the path loses now, without what queues have lost; 0 while unknown"`
	LossPackets uint64     `json:"loss_packets" doc:"Number of packets of the last minute from which loss is computed; 0 while loss is unknown"`
	LossAt      *time.Time `json:"loss_at,omitempty" doc:"End of the time in which these packets were counted; missing while loss is unknown"`
	QueueLoss   float64    `json:"queue_loss" doc:"Share of the packets of the last minute that full queues have lost: those that the sending port has dropped, those lost while the link was full, and those lost in bursts"`
	QueueLossAt *time.Time `json:"queue_loss_at,omitempty" doc:"Time of the latest loss in queues; missing if there was none in the last minute"`
}

func linkOf(l network.Link, loss stats.Loss) Link {
	return Link{
		From: placeOf(l.From), To: placeOf(l.To), Latency: milliseconds(l.Latency), Jitter: milliseconds(l.Jitter),
		Capacity: l.Capacity, Used: l.Used, Available: l.Available(),
		Loss: loss.Path, LossPackets: loss.Packets, LossAt: timeOf(loss.At), QueueLoss: loss.Queue, QueueLossAt: timeOf(loss.QueueAt),
	}
}

// timeOf returns a pointer to a time, or nil for the zero time.
func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func (s *server) links(context.Context, *nothing) (*body[[]Link], error) {
	out := []Link{}
	for _, l := range s.core.Topology().Links {
		out = append(out, linkOf(l, s.core.Traffic().Link(l).Loss))
	}
	return &body[[]Link]{out}, nil
}

// LinkHistory holds the measurements of one direction of a link, the oldest first.
type LinkHistory struct {
	From   Place       `json:"from"`
	To     Place       `json:"to"`
	Points []LinkPoint `json:"points"`
}

// LinkPoint holds the measurements of a link at one time.
type LinkPoint struct {
	At        time.Time `json:"at" doc:"End of the interval over which used_bits_per_second was measured"`
	Seconds   float64   `json:"interval_seconds"`
	Latency   float64   `json:"latency_milliseconds,omitempty"`
	Jitter    float64   `json:"jitter_milliseconds"`
	Capacity  uint64    `json:"capacity_bits_per_second,omitempty"`
	Used      uint64    `json:"used_bits_per_second"`
	Available uint64    `json:"available_bits_per_second,omitempty"`
	Loss      float64   `json:"loss" doc:"Share of the packets sent that the path lost then, over the minute before"`
	QueueLoss float64   `json:"queue_loss" doc:"Share of the packets that queues had lost over the minute before"`
}

func pointOf(p stats.Point) LinkPoint {
	return LinkPoint{
		At: p.At, Seconds: p.Interval.Seconds(), Latency: milliseconds(p.Latency), Jitter: milliseconds(p.Jitter),
		Capacity: p.Capacity, Used: p.Used, Available: p.Available(), Loss: p.Loss, QueueLoss: p.Queue,
	}
}

type linkHistoryInput struct {
	From  string `query:"from" required:"true" format:"switch-port" doc:"Port from which the link leaves, SWITCH/PORT" example:"00000000000000a1/3"`
	Since string `query:"since" default:"1h" format:"time-or-age" doc:"Start of the measurements: a time (RFC 3339), or how long ago. At most an hour is kept." example:"10m"`
}

func (s *server) linkHistory(_ context.Context, in *linkHistoryInput) (*body[[]LinkHistory], error) {
	from, err := s.linkEnd("query.from", in.From)
	if err != nil {
		return nil, err
	}
	since, ok := sinceWhen(in.Since, time.Now())
	if !ok {
		return nil, api.Invalid("query.since", in.Since, "want a time, as in 2026-01-31T12:00:00Z, or how long ago, as in 90s or 10m")
	}
	tracks := s.core.Traffic().LinkHistory(from, since)
	if len(tracks) == 0 {
		if _, ok := s.core.Topology().LinkFrom(from); !ok && len(s.core.Traffic().LinkHistory(from, time.Time{})) == 0 {
			return nil, api.NotFound("query.from", in.From, "no link has left by this port within the last hour; /api/v1/network/links lists the links")
		}
	}
	out := []LinkHistory{}
	for _, t := range tracks {
		h := LinkHistory{From: placeOf(t.From), To: placeOf(t.To), Points: make([]LinkPoint, len(t.Points))}
		for i, p := range t.Points {
			h.Points[i] = pointOf(p)
		}
		out = append(out, h)
	}
	return &body[[]LinkHistory]{out}, nil
}

// linkEnd parses SWITCH/PORT. The switch need not be connected.
func (s *server) linkEnd(location, text string) (network.PortRef, error) {
	name, number, _ := strings.Cut(text, "/")
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return network.PortRef{}, api.Invalid(location, text, "want SWITCH/PORT, as in 00000000000000a1/3")
	}
	d, err := s.dpid(location, name)
	return network.PortRef{Switch: d, Port: uint32(n)}, err
}

// sinceWhen parses a time, or how long ago it was.
func sinceWhen(text string, now time.Time) (time.Time, bool) {
	if ago, err := time.ParseDuration(text); err == nil {
		return now.Add(-ago), ago >= 0
	}
	at, err := time.Parse(time.RFC3339, text)
	return at, err == nil
}
