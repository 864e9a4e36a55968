package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/strictyaml"
)

// wrong is one kind of wrong input: what it says, and what the refusal must
// name.
type wrong struct {
	name string
	text string
	line int
	key  string
	// value is part of what is shown as given, want part of what would be
	// right.
	value, want string
}

// controllerWrongs are inputs that "sluice config check" refuses.
var controllerWrongs = []wrong{
	{"not YAML", "api: [", 1, "", "", "key: value"},
	{"tab for indentation", "api:\n\tlisten: x", 2, "", "", "indented by spaces"},
	{"a list for the file", "- a\n- b", 1, "", "a list", "write \"key: value\" lines"},
	{"a word for the file", "hello", 1, "", `"hello"`, "key: value"},
	{"two documents", "log: {level: info}\n---\nlog: {level: info}", 2, "", "", "one document"},
	{"unknown section", "openflw: {}", 1, "openflw", "", `did you mean "openflow"?`},
	{"unknown key", "api:\n  lisen: 127.0.0.1:1", 2, "api.lisen", "", `did you mean "listen"?`},
	{"unknown key unlike any", "log:\n  colour: red", 2, "log.colour", "", "known here: level, format"},
	{"unknown key of a service", "sample: {name: x}", 1, "sample.name", "", "known here"},
	{"what a service refuses", "sample: {limit: 7}", 1, "sample.limit", "7", "an even number"},
	{"merge key", "api:\n  <<: {listen: 127.0.0.1:1}", 2, "api.<<", "", "known here"},
	{"alias", "log: &l {level: info}\napi: *l", 2, "api", "", "write out"},
	{"repeated section", "log: {level: info}\nlog: {level: warn}", 2, "log", "", "keep one"},
	{"repeated key", "log:\n  level: info\n  level: warn", 3, "log.level", "", "line 2"},
	{"value for a section", "api: 127.0.0.1:8080", 1, "api", "127.0.0.1:8080", "below it"},
	{"list for a section", "api: []", 1, "api", "a list", "below it"},
	{"section for a value", "log: {level: {a: b}}", 1, "log.level", "a mapping", "one of debug"},
	{"no value", "log:\n  level:", 2, "log.level", "nothing", "leave the key out"},
	{"word that is none of the words", "log:\n  level: loud", 2, "log.level", "loud", "debug, info, warn, error"},
	{"number for text", "data_dir: 12", 1, "data_dir", "12", "absolute path"},
	{"relative path", "data_dir: state", 1, "data_dir", "state", "absolute path"},
	{"empty path", `data_dir: ""`, 1, "data_dir", "", "absolute path"},
	{"text for a truth value", "api:\n  open_reads: often", 2, "api.open_reads", "often", "true or false"},
	{"yes for true", "api:\n  open_reads: yes", 2, "api.open_reads", "yes", "true or false"},
	{"text for a number", "events: {remember: many}", 1, "events.remember", "many", "whole number"},
	{"fraction for a whole number", "events: {remember: 16.5}", 1, "events.remember", "16.5", "whole number"},
	{"number too small", "events: {remember: 1}", 1, "events.remember", "1", "from 16 to 1000000"},
	{"number too large", "openflow: {max_switches: 99999}", 1, "openflow.max_switches", "99999", "from 1 to 10000"},
	{"number that overflows", "events: {remember: 99999999999999999999}", 1, "events.remember", "9999", "whole number"},
	{"duration without unit", "network: {stats_interval: 5}", 1, "network.stats_interval", "5", "10s"},
	{"duration out of range", "network: {stats_interval: 1ms}", 1, "network.stats_interval", "1ms", "from 1s to 1m"},
	{"database that is none", "ovsdb: {address: 'ssl:{adress}:6640'}", 1, "ovsdb.address", "adress", "ssl:{address}:6640"},
	{"database with ssl but no certificate", "ovsdb: {address: 'ssl:{address}:6640'}", 1, "ovsdb.address", "", "ovsdb.tls.cert"},
	{"database without TLS", "ovsdb: {switches: {00000000000000a1: 'tcp:192.0.2.1:6640'}}", 1, "ovsdb.switches.00000000000000a1", "192.0.2.1", "plaintext"},
	{"sFlow without a place", "network: {measure: both}", 1, "network.sflow.listen", "", "address and port"},
	{"a place for sFlow that is not used", "network: {sflow: {listen: '127.0.0.1:6343'}}", 1, "network.sflow.listen", "127.0.0.1:6343", "sflow or both"},
	{"a collector that nobody is told of", "network: {measure: sflow, sflow: {listen: '127.0.0.1:6343', collector: '192.0.2.9:6343'}}", 1, "network.sflow.collector", "192.0.2.9", "ovsdb.address"},
	{"a way of measuring that is none", "network: {measure: guess}", 1, "network.measure", "guess", "poll, sflow, both"},
	{"a role that is none", "api: {tls: {roles: {alice: admin}}}", 1, "api.tls.roles.alice", "admin", "controller, agent, switch, operator, neighbour, node"},
	{"roles of a cluster", "store: {kind: etcd, endpoints: ['https://127.0.0.1:1'], tls: {ca: /dev/null, roles: {a: controller}}}", 1, "store.tls.roles", "", "remove it"},
	{"roles without an authority", "api: {tls: {roles: {alice: operator}}}", 1, "api.tls.roles", "", "api.tls.ca"},
	{"a role of a port that is none", "network: {switches: {00000000000000a1: {roles: {3: acess}}}}", 1, "network.switches.00000000000000a1.roles.3", "acess", "access, uplink, trunk"},
	{"a role of no port", "network: {switches: {00000000000000a1: {roles: {0: access}}}}", 1, "network.switches.00000000000000a1.roles", "", "ports from 1"},
	{"a role of a port without a number", "network: {switches: {00000000000000a1: {roles: {eth0: access}}}}", 1, "network.switches.00000000000000a1.roles", "eth0", "whole number"},
	{"too little time to answer", "network: {hosts: {confirm: 1ms}}", 1, "network.hosts.confirm", "1ms", "from 50ms"},
	{"negative duration", "network: {forwarding: {idle_timeout: -10s}}", 1, "network.forwarding.idle_timeout", "-10s", "from 1s"},
	{"a mode of forwarding that is none", "network: {forwarding: {mode: eager}}", 1, "network.forwarding.mode", "eager", "reactive, proactive"},
	{"proactive forwarding by what changes", "network: {forwarding: {mode: proactive, metric: latency}}", 1, "network.forwarding.metric", "latency", "hops or capacity"},
	{"proactive forwarding that is off", "network: {forwarding: {enabled: false, mode: proactive}}", 1, "network.forwarding.mode", "proactive", "enabled"},
	{"unequal paths of reactive forwarding", "network: {forwarding: {unequal: true}}", 1, "network.forwarding.unequal", "true", "proactive"},
	{"unequal paths that are all equal", "network: {forwarding: {mode: proactive, unequal: true}}", 1, "network.forwarding.unequal", "true", "capacity"},
	{"prefixes of reactive forwarding", "network: {forwarding: {prefixes: {10.1.0.0/16: 00000000000000a1}}}", 1, "network.forwarding.prefixes", "", "proactive"},
	{"a prefix with too many bits", "network: {forwarding: {mode: proactive, prefixes: {10.1.0.1/16: 00000000000000a1}}}", 1, "network.forwarding.prefixes.10.1.0.1/16", "", "10.1.0.0/16"},
	{"size with an unknown unit", "api: {max_body: 1Mib}", 1, "api.max_body", "1Mib", "4MiB"},
	{"size too large", "api: {max_body: 1GiB}", 1, "api.max_body", "1GiB", "from 1KiB to 64MiB"},
	{"address without port", "api: {listen: 127.0.0.1}", 1, "api.listen", "127.0.0.1", "address and port"},
	{"name for an address", "api: {listen: 'controller:8080'}", 1, "api.listen", "controller:8080", "address and port"},
	{"port out of range", "api: {listen: '127.0.0.1:70000'}", 1, "api.listen", "70000", "address and port"},
	{"empty address", "api: {listen: ''}", 1, "api.listen", "", "address and port"},
	{"value for a list", "openflow: {listen: '127.0.0.1:6653'}", 1, "openflow.listen", "6653", "write a list"},
	{"empty list", "openflow: {listen: []}", 1, "openflow.listen", "", "at least one"},
	{"wrong element of a list", "openflow:\n  listen:\n    - 127.0.0.1:6653\n    - nowhere", 4, "openflow.listen[1]", "nowhere", "address and port"},
	{"name for a prefix", "network: {hosts: {subnets: [campus]}}", 1, "network.hosts.subnets[0]", "campus", "192.0.2.0/24"},
	{"wrong datapath id", "network:\n  switches:\n    edge1: {}", 3, "network.switches", "edge1", "16 hex digits"},
	{"unknown key of a switch", "network:\n  switches:\n    00000000000000a1: {rewrites: l2}", 3, "network.switches.00000000000000a1.rewrites", "", "rewrite"},
	{"tables that do not rise", "network: {switches: {00000000000000a1: {tables: {classify: 0, service: 2, route: 1}}}}", 1, "network.switches.00000000000000a1.tables", "", "rise from 0"},
	{"a table too few", "network: {switches: {00000000000000a1: {tables: {classify: 0, route: 1}}}}", 1, "network.switches.00000000000000a1.tables", "", "rise from 0"},
	{"an unknown table", "network: {switches: {00000000000000a1: {tables: {classify: 0, service: 1, route: 2, miss: 3}}}}", 1, "network.switches.00000000000000a1.tables", "", "rise from 0"},
	{"two tables", "network: {switches: {00000000000000a1: {tables: 2}}}", 1, "network.switches.00000000000000a1.tables", "2", "rise from 0"},
	{"wrong name of a switch", "network: {switches: {00000000000000a1: {name: a b}}}", 1, "network.switches.00000000000000a1.name", "a b", "letters, digits"},
	{"API beyond loopback without TLS", "api: {listen: '0.0.0.0:8080'}", 1, "api.listen", "0.0.0.0:8080", "api.tls.cert"},
	{"open reads beyond loopback", "api: {listen: ':8080', open_reads: true, tls: {cert: FILE, key: FILE}}", 1, "api.open_reads", "true", "loopback"},
	{"certificate without key", "api:\n  tls:\n    cert: FILE", 3, "api.tls.cert", "", "belong together"},
	{"file that is not there", "api:\n  tls: {cert: /nowhere/cert.pem, key: FILE}", 2, "api.tls.cert", "/nowhere/cert.pem", "file that is there"},
	{"folder for a file", "api:\n  tls: {cert: FILE, key: /}", 2, "api.tls.key", "/", "path of a file"},
	{"certificate without authority", "agents: {tls: {cert: FILE, key: FILE}}", 1, "agents.tls.ca", "", "authority"},
	{"switches beyond loopback without TLS", "openflow: {listen: ['0.0.0.0:6653']}", 1, "openflow.listen", "", "plaintext: true"},
	{"certificates bound, but none asked for", "openflow: {bind_certificates: true}", 1, "openflow.bind_certificates", "true", "openflow.tls.cert"},
	{"TLS and plaintext", "openflow: {plaintext: true, tls: {cert: FILE, key: FILE, ca: FILE}}", 1, "openflow.plaintext", "true", "one of the two"},
	{"timeout not above interval", "openflow: {echo_interval: 10s, echo_timeout: 10s}", 1, "openflow.echo_timeout", "10s", "more than openflow.echo_interval"},
	{"link timeout below two probes", "network:\n  discovery:\n    interval: 10s", 2, "network.discovery.timeout", "", "at least twice"},
	{"two servers on one address", "api: {listen: '127.0.0.1:6653'}", 0, "openflow.listen", "", "of its own"},
	{"cluster without endpoints", "store:\n  kind: etcd", 1, "store.endpoints", "", "https://10.0.0.1:2379"},
	{"endpoints without cluster", "store:\n  endpoints: [http://10.0.0.1:2379]", 2, "store.endpoints", "", "store.kind to etcd"},
	{"endpoint that is no URL", "store: {kind: etcd, endpoints: ['10.0.0.1:2379']}", 1, "store.endpoints[0]", "10.0.0.1:2379", "a URL"},
	{"user without password", "store: {kind: etcd, endpoints: ['http://h:1'], username: me}", 1, "store.username", "me", "belong together"},
}

