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
	Log      Log       `yaml:"log" doc:"Which lines are logged, and in which format."`
	Control  Control   `yaml:"control" doc:"The interface for the controller: HTTPS with certificates on both sides."`
	Data     Data      `yaml:"data" doc:"The connections that carry data."`
	Sessions Sessions  `yaml:"sessions" doc:"Limits of the sessions that the agent carries."`
	Transfer Transfer  `yaml:"transfer" doc:"Parameters of sessions for which the controller sets no parameters."`
	Announce Announced `yaml:"announce" doc:"Announces the agent to a controller. Without it, an operator adds the agent there."`
}

// Control is the agent's interface for its controller.
type Control struct {
	Listen Address `yaml:"listen" doc:"Address and port on which the agent listens for its controller."`
	TLS    TLS     `yaml:"tls" doc:"The agent's certificate and the authority of its controllers. All three are needed: \"sluice pki issue\" makes them."`
}

// Data describes the agent's data connections.
type Data struct {
	Address netip.Addr    `yaml:"address" doc:"Address for clients, servers and other agents. It must be on one of the machine's interfaces. Empty: the address of control.listen."`
	Second  netip.Addr    `yaml:"second_address" doc:"Address of the other family, for an agent that carries both IPv4 and IPv6. Empty: the agent carries only the family of address."`
	Ports   PortRange     `yaml:"ports" doc:"Ports on which other agents connect: one for each path that a session may use at once, at most 64. Empty: one port, which the kernel chooses."`
	Warm    int           `yaml:"warm" min:"1" max:"512" doc:"Number of idle connections that are kept to each known agent, and at most 512 to all, so that a new session starts at full speed. If more sessions start at once, the others wait for new connections."`
	Memory  string        `yaml:"memory" doc:"File in which the agent keeps the rates of its paths to other agents, so that it starts at these rates after a restart. Empty: it measures them again."`
	WarmFor time.Duration `yaml:"warm_for" min:"1s" max:"24h" doc:"How long an idle connection is kept; the last two to each port of a peer are kept for ten times that long."`
}

// Sessions limits the agent's sessions.
type Sessions struct {
	Ports       PortRange     `yaml:"ports" doc:"Ports towards clients and servers. Each session uses one, which is not used again for 20 s afterwards. The switches drop packets from these ports that belong to no session, so no other program on the machine may use them. They must lie outside net.ipv4.ip_local_port_range."`
	Max         int           `yaml:"max" min:"1" max:"1000000" doc:"Number of sessions that the agent accepts."`
	Idle        time.Duration `yaml:"idle" min:"10s" max:"168h" doc:"How long a session may be idle before the agent ends it."`
	DialTimeout time.Duration `yaml:"dial_timeout" min:"100ms" max:"1m" doc:"How long a server may take to accept a connection."`
}

// Transfer holds the parameters of a session.
type Transfer struct {
	Connections int    `yaml:"connections" min:"0" max:"64" doc:"Connections between the two agents (p). 0: chosen from round-trip time and loss, up to auto_connections."`
	Auto        int    `yaml:"auto_connections" min:"1" max:"64" doc:"Maximum number of connections if connections is 0."`
	Chunk       Size   `yaml:"chunk" min:"4KiB" max:"16MiB" doc:"Bytes that are sent on one connection before the next connection is used (c)."`
	Queue       int    `yaml:"queue" min:"1" max:"65536" doc:"Number of chunks by which a connection may be ahead of the others (q). A session buffers at most p x q x c bytes in each direction."`
	Congestion  string `yaml:"congestion" pattern:"[a-z0-9_-]{1,15}" form:"the name of a congestion control of the kernel, like bbr or cubic" doc:"Congestion control of the connections. Empty: cubic on local paths without loss, and otherwise bbr if the kernel has it."`
	Buffer      Size   `yaml:"buffer" min:"64KiB" max:"1GiB" doc:"Size of the connections' socket buffers. The agent raises them beyond the kernel's limit if it has the permission. Otherwise it logs a warning that names the sysctl."`
}

// Announced describes how the agent announces itself to a controller.
type Announced struct {
	Server    string `yaml:"server" pattern:"https://[^/]+" form:"a URL like https://controller:8443" doc:"URL of the controller's API. Empty: an operator adds the agent."`
	TokenFile string `yaml:"token_file" file:"yes" doc:"File with a token of that API. Empty: the agent authenticates itself with the certificate of control.tls."`
	URL       string `yaml:"url" pattern:"https://[^/]+" form:"a URL like https://agent:8440" doc:"URL at which the controller reaches the control interface. Its address must be the one from which the agent connects, or one in the controller's sos.control_subnets. Empty: made from control.listen."`
}

// DefaultAgent returns the configuration of an agent with default values.
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

// First returns the agent's first data address.
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
