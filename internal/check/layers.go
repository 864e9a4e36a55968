package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Layer says what the packages of one folder may import from this module.
type Layer struct {
	// Dir is a folder; the layer covers it and everything below it that has no
	// longer entry of its own.
	Dir string
	// May lists folders; each stands for itself and everything below it. What a
	// layer holds may always import the rest of the same Dir.
	May []string
	// Only lists the folder itself, without what lies below it.
	Only []string
	// Tests lists what test files may import beyond that.
	Tests []string
}

// Layers is the map of the module from the bottom up. ARCHITECTURE.md draws it.
// A package that no entry covers is a problem: new folders get their place here.
func Layers() []Layer {
	return []Layer{
		{Dir: "internal"},

		{Dir: "openflow"},
		{Dir: "event", May: []string{"store"}},
		{Dir: "store"},
		{Dir: "pki"},
		{Dir: "ovsdb"},

		{Dir: "network/graph"},
		{Dir: "network/packet", May: []string{"openflow"}},
		{Dir: "network", May: []string{"openflow", "event"}},

		{Dir: "sos/wire"},
		{Dir: "sos/pathrate"},
		{Dir: "sos/agentapi", May: []string{"service/control"}},
		{Dir: "sos/agent", May: []string{"sos/wire", "sos/pathrate", "sos/agentapi", "service/control", "pki"}},
		{
			Dir:   "sos/plugin",
			May:   []string{"sos/agentapi", "network", "openflow", "event", "service", "store"},
			Only:  []string{"api"},
			Tests: []string{"pki", "sos/agent"},
		},

		{Dir: "handover/registry", May: []string{"openflow", "network", "service", "store"}},
		{Dir: "handover/dhcp", May: []string{"openflow", "network", "handover/registry"}, Tests: []string{"store"}},
		{Dir: "handover/route", May: []string{"openflow", "network"}},
		{Dir: "handover/predict", May: []string{"network"}, Tests: []string{"openflow"}},
		{Dir: "handover/domain", May: []string{"handover/registry", "network", "openflow", "pki", "service", "store"}, Only: []string{"api"}},
		{
			Dir: "handover/plugin",
			May: []string{
				"handover/registry", "handover/dhcp", "handover/route", "handover/predict", "handover/domain",
				"network", "openflow", "event", "service", "store", "pki",
			},
			Only: []string{"api"},
		},
		{Dir: "handover/mobile", May: []string{"handover/dhcp", "network", "openflow", "pki"}, Only: []string{"api/client"}, Tests: []string{"store", "handover/registry"}},

		{Dir: "qos/match", May: []string{"openflow", "network", "service"}},
		{Dir: "qos/mark"},
		{Dir: "qos/reserve", May: []string{"network", "openflow"}},
		{Dir: "qos/flowpath", May: []string{"qos/match", "network", "openflow"}},
		{Dir: "qos/guard", May: []string{"qos/reserve", "network", "openflow", "service"}},
		{Dir: "qos/subflow", May: []string{"qos/guard", "qos/match", "qos/reserve", "qos/flowpath", "network", "openflow", "service", "store"}, Only: []string{"api"}},
		{Dir: "qos/bandwidth", May: []string{"qos/guard", "qos/match", "qos/reserve", "qos/flowpath", "network", "openflow", "service", "store"}, Only: []string{"api"}},
		{
			Dir:  "qos/latency",
			May:  []string{"qos/match", "qos/reserve", "qos/mark", "ovsdb", "network", "openflow", "event", "service", "store"},
			Only: []string{"api"},
		},
		{Dir: "qos/hostagent"},
		{Dir: "qos/classifier", May: []string{"qos/mark", "ovsdb"}},
		{
			Dir:  "qos/plugin",
			May:  []string{"qos/match", "qos/reserve", "qos/flowpath", "qos/guard", "qos/bandwidth", "qos/latency", "qos/subflow", "network", "openflow", "event", "service", "store"},
			Only: []string{"api"},
		},

		{Dir: "cinema/gatewayapi", May: []string{"service/control"}},
		{Dir: "cinema/media"},
		{
			Dir: "cinema/egress", May: []string{"cinema/gatewayapi", "cinema/media", "service/control", "pki"},
			Only: []string{"api/client"},
		},
		{Dir: "cinema/ingress", May: []string{"cinema/gatewayapi", "cinema/media", "service/control", "pki"}},
		{Dir: "cinema/tree", May: []string{"network", "openflow", "service"}},
		{
			Dir:  "cinema/plugin",
			May:  []string{"cinema/gatewayapi", "cinema/tree", "network", "openflow", "event", "service", "store", "pki"},
			Only: []string{"api"},
		},

		{Dir: "mobilityfirst/frame"},
		{Dir: "mobilityfirst/stream", May: []string{"mobilityfirst/frame"}},
		{Dir: "mobilityfirst/rawlink", May: []string{"mobilityfirst/frame", "openflow"}},
		{Dir: "mobilityfirst/hostapi", May: []string{"mobilityfirst/frame"}},
		{
			Dir: "mobilityfirst/host",
			May: []string{"mobilityfirst/frame", "mobilityfirst/stream", "mobilityfirst/rawlink", "mobilityfirst/record", "mobilityfirst/hostapi", "mobilityfirst/custody", "mobilityfirst/udplink", "openflow"},
		},
		{Dir: "mobilityfirst/udplink", May: []string{"mobilityfirst/rawlink", "openflow"}},
		{Dir: "mobilityfirst/custody", May: []string{"mobilityfirst/frame", "mobilityfirst/record"}},
		{
			Dir: "mobilityfirst/content", May: []string{"mobilityfirst/frame", "mobilityfirst/record", "mobilityfirst/hostapi"},
			Tests: []string{"mobilityfirst/host", "mobilityfirst/hosttest"},
		},
		{
			Dir:   "mobilityfirst/compute",
			May:   []string{"mobilityfirst/frame", "mobilityfirst/custody", "mobilityfirst/record", "mobilityfirst/hostapi"},
			Tests: []string{"mobilityfirst/host", "mobilityfirst/hosttest"},
		},
		{
			Dir:   "mobilityfirst/storage",
			May:   []string{"mobilityfirst/frame", "mobilityfirst/custody", "mobilityfirst/hostapi", "mobilityfirst/nodeapi"},
			Tests: []string{"mobilityfirst/host", "mobilityfirst/hosttest", "mobilityfirst/record"},
		},
		{Dir: "mobilityfirst/nodeapi", May: []string{"mobilityfirst/frame", "mobilityfirst/record", "openflow", "service/control"}},
		{
			Dir:  "mobilityfirst/plugin",
			May:  []string{"mobilityfirst/frame", "mobilityfirst/record", "mobilityfirst/nodeapi", "network", "openflow", "event", "service", "store"},
			Only: []string{"api"},
		},
		{
			Dir:   "mobilityfirst/access",
			May:   []string{"mobilityfirst/frame", "mobilityfirst/record", "mobilityfirst/rawlink", "mobilityfirst/host", "mobilityfirst/hostapi", "openflow"},
			Tests: []string{"mobilityfirst/hosttest", "mobilityfirst/mf1test"},
		},
		{Dir: "mobilityfirst/mf1test", May: []string{"mobilityfirst/frame", "mobilityfirst/host", "openflow"}},
		{Dir: "mobilityfirst/hosttest", May: []string{"mobilityfirst/host", "mobilityfirst/hostapi"}},
		{Dir: "mobilityfirst/proxy", May: []string{"mobilityfirst/frame", "mobilityfirst/hostapi"}, Tests: []string{"mobilityfirst/host", "mobilityfirst/hosttest"}},
		{Dir: "mobilityfirst/gnrswire", May: []string{"mobilityfirst/frame"}},
		{Dir: "mobilityfirst/record", May: []string{"mobilityfirst/frame", "mobilityfirst/gnrswire"}},
		{Dir: "mobilityfirst/namestore", May: []string{"mobilityfirst/frame", "mobilityfirst/record"}, Tests: []string{"mobilityfirst/gnrswire"}},
		{
			Dir: "mobilityfirst/redisnames", May: []string{"mobilityfirst/frame", "mobilityfirst/record", "mobilityfirst/namestore"},
			Tests: []string{"mobilityfirst/gnrswire", "mobilityfirst/gnrs", "pki"},
		},
		{
			Dir: "mobilityfirst/replicas", May: []string{"mobilityfirst/frame", "mobilityfirst/gnrswire", "mobilityfirst/record", "mobilityfirst/gnrs"},
			Tests: []string{"mobilityfirst/namestore"},
		},
		{
			Dir: "mobilityfirst/nameservice", May: []string{"mobilityfirst/gnrs", "mobilityfirst/namestore", "mobilityfirst/redisnames", "mobilityfirst/replicas", "service", "pki"},
			Tests: []string{"mobilityfirst/frame", "mobilityfirst/record"}, Only: []string{"api"},
		},
		{Dir: "mobilityfirst/gnrs", May: []string{"mobilityfirst/frame", "mobilityfirst/gnrswire", "mobilityfirst/record"}, Tests: []string{"mobilityfirst/namestore"}},

		{Dir: "service/control", Only: []string{"api/client"}},
		{Dir: "service", May: []string{"network", "openflow", "pki", "store"}, Only: []string{"api"}, Tests: []string{"event"}},
		{Dir: "api", May: []string{"event", "store", "pki"}},
		{Dir: "api/conformance", Tests: []string{"api", "network", "openflow", "pki"}},
		{Dir: "dashboard"},
		{Dir: "config", May: []string{"openflow", "network", "pki", "service", "sos", "handover", "qos", "cinema", "mobilityfirst", "ovsdb"}},
		{
			Dir: "controller",
			May: []string{"openflow", "network", "event", "store", "pki", "config", "api", "dashboard", "service", "sos", "handover", "qos", "cinema", "mobilityfirst", "ovsdb"},
		},

		{
			Dir: "cli",
			May: []string{"openflow", "network", "event", "store", "pki", "config", "api", "service", "sos", "handover", "qos", "cinema", "mobilityfirst", "controller"},
		},
		{Dir: "cmd/sluice", May: []string{"cli"}},
		// The module of the laboratory. The networks that it makes know nothing of the product.
		{Dir: "lab"},
		{Dir: "lab/loadgen", May: []string{"network", "openflow"}},
		{Dir: "lab/hostile", May: []string{"network", "openflow"}},
		{Dir: "lab/testbed", May: []string{"lab", "api", "cinema", "handover", "mobilityfirst", "network", "openflow", "pki", "qos", "service", "sos"}},
		{Dir: "lab/experiment", May: []string{"lab", "api", "cinema", "handover", "mobilityfirst", "network", "openflow", "pki", "qos", "service", "sos"}},
		{Dir: "lab/soak", May: []string{"lab", "network", "sos", "handover", "qos"}},
		{Dir: "lab/demo", May: []string{"lab", "sos", "handover", "cinema"}},
		{Dir: "lab/cli", May: []string{"cli/command", "cli/doctor", "lab", "network", "openflow"}},
		{Dir: "lab/cmd/sluice-lab", May: []string{"lab/cli"}},

		// The module of the live suites, which may use everything.
		{Dir: "test", Tests: []string{"lab", "config", "controller", "event", "ovsdb", "store", "cli", "api", "cinema", "handover", "mobilityfirst", "network", "openflow", "pki", "qos", "service", "sos"}},

		{
			Dir:   "examples",
			May:   []string{"api", "cli", "controller", "event", "network", "openflow", "service"},
			Tests: []string{"lab", "pki", "store"},
		},
	}
}

