package networkapi

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

const wantSwitch = "no such switch is connected; /api/v1/network/switches lists those that are"

// dpid parses a datapath identifier, or a switch's name in the configuration.
func (s *server) dpid(location, text string) (openflow.DatapathID, error) {
	for d, name := range s.names {
		if name == text {
			return d, nil
		}
	}
	d, err := openflow.ParseDatapathID(text)
	if err != nil {
		return 0, api.NotFound(location, text, wantSwitch)
	}
	return d, nil
}

// find returns the switch that a text names.
func (s *server) find(location, text string) (*network.Switch, error) {
	dpid, err := s.dpid(location, text)
	if err != nil {
		return nil, err
	}
	sw, ok := s.core.Switch(dpid)
	if !ok {
		return nil, api.NotFound(location, text, wantSwitch)
	}
	return sw, nil
}

func (s *server) switches(context.Context, *nothing) (*body[[]Switch], error) {
	out := []Switch{}
	for _, sw := range s.core.Switches() {
		out = append(out, s.view(sw))
	}
	return &body[[]Switch]{out}, nil
}

func (s *server) view(sw *network.Switch) Switch {
	d, c, st := sw.Description(), sw.Capabilities(), sw.Stats()
	out := Switch{
		DPID: sw.DPID().String(), Name: s.names[sw.DPID()], Address: sw.RemoteAddr().String(), Since: sw.Since(), Role: sw.Role().String(),
		Manufacturer: d.Manufacturer, Hardware: d.Hardware, Software: d.Software,
		Tables: c.Tables, Bundles: c.Bundles, Rewrite: rewrite(c), Ports: len(sw.Ports()), Rules: len(sw.Rules()),
		PacketIns: st.PacketIns, PacketOutsDropped: st.PacketOutsDropped, Held: st.Held, Errors: st.Errors, Malformed: st.Malformed,
		Drift: st.Drift.Total(), Deviations: deviationsOf(st.Drift.Deviations), Comparisons: st.Drift.Comparisons,
	}
	if !st.Drift.Last.IsZero() {
		out.DriftedAt = &st.Drift.Last
	}
	return out
}

type oneSwitchInput struct {
	DPID string `path:"dpid" format:"switch" doc:"Datapath identifier, or the switch's name in the configuration"`
}

func (s *server) oneSwitch(_ context.Context, in *oneSwitchInput) (*body[SwitchDetail], error) {
	sw, err := s.find("path.dpid", in.DPID)
	if err != nil {
		return nil, err
	}
	return &body[SwitchDetail]{SwitchDetail{s.view(sw), s.portsOf(sw)}}, nil
}

type portsInput struct {
	Switch string `query:"switch" format:"switch" doc:"Return only ports of this switch"`
}

// only returns the switch that a query names, or all switches if it names none.
func (s *server) only(text string) ([]*network.Switch, error) {
	if text == "" {
		return s.core.Switches(), nil
	}
	sw, err := s.find("query.switch", text)
	return []*network.Switch{sw}, err
}

func (s *server) ports(_ context.Context, in *portsInput) (*body[[]Port], error) {
	switches, err := s.only(in.Switch)
	if err != nil {
		return nil, err
	}
	out := []Port{}
	for _, sw := range switches {
		out = append(out, s.portsOf(sw)...)
	}
	return &body[[]Port]{out}, nil
}

func (s *server) portsOf(sw *network.Switch) []Port {
	out := []Port{}
	for _, p := range sw.Ports() {
		if p.Number > openflow.PortMax {
			continue
		}
		at := network.PortRef{Switch: sw.DPID(), Port: p.Number}
		v := Port{Place: placeOf(at), Name: p.Name, MAC: p.MAC.String(), Up: p.Up(), Edge: s.core.IsEdge(at), Bits: uint64(p.CurrSpeed) * 1000}
		if r, ok := s.core.Traffic().Port(at); ok {
			v.Traffic = &Rate{
				At: r.At, Seconds: r.Interval.Seconds(), RxBits: r.RxBits, TxBits: r.TxBits, RxPackets: r.RxPackets, TxPackets: r.TxPackets,
				RxDropped: r.RxDropped, TxDropped: r.TxDropped, RxErrors: r.RxErrors, TxErrors: r.TxErrors,
			}
		}
		out = append(out, v)
	}
	return out
}

type hostsInput struct {
	IP  string `query:"ip" format:"ip-address" doc:"Return only the host with this address"`
	MAC string `query:"mac" format:"mac" doc:"Return only hosts with this MAC address, in any VLAN"`
}

func (s *server) hosts(_ context.Context, in *hostsInput) (*body[[]Host], error) {
	var wrong []api.Field
	var ip netip.Addr
	var mac openflow.MAC
	var err error
	if ip, err = netip.ParseAddr(in.IP); err != nil && in.IP != "" {
		wrong = append(wrong, api.Field{Location: "query.ip", Value: in.IP, Want: "want an IP address, as in 192.0.2.1 or 2001:db8::1"})
	}
	if mac, err = openflow.ParseMAC(in.MAC); err != nil && in.MAC != "" {
		wrong = append(wrong, api.Field{Location: "query.mac", Value: in.MAC, Want: "want a MAC address, as in 02:00:00:00:00:01"})
	}
	if err := api.InvalidFields(wrong); err != nil {
		return nil, err
	}
	out := []Host{}
	for _, h := range s.core.Hosts() {
		if in.MAC != "" && h.MAC != mac || in.IP != "" && !slices.Contains(h.IPs, ip.Unmap()) {
			continue
		}
		out = append(out, hostOf(h))
	}
	return &body[[]Host]{out}, nil
}

type rulesInput struct {
	Switch string `query:"switch" format:"switch" doc:"Return only rules of this switch"`
	Owner  string `query:"owner" doc:"Return only rules of this owner" example:"sos"`
}

// countWait bounds the wait for the counters of switches.
const countWait = 2 * time.Second

func (s *server) rules(ctx context.Context, in *rulesInput) (*body[[]Rule], error) {
	switches, err := s.only(in.Switch)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, countWait)
	defer cancel()
	counted := make([][]rule.Installed, len(switches))
	var all sync.WaitGroup
	for i, sw := range switches {
		// A switch that does not answer is listed with the counters last read.
		all.Go(func() { counted[i], _ = sw.CountedRules(ctx) })
	}
	all.Wait()
	out := []Rule{}
	for _, rules := range counted {
		for i := range rules {
			if in.Owner == "" || rules[i].Owner == in.Owner {
				out = append(out, ruleOf(&rules[i]))
			}
		}
	}
	return &body[[]Rule]{out}, nil
}

// actions returns a text with the actions of a rule, in the order in which a switch executes them.
func actions(r *rule.Installed) string {
	var words []string
	if r.Meter != 0 {
		words = append(words, fmt.Sprintf("meter:%d", r.Meter))
	}
	for _, a := range r.Actions {
		words = append(words, a.String())
	}
	if r.Next != 0 {
		words = append(words, fmt.Sprintf("goto_table:%d", r.Next))
	}
	if len(words) == 0 {
		return "drop"
	}
	return strings.Join(words, ",")
}