// agentWrongs are inputs for an agent; each has valid certificates added.
var agentWrongs = []wrong{
	{"name with a space", "name: my agent", 1, "name", "my agent", "letters, digits"},
	{"too many connections", "transfer: {connections: 65}", 1, "transfer.connections", "65", "from 0 to 64"},
	{"chunk too small", "transfer: {chunk: 1KiB}", 1, "transfer.chunk", "1KiB", "from 4KiB"},
	{"congestion control that is no name", "transfer: {congestion: 'BBR v3'}", 1, "transfer.congestion", "BBR v3", "bbr or cubic"},
	{"address that is none", "data: {address: agent1}", 1, "data.address", "agent1", "192.0.2.1"},
	{"every address", "data: {address: 0.0.0.0}", 1, "data.address", "0.0.0.0", "one address"},
	{"port range upside down", "data: {ports: 4000-3000}", 1, "data.ports", "4000-3000", "40000-40999"},
	{"too many ports", "data: {ports: 4000-4064}", 1, "data.ports", "4000-4064", "at most 64"},
	{"ports over the control port", "data: {ports: 8430-8445}", 1, "data.ports", "8430-8445", "without that port"},
	{"address with a zone", "data: {address: 'fe80::1%eth0'}", 1, "data.address", "fe80::1%eth0", "without a zone"},
	{"second address of the same family", "data: {address: 192.0.2.1, second_address: 192.0.2.2}", 1, "data.second_address", "192.0.2.2", "of the other family"},
	{"announcement over plain HTTP", "announce: {server: 'http://c:8080'}", 1, "announce.server", "http://c:8080", "https://"},
	{"announcement to nobody", "announce: {url: 'https://a:1'}", 1, "announce.server", "", "name the controller"},
	{"key of the controller's", "openflow: {}", 1, "openflow", "", "known here"},
}

