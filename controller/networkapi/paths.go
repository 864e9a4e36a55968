package networkapi

import (
	"cmp"
	"context"
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/network/trace"
	"github.com/sluice-net/sluice/openflow"
)

type pathsInput struct {
	From   string `query:"from" required:"true" format:"place" doc:"Start of the paths: an address of a host, or SWITCH/PORT" example:"10.0.0.1"`
	To     string `query:"to" required:"true" format:"place" doc:"End of the paths: an address of a host, or SWITCH/PORT" example:"00000000000000a2/1"`
	Metric string `query:"metric" enum:"hops,latency,utilisation,capacity" default:"latency" doc:"Metric that the paths minimise; capacity is maximised"`
	Kind   string `query:"kind" enum:"shortest,disjoint,widest" default:"shortest" doc:"shortest: the best paths. disjoint: the best paths that share no link. widest: the path with the most free capacity"`
	Count  int    `query:"count" minimum:"1" maximum:"64" default:"1" doc:"Maximum number of paths"`
}

func (s *server) paths(_ context.Context, in *pathsInput) (*body[[]Path], error) {
	from, errFrom := s.place("query.from", in.From)
	to, errTo := s.place("query.to", in.To)
	if err := cmp.Or(errFrom, errTo); err != nil {
		return nil, err
	}
	metric, err := topology.ParseMetric(in.Metric)
	if err != nil {
		return nil, api.Invalid("query.metric", in.Metric, err.Error())
	}
	out := []Path{}
	t := s.core.Topology()
	switch in.Kind {
	case "widest":
		if a, err := t.Find(from, to, topology.Request{Objective: topology.ObjectiveWidest}); err == nil {
			v := pathOf(a.Path)
			if len(a.Path.Hops) > 1 {
				v.Free = float64(a.Width)
			}
			out = append(out, v)
		}
	case "disjoint":
		for _, p := range t.DisjointPaths(from, to, in.Count, metric) {
			out = append(out, pathOf(p))
		}
	default:
		for _, p := range t.KPaths(from, to, in.Count, metric) {
			out = append(out, pathOf(p))
		}
	}
	return &body[[]Path]{out}, nil
}

const (
	wantPlace = "want a known host's IP or MAC address, or SWITCH/PORT, as in 00000000000000a1/3"
	wantHost  = "no host with this address is known; it is learned from the first packet it sends"
)

// place parses a place, which is a known host's IP or MAC address, or SWITCH/PORT. It returns the port
// of the switch.
func (s *server) place(location, text string) (network.PortRef, error) {
	if name, number, ok := strings.Cut(text, "/"); ok {
		return s.port(location, text, name, number)
	}
	if ip, err := netip.ParseAddr(text); err == nil {
		if h, ok := s.core.HostByIP(ip); ok {
			return h.At, nil
		}
		return network.PortRef{}, api.NotFound(location, text, wantHost)
	}
	mac, err := openflow.ParseMAC(text)
	if err != nil {
		if i := strings.LastIndexByte(text, ':'); i >= 0 {
			return s.port(location, text, text[:i], text[i+1:])
		}
		return network.PortRef{}, api.Invalid(location, text, wantPlace)
	}
	for _, h := range s.core.Hosts() {
		if h.MAC == mac {
			return h.At, nil
		}
	}
	return network.PortRef{}, api.NotFound(location, text, wantHost)
}

func (s *server) port(location, text, name, number string) (network.PortRef, error) {
	sw, err := s.find(location, name)
	if err != nil {
		return network.PortRef{}, err
	}
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return network.PortRef{}, api.Invalid(location, text, wantPlace)
	}
	if _, ok := sw.Port(uint32(n)); !ok {
		return network.PortRef{}, api.NotFound(location, text, "the switch has no such port; /api/v1/network/ports lists those it has")
	}
	return network.PortRef{Switch: sw.DPID(), Port: uint32(n)}, nil
}

type traceInput struct {
	Packet string `query:"packet" required:"true" minLength:"1" maxLength:"2000" doc:"The packet in the words of ofproto/trace. in_port and switch say where it enters. Without them it enters where the host with its source address is" example:"tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80"`
}

func (s *server) trace(ctx context.Context, in *traceInput) (*body[trace.Trace], error) {
	d, err := trace.Parse(in.Packet)
	if err != nil {
		return nil, api.Invalid("query.packet", in.Packet, err.Error())
	}
	t, err := s.core.Trace(ctx, d)
	if err != nil {
		return nil, api.Invalid("query.packet", in.Packet, err.Error())
	}
	return &body[trace.Trace]{t}, nil
}
