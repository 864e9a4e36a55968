package tables

import (
	"net/netip"
	"time"

	"pgregory.net/rapid"

	agentcontrol "github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/sos"
)

// The ports of the connection that agents carry, and those of the agents.
const (
	clientPort  = 50_000
	serverPort  = 80
	xPort       = 41_000 // of agent x towards the client
	yPort       = 42_000 // of agent y towards the server
	xDataPort   = 40_001
	firstOfPort = 40_000 // session ports of agents
	lastOfPort  = 42_999
)

// carrying is what SOS has been told and does.
type carrying struct {
	whitelist sos.Whitelist
	client    int // who the client is
	server    int
	layout    sos.Layout
	session   bool // there is one
	way       []network.Hop
	flags     map[openflow.DatapathID]bool // which switches see TCP's flags
}

func canAll(openflow.DatapathID, openflow.Field) bool { return true }

// drawSOS draws a whitelist and a session, and has the switches do what SOS wants for it.
func (w *world) drawSOS(t *rapid.T, ends ...int) {
	c := &carrying{flags: map[openflow.DatapathID]bool{}}
	w.sos = c
	for _, d := range w.top.Switches {
		c.flags[d] = rapid.Bool().Draw(t, "sees TCP flags")
	}
	pick := rapid.SampledFrom(ends)
	c.client, c.server = pick.Draw(t, "client"), pick.Draw(t, "server")
	if c.client == c.server {
		c.server = other
	}
	w.met = []connection{{c.client, c.server, clientPort, serverPort}, {agentX, c.client, xPort, clientPort}, {agentX, agentY, 7000, xDataPort}, {agentX, agentY, xDataPort, 7000}}
	w.drawWhitelist(t)
	for _, d := range w.top.Switches {
		rules, err := sos.Punts(c.whitelist, time.Now(), d, c.flags[d])
		if err != nil {
			t.Fatalf("punts: %v", err)
		}
		w.declare(t, "sos", "punt/"+d.String(), rules)
	}
	for _, i := range []int{agentX, agentY} {
		a := &w.parties[i]
		rules, err := sos.StrayRules(a.at, a.ip, agentcontrol.PortRange{First: firstOfPort, Last: lastOfPort}, c.flags[a.at.Switch])
		if err != nil {
			t.Fatalf("guards: %v", err)
		}
		w.declare(t, "sos", "guard/"+a.name, rules)
	}
	if rapid.IntRange(0, 3).Draw(t, "session") > 0 {
		w.drawSession(t)
	}
}

func (w *world) drawWhitelist(t *rapid.T) {
	c := w.sos
	wide := func(a netip.Addr) netip.Prefix {
		p, _ := a.Prefix(rapid.SampledFrom([]int{32, 24, 24, 0}).Draw(t, "prefix"))
		return p
	}
	if rapid.IntRange(0, 4).Draw(t, "the connection is whitelisted") > 0 {
		c.whitelist = append(c.whitelist, sos.Entry{
			ID: "1", Clients: []netip.Prefix{wide(w.parties[c.client].ip)}, Servers: []netip.Prefix{wide(w.parties[c.server].ip)},
			Ports: []sos.PortRange{{First: serverPort - rapid.Uint16Range(0, 5).Draw(t, "below"), Last: serverPort + rapid.Uint16Range(0, 9).Draw(t, "above")}},
		})
	}
	if rapid.Bool().Draw(t, "others are whitelisted") {
		of := rapid.SampledFrom([]connection{{other, server, 0, 443}, {agentX, agentY, 0, serverPort}, {agentY, agentX, 0, 7000}}).Draw(t, "who")
		c.whitelist = append(c.whitelist, sos.Entry{
			ID: "2", Clients: []netip.Prefix{wide(w.parties[of.from].ip)}, Servers: []netip.Prefix{wide(w.parties[of.to].ip)},
			Ports: []sos.PortRange{{First: of.dstPort, Last: of.dstPort}},
		})
	}
}

// drawSession draws the session of the connection. One that cannot be, because both sides
// look alike on a link, SOS refuses, and so does the ledger.
func (w *world) drawSession(t *rapid.T) {
	c, x, y := w.sos, &w.parties[agentX], &w.parties[agentY]
	from, to := &w.parties[c.client], &w.parties[c.server]
	c.layout = sos.Layout{
		Client: netip.AddrPortFrom(from.ip, clientPort), Server: netip.AddrPortFrom(to.ip, serverPort),
		ClientSide: sos.Side{
			EndMAC: from.mac, FarMAC: to.mac, EndVLAN: from.vlan, Agent: x.ip, AgentPort: xPort, AgentMAC: x.mac, AgentVLAN: x.vlan,
			PuntsSYN: c.flags[from.at.Switch], OnLink: rapid.Bool().Draw(t, "x is on the client's link"), Path: w.path(from.at, x.at),
		},
		ServerSide: sos.Side{
			EndMAC: to.mac, FarMAC: from.mac, EndVLAN: to.vlan, Agent: y.ip, AgentPort: yPort, AgentMAC: y.mac, AgentVLAN: y.vlan,
			OnLink: rapid.Bool().Draw(t, "y is on the server's link"), Path: w.path(to.at, y.at),
		},
	}
	atServer, err := c.layout.ServerRules(canAll)
	if err != nil {
		t.Fatalf("server's side: %v", err)
	}
	atClient, err := c.layout.ClientRules(canAll)
	if err != nil {
		t.Fatalf("client's side: %v", err)
	}
	if !w.apply(t, "sos", "server", network.Program{Rules: atServer}) {
		return
	}
	if !w.apply(t, "sos", "client", network.Program{Rules: atClient}) {
		w.apply(t, "sos", "server", network.Program{})
		return
	}
	c.session, c.way = true, w.path(x.at, y.at)
	between := sos.Steering{
		X: sos.Terminal{Addr: x.ip, MAC: x.mac, VLAN: x.vlan}, Y: sos.Terminal{Addr: y.ip, MAC: y.mac, VLAN: y.vlan}, Paths: [][]network.Hop{c.way},
	}
	rules, err := between.Rules(canAll)
	if err != nil {
		t.Fatalf("between agents: %v", err)
	}
	w.declare(t, "sos", "pair", rules)
}

// declare applies rules that nothing stands against.
func (w *world) declare(t fataler, owner, key string, rules []network.Rule) {
	if !w.apply(t, owner, key, network.Program{Rules: rules}) {
		t.Fatalf("%s: the ledger refuses the rules of %s", owner, key)
	}
}