func checkWrong(t *testing.T, w wrong, err error) {
	t.Helper()
	var all Problems
	if !errors.As(err, &all) {
		t.Fatalf("accepted (%v)", err)
	}
	if len(all) != 1 {
		t.Errorf("%d problems, want one:\n%v", len(all), err)
	}
	p := all[0]
	if w.line > 0 && (p.Line != w.line || p.Source != "f.yaml") {
		t.Errorf("reported at %s:%d, want line %d", p.Source, p.Line, w.line)
	}
	if p.Key != w.key || !strings.Contains(p.Value, w.value) || !strings.Contains(p.Want, w.want) || p.Wrong == "" {
		t.Errorf("key %q, value %q, want %q\nis  key %q, value %q, want %q: %s", w.key, w.value, w.want, p.Key, p.Value, p.Want, p)
	}
}

func TestControllerRefuses(t *testing.T) {
	if len(controllerWrongs) < 30 {
		t.Errorf("%d kinds of wrong input, want at least 30", len(controllerWrongs))
	}
	file := someFile(t)
	for _, w := range controllerWrongs {
		t.Run(w.name, func(t *testing.T) {
			text := strings.ReplaceAll(w.text, "FILE", file)
			checkWrong(t, w, Parse(Sources{File: "f.yaml"}, []byte(text), sampleController()))
		})
	}
}

