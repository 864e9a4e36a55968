package networkapi

import (
	"cmp"
	"context"
	"strconv"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/stats"
)

// Talker is traffic between two addresses, estimated from sampled packets.
type Talker struct {
	At       Place   `json:"at" doc:"Port by which the traffic enters a switch"`
	Src      string  `json:"src"`
	Dst      string  `json:"dst"`
	Protocol string  `json:"protocol" example:"udp"`
	SrcPort  uint16  `json:"src_port,omitempty"`
	DstPort  uint16  `json:"dst_port,omitempty"`
	Bits     float64 `json:"bits_per_second"`
	Packets  float64 `json:"packets_per_second"`
	Samples  int     `json:"samples" doc:"Number of sampled packets"`
	Error    float64 `json:"error" doc:"Relative error of the rates at a confidence of 95 %, because they are estimated from few packets"`
}

type talkersInput struct {
	At    string `query:"at" format:"switch-port" doc:"Return only traffic that enters by this port, SWITCH/PORT; by default, by ports behind which hosts are" example:"00000000000000a1/3"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"20" doc:"Maximum number of entries; the largest come first"`
}

func (s *server) talkers(_ context.Context, in *talkersInput) (*body[[]Talker], error) {
	of := func(c stats.Conversation) bool { return s.core.IsEdge(c.At) }
	if in.At != "" {
		at, err := s.linkEnd("query.at", in.At)
		if err != nil {
			return nil, err
		}
		of = func(c stats.Conversation) bool { return c.At == at }
	}
	out := []Talker{}
	for _, t := range s.core.Traffic().Talkers(in.Limit, of) {
		out = append(out, Talker{
			At: placeOf(t.At), Src: t.Src.Addr().String(), Dst: t.Dst.Addr().String(), Protocol: protocol(t.Proto),
			SrcPort: t.Src.Port(), DstPort: t.Dst.Port(), Bits: t.Bits, Packets: t.Packets, Samples: t.Samples, Error: t.Error,
		})
	}
	return &body[[]Talker]{out}, nil
}

// protocol returns the name of an IP protocol, or its number if it has no common name.
func protocol(n uint8) string {
	return cmp.Or(map[uint8]string{
		packet.ProtoTCP: "tcp", packet.ProtoUDP: "udp", packet.ProtoICMP: "icmp", packet.ProtoICMPv6: "icmpv6", packet.ProtoSCTP: "sctp",
	}[n], strconv.Itoa(int(n)))
}
