package config

import (
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
	Metrics  Metrics   `yaml:"metrics" doc:"Prometheus metrics."`
	Announce Announced `yaml:"announce" doc:"Announces the agent to a controller, instead of an operator adding it there."`
}

// Control is the agent's interface for its controller.
type Control struct {
	Listen Address `yaml:"listen" doc:"Where it listens."`
	TLS    TLS     `yaml:"tls" doc:"The agent's certificate and the authority of its controllers. All three are needed: \"sluice pki issue\" makes them."`
}

// Data is where the agent's data connections end.
type Data struct {
	Address netip.Addr `yaml:"address" doc:"Address for clients, servers and other agents; it must be on one of the machine's interfaces. Empty: the address that control.listen names."`
	Ports   PortRange  `yaml:"ports" doc:"Ports on which other agents connect, one for each path. Empty: the kernel chooses."`
	Paths   int        `yaml:"paths" min:"1" max:"64" doc:"How many data ports are opened, so that connections can be told apart by path."`
	TLS     bool       `yaml:"tls" doc:"Encrypts what goes between agents. Both agents need it."`
	Warm    int        `yaml:"warm" min:"0" max:"256" doc:"How many idle connections to each known agent are kept, so that a new session starts at speed."`
}

// Sessions limits what the agent carries.
type Sessions struct {
	Max  int           `yaml:"max" min:"1" max:"1000000" doc:"How many sessions it accepts."`
	Idle time.Duration `yaml:"idle" min:"10s" max:"168h" doc:"How long a session may carry nothing before it is ended."`
}

// Transfer is the parameters of a session.
type Transfer struct {
	Connections int    `yaml:"connections" min:"0" max:"256" doc:"Connections between the two agents (p). 0: chosen from round-trip time and loss."`
	Chunk       Size   `yaml:"chunk" min:"4KiB" max:"16MiB" doc:"Bytes sent on one connection before the next one's turn (c)."`
	Queue       int    `yaml:"queue" min:"1" max:"1024" doc:"Chunks that a connection may run ahead (q)."`
	Congestion  string `yaml:"congestion" pattern:"[a-z0-9_-]{1,15}" form:"the name of a congestion control of the kernel, like bbr or cubic" doc:"Congestion control of the connections. Empty: bbr where the kernel has it."`
	Buffer      Size   `yaml:"buffer" min:"64KiB" max:"2GiB" doc:"Socket buffers of the connections. The agent raises them beyond the kernel's limit if it may, else warns and names the sysctl."`
}

// Metrics says where Prometheus can read.
type Metrics struct {
	Listen Address `yaml:"listen" doc:"Where metrics are served over plain HTTP, on loopback only. Empty: on the control interface alone."`
}

// Announced says to which controller the agent announces itself.
type Announced struct {
	Server    string `yaml:"server" pattern:"https://[^/]+" form:"a URL like https://controller:8443" doc:"URL of the controller's API. Empty: the agent is added by an operator."`
	TokenFile string `yaml:"token_file" file:"yes" doc:"File with a token of that API. Empty: the certificate of control.tls says who announces itself."`
	URL       string `yaml:"url" pattern:"https://[^/]+" form:"a URL like https://agent:8440" doc:"URL under which the controller reaches the control interface. Empty: made from control.listen."`
}

// DefaultAgent is the configuration of an agent that is told nothing.
func DefaultAgent() *Agent {
	return &Agent{
		Log:      Log{Level: "info", Format: "text"},
		Control:  Control{Listen: loopback(8440)},
		Data:     Data{Paths: 1, Warm: 8},
		Sessions: Sessions{Max: 10000, Idle: 2 * time.Hour},
		Transfer: Transfer{Chunk: 256 << 10, Queue: 4, Buffer: 64 << 20},
	}
}

func (a *Agent) check(k *checker) {
	k.files(a)
	k.tls("control.tls", a.Control.TLS, true)
	if !a.Control.Listen.IsValid() {
		k.fail("control.listen", "empty", "write "+descriptions[typeAddress])
		return
	}
	if !a.Control.TLS.Enabled() {
		k.fail("control.tls.cert", "missing", "the control interface needs cert, key and ca; make them with \"sluice pki issue agent NAME\"")
	}
	if a.Metrics.Listen.IsValid() && !a.Metrics.Listen.Loopback() {
		k.fail("metrics.listen", "reachable from other machines without TLS", "an address on loopback, like 127.0.0.1:9100; other machines read metrics from the control interface with a certificate")
	}
	k.distinct("metrics.listen", []Address{a.Control.Listen, a.Metrics.Listen})
	a.checkData(k)
	if a.Announce.Server == "" && (a.Announce.TokenFile != "" || a.Announce.URL != "") {
		k.fail("announce.server", "missing", "name the controller's API, or remove announce.token_file and announce.url")
	}
}

func (a *Agent) checkData(k *checker) {
	p := a.Data.Ports
	if n := int(p.Last) - int(p.First) + 1; p != (PortRange{}) && n < a.Data.Paths {
		k.fail("data.ports", "fewer ports than data.paths", "a range of at least as many ports as paths, or none so that the kernel chooses")
	}
	if a.Data.Address.IsValid() && a.Data.Address.IsUnspecified() {
		k.fail("data.address", "every address", "one address of one interface: it is what other agents and switches are told")
	}
	if !a.Data.Address.IsValid() && a.Control.Listen.Addr().IsUnspecified() {
		k.fail("data.address", "missing", "write the address for data, since control.listen names none")
	}
	if c := int(a.Control.Listen.Port()); p.First != 0 && c >= int(p.First) && c <= int(p.Last) {
		k.fail("data.ports", "contains the port of control.listen", "a range without that port")
	}
}
