package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"
)

// Agent is the configuration of "sluice agent".
type Agent struct {
	Name     string    `yaml:"name" pattern:"[A-Za-z0-9][A-Za-z0-9._-]{0,62}" form:"a name of letters, digits, dots, dashes" doc:"Name of the agent in listings and logs. Empty: the machine's host name."`
	Log      Log       `yaml:"log" doc:"What is logged, and how."`
	Control  Control   `yaml:"control" doc:"The interface for the controller: HTTPS with certificates on both sides."`
	Data     Data      `yaml:"data" doc:"The connections that carry data."`
	Sessions Sessions  `yaml:"sessions" doc:"Limits of the sessions the agent carries."`
	Transfer Transfer  `yaml:"transfer" doc:"Parameters of sessions for which the controller sets none."`
	Announce Announced `yaml:"announce" doc:"Announces the agent to a controller, instead of an operator adding it there."`
}

// Control is the agent's interface for its controller.
type Control struct {
	Listen Address `yaml:"listen" doc:"Where it listens."`
	TLS    TLS     `yaml:"tls" doc:"The agent's certificate and the authority of its controllers. All three are needed: \"sluice pki issue\" makes them."`
}

// Data is where the agent's data connections end.
type Data struct {
	Address netip.Addr    `yaml:"address" doc:"Address for clients, servers and other agents; it must be on one of the machine's interfaces. Empty: the address that control.listen names."`
	Second  netip.Addr    `yaml:"second_address" doc:"Address of the other family, for an agent that carries both IPv4 and IPv6. Empty: it carries that of address alone."`
	Ports   PortRange     `yaml:"ports" doc:"Ports on which other agents connect: one for each path that a session may use at once, at most 64. Empty: one, which the kernel chooses."`
	Warm    int           `yaml:"warm" min:"1" max:"512" doc:"How many idle connections to each known agent are kept, 512 to all, so that a new session starts at speed. More sessions than that at once wait for new ones."`
	Memory  string        `yaml:"memory" doc:"File in which the agent keeps what its paths to other agents carry, so that it begins at their rates after a restart, too. Empty: it learns them anew."`
	WarmFor time.Duration `yaml:"warm_for" min:"1s" max:"24h" doc:"How long a connection is kept idle."`
}

// Sessions limits what the agent carries.
type Sessions struct {
	Ports       PortRange     `yaml:"ports" doc:"Ports towards clients and servers: one for each session, and not again for 20 s after it. The switches drop what comes from them without being a session's, so nothing else on the machine may use them; they must lie outside net.ipv4.ip_local_port_range."`
	Max         int           `yaml:"max" min:"1" max:"1000000" doc:"How many sessions it accepts."`
	Idle        time.Duration `yaml:"idle" min:"10s" max:"168h" doc:"How long a session may carry nothing before it is ended."`
	DialTimeout time.Duration `yaml:"dial_timeout" min:"100ms" max:"1m" doc:"How long a server may take to answer."`
}

// Transfer is the parameters of a session.
type Transfer struct {
	Connections int    `yaml:"connections" min:"0" max:"64" doc:"Connections between the two agents (p). 0: chosen from round-trip time and loss, up to auto_connections."`
	Auto        int    `yaml:"auto_connections" min:"1" max:"64" doc:"The most connections that are chosen."`
	Chunk       Size   `yaml:"chunk" min:"4KiB" max:"16MiB" doc:"Bytes sent on one connection before the next one's turn (c)."`
	Queue       int    `yaml:"queue" min:"1" max:"65536" doc:"Chunks that a connection may run ahead (q). A session holds at most p, q and c multiplied, each way."`
	Congestion  string `yaml:"congestion" pattern:"[a-z0-9_-]{1,15}" form:"the name of a congestion control of the kernel, like bbr or cubic" doc:"Congestion control of the connections. Empty: cubic on local paths without loss, otherwise bbr where the kernel has it."`
	Buffer      Size   `yaml:"buffer" min:"64KiB" max:"1GiB" doc:"Socket buffers of the connections. The agent raises them beyond the kernel's limit if it may, else warns and names the sysctl."`
}

// Announced says to which controller the agent announces itself.
type Announced struct {
	Server    string `yaml:"server" pattern:"https://[^/]+" form:"a URL like https://controller:8443" doc:"URL of the controller's API. Empty: the agent is added by an operator."`
	TokenFile string `yaml:"token_file" file:"yes" doc:"File with a token of that API. Empty: the certificate of control.tls says who announces itself."`
	URL       string `yaml:"url" pattern:"https://[^/]+" form:"a URL like https://agent:8440" doc:"URL under which the controller reaches the control interface: at the address from which the agent calls, or one in the controller's sos.control_subnets. Empty: made from control.listen."`
}

// DefaultAgent is the configuration of an agent that is told nothing.
func DefaultAgent() *Agent {
	return &Agent{
		Log:      Log{Level: "info", Format: "text"},
		Control:  Control{Listen: Loopback(8440)},
		Data:     Data{Ports: PortRange{8441, 8448}, Warm: 256, WarmFor: time.Minute},
		Sessions: Sessions{Ports: PortRange{10240, 32767}, Max: 4096, Idle: 2 * time.Hour, DialTimeout: 3 * time.Second},
		Transfer: Transfer{Auto: 8, Chunk: 256 << 10, Queue: 256, Buffer: 128 << 20},
	}
}

// Check implements Checked.
func (a *Agent) Check(k *Checker) {
	k.Files(a)
	k.TLS("control.tls", a.Control.TLS, true)
	if !a.Control.Listen.IsValid() {
		k.Fail("control.listen", "empty", "write "+AddressForm)
		return
	}
	k.Require(a.Control.TLS.Enabled(), "control.tls.cert", "missing", "the control interface needs cert, key and ca; make them with \"sluice pki issue agent NAME\"")
	a.checkData(k)
	k.Require(a.Announce.Server != "" || a.Announce.TokenFile == "" && a.Announce.URL == "", "announce.server", "missing", "name the controller's API, or remove announce.token_file and announce.url")
}

// First is the agent's first data address.
func (a *Agent) First() netip.Addr { return cmp.Or(a.Data.Address, a.Control.Listen.Addr()) }

func (a *Agent) checkData(k *Checker) {
	p, addr, second, control := a.Data.Ports, a.Data.Address, a.Data.Second, a.Control.Listen
	n := int(p.Last) - int(p.First) + 1
	k.Require(n <= 64, "data.ports", fmt.Sprintf("%d ports", n), "a range of at most 64 ports")
	k.Require(!addr.IsMulticast() && addr.Zone() == "", "data.address", "not an address that others can use", "a unicast address without a zone, like 192.0.2.1 or 2001:db8::1")
	k.Require(!addr.IsUnspecified(), "data.address", "every address", "one address of one interface: it is what other agents and switches are told")
	k.Require(addr.IsValid() || !control.Addr().IsUnspecified(), "data.address", "missing", "write the address for data, since control.listen names none")
	k.Require(!second.IsValid() || !second.IsMulticast() && !second.IsUnspecified() && second.Zone() == "" && second.Is4() != a.First().Is4(),
		"data.second_address", "not an address of the other family", "a unicast address without a zone, of the other family than data.address")
	k.Require(p.First == 0 || control.Port() < p.First || control.Port() > p.Last, "data.ports", "contains the port of control.listen", "a range without that port")
}