func TestAgentRefuses(t *testing.T) {
	file := someFile(t)
	for _, w := range agentWrongs {
		t.Run(w.name, func(t *testing.T) {
			text := w.text + "\ncontrol: {tls: {cert: FILE, key: FILE, ca: FILE}}\n"
			text = strings.ReplaceAll(text, "FILE", file)
			checkWrong(t, w, Parse(Sources{File: "f.yaml"}, []byte(text), DefaultAgent()))
		})
	}
}

func someFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "some.pem")
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestOutsideRefuses(t *testing.T) {
	for _, c := range []struct {
		name     string
		env, set string
		want     Problem
	}{
		{"variable of no setting", "SLUICE_API_LISEN=x", "", Problem{Source: "environment", Key: "SLUICE_API_LISEN", Want: `did you mean "SLUICE_API_LISTEN"?`}},
		{"wrong value of a variable", "SLUICE_LOG_LEVEL=loud", "", Problem{Source: "environment", Key: "log.level", Want: "one of debug"}},
		{"wrong type in a variable", "SLUICE_EVENTS_REMEMBER=many", "", Problem{Source: "environment", Key: "events.remember", Want: "whole number"}},
		{"contradiction by a variable", "SLUICE_API_LISTEN=:80", "", Problem{Source: "environment", Key: "api.listen", Want: "api.tls.cert"}},
		{"flag of no setting", "", "log.levl=x", Problem{Source: "flags", Key: "log.levl", Want: `did you mean "log.level"?`}},
		{"flag without value", "", "log.level", Problem{Source: "flags", Key: "log.level", Want: "KEY=VALUE"}},
		{"wrong value of a flag", "", "events.remember=2", Problem{Source: "flags", Key: "events.remember", Want: "from 16"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Sources{}
			if c.env != "" {
				s.Env = []string{c.env}
			}
			if c.set != "" {
				s.Set = []string{c.set}
			}
			_, err := loadSample(s)
			var all Problems
			if !errors.As(err, &all) || len(all) != 1 {
				t.Fatalf("want one problem: %v", err)
			}
			if p := all[0]; p.Source != c.want.Source || p.Key != c.want.Key || !strings.Contains(p.Want, c.want.Want) {
				t.Errorf("got %s, want %s", p, c.want)
			}
		})
	}
}

func TestFileErrors(t *testing.T) {
	if _, err := loadSample(Sources{File: "/nowhere/c.yaml"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	big := filepath.Join(t.TempDir(), "big.yaml")
	if err := os.WriteFile(big, make([]byte, strictyaml.MaxBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadSample(Sources{File: big}); err == nil || !strings.Contains(err.Error(), "4 MiB") {
		t.Errorf("huge file: %v", err)
	}
}