// CheckLayers finds imports that the map does not allow.
func CheckLayers(t *Tree, layers []Layer) []Problem {
	var problems []Problem
	for _, f := range t.Files {
		layer, ok := layerOf(layers, f.Dir())
		if !ok {
			problems = append(problems, Problem{Path: f.Path, Text: "folder is not on the map of layers in internal/check/layers.go"})
			continue
		}
		for _, spec := range f.AST.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				continue // the parser has accepted it; cannot happen
			}
			target, ours := strings.CutPrefix(path, t.Module+"/")
			if !ours || layer.allows(layers, target, f.Test()) {
				continue
			}
			problems = append(problems, Problem{
				Path: f.Path,
				Line: t.Line(spec.Pos()),
				Text: fmt.Sprintf("%s must not import %s", f.Dir(), target),
			})
		}
	}
	return problems
}

// layerOf picks the entry with the longest folder that covers dir.
func layerOf(layers []Layer, dir string) (Layer, bool) {
	best, found := Layer{}, false
	for _, l := range layers {
		if within(dir, l.Dir) && (!found || len(l.Dir) > len(best.Dir)) {
			best, found = l, true
		}
	}
	return best, found
}

func (l Layer) allows(layers []Layer, target string, test bool) bool {
	if within(target, "internal") {
		return true
	}
	own, ok := layerOf(layers, target)
	if ok && own.Dir == l.Dir {
		return true
	}
	allowed := l.May
	if test {
		allowed = slices.Concat(l.May, l.Tests)
	}
	if slices.ContainsFunc(allowed, func(dir string) bool { return within(target, dir) }) {
		return true
	}
	// A folder may use the parts it is made of: network uses network/graph.
	return within(target, l.Dir) || slices.Contains(l.Only, target)
}

// within reports whether dir is root or lies below it.
func within(dir, root string) bool {
	return dir == root || strings.HasPrefix(dir, root+"/")
}
